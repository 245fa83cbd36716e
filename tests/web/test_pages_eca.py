"""Event rules on pages: list, editor, one rule, triggering graph, runs with their replay, log, by role."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator

import pytest

from tests.support.eca_rules import adding_eca_rules
from tests.support.page_visitor import Page, Visitor
from tests.support.real_actions import action_turtle
from tests.support.server import Api, Server, turtle

_numbers = itertools.count(1)
NOTED = "RULE noted ON INSERT resource() AS INSTANCE OF CycleProvider IF TRUE DO INSERT ($delta, note, 'new')"
SEEN = (
    "RULE seen ON INSERT (_, note, 'new') IF $delta/target(serverPort) > 80"
    " DO INSERT ($delta, note, 'seen'); DELETE ($delta, note, 'new')"
)


@pytest.fixture
def add_rule(system_database: str) -> Iterator[Callable[[str], list[int]]]:
    with adding_eca_rules(system_database) as add:
        yield add


@pytest.fixture
def host(doc: str, api: Api) -> Callable[[int], str]:
    """Register a provider with a port; return its URI."""

    def register(port: int) -> str:
        answer = api.put(doc, turtle(f"<#host> a ex:CycleProvider ; ex:serverPort {port} ."))
        assert answer.status_code in (200, 201), answer.text
        return f"{doc}#host"

    return register


def test_a_rule_is_written_checked_and_added(visitor: Visitor) -> None:
    empty = visitor.get("/event-rules")
    assert "There are no event rules yet." in empty.words and "/event-rules/new" in empty.links()
    editor = visitor.get("/event-rules/new")
    assert editor.form("/event-rules/new")["text"].startswith("RULE my-rule\nON INSERT resource() AS INSTANCE OF ")
    checked = visitor.post("/event-rules/new", text=NOTED, act="check")
    assert "May trigger no rule" in checked.words and checked.form("/event-rules/new")["text"] == NOTED
    added = visitor.post("/event-rules/new", text=NOTED, set="main", state="shadow", act="add")
    assert added.title == "Event rule noted" and "The event rule was added." in added.words
    assert "shadow" in added.words and "Its actions do not run." in added.words
    removed = visitor.post(f"{added.path}/remove")
    assert removed.title == "Event rules" and "The rule was removed." in removed.words
    assert "change event rules this MDP" in visitor.get("/jobs").words


def test_a_wrong_rule_is_refused_with_its_place_and_kept(visitor: Visitor) -> None:
    wrong = "ON INSERT (_, notes, _) IF TRUE\nDO INSERT ($delta, memori, 1)"
    page = visitor.post("/event-rules/new", text=wrong, act="add")
    assert page.status == 422 and page.form("/event-rules/new")["text"] == wrong
    assert "notes" in page.alert()
    (area,) = page.tree.xpath("//textarea[@id='text']")
    assert [(mark["line"], mark["column"]) for mark in json.loads(area.get("data-errors"))][:2] == [(1, 15), (2, 20)]
    assert visitor.post("/event-rules/new", text=NOTED, set="a b/c", act="add").status == 400
    assert "empty" in visitor.post("/event-rules/new", text=" ", act="add").alert()


def test_the_check_shows_warnings_while_typing(visitor: Visitor, add_rule: Callable[[str], list[int]]) -> None:
    add_rule(f"{NOTED};;{SEEN}")
    part = visitor.post("/event-rules/check", text="ON INSERT (_, NOTE, _) IF TRUE DO DELETE ($delta, note, 'seen')")
    assert "May be triggered by noted, seen" in part.words
    assert "The result can depend on the order of this rule" in part.words
    (marks,) = part.tree.xpath("//*[@data-errors-for='text']/@data-errors")
    (mark,) = json.loads(marks)
    assert (mark["severity"], mark["line"], mark["column"]) == ("warning", 1, 15)


def test_rules_are_listed_by_state_and_text(visitor: Visitor, add_rule: Callable[[str], list[int]]) -> None:
    first, second = add_rule(f"{NOTED};;{SEEN}")
    visitor.post(f"/event-rules/rule/{second}/state", state="disable")
    assert [row[:2] for row in visitor.get("/event-rules").rows()] == [["noted", "active"], ["seen", "disabled"]]
    assert [row[0] for row in visitor.get("/event-rules", state="disabled").rows()] == ["seen"]
    assert [row[0] for row in visitor.get("/event-rules", holding="SERVERPORT").rows()] == ["seen"]
    assert "No rule matches." in visitor.get("/event-rules", holding="nothing has this").words
    assert visitor.get("/event-rules", after=first).rows()[0][0] == "seen"


def test_a_rule_is_disabled_enabled_and_changed(visitor: Visitor, add_rule: Callable[[str], list[int]]) -> None:
    (number,) = add_rule(NOTED)
    path = f"/event-rules/rule/{number}"
    assert visitor.get("/event-rules/rule/noted").title == "Event rule noted"
    disabled = visitor.post(f"{path}/state", state="disable")
    assert "The event rule is disabled." in disabled.words and "It is not evaluated." in disabled.words
    assert "The event rule is active." in visitor.post(f"{path}/state", state="enable").words
    assert visitor.post(f"{path}/state", state="explode").status == 400
    changed = visitor.post(path, text=NOTED.replace("'new'", "'other'"))
    assert "The rule was changed." in changed.words and "'other'" in changed.form(path)["text"]
    refused = visitor.post(path, text="RULE noted ON")
    assert refused.status == 422 and refused.form(path)["text"] == "RULE noted ON"
    assert visitor.get("/event-rules/rule/nobody").status == 404


def test_the_graph_marks_cycles_and_pairs_that_do_not_commute(
    visitor: Visitor, add_rule: Callable[[str], list[int]]
) -> None:
    noted, _, again = add_rule(
        f"{NOTED};;{SEEN};;RULE again ON INSERT (_, note, 'seen') IF TRUE DO INSERT ($delta, note, 'new')"
    )
    page = visitor.get("/event-rules/graph")
    (figure,) = page.tree.xpath("//figure/@data-graph")
    drawing = json.loads(figure)
    kinds = {node["label"].split("\n")[0]: node["kind"] for node in drawing["nodes"]}
    assert kinds == {"noted": "", "seen": "endless", "again": "endless"}
    edges = {(edge["from"], edge["to"]): edge["kind"] for edge in drawing["edges"]}
    assert edges[("0", "1")] == "triggers" and edges[("1", "2")] == "endless"
    assert "may not terminate seen, again" in page.words and "Where the order matters" in page.words
    near = visitor.get("/event-rules/graph", rule=noted)
    assert {row[0] for row in near.rows()[:2]} == {"noted", "seen"}
    assert "as in the paper" in visitor.get("/event-rules/graph", mode="paper").words
    visitor.post(f"/event-rules/rule/{again}/state", state="disable")
    assert "This rule is disabled." in visitor.get("/event-rules/graph", rule=again).words


def test_a_run_is_a_tree_that_is_replayed(
    visitor: Visitor, add_rule: Callable[[str], list[int]], host: Callable[[int], str]
) -> None:
    add_rule(f"{NOTED};;{SEEN}")
    uri = host(81)
    runs = visitor.get("/event-rules/runs", rule="noted")
    (link,) = [link for link in runs.links() if link.startswith("/event-rules/runs/")]
    page = visitor.get(link)
    assert "Start" in page.words and "noted fires because of" in page.words
    tree = [" ".join(item.text_content().split()) for item in page.tree.xpath("//ol[@class='tree']/li")]
    assert tree[1].startswith("Step 1: INSERT ($delta, ex:note, 'new') 1 change")
    assert (
        tree[2].startswith("seen fires because of")
        and "holds $delta/target(ex:serverPort) > 80 81 compared with 80" in tree[2]
    )
    assert tree[3].startswith("Step 2") and tree[4].startswith("Step 3: DELETE")
    first = visitor.get(link, step=1)
    assert first.tree.xpath("//li[contains(@class, 'current')]/@data-iteration") == ["1"]
    assert first.rows()[0][:2] == ["+", "urn:mdv:eca:main"]
    last = visitor.get(f"{link}/step", step=3, headers={"HX-Request": "true"})
    rows = [
        [" ".join(cell.text_content().split()) for cell in row.xpath("./td")] for row in last.tree.xpath("//tbody/tr")
    ]
    assert [row[0] for row in rows] == ["−", "+"], "this step, and the net effect of all steps"
    assert rows[1][4] == "seen" and "Step 3" in last.tree.text_content()
    assert visitor.get("/event-rules/runs/999999999").status == 404
    assert uri in visitor.get("/event-rules/log", rule="seen").tree.xpath("//main//td//a/@href")[0].replace(
        "%23", "#"
    ).replace("%3A", ":").replace("%2F", "/")


def test_a_run_shows_the_action_that_a_rule_has_called(
    visitor: Visitor, add_rule: Callable[[str], list[int]], api: Api, doc: str
) -> None:
    action = action_turtle(f"{doc}#mark", "+<http://mdv.example/schema#note>(?x, 'seen')", "x", "x")
    add_rule(f"RULE calls ON INSERT resource() AS INSTANCE OF CycleProvider IF TRUE DO CALL <{doc}#mark>($delta)")
    assert api.put(doc, turtle(f"<#host> a ex:CycleProvider . {action}")).status_code == 201
    runs = visitor.get("/event-rules/runs", rule="calls")
    (link,) = [link for link in runs.links() if link.startswith("/event-rules/runs/")]

    page = visitor.get(link)

    assert f"Called {doc}#mark: 1 solution (x = {doc}#host)." in page.words


def test_a_refused_run_says_why(visitor: Visitor, add_rule: Callable[[str], list[int]], api: Api, doc: str) -> None:
    add_rule("RULE fails ON INSERT (_, note, 'bad') IF TRUE DO INSERT ($delta, seq++, $delta)")
    refused = api.put(doc, turtle("<#a> ex:note 'bad' ."))
    assert refused.status_code == 422

    page = visitor.get(f"/event-rules/runs/{refused.json()['run']}")

    assert f"The rule fails failed for {doc}#a, so this change was refused" in page.words


def test_a_run_is_undone_after_confirmation(
    visitor: Visitor, add_rule: Callable[[str], list[int]], host: Callable[[int], str]
) -> None:
    add_rule(NOTED)
    uri = host(80)
    runs = visitor.get("/event-rules/runs", rule="noted").links()
    link = next(link for link in runs if link.startswith("/event-rules/runs/"))
    assert f"{link}/compensate" in visitor.get(link).links()
    (asked,) = visitor.get(f"{link}/compensate").rows()
    assert asked[0] == "−" and asked[4] == "new"
    done = visitor.post(f"{link}/compensate")
    assert "3 changes undone." in done.words, "those of the registration and of the rule"
    assert visitor.get("/resource", uri=uri).status == 404
    assert "compensated" in visitor.get(link).words
    assert visitor.get("/event-rules/log", resource=uri).rows()[0][0] == "−"


def test_the_log_and_the_resource_say_which_rule_inserted_a_statement(
    visitor: Visitor, add_rule: Callable[[str], list[int]], host: Callable[[int], str]
) -> None:
    add_rule(NOTED)
    uri = host(80)
    (row,) = visitor.get("/event-rules/log", resource=uri).rows()
    assert row[0] == "+" and "rule noted because of" in row[3]
    assert "No change matches." in visitor.get("/event-rules/log", resource=uri, document=uri).words
    assert "inserted by rule noted because of" in visitor.get("/resource", uri=uri).words
    document = visitor.get("/document", uri="urn:mdv:eca:main")
    assert "inserted by rule noted because of" in document.words


def test_a_dry_run_shows_the_run_that_would_happen(
    visitor: Visitor, add_rule: Callable[[str], list[int]], host: Callable[[int], str]
) -> None:
    add_rule(NOTED)
    page = visitor.post(
        "/event-rules/dry-run", text=SEEN, draft="yes", kind="update", act="run",
        update="INSERT (resource(http://dry.example/x), serverPort, 81), (resource(http://dry.example/x), note, 'new')",
    )  # fmt: skip
    assert "seen fires because of" in page.words and "Nothing was changed." in page.words
    uri = host(82)
    document = uri.removesuffix("#host")
    loaded = visitor.post("/event-rules/dry-run", text="", kind="document", uri=document, act="load")
    text = loaded.tree.xpath("//textarea[@name='document']")[0].text.removeprefix("\n")
    assert "serverPort" in text
    tried = visitor.post(
        "/event-rules/dry-run", text="", kind="document", act="run", uri=document,
        document=text.replace("#host", "#other"),
    )  # fmt: skip
    assert "noted fires because of" in tried.words
    failed = visitor.post("/event-rules/dry-run", text="", kind="update", update="INSERT (x", act="run")
    assert failed.alert()
    assert visitor.get("/resource", uri="http://dry.example/x").status == 404


def test_viewers_see_everything_and_change_nothing(
    viewer: Visitor, add_rule: Callable[[str], list[int]], host: Callable[[int], str]
) -> None:
    (number,) = add_rule(NOTED)
    host(80)
    for path in ("", "/new", "/graph", "/runs", "/log", f"/rule/{number}"):
        page = viewer.get(f"/event-rules{path}")
        assert page.status == 200 and not [form for form in page.forms() if form not in ("/event-rules/new", None)], (
            path
        )
    assert "Add" not in [button.text for button in viewer.get("/event-rules/new").tree.xpath("//main//button")]
    rule = f"/rule/{number}"
    for path, form in ((rule, {"text": SEEN}), (f"{rule}/state", {"state": "disable"}), (f"{rule}/remove", {}),
                       ("/new", {"text": SEEN, "act": "add"}), ("/dry-run", {}),
                       ("/runs/1/compensate", {})):  # fmt: skip
        assert viewer.post(f"/event-rules{path}", **form).status == 403, path
    assert viewer.get(f"/event-rules/rule/{number}/remove").status == 403


def test_strangers_see_nothing(new_visitor: Callable[..., Visitor], server: Server) -> None:
    page: Page = new_visitor().get("/event-rules")
    assert page.status in (401, 403) or page.path.startswith("/sign-in")
