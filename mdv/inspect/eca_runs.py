"""Runs of event-condition-action rules, with their traces as trees.

    run → updates and fired rules → updates of their actions → rules that these triggered → …

A trace is stored as two lists: the updates that were executed, and the rules that fired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from mdv.errors import NotFound
from mdv.inspect.sql.eca import ListedRuleRun, list_runs, read_stored_run

__all__ = ["FiredCopy", "ListedRuleRun", "RunTree", "RunUpdate", "build_tree", "list_runs", "read_run", "run_json"]

MAX_JSON_LEVELS = 100
"""Levels of rules that JSON nests. Deeper parts of a tree are in a list of their own: parsers limit nesting."""


@dataclass(slots=True)
class RunUpdate:
    """An update that was executed: an action of a copy, or of the transaction itself. `number`: None for changes that
    the run began with, those of a registration. `note`: why it did less than its text may suggest. `copies`: the rules
    that it triggered. `called`: the action that CALL has run."""

    number: int | None
    action: int | None = None
    changes: list[dict[str, Any]] = field(default_factory=list)
    change_count: int = 0
    undone: bool = False
    note: str | None = None
    copies: list[FiredCopy] = field(default_factory=list)
    called: dict[str, Any] | None = None


@dataclass(slots=True)
class FiredCopy:
    """A rule that fired: for one instantiation of `$delta`, or for all together. `comparisons`: those of its condition
    with the values that they compared. `reason`: why it failed. `updates`: what its actions did. `processes`: those
    that it has started."""

    number: int
    rule: int
    name: str | None
    state: str | None
    delta: dict[str, Any] | None
    depth: int
    comparisons: list[dict[str, Any]]
    reason: str | None = None
    updates: list[RunUpdate] = field(default_factory=list)
    processes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RunTree:
    """The tree of a run. `start`: the changes that it began with. `updates`: the actions of an update, and updates
    whose cause was left out. `left_out`: updates that the trace does not have. `later`: rules that these triggered, if
    the trace has what they did."""

    start: RunUpdate
    updates: list[RunUpdate]
    fired: int
    left_out: int
    later: list[FiredCopy] = field(default_factory=list)


def read_run(connection: Connection, number: int) -> tuple[ListedRuleRun, dict[str, Any]]:
    """Return a run and its trace. Raise `NotFound`."""
    found = read_stored_run(connection, number)
    if found is None:
        raise NotFound(f"There is no run {number} of rules, or it is too old: traces are kept for some days.")
    return found


def build_tree(trace: Mapping[str, Any]) -> RunTree:
    """Return the tree of a trace."""
    failures = {failure["copy"]: failure["reason"] for failure in trace["failed"]}
    copies = {
        one["copy"]: FiredCopy(
            one["copy"], one["rule"], one["name"], one["state"], one["delta"], one["depth"],
            one.get("comparisons", []), failures.get(one["copy"]), processes=one.get("processes", []),
        )
        for one in trace["fired"]
    }  # fmt: skip
    updates = {
        step["n"]: RunUpdate(
            step["n"],
            step["action"],
            step["changes"],
            step["change_count"],
            step.get("undone", False),
            step.get("note"),
            called=step.get("called"),
        )
        for step in trace["steps"]
    }
    tree = RunTree(RunUpdate(None), [], trace["fired_count"], trace["left_out"])
    for step in trace["steps"]:
        owner = copies.get(step["copy"])
        (tree.updates if owner is None else owner.updates).append(updates[step["n"]])
    for one in trace["fired"]:
        copy, cause = copies[one["copy"]], tree.start if one["cause"] is None else updates.get(one["cause"])
        if cause is not None:
            cause.copies.append(copy)
        elif copy.updates or copy.reason is not None:
            tree.later.append(copy)
    return tree


def run_json(run: ListedRuleRun) -> dict[str, Any]:
    """Return a run as JSON, without its trace."""
    return run._asdict() | {"at": run.at.isoformat()}


def tree_json(tree: RunTree) -> dict[str, Any]:
    """Return a tree as JSON. Each update has `copies`, the rules that it triggered, and each of these has `updates`.

    `later` has the rules that were triggered by updates which were left out.
    Updates below `MAX_JSON_LEVELS` levels have `"continued": true` in place of `copies`, and are in `continued` with
    them.
    """
    waiting: list[RunUpdate] = []
    start = _update_json(tree.start, waiting, 0)
    updates = [_update_json(update, waiting, 0) for update in tree.updates]
    later = [_copy_json(copy, waiting, 1) for copy in tree.later]
    continued = []
    while waiting:
        continued.append(_update_json(waiting.pop(0), waiting, 0))
    return {
        "copies": start["copies"],
        "updates": updates,
        "later": later,
        "continued": continued,
        "fired": tree.fired,
        "left_out": tree.left_out,
    }


def _update_json(update: RunUpdate, waiting: list[RunUpdate], level: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "n": update.number,
        "action": update.action,
        "changes": update.changes,
        "change_count": update.change_count,
        "undone": update.undone,
        "note": update.note,
    } | ({"called": update.called} if update.called is not None else {})
    if level >= MAX_JSON_LEVELS and update.copies:
        waiting.append(update)
        return found | {"continued": True}
    return found | {"copies": [_copy_json(copy, waiting, level + 1) for copy in update.copies]}


def _copy_json(copy: FiredCopy, waiting: list[RunUpdate], level: int) -> dict[str, Any]:
    return {
        "copy": copy.number,
        "rule": copy.rule,
        "name": copy.name,
        "state": copy.state,
        "delta": copy.delta,
        "comparisons": copy.comparisons,
        "reason": copy.reason,
        "updates": [_update_json(update, waiting, level) for update in copy.updates],
    } | ({"processes": copy.processes} if copy.processes else {})


def walk_tree(tree: RunTree) -> Iterator[tuple[int, RunUpdate | FiredCopy]]:
    """Yield the updates and rules of a tree with their levels, in the order of the tree."""
    stack: list[tuple[int, RunUpdate | FiredCopy]] = [(0, copy) for copy in reversed(tree.later)]
    stack += [(0, update) for update in reversed(tree.updates)]
    stack += [(0, copy) for copy in reversed(tree.start.copies)]
    while stack:
        level, node = stack.pop()
        yield level, node
        below: list[Any] = list(node.copies if isinstance(node, RunUpdate) else node.updates)
        stack += [(level + 1, one) for one in reversed(below)]
