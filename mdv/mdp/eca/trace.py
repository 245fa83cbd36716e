"""The trace of a run: what event-condition-action rules did in a transaction, as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from mdv.db.eca.runs import StoredCopy
from mdv.mdp.eca.changes import EffectiveChange
from mdv.mdp.eca.run import TRANSACTION, RuleCopy, RuleRun, RunStep, delta_json
from mdv.rdf.term_json import write_statement

FIRST_STEPS, LAST_STEPS = 1_000, 100
"""A trace has the first and the last steps of a run, and the number of those between them."""
MAX_CHANGES_PER_STEP = 100
MAX_SHOWN_PROCESSES = 10

T = TypeVar("T")


def write_trace(run: RuleRun) -> dict[str, Any]:
    """Return the trace of a run. `cause`: the step that triggered a rule; None for the transaction itself. `copy`: the
    number of the rule that fired; None for the transaction itself."""
    numbers = {id(copy): number for number, copy in enumerate(run.fired)}
    return {
        "steps": [_step(number, step, numbers) for number, step in _first_and_last(run.steps)],
        "left_out": max(0, len(run.steps) - FIRST_STEPS - LAST_STEPS),
        "fired": [_copy(copy, numbers) | _comparisons(copy) for _, copy in _first_and_last(run.fired)],
        "fired_count": len(run.fired),
        "failed": [_copy(copy, numbers) | {"reason": reason} for copy, reason in run.failed[:LAST_STEPS]],
    }


def _first_and_last(listed: Sequence[T]) -> list[tuple[int, T]]:
    """Return the first and the last items of a list, numbered."""
    numbered = list(enumerate(listed))
    return numbered if len(numbered) <= FIRST_STEPS + LAST_STEPS else numbered[:FIRST_STEPS] + numbered[-LAST_STEPS:]


def _step(number: int, step: RunStep, numbers: Mapping[int, int]) -> dict[str, Any]:
    return {
        "n": number,
        **_copy(step.owner, numbers),
        "action": step.action,
        "changes": [change_json(change) for change in step.changes[:MAX_CHANGES_PER_STEP]],
        "change_count": len(step.changes),
        **({"undone": True} if step.is_undone else {}),
        **({"called": step.called.as_dict()} if step.called is not None else {}),
        **({"note": step.note} if step.note is not None else {}),
    }


def _copy(copy: RuleCopy, numbers: Mapping[int, int]) -> dict[str, Any]:
    rule = copy.rule
    return {
        "copy": numbers.get(id(copy)),
        "rule": rule.id if rule is not None else None,
        "name": rule.name if rule is not None else None,
        "state": rule.state if rule is not None else None,
        "delta": delta_json(copy.delta),
        "cause": copy.cause,
        "depth": copy.depth,
    }


def _comparisons(copy: RuleCopy) -> dict[str, Any]:
    shown: dict[str, Any] = {"comparisons": copy.comparisons} if copy.comparisons else {}
    return shown | ({"processes": copy.processes[:MAX_SHOWN_PROCESSES]} if copy.processes else {})


def change_json(change: EffectiveChange) -> dict[str, Any]:
    """Return an effective change as JSON."""
    document, removed, added = change
    return {
        "document": document,
        "removed": write_statement(removed) if removed is not None else None,
        "added": write_statement(added) if added is not None else None,
    }


def stored_copies(run: RuleRun) -> list[StoredCopy]:
    """Return the copies that fired in a run, to be stored for compensation."""
    return [
        StoredCopy(
            copy.parent.number if copy.parent is not None else TRANSACTION, copy.rule.id, copy.rule.name,
            copy.abort.value, run.state_of(copy),
        )
        for copy in run.fired
        if copy.rule is not None
    ]  # fmt: skip


def audit_rows(run: RuleRun) -> list[dict[str, Any]]:
    """Return the rows of `eca_changes`: every statement that an action added or removed, undone ones included."""
    rows = []
    for number, step in enumerate(run.steps):
        rule, delta = step.owner.rule, delta_json(step.owner.delta)
        copy = step.owner.number if step.owner.number != TRANSACTION else None
        for change, (document, removed, added) in enumerate(step.changes):
            for statement, is_added in ((removed, False), (added, True)):
                if statement is not None:
                    rows.append({
                        "step": number, "rule_id": rule.id if rule is not None else None,
                        "rule_name": rule.name if rule is not None else None, "delta": delta, "is_added": is_added,
                        "document": document, "subject": statement.subject, "property": statement.property,
                        "object": statement.object.as_dict(), "copy": copy, "change": change,
                    })  # fmt: skip
    return rows
