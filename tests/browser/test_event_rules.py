"""Event rules in a real browser: the editor with completion and live check, the dry run, the graph, and the replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from mdv.client import Client
from tests.support.browser_visit import Visit
from tests.support.whole_system import Up

COURSE = "http://mdv.example/learning/sql-course.ttl#course"
MESSAGES = "http://mdv.example/learning/anna.ttl%23new-objects"
PAGES = [
    "/event-rules",
    "/event-rules?state=shadow",
    "/event-rules/new",
    "/event-rules/rule/new-object",
    "/event-rules/rule/new-object/remove",
    "/event-rules/graph",
    "/event-rules/graph?mode=paper&rule=new-user",
    "/event-rules/runs",
    "/event-rules/runs/1",
    "/event-rules/runs/1?step=1",
    "/event-rules/log",
    "/event-rules/log?rule=updated-object",
    f"/resource?uri={MESSAGES}",
    "/document?uri=urn:mdv:eca:learning",
]
MARKED = "RULE marked ON INSERT (_, subject, 'marked') IF TRUE DO INSERT ($delta, rdfs:comment, 'marked')"
COUNTED = (
    "RULE counted ON INSERT (_, rdfs:comment, 'marked') IF $delta/target(subject) = 'marked'"
    " DO DELETE ($delta, rdfs:comment, 'marked'); INSERT ($delta, rdfs:comment, 'counted')"
)
OBJECT = "resource(http://tried.example/x)"
UPDATE = f"INSERT {OBJECT} AS INSTANCE OF LearningObject; INSERT ({OBJECT}, subject, 'marked')"


@pytest.fixture
def two_rules(mdp: Client) -> Iterator[None]:
    mdp.change("POST", "/eca/rules", {"text": f"{MARKED};;{COUNTED}"})
    yield
    for name in ("marked", "counted"):
        mdp.change("DELETE", f"/eca/rules/{name}")


def editor(page: Page) -> Locator:
    return page.get_by_role("textbox", name="The rule")


def write(page: Page, text: str) -> None:
    editor(page).click()
    page.keyboard.press("Control+A")
    page.keyboard.press("Backspace")
    page.keyboard.insert_text(text)


def test_the_header_of_an_admin_is_one_line(visits: Callable[..., Visit], up: Up) -> None:
    page = visits(up.system.url, "light", 1280).to("/event-rules")
    expect(page.get_by_role("link", name="Admin", exact=True)).to_be_visible()
    middles = [one.evaluate("one => one.offsetTop + one.offsetHeight / 2") for one in page.locator(".top > *").all()]
    assert len(middles) == 4
    assert max(middles) - min(middles) < 5


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_accessible_and_without_errors(visit: Visit, path: str) -> None:
    page = visit.to(path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    for figure in page.locator("figure.graph").all():
        expect(figure.locator(".canvas canvas").first).to_be_attached()
    visit.check()


def test_a_rule_is_checked_while_it_is_typed(desk: Visit) -> None:
    page = desk.to("/event-rules/new")
    write(page, "ON INSERT (_, subjct, _) IF TRUE DO DELETE $delta")
    expect(page.get_by_role("alert")).to_contain_text("subjct")
    expect(page.locator(".cm-lintRange-error")).to_have_text("subjct")
    write(page, "ON INSERT (_, DESCRIPTION, _) IF TRUE DO DELETE $delta")
    expect(page.locator(".cm-lintRange-warning")).to_have_text("DESCRIPTION")
    expect(page.locator(".cm-lintRange-error")).to_have_count(0)
    expect(page.locator("#look")).to_contain_text("differs in case")
    expect(page.locator("#look")).to_contain_text("The result can depend on the order of this rule and new-object")
    desk.check()


def test_names_of_the_schema_fields_and_keywords_are_completed(desk: Visit) -> None:
    page = desk.to("/event-rules/new")
    options = page.locator(".cm-tooltip-autocomplete li")
    for typed, wanted in (
        ("ON INSERT resource() AS INSTANCE OF Learn", "LearningObject"),
        ("ON INSERT (_, subject, _) IF $delta/target(interest_", "interest_typename"),
        ("ON UPDATE (_, descr", "description"),
        ("ON UPDATE (_, description, _ -> _) IF $delta.old_", "old_target"),
        ("ON INSERT (_, subject, _) IF $del", "$delta"),
        ("ON INS", "INSERT"),
    ):
        write(page, "")
        page.keyboard.type(typed, delay=5)
        expect(options.filter(has_text=wanted).first).to_be_visible()
        page.keyboard.press("Escape")
    desk.check()


def test_a_draft_is_tried_and_added(desk: Visit, mdp: Client) -> None:
    page = desk.to("/event-rules/new")
    write(page, MARKED)
    page.get_by_role("textbox", name="The update").fill(UPDATE)
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator("#tried")).to_contain_text("marked fires because of")
    expect(page.locator("#tried")).to_contain_text("Nothing was changed.")
    page.get_by_role("textbox", name="URI of the document").fill("http://mdv.example/learning/sql-course.ttl")
    page.get_by_role("button", name="Load the text of this document").click()
    expect(page.get_by_role("textbox", name="Text of the document")).to_contain_text("SQL for beginners")
    expect(editor(page)).to_contain_text("RULE marked")
    desk.check()
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Event rule marked")
    desk.check()
    mdp.change("DELETE", "/eca/rules/marked")


def test_the_graph_shows_what_may_trigger_what(desk: Visit, two_rules: None) -> None:
    page = desk.to("/event-rules/graph?rule=counted")
    expect(page.locator("figure.graph.drawn")).to_be_visible()
    found = page.evaluate("""() => { const cy = document.querySelector('figure.graph').cy;
        const name = node => node.data('label').split('\\n')[0];
        const ends = edge => [name(edge.source()), name(edge.target())];
        return [cy.nodes().map(name).sort(), cy.edges('.triggers').map(ends)] }""")
    assert found[0] == ["counted", "marked"] and ["marked", "counted"] in found[1]


def test_a_run_is_replayed_step_by_step(desk: Visit, mdp: Client, two_rules: None) -> None:
    body = "@prefix dcterms: <http://purl.org/dc/terms/> . <#x> dcterms:subject 'marked' ."
    mdp.register("http://mdv.example/learning/marked.ttl", body.encode(), "text/turtle")
    run = next(iter(mdp.items("/eca/runs")))["id"]
    page = desk.to(f"/event-rules/runs/{run}")
    status, step, current = page.locator("[data-status]"), page.locator("#step"), page.locator(".tree li.current")
    expect(step).to_contain_text("was changed by a registration")
    expect(page.locator(".tree li.ahead")).to_have_count(4)
    for number, text in ((1, "marked"), (2, "marked"), (3, "counted")):
        page.get_by_role("link", name="Next step").click()
        expect(step.get_by_role("heading")).to_have_text(f"Step {number}")
        expect(step.locator("tr").last).to_contain_text(text)
        expect(current).to_contain_text(f"Step {number}")
    expect(status).to_have_text("End, after 3 steps")
    assert page.url.endswith("?step=3")
    step.get_by_text("All steps so far").click()
    expect(step.locator("details tbody tr")).to_have_count(1)
    desk.check()
    page.locator(".tree").get_by_role("link", name="Step 1", exact=True).click()
    expect(status).to_have_text("Step 1 of 3")
    page.get_by_role("button", name="Play").click()
    expect(status).to_have_text("End, after 3 steps")
    desk.check()
    mdp.delete("http://mdv.example/learning/marked.ttl")


def test_a_run_is_replayed_without_scripts(plain: Visit) -> None:
    page = plain.to("/event-rules/runs/1")
    page.get_by_role("link", name="Next step").click()
    expect(page.locator("#step").get_by_role("heading")).to_have_text("Step 1")
    expect(page.locator(".tree li.current")).to_have_count(1)


def test_a_rule_is_checked_without_scripts(plain: Visit) -> None:
    page = plain.to("/event-rules/new")
    page.get_by_role("textbox", name="The rule").fill(MARKED)
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#look")).to_contain_text("May trigger")
    page.get_by_role("textbox", name="The update").fill(UPDATE)
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator("#tried")).to_contain_text("marked fires because of")
