"""Rules, queries, the schema and the LMR's pages in a real browser: editing, drawing, replay."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from mdv.client import Client
from tests.support.browser_visit import Visit

DOC = "http://mdv.example/doc.rdf"
SCHEMA = "http://mdv.example/schema#"
EITHER = "search CycleProvider c register c where c.serverInformation.memory > 64 or c.serverInformation.cpu > 500"
SCRIPT = '<script>document.title = "broken"</script><img src=x onerror="document.title=0+\'broken\'">'

PAGES = [
    "/rules",
    f"/rules?rule={EITHER}",
    "/rules?rule=search Nonsense n register n",
    "/rules?id={rule}",
    "/rules/registered",
    "/rules/graph",
    "/rules/atomic/1",
    "/rules/replay",
    f"/rules/replay?document={DOC}&step=1",
    f"/rules/replay?document={DOC}&rule={{rule}}&step=3",
    "/query",
    "/query?q=search CycleProvider c return c, c.serverHost, c.serverPort order by c.serverHost",
    "/query?q=search CycleProvider c register c",
    "/query?q=search CycleProvider c return c.nonsense",
    "/query/saved",
    "/schema",
    "/schema/versions",
    "/schema/change",
]
OWN = [
    "/",
    "/cache",
    f"/cache/instances?class={SCHEMA}CycleProvider".replace("#", "%23"),
    f"/resource?uri={DOC}%23host",
    f"/resource?uri={DOC}%23info",
    "/resource?uri=http://mdv.example/not-here",
    "/query",
    "/query?q=search CycleProvider c return c, c.serverHost",
    "/subscriptions",
    "/local",
    "/local/put",
]


@pytest.fixture(scope="module")
def rule(mdp: Client) -> int:
    """The number of the demo's rule, which is the paper's."""
    return int(mdp.get("/lmrs/local/subscriptions")["items"][0]["id"])


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_accessible_and_without_errors(visit: Visit, rule: int, path: str) -> None:
    page = visit.to(path.replace("{rule}", str(rule)))
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    for figure in page.locator("figure.graph").all():
        expect(figure.locator(".canvas canvas").first).to_be_attached()
    left, right, width = page.evaluate("""() => { const box = document.querySelector('.top nav a[aria-current]')
        .getBoundingClientRect(); return [box.left, box.right, window.innerWidth] }""")
    assert 0 <= left < right <= width, "the current section is not visible"
    visit.check()


@pytest.mark.parametrize("path", OWN)
def test_a_page_of_the_lmr_is_accessible_and_without_errors(own: Visit, path: str) -> None:
    page = own.to(path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    own.check()


def drawn(page: Page) -> dict[str, Any]:
    """Return the drawing's content: the text of each box, and how it is highlighted."""
    script = """() => { const cy = document.querySelector('figure.graph').cy; return Object.fromEntries(
        cy.nodes().filter(node => !node.isParent()).map(node => [node.id(), [node.data('label'), node.classes()]])) }"""
    return dict(page.evaluate(script))


def editor(page: Page) -> Locator:
    return page.get_by_role("textbox", name="The rule")


def write(page: Page, field: Locator, text: str) -> None:
    """Replace the text as a user does: clear it, then type."""
    field.click()
    page.keyboard.press("Control+A")
    page.keyboard.press("Backspace")
    page.keyboard.insert_text(text)


def test_a_rule_is_checked_while_it_is_typed(desk: Visit) -> None:
    page = desk.to("/rules")
    write(page, editor(page), "search CycleProvider c register c where c.serverHots = 'x'")
    expect(page.get_by_role("alert")).to_contain_text("serverHots")
    expect(page.locator(".cm-lint-marker-error")).to_be_visible()
    expect(page.locator(".cm-lintRange-error")).to_have_text("serverHots")
    desk.check()
    write(page, editor(page), EITHER)
    expect(page.locator("#look").get_by_role("status").first).to_contain_text("match now")
    expect(page.locator(".cm-lint-marker-error")).to_have_count(0)
    expect(page.locator("figure.graph.drawn")).to_be_visible()
    assert sorted(label.partition("\n")[2] for label, _ in drawn(page).values()) == [
        "c.serverInformation = a", "c.serverInformation = a", "s.cpu > 500", "s.memory > 64", "search CycleProvider",
    ]  # fmt: skip
    desk.check()


