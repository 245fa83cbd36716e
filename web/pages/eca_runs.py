"""Pages of runs of event-condition-action rules: list, tree with a step-by-step replay, and the log of changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from flask import Response, request, url_for

from mdv.errors import InvalidRule, NotFound
from mdv.inspect.eca_log import list_changes, write_reason
from mdv.inspect.eca_rules import find_rule
from mdv.inspect.eca_runs import FiredCopy, ListedRuleRun, RunUpdate, build_tree, list_runs, read_run, walk_tree
from mdv.mdp.schemas import SchemaInForce
from mdv.rdftl.compile import compile_rules
from mdv.rdftl.write import write_action
from web.job_queue import PendingJob
from web.number_params import read_after
from web.pages.base import (
    pages,
    redirect_to,
    render_fragment,
    render_page,
    require_unlimited_editor,
    require_viewer,
    session,
)
from web.services import services
from web.use_cases.eca import compensate

PAGE_SIZE = 50
NEWEST = 2**62
MAX_TREE_ROWS = 300
"""Rows of the tree on one page."""
MAX_DIFFERENCE_LINES = 300
MAX_NAMED_ACTIONS = 30
"""Rules of a run whose actions are shown as text."""


class TreeRow(NamedTuple):
    """A row of the tree: a rule that fired, or an update. `step`: the step of the replay that it belongs to."""

    level: int
    step: int
    copy: FiredCopy | None
    update: RunUpdate | None


class ChangedLine(NamedTuple):
    """A statement that a document gained (+) or lost (-)."""

    sign: str
    document: str
    statement: Sequence[Any]


class ReplayStep(NamedTuple):
    """One step of a replay: the update, who made it, its changes, and the effect of all steps so far."""

    number: int
    rule: str | None
    rule_id: int | None
    delta: Mapping[str, Any] | None
    action: int
    text: str | None
    undone: bool
    changes: int
    lines: list[ChangedLine]
    net: list[ChangedLine]
    is_incomplete: bool


class RunReplay:
    """A run with the steps of its replay. Step 0 is the state before the first update."""

    def __init__(self, run: ListedRuleRun, trace: Mapping[str, Any], actions: Mapping[int, Sequence[str]]) -> None:
        self.run, self.trace, self.actions = run, trace, actions
        self.tree = build_tree(trace)
        self.reason: str | None = trace.get("reason")
        """Why the change was refused, or compensated."""
        self.steps: Sequence[Mapping[str, Any]] = trace["steps"]
        self._number = {step["n"]: number for number, step in enumerate(self.steps, 1)}
        self._cause = {one["copy"]: self._number.get(one["cause"], 0) for one in trace["fired"]}

    @property
    def last(self) -> int:
        return len(self.steps)

    def rows(self) -> list[TreeRow]:
        """Return the rows of the tree."""
        return [
            TreeRow(level, self._cause[node.number], node, None)
            if isinstance(node, FiredCopy)
            else TreeRow(level, self._number.get(node.number, 0), None, node)
            for level, node in walk_tree(self.tree)
        ]

    def step(self, number: int) -> ReplayStep | None:
        """Return a step; None for the start."""
        if number == 0:
            return None
        step = self.steps[number - 1]
        done = self.steps[:number]
        return ReplayStep(
            number,
            step["name"] or (f"rule {step['rule']}" if step["rule"] is not None else None),
            step["rule"],
            step["delta"],
            step["action"],
            self.action_text(step["rule"], step["action"]),
            step.get("undone", False),
            step["change_count"],
            list(_lines(step["changes"]))[:MAX_DIFFERENCE_LINES],
            _net(change for one in done for change in one["changes"])[:MAX_DIFFERENCE_LINES],
            any(one["change_count"] > len(one["changes"]) for one in done) or self.trace["left_out"] > 0,
        )

    def undone_lines(self) -> list[ChangedLine]:
        """Return the effect of the inverse of all updates."""
        net = _net(change for one in self.steps for change in one["changes"])
        return [line._replace(sign="-" if line.sign == "+" else "+") for line in net]

    def action_text(self, rule: int | None, action: int) -> str | None:
        """Return the text of an action, if the rule has not changed since the run."""
        texts = self.actions.get(rule or 0, ())
        return texts[action] if action < len(texts) else None


def _lines(changes: Iterable[Mapping[str, Any]]) -> Iterable[ChangedLine]:
    for change in changes:
        if change["removed"] is not None:
            yield ChangedLine("-", change["document"], change["removed"])
        if change["added"] is not None:
            yield ChangedLine("+", change["document"], change["added"])


def _net(changes: Iterable[Mapping[str, Any]]) -> list[ChangedLine]:
    """Return the effect of several changes: a statement that came and went is not listed."""
    found: dict[str, ChangedLine] = {}
    for line in _lines(changes):
        key = repr((line.document, line.statement))
        if key in found and found[key].sign != line.sign:
            del found[key]
        else:
            found[key] = line
    return sorted(found.values(), key=lambda line: (line.document, *map(repr, line.statement), line.sign))


@pages.get("/event-rules/runs")
def eca_runs() -> Response:
    """List runs, newest first; with `rule`, those in which the rule fired or failed."""
    require_viewer()
    before = read_after(request.args.get("after")) or NEWEST
    rule, outcome = request.args.get("rule", "").strip(), request.args.get("outcome", "")
    position = read_after(request.args.get("position")) or None
    with services().engine.connect() as connection:
        known = find_rule(connection, rule) if rule else None
        found = list_runs(
            connection,
            before,
            PAGE_SIZE + 1,
            rule=known.id if known is not None else None,
            outcome=outcome or None,
            position=position,
        )
    kept: dict[str, Any] = {"rule": rule or None, "outcome": outcome or None, "position": position}
    more = url_for("pages.eca_runs", after=found[PAGE_SIZE - 1].id, **kept) if len(found) > PAGE_SIZE else None
    first = url_for("pages.eca_runs", **kept) if before != NEWEST else None
    return render_page(
        "eca_runs.html", runs=found[:PAGE_SIZE], rule=known, outcome=outcome, position=position, more=more, first=first
    )  # fmt: skip


@pages.get("/event-rules/runs/<int:number>")
def eca_run(number: int) -> Response:
    """Show a run as a tree, at a `step` of its replay."""
    require_viewer()
    replay = _replay(number)
    at = min(read_after(request.args.get("step")), replay.last)
    rows = replay.rows()
    start = _start_of_page(rows, at)
    shown = rows[start : start + MAX_TREE_ROWS]
    user = session()
    may = user is not None and user.is_unlimited_admin
    return render_page(
        "eca_run.html",
        may=may,
        run=replay.run,
        replay=replay,
        at=at,
        step=replay.step(at),
        rows=shown,
        before=_page_link(number, rows[start - 1 : start]),
        after=_page_link(number, rows[start + MAX_TREE_ROWS :][:1]),
    )


@pages.get("/event-rules/runs/<int:number>/compensate")
def ask_to_compensate(number: int) -> Response:
    """Show what a compensation would undo, and ask for confirmation."""
    require_unlimited_editor()
    replay = _replay(number)
    lines = replay.undone_lines()
    return render_page(
        "eca_compensate.html", run=replay.run, lines=lines[:MAX_DIFFERENCE_LINES], count=len(lines), done=None
    )


@pages.post("/event-rules/runs/<int:number>/compensate")
def compensate_eca_run(number: int) -> Response:
    """Undo what a run did, and show what was undone and what was not."""
    caller = require_unlimited_editor()
    run = _replay(number).run
    done = compensate(caller, number)
    if isinstance(done, PendingJob):
        return redirect_to("job", job=done.job)
    result = done.result
    lines = list(_lines(result["not_undone"]))
    return render_page("eca_compensate.html", run=run, lines=lines, count=len(lines), done=result)


@pages.get("/event-rules/runs/<int:number>/step")
def eca_step(number: int) -> Response:
    """Return the fragment of one step, for the script of the page."""
    require_viewer()
    replay = _replay(number)
    at = min(read_after(request.args.get("step")), replay.last)
    return render_fragment("eca_step.html", run=replay.run, replay=replay, at=at, step=replay.step(at))


def _start_of_page(rows: Sequence[TreeRow], at: int) -> int:
    """Return the first row of the page that shows a step."""
    place = next((number for number, row in enumerate(rows) if row.step >= at), 0)
    return place - place % MAX_TREE_ROWS


def _page_link(number: int, rows: Sequence[TreeRow]) -> str | None:
    return url_for("pages.eca_run", number=number, step=rows[0].step) if rows else None


def _replay(number: int) -> RunReplay:
    if number > NEWEST:
        raise NotFound(f"There is no run {number} of rules.")
    s = services()
    with s.engine.connect() as connection:
        run, trace = read_run(connection, number)
        schema = s.schemas.now(connection)
        actions: dict[int, list[str]] = {}
        for rule in dict.fromkeys(one["rule"] for one in trace["fired"][:MAX_TREE_ROWS]):
            if len(actions) == MAX_NAMED_ACTIONS:
                break
            try:
                stored = find_rule(connection, str(rule))
            except NotFound:
                continue
            if stored.id == rule and stored.position <= (run.position or stored.position):
                actions[rule] = _action_texts(stored.normal, schema)
    return RunReplay(run, trace, actions)


def _action_texts(normal: str, schema: SchemaInForce) -> list[str]:
    try:
        (compiled,) = compile_rules(normal, schema.schema)
    except InvalidRule:  # the names of the schema have changed
        return []
    return [write_action(action, schema.schema) for action in compiled.rule.actions]


@pages.get("/event-rules/log")
def eca_log() -> Response:
    """List the changes that rules and updates made, newest first."""
    require_viewer()
    before = read_after(request.args.get("after")) or NEWEST
    given = {name: request.args.get(name, "").strip() for name in ("resource", "rule", "document")}
    with services().engine.connect() as connection:
        rule = find_rule(connection, given["rule"]).id if given["rule"] else None
        found = list_changes(
            connection, before, PAGE_SIZE + 1, given["resource"] or None, rule, given["document"] or None
        )
    kept: dict[str, Any] = {name: value or None for name, value in given.items()}
    more = url_for("pages.eca_log", after=found[PAGE_SIZE - 1].id, **kept) if len(found) > PAGE_SIZE else None
    first = url_for("pages.eca_log", **kept) if before != NEWEST else None
    return render_page(
        "eca_log.html", changes=found[:PAGE_SIZE], reason=write_reason, more=more, first=first, **given
    )  # fmt: skip
