"""Pages of processes: the list as a tree, one process with its solutions and log, and stopping one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flask import Response, request, url_for

from mdv.errors import BadRequest, Forbidden, MdvError
from mdv.inspect.processes import find_process, list_log, list_processes, list_solutions, process_iri
from web.number_params import read_after, read_before
from web.pages.base import pages, redirect_to, render_page, require_editor, require_viewer, session
from web.services import services
from web.use_cases.processes import may_steer, stop_process_of

PAGE_SIZE, FAMILY_SIZE = 50, 200
SOLUTIONS_SIZE = LOG_SIZE = 50
LIVE_STATES = ("ready", "waiting", "calling", "full")
STATES = ("live", *LIVE_STATES, "done", "failed", "stopped")
MAX_LEVEL = 12


class ProcessRow(NamedTuple):
    """A process in a tree. `is_cut`: its parent is not on this page."""

    level: int
    process: Mapping[str, Any]
    is_cut: bool


@pages.get("/programs/processes")
def processes() -> Response:
    """List processes as a tree, the newest first; with `state`, those in one state or `live`."""
    require_viewer()
    state = request.args.get("state", "")
    if state and state not in STATES:
        raise BadRequest(f"{state[:20]!r} is not a state. Use one of {', '.join(STATES)}.")
    states = None if not state else LIVE_STATES if state == "live" else (state,)
    before = read_before(request.args.get("before"))
    with services().engine.connect() as connection:
        found = list_processes(connection, before, PAGE_SIZE + 1, states=states)
    shown = found[:PAGE_SIZE]
    kept = state or None
    more = url_for("pages.processes", before=shown[-1]["number"], state=kept) if len(found) > PAGE_SIZE else None
    return render_page(
        "processes.html",
        rows=tree_rows(shown),
        state=state,
        states=STATES,
        more=more,
        first=url_for("pages.processes", state=kept) if request.args.get("before") else None,
        is_live=any(one["state"] in LIVE_STATES for one in shown),
        here_url=request.full_path.rstrip("?"),
    )


def tree_rows(found: Sequence[Mapping[str, Any]]) -> list[ProcessRow]:
    """Return processes with their children below them. The trees are in the order of the list, children the oldest
    first.

    >>> family = [{"process": name, "parent": parent} for name, parent in (("c", "a"), ("b", "a"), ("a", None))]
    >>> [(row.level, row.process["process"]) for row in tree_rows(family)]
    [(0, 'a'), (1, 'b'), (1, 'c')]
    """
    names = {one["process"] for one in found}
    children: dict[str | None, list[Mapping[str, Any]]] = {}
    for one in found:
        parent = one["parent"] if one["parent"] in names else None
        children.setdefault(parent, []).append(one)
    rows: list[ProcessRow] = []
    stack = [(0, one) for one in reversed(children.get(None, []))]
    while stack:
        level, one = stack.pop()
        rows.append(ProcessRow(min(level, MAX_LEVEL), one, level == 0 and one["parent"] is not None))
        stack += [(level + 1, child) for child in children.get(one["process"], ())]
    return rows


@pages.get("/programs/processes/<path:name>")
def process(name: str) -> Response:
    """Show a process: its state, what it waits for, its family, solutions, log and program."""
    require_viewer()
    return _render(name)


@pages.get("/programs/processes/<path:name>/stop")
def ask_to_stop_process(name: str) -> Response:
    require_editor()
    with services().engine.connect() as connection:
        found = find_process(connection, name)
    return render_page("process_stop.html", process=found)


@pages.post("/programs/processes/<path:name>/stop")
def stop_process(name: str) -> Response:
    """Stop a process. What it has not committed is dropped."""
    caller = require_editor()
    message = request.form.get("message", "").strip()[:2000]
    with services().engine.connect() as connection:
        found = find_process(connection, name)
    if not may_steer(caller, found):
        raise Forbidden(f"{caller.name} is limited to URI prefixes, so only its own processes can be stopped.")
    try:
        stop_process_of(services(), process_iri(name), message or None, "family" in request.form)
    except MdvError as error:
        return _render(name, error)
    return redirect_to("process", name=found["id"], said="process_stopped")


def _render(name: str, error: MdvError | None = None) -> Response:
    after, entry = read_after(request.args.get("after")), read_after(request.args.get("log"))
    with services().engine.connect() as connection:
        found = find_process(connection, name)
        iri = found["process"]
        family = list_processes(connection, None, FAMILY_SIZE, root=found["root"])
        solutions = list_solutions(connection, iri, after, SOLUTIONS_SIZE + 1)
        log = list_log(connection, iri, entry, LOG_SIZE + 1)
    names = list(dict.fromkeys(name for one in solutions for name in one["binding"]))

    def url(**query: Any) -> str:
        return url_for("pages.process", name=found["id"], **query)

    user = session()
    return render_page(
        "process.html",
        error.status if error else 200,
        process=found,
        rows=tree_rows(family) if len(family) > 1 else [],
        solutions=solutions[:SOLUTIONS_SIZE],
        variables=names,
        more_solutions=url(after=solutions[SOLUTIONS_SIZE - 1]["n"]) if len(solutions) > SOLUTIONS_SIZE else None,
        log=log[:LOG_SIZE],
        more_log=url(log=log[LOG_SIZE - 1]["id"]) if len(log) > LOG_SIZE else None,
        problem=error.problem() if error else None,
        is_live=found["state"] in LIVE_STATES,
        may=user is not None and user.role == "admin",
        here_url=request.full_path.rstrip("?"),
    )