def test_the_written_rule_is_restored_when_the_user_comes_back(desk: Visit) -> None:
    page = desk.to("/rules")
    write(page, editor(page), EITHER)
    expect(page.locator("#look").get_by_role("status").first).to_contain_text("match now")
    page.get_by_role("link", name="Run as a query").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Query")
    page.go_back()
    expect(editor(page)).to_have_text(EITHER)
    page.get_by_role("button", name="Decompose").click()
    expect(page.get_by_text("match now")).to_be_visible()
    page.get_by_role("link", name="Schema").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Schema")
    page.go_back()
    expect(editor(page)).to_have_text(EITHER)
    desk.check()


def test_named_rules_are_completed_and_a_long_query_does_not_block_the_editor(desk: Visit, mdp: Client) -> None:
    rule = {"rule": "search ServerInformation s register s where s.memory > 3", "name": "roomy"}
    mdp.change("POST", "/lmrs/local/subscriptions", rule)
    page = desk.to("/rules?rule=search")
    page.get_by_label("LMR").select_option("local")
    offered = page.locator(".cm-tooltip-autocomplete li .cm-completionLabel")
    editor(page).click()
    page.keyboard.press("Control+End")
    page.keyboard.type(" room", delay=20)
    expect(offered.first).to_have_text("roomy")
    page.keyboard.press("Escape")
    page.keyboard.type("y r register r where r.", delay=20)
    expect(offered).to_have_text(["cpu", "memory"])
    page = desk.to("/query")
    paths = ",\n".join(["c.serverHost"] * 12)
    write(page, page.get_by_role("textbox", name="Query"), f"search CycleProvider c\nreturn {paths}\n")
    page.keyboard.type(" lim", delay=20)
    expect(offered.first).to_have_text("limit")


def test_names_of_the_schema_are_completed(desk: Visit) -> None:
    page = desk.to("/rules?rule=search CycleProvider c register c where c")
    editor(page).click()
    page.keyboard.press("Control+End")
    page.keyboard.type(".serverI", delay=20)
    expect(page.locator(".cm-tooltip-autocomplete li").first).to_contain_text("serverInformation")
    page.wait_for_timeout(200)  # wait, so that a new suggestion is not accepted by accident
    page.keyboard.press("Enter")
    page.keyboard.type(".", delay=20)
    offered = page.locator(".cm-tooltip-autocomplete li .cm-completionLabel")
    expect(offered).to_have_text(["cpu", "memory"])
    page.wait_for_timeout(200)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type(" > 64")
    expect(editor(page)).to_have_text("search CycleProvider c register c where c.serverInformation.memory > 64")
    desk.check()


def test_a_written_rule_is_subscribed(desk: Visit, mdp: Client) -> None:
    page = desk.to("/rules")
    write(page, editor(page), "search ServerInformation s register s where s.memory = 4711")
    expect(page.locator("#look").get_by_role("status").first).to_contain_text("0 resources match now")
    page.get_by_role("button", name="Subscribe").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("ubscribed")
    assert any("4711" in item["rule"] for item in mdp.get("/lmrs/local/subscriptions")["items"])
    desk.check()


def test_the_replay_of_figure_9_is_shown_in_the_drawing_of_figure_5(desk: Visit, rule: int) -> None:
    page = desk.to(f"/rules/replay?document={DOC}&rule={rule}")
    expect(page.locator("figure.graph.drawn")).to_be_visible()

    def standing_out(name: str) -> dict[str, list[str]]:
        return {label.split("\n")[1]: label.split("\n→ ")[1:] for label, marks in drawn(page).values() if name in marks}

    assert standing_out("now") == standing_out("lit") == {}
    assert page.locator(".iteration.ahead tbody").first.bounding_box() is None, "iterations still to come take space"
    page.get_by_role("link", name="Next step").click()
    expect(page.locator("[data-status]")).to_have_text("Step 1 of 3")
    triggered = {"s.memory > 64": ["doc.rdf#info"], "s.cpu > 500": ["doc.rdf#info"],
                 "c.serverHost contains": ["doc.rdf#host"]}  # fmt: skip
    assert standing_out("now") == triggered
    page.get_by_role("link", name="Next step").click()
    assert standing_out("now") == {"a = b": ["doc.rdf#info"]}
    assert standing_out("lit") == triggered
    expect(page.locator("[data-iteration='2']")).to_have_class(re.compile("current"))
    assert "step=2" in page.url
    desk.check()
    page.get_by_role("link", name="Next step").click()
    assert standing_out("now") == {"c.serverInformation = a": ["doc.rdf#host"]}
    expect(page.locator("[data-status]")).to_contain_text("End, after 3 steps")
    page.get_by_role("link", name="Back").click()
    expect(page.locator("[data-status]")).to_have_text("Step 2 of 3")
    page.get_by_role("link", name="Start").click()
    assert standing_out("now") == {}
    page.get_by_role("button", name="Play").click()
    expect(page.locator("[data-status]")).to_contain_text("End", timeout=60_000)
    desk.check()


