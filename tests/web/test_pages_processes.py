"""Pages of processes: run for real from the console, the tree, one process, stopping one."""

from __future__ import annotations

import json
from collections.abc import Callable

import lxml.html

from tests.support.eventually import eventually
from tests.support.page_visitor import Page, Visitor
from tests.support.server import Api, V

PREFIX = f"PREFIX ex: <{V}> "
LRM, REAL = "http://xrce.xerox.com/LRM#", "http://xrce.xerox.com/ReAL#"


def start(visitor: Visitor, code: str, doc: str) -> Page:
    """Run a program for real without JavaScript. Return the page of its process."""
    page = visitor.post("/programs", text=PREFIX + code, act="run", into=doc)
    assert page.path.startswith("/programs/processes/"), page.words
    return page


def ended(visitor: Visitor, path: str, state: str) -> Page:
    def found() -> Page | None:
        page = visitor.get(path)
        return page if fact(page, "State").startswith(state) else None

    page = eventually(found)
    assert page is not None
    return page


def fact(page: Page, name: str) -> str:
    (value,) = page.tree.xpath(f"//dt[.='{name}']/following-sibling::dd[1]")
    return " ".join(value.text_content().split())


def test_a_program_is_run_for_real_without_scripts(visitor: Visitor, api: Api, doc: str) -> None:
    sandbox = visitor.post("/programs", text=f"{PREFIX}+ex:note(<{doc}#a>, 'x')", act="sandbox", into=doc)
    button = sandbox.form("/programs")
    assert button["text"].endswith("'x')") and button["into"] == doc
    page = visitor.post("/programs", act="run", **button)
    assert page.title.startswith("Process")
    done = ended(visitor, page.path, "done")
    assert fact(done, "Changes").startswith("1 statement added, 0 removed")
    assert "Open in the console" in done.words and "position" in done.words
    document = api.http.get("/api/v1/documents", params={"uri": doc}, headers={"Accept": "application/n-triples"})
    assert document.text.count("note") == 1


def test_a_program_is_run_for_real_and_followed(visitor: Visitor, doc: str) -> None:
    code = f"{PREFIX}(+ex:note(<{doc}#a>, 'x') UNION +ex:note(<{doc}#a>, 'y')) AND ex:note(<{doc}#a>, ?note)"
    form = {"csrf": visitor.csrf(), "text": code, "act": "run", "into": doc}
    answer = visitor.http.post("/programs/stream", data=form)
    parts = [json.loads(line) for line in answer.text.splitlines()]
    words = {part["part"]: " ".join(lxml.html.fromstring(f"<div>{part['html']}</div>").itertext()) for part in parts}
    assert "As the process" in words["whole"] and "3 solutions" in " ".join(words["end"].split())
    assert "2 statements added, 0 removed." in " ".join(words["end"].split()) and "What changed" in words["end"]


def test_a_waiting_process_is_stopped_after_a_confirmation(visitor: Visitor, doc: str) -> None:
    page = start(visitor, "WAIT ex:note(?x, 'never')", doc)
    waiting = ended(visitor, page.path, "waiting")
    assert fact(waiting, "Waits for").startswith("note(?, “never”)")
    listed = visitor.get("/programs/processes", state="waiting")
    name = page.path.rpartition("/")[2]
    assert name in {row[0] for row in listed.rows()}
    ask = visitor.get(f"{page.path}/stop")
    assert ask.title == f"Stop process {name}?"
    stopped = visitor.post(f"{page.path}/stop", message="enough")
    assert "The process was asked to stop." in stopped.words
    assert fact(ended(visitor, page.path, "stopped"), "Message") == "enough"
    again = visitor.post(f"{page.path}/stop")
    assert again.status == 404 and "has ended" in again.alert()


def test_processes_are_shown_as_a_tree(visitor: Visitor, api: Api, doc: str) -> None:
    action = (
        f"<{doc}#act> <{LRM}body> <{doc}#body> . <{doc}#body> <{REAL}code> \"CALL primitive:log('hello')\" ."
        f" <{doc}#act> <http://www.w3.org/2000/01/rdf-schema#label> 'say hello' ."
    )
    assert api.put(doc, action).status_code == 201
    page = start(visitor, f"SPAWN <{doc}#act>(>> ?p) AND SPAWN <{doc}#act>(>> ?q)", doc + "/into")
    parent = ended(visitor, page.path, "done")
    rows = [row for row in parent.rows() if row[0].startswith("say hello")]
    assert len(rows) == 2 and all(row[1] in ("done", "running") for row in rows)
    (link,) = {str(one) for one in parent.tree.xpath("(//td[@class='depth-1']/a/@href)[1]")}
    child = ended(visitor, link, "done")
    assert "hello" in child.words and fact(child, "Action").startswith("say hello")
    assert "say hello" in visitor.get("/programs/actions", holding=doc).words


def test_who_may_run_and_stop(viewer: Visitor, visitor: Visitor, doc: str) -> None:
    assert viewer.post("/programs", text="TRUE", act="run").status == 403
    stream = viewer.http.post("/programs/stream", data={"csrf": viewer.csrf(), "text": "TRUE", "act": "run"})
    assert "read-only" in stream.text
    page = start(visitor, "WAIT ex:note(?x, 'no viewer')", doc)
    ended(viewer, page.path, "waiting")
    assert not viewer.get(page.path).tree.xpath("//a[.='Stop']")
    assert viewer.post(f"{page.path}/stop").status == 403
    visitor.post(f"{page.path}/stop")
    ended(visitor, page.path, "stopped")
    assert visitor.get("/programs/processes/none").status == 404
    assert visitor.get("/programs/processes", state="none").status == 400


def test_a_revoked_token_stops_what_was_started_with_it_on_the_pages(
    api: Api, visitor: Visitor, new_visitor: Callable[..., Visitor], doc: str
) -> None:
    made = api.http.post("/api/v1/tokens", json={"name": "runner", "role": "admin"}).json()
    page = start(new_visitor(made["token"]), "WAIT ex:note(?x, 'wake up')", doc)
    ended(visitor, page.path, "waiting")
    assert api.http.delete(f"/api/v1/tokens/{made['id']}").status_code == 200
    assert api.put(doc, f"<{doc}#a> <{V}note> 'wake up' .").status_code == 201
    assert "revoked" in ended(visitor, page.path, "stopped").words