PASSAU = "search CycleProvider c register c where c.serverHost contains 'passau' and c.serverInformation.memory > 64"


def test_a_name_is_not_broken_for_a_long_rule(desk: Visit, mdp: Client) -> None:
    terms = " or ".join(f"c.serverHost contains 'host{number}.example'" for number in range(12))
    rule = {"rule": f"search CycleProvider c register c where {terms}", "name": "environment"}
    mdp.change("POST", "/lmrs", {"name": "broken"})
    mdp.change("POST", "/lmrs/broken/subscriptions", [rule], seconds=60)
    for path in ("/rules/registered?lmr=broken", "/lmrs/broken"):
        name = desk.to(path).locator("td[data-name=Name] bdi")
        expect(name).to_have_text("environment")
        assert name.evaluate("name => name.getClientRects().length") == 1, path
    desk.check()


def test_a_long_name_of_an_lmr_leaves_room_for_the_rules(visit: Visit, mdp: Client) -> None:
    name = "n" * 100
    if not any(lmr["name"] == name for lmr in mdp.get("/lmrs")["items"]):
        mdp.change("POST", "/lmrs", {"name": name})
        mdp.change("POST", f"/lmrs/{name}/subscriptions", [{"rule": PASSAU}], seconds=60)
    page = visit.to(f"/rules/registered?lmr={name}")
    cell = page.locator("td.code").first.bounding_box()
    assert cell is not None and cell["width"] >= 200
    visit.check()
    book = "http%3A%2F%2Fmdv.example%2Flibrary%2Falice.ttl%23book"
    for path in ("/rules/registered", "/rules", "/rules/graph", f"/like?uri={book}", "/lmrs", f"/lmrs/{name}"):
        visit.to(path)
        assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth"), path


SHARING = [
    PASSAU,
    PASSAU + " and c.serverInformation.cpu > 500",
    PASSAU + " and c.serverInformation.cpu > 500 and c.serverPort = 5874",
]

CROSSED = """() => { const cy = document.querySelector('figure.graph').cy; const crossed = [];
    for (const edge of cy.edges()) {
        const points = [edge.sourceEndpoint(), ...(edge.segmentPoints() ?? []), edge.targetEndpoint()];
        for (const node of cy.nodes(':childless')) {
            const box = node.boundingBox({includeLabels: false, includeOverlays: false});
            for (let i = 1; i < points.length; i++) for (let part = 0; part <= 200; part++) {
                const x = points[i - 1].x + (points[i].x - points[i - 1].x) * part / 200;
                const y = points[i - 1].y + (points[i].y - points[i - 1].y) * part / 200;
                if (x > box.x1 + 4 && x < box.x2 - 4 && y > box.y1 + 4 && y < box.y2 - 4)
                    crossed.push(`${edge.source().id()} to ${edge.target().id()} crosses ${node.id()}`);
            }
        }
    }
    return [cy.edges().length, [...new Set(crossed)]]; }"""


def test_no_edge_runs_behind_a_box_and_the_text_is_readable(visit: Visit, mdp: Client) -> None:
    if not any(lmr["name"] == "sharing" for lmr in mdp.get("/lmrs")["items"]):
        mdp.change("POST", "/lmrs", {"name": "sharing"})
        mdp.change("POST", "/lmrs/sharing/subscriptions", [{"rule": rule} for rule in SHARING], seconds=60)
    page = visit.to("/rules/graph?lmr=sharing")
    expect(page.locator("figure.graph.drawn")).to_be_visible()
    edges, crossed = page.evaluate(CROSSED)
    assert edges >= 6 and crossed == []
    size, inner, outer, whole, window = page.evaluate("""() => { const cy = document.querySelector('figure.graph').cy;
        const canvas = document.querySelector('.canvas');
        return [cy.zoom() * parseFloat(cy.nodes(':childless')[0].style('font-size')), canvas.scrollWidth,
                canvas.clientWidth, document.documentElement.scrollWidth, window.innerWidth]; }""")
    assert size >= 11
    assert whole <= window, "only the drawing scrolls sideways"
    if window < 500:
        assert inner > outer
        page.get_by_role("button", name="Fit").click()
        assert page.evaluate(
            "() => { const box = document.querySelector('.canvas'); return box.scrollWidth <= box.clientWidth }"
        )
    visit.check()


@pytest.mark.parametrize("path", ["/schema", "/event-rules/graph"])
def test_other_diagrams_in_layers_do_not_mislead_either(visit: Visit, path: str) -> None:
    page = visit.to(path)
    expect(page.locator("figure.graph.drawn")).to_be_visible()
    edges, crossed = page.evaluate(CROSSED)
    assert edges >= 3 and crossed == []
    size, window = page.evaluate("""() => { const cy = document.querySelector('figure.graph').cy;
        return [cy.zoom() * parseFloat(cy.nodes()[0].style('font-size')), window.innerWidth]; }""")
    assert size >= (10 if window < 500 else 11)
    visit.check()


def test_the_drawing_of_five_hundred_atomic_rules_is_usable(visit: Visit, mdp: Client) -> None:
    if not any(lmr["name"] == "many" for lmr in mdp.get("/lmrs")["items"]):
        mdp.change("POST", "/lmrs", {"name": "many"})
        rules = [{"rule": f"search CycleProvider c register c where c.serverHost contains 'host{number}.example'"
                          f" and c.serverInformation.memory > {number % 7} and c.serverInformation.cpu > {number}"}
                 for number in range(160)]  # fmt: skip
        mdp.change("POST", "/lmrs/many/subscriptions", rules, seconds=60)
    page = visit.to("/rules/graph?lmr=many")
    expect(page.locator("figure.graph.drawn")).to_be_visible(timeout=60_000)
    boxes = drawn(page)
    assert 450 <= len(boxes) <= 500
    assert any("shared" in marks for _, marks in boxes.values())
    # The whole drawing fits into the window, and no two boxes overlap.
    inside, apart = page.evaluate("""() => { const cy = document.querySelector('figure.graph').cy;
        const all = cy.elements().renderedBoundingBox(), nodes = cy.nodes().filter(node => !node.isParent());
        const boxes = nodes.map(node => node.boundingBox({includeLabels: false}));
        const meet = (a, b) => a.x1 < b.x2 && b.x1 < a.x2 && a.y1 < b.y2 && b.y1 < a.y2;
        let apart = true;
        for (let i = 0; i < boxes.length; i++) for (let j = 0; j < i; j++) if (meet(boxes[i], boxes[j])) apart = false;
        return [all.x1 >= -1 && all.y1 >= -1 && all.x2 <= cy.width() + 1 && all.y2 <= cy.height() + 1, apart]; }""")
    assert inside
    assert apart
    page.get_by_role("searchbox", name="Find in the diagram").fill("host77.example")
    expect(page.locator(".chosen")).to_have_text("1 found")
    near = page.evaluate("() => document.querySelector('figure.graph').cy.zoom()")
    assert near <= 1.1
    told, canvas = (page.locator(selector).bounding_box() for selector in (".chosen", ".canvas"))
    assert told and canvas and told["y"] + told["height"] <= canvas["y"]
    page.locator(".canvas").focus()
    page.keyboard.press("0")
    assert page.evaluate("() => document.querySelector('figure.graph').cy.zoom()") < near
    page.evaluate("""() => { const cy = document.querySelector('figure.graph').cy;
        cy.nodes().filter(node => node.data('title')?.includes('host77.example'))[0].select() }""")
    expect(page.locator(".chosen")).to_contain_text("host77.example")
    page.locator(".chosen").get_by_role("link", name="Open").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Atomic rule")
    visit.check()


def test_without_javascript_a_rule_is_decomposed_and_a_run_is_replayed(plain: Visit, rule: int) -> None:
    page = plain.to("/rules")
    page.get_by_label("The rule").fill(EITHER)
    page.get_by_role("button", name="Decompose").click()
    expect(page.get_by_text("match now")).to_be_visible()
    expect(page.get_by_role("region", name="FilterRulesGT")).to_contain_text("500")
    expect(page.locator(".legend")).to_be_hidden()
    page = plain.to(f"/rules/replay?document={DOC}&rule={rule}")
    for step in ("Step 1 of 3", "Step 2 of 3", "End"):
        page.get_by_role("link", name="Next step").click()
        expect(page.locator("[data-status]")).to_contain_text(step)
    expect(page.locator(".iteration.current")).to_contain_text("doc.rdf#host")


def test_a_query_is_converted_to_a_rule_in_one_step(desk: Visit) -> None:
    page = desk.to("/query")
    asked = "search CycleProvider c where c.serverInformation.memory > 64 return c, c.serverHost order by c.serverHost"
    write(page, page.get_by_role("textbox", name=re.compile("query", re.I)), asked)
    page.get_by_role("button", name=re.compile("Run")).first.click()
    expect(page.get_by_role("link", name=f"{DOC}#host").first).to_be_visible()
    desk.check()
    page.get_by_role("link", name=re.compile("Create rule")).first.click()
    expect(editor(page)).to_contain_text("register c")
    expect(page.locator("#look").get_by_role("status").first).to_contain_text("match")
    desk.check()


def test_a_schema_is_previewed_before_it_is_changed(desk: Visit, mdp: Client) -> None:
    page = desk.to("/schema")
    expect(page.locator("figure.graph.drawn")).to_be_visible()
    page = desk.to("/schema/change")
    text = page.locator("textarea").first.input_value()
    rdfs = "http://www.w3.org/2000/01/rdf-schema#"
    grown = (
        text
        + f"""\n<{SCHEMA}Telescope> a <{rdfs}Class> .
        <{SCHEMA}beside> <{rdfs}domain> <{SCHEMA}Telescope> ; <{rdfs}range> <{SCHEMA}Telescope> .\n"""
    )
    page.locator("#file").set_input_files({"name": "mine.ttl", "mimeType": "text/turtle", "buffer": text.encode()})
    expect(page.locator("#syntax")).to_have_value("turtle")
    assert page.locator("#file").input_value() == "", "the text is sent, not the file"
    write(page, page.locator(".cm-content").first, grown)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("Telescope").first).to_be_visible()
    desk.check()
    page.get_by_role("button", name=re.compile("Activate")).click()
    expect(page.get_by_text("Telescope").first).to_be_visible()
    page = desk.to("/schema")
    assert "Telescope" in page.locator("main").inner_text()
    above, below = page.evaluate("""() => { const loop = document.querySelector('figure.graph').cy.edges(':loop');
        return [loop.boundingBox({includeLabels: false}).y1, loop.source().boundingBox({includeLabels: false}).y1] }""")
    assert above < below - 15, "a reference to its own class is drawn as a loop"
    desk.check()


def test_hostile_literals_are_shown_as_text_in_rules_and_at_the_lmr(visit: Visit, own_desk: Visit, mdp: Client) -> None:
    uri = "http://mdv.example/hostile-rules.ttl"
    host = SCRIPT.replace("\\", "\\\\").replace('"', '\\"') + " uni-passau.de"
    mdp.register(uri, f"""@prefix s: <{SCHEMA}> . <#h> a s:CycleProvider ; s:serverHost "{host}" ; s:serverPort 80 ;
        s:serverInformation <#info> . <#info> a s:ServerInformation ; s:memory 92 ; s:cpu 600 .""".encode(),
        "text/turtle")  # fmt: skip
    quoted = SCRIPT.replace("'", "''")
    rule = f"search CycleProvider c register c where c.serverHost contains '{quoted}'"
    for path in (f"/rules?rule={rule}", f"/query?q={rule}", f"/rules/replay?document={uri}&step=1",
                 "/query?q=search CycleProvider c return c.serverHost"):  # fmt: skip
        page = visit.to(path.replace("#", "%23"))
        visit.check()
        assert "broken" not in page.title()
    for path in (f"/resource?uri={uri}%23h", "/query?q=search CycleProvider c return c.serverHost",
                 f"/query?q={rule}"):  # fmt: skip
        page = own_desk.to(path)
        expect(page.locator("main")).to_contain_text("<script>")
        own_desk.check()
        assert "broken" not in page.title()


def test_subscriptions_queries_and_local_documents_work_at_the_lmr(own_desk: Visit) -> None:
    page = own_desk.to("/subscriptions")
    page.get_by_role("button", name="Subscribe").click()
    expect(page.get_by_role("alert")).to_contain_text("Write a rule")
    field = page.get_by_role("textbox", name=re.compile("rule", re.I)).first
    write(page, field, "search ServerInformation s register s")
    page.get_by_role("button", name="Subscribe").click()
    expect(page.get_by_text("search ServerInformation s register s").first).to_be_visible()
    own_desk.check()
    page = own_desk.to("/local/put")
    page.get_by_label(re.compile("URI")).first.fill("http://local.example/notes.ttl")
    page.get_by_role("textbox", name=re.compile("text", re.I)).fill(
        f"@prefix s: <{SCHEMA}> . <{DOC}#host> s:serverPort 4242 .")  # fmt: skip
    page.get_by_role("button", name=re.compile("Add|Replace")).first.click()
    page = own_desk.to("/query?q=search CycleProvider c where c.serverPort = 4242 return c, c.serverPort")
    expect(page.get_by_role("link", name=f"{DOC}#host").first).to_be_visible()
    own_desk.check()
