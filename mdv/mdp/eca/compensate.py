"""Compensation: undo what committed transactions did, in a new transaction.

    run → copies that depend on each other by ABORT → their changes, last one first → undo → filter → publish

A change is undone only where what it left is still there unchanged; the others are reported. Compensation triggers no
rules.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.cause import COMPENSATION, Cause
from mdv.db.eca.runs import (
    COMPENSATION_RUN,
    REFUSED,
    REGISTRATION_RUN,
    RunRecord,
    StoredChange,
    StoredRun,
    mark_compensated,
    read_changes,
    read_net_changes,
    run_uri,
    store_run,
)
from mdv.db.state import LockPurpose
from mdv.errors import Conflict, NotFound
from mdv.mdp.eca.abort_graph import AbortGraph, CopyKey
from mdv.mdp.eca.changes import EffectiveChange
from mdv.mdp.eca.readers import find_readers
from mdv.mdp.eca.run import TRANSACTION
from mdv.mdp.eca.trace import FIRST_STEPS, LAST_STEPS, MAX_CHANGES_PER_STEP, change_json
from mdv.mdp.eca.undo import undo_changes
from mdv.mdp.edit import Edit
from mdv.mdp.provider import Provider
from mdv.mdp.transaction import Transaction
from mdv.model import Statement

MAX_SKIPPED_LISTED = 100
"""Changes that could not be undone, up to which the answer lists them. The others are counted."""
MAX_READERS = 100
"""Copies of later transactions that one compensation undoes because they read what it undoes."""


@dataclass(frozen=True, slots=True)
class CompensationRequest:
    """A run to be compensated. `copies`: only these of its copies, by number, with what depends on them; None: the
    transaction itself. `reason`: why, for the trace."""

    run: int
    copies: tuple[int, ...] | None = None
    reason: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class CompensationOutcome:
    """The effect of a compensation. `run`: its own run; None if everything was compensated before. `runs`: the runs
    that it compensated, at least in part. `undone`, `skipped`: changes that were undone or not, as numbers.
    `not_undone`: the first ones that were not. `readers`: copies of later transactions that were compensated because
    they read undone changes. `readers_left`: those beyond the limit."""

    position: int
    run: int | None
    runs: tuple[int, ...] = ()
    undone: int = 0
    skipped: int = 0
    not_undone: list[dict[str, Any]] = field(default_factory=list)
    readers: int = 0
    readers_left: int = 0
    matched: int = 0
    lmrs: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class UndoStep(NamedTuple):
    """The changes of one update of a copy. `agent`: the name of its rule, if it has one."""

    key: CopyKey
    rule_id: int | None
    agent: str | None
    changes: tuple[EffectiveChange, ...]


def compensate_run(connection: Connection, request: CompensationRequest, provider: Provider) -> CompensationOutcome:
    """Compensate a run in one transaction. Raise `NotFound` if it is not kept, or `Conflict` if it changed nothing."""
    tx = Transaction(provider, connection)
    tx.reacts = False
    with tx.locking(LockPurpose.DOCUMENTS):
        """There are no look-ups."""
    graph = AbortGraph(connection)
    seeds = _seeds(graph, request)
    selected = _left(graph, graph.closure(seeds))
    if not selected:
        return CompensationOutcome(tx.state.position, None)
    readers, readers_left = set[CopyKey](), 0
    if provider.cascades_to_readers:

        def statements_of(keys: Collection[CopyKey]) -> Iterator[Statement]:
            changes = (change for step in _steps(connection, graph, keys) for change in step.changes)
            return (one for _, *both in changes for one in both if one is not None)

        found, readers_left = find_readers(
            connection, tx.schema.schema, graph, selected, statements_of, MAX_READERS
        )  # fmt: skip
        readers = _left(graph, found) - selected
        selected |= readers
    undone, skipped = _undo(tx, list(_steps(connection, graph, selected)), request)
    done = tx.finish()
    record = _record(request, selected, undone, skipped)
    number = store_run(connection, done.position, record)
    copies: dict[int, set[int]] = defaultdict(set)
    for key in selected:
        copies[key.run].add(key.copy)
    mark_compensated(connection, copies)
    return CompensationOutcome(
        done.position, number, tuple(sorted(copies)), sum(len(step.changes) for step in undone),
        sum(len(step.changes) for step in skipped),
        [change_json(one) for step in skipped for one in step.changes][:MAX_SKIPPED_LISTED], len(readers), readers_left,
        sum(one.matched for one in done.documents.values()), len(list(done.publication.names())),
    )  # fmt: skip


def _seeds(graph: AbortGraph, request: CompensationRequest) -> set[CopyKey]:
    graph.load([request.run])
    run = graph.runs.get(request.run)
    if run is None:
        raise NotFound(f"There is no run {request.run}. Runs are kept for 7 days; `mdv eca trace` shows a run.")
    if run.cause == COMPENSATION_RUN:
        raise Conflict(f"Run {run.id} is a compensation, which cannot be compensated. Repeat the change instead.")
    if run.outcome == REFUSED:
        raise Conflict(f"Run {run.id} was refused, so there is nothing to compensate.")
    copies = (TRANSACTION,) if request.copies is None else request.copies
    for copy in copies:
        if not TRANSACTION <= copy < len(run.copies):
            raise NotFound(f"Run {run.id} has no copy {copy}: its copies have the numbers 0 to {len(run.copies) - 1}.")
    return {CopyKey(run.id, copy) for copy in copies}


def _left(graph: AbortGraph, keys: Collection[CopyKey]) -> set[CopyKey]:
    """Return those of these copies that are not compensated yet."""
    return {key for key in keys if key.copy not in graph.runs[key.run].compensated}


def _steps(connection: Connection, graph: AbortGraph, selected: Collection[CopyKey]) -> Iterator[UndoStep]:
    """Yield the updates of copies, the last one first."""
    by_run: dict[int, set[int]] = defaultdict(set)
    for key in selected:
        by_run[key.run].add(key.copy)
    runs = sorted((graph.runs[number] for number in by_run), key=lambda run: (run.position or 0, run.id))
    for run in reversed(runs):
        yield from reversed(list(_steps_of_run(connection, run, by_run[run.id])))


def _steps_of_run(connection: Connection, run: StoredRun, copies: Collection[int]) -> Iterator[UndoStep]:
    rows = read_changes(connection, run.id)
    if TRANSACTION in copies and run.cause == REGISTRATION_RUN and run.subject is not None:
        yield UndoStep(CopyKey(run.id, TRANSACTION), None, None, _registered(connection, run, rows))
    steps: dict[int, list[StoredChange]] = defaultdict(list)
    for row in rows:
        if (TRANSACTION if row.copy is None else row.copy) in copies:
            steps[row.step].append(row)
    for _, found in sorted(steps.items()):
        copy = TRANSACTION if found[0].copy is None else found[0].copy
        label = found[0].rule_name or (f"rule {found[0].rule_id}" if found[0].rule_id is not None else None)
        yield UndoStep(CopyKey(run.id, copy), found[0].rule_id, label, _changes(found))


def _changes(rows: Sequence[StoredChange]) -> tuple[EffectiveChange, ...]:
    changes: dict[int, EffectiveChange] = {}
    for row in rows:
        _, removed, added = changes.get(row.change, EffectiveChange(row.document, None, None))
        if row.is_added:
            added = row.statement
        else:
            removed = row.statement
        changes[row.change] = EffectiveChange(row.document, removed, added)
    return tuple(changes.values())


def _registered(connection: Connection, run: StoredRun, rows: Sequence[StoredChange]) -> tuple[EffectiveChange, ...]:
    """Return what a registration or an edit changed: the net change of its transaction, without that of the rules."""
    assert run.position is not None and run.subject is not None
    counts: Counter[Statement] = Counter()
    for is_added, statement in read_net_changes(connection, run.position, run.subject):
        counts[statement] += 1 if is_added else -1
    for row in rows:
        if row.document == run.subject:
            counts[row.statement] -= 1 if row.is_added else -1
    found = [
        EffectiveChange(run.subject, None, one) if count > 0 else EffectiveChange(run.subject, one, None)
        for one, count in counts.items()
        if count
    ]
    return tuple(sorted(found, key=EffectiveChange.sort_key))


def _undo(
    tx: Transaction, steps: Sequence[UndoStep], request: CompensationRequest
) -> tuple[list[UndoStep], list[UndoStep]]:
    """Undo steps. Return the inverse changes, and the changes that could not be undone."""
    every = [
        Edit(statement, document)
        for step in steps
        for document, *statements in step.changes
        for statement in statements
        if statement is not None
    ]
    tx.look_up_edits(list(dict.fromkeys(every)))
    undone, skipped = [], []
    for step in steps:
        inverse = undo_changes(tx, step.changes, Cause(COMPENSATION, step.agent, request.by))
        done = {EffectiveChange(document, added, removed) for document, removed, added in inverse}
        undone.append(step._replace(changes=inverse))
        skipped.append(step._replace(changes=tuple(change for change in step.changes if change not in done)))
    return undone, [step for step in skipped if step.changes]


def _record(
    request: CompensationRequest, selected: Collection[CopyKey], undone: Sequence[UndoStep],
    skipped: Sequence[UndoStep],
) -> RunRecord:  # fmt: skip
    """Return the run of a compensation, to be stored. Its trace is like that of other runs."""
    left_out = max(0, len(undone) - FIRST_STEPS - LAST_STEPS)
    numbered = list(enumerate(undone))
    kept = numbered if not left_out else numbered[:FIRST_STEPS] + numbered[-LAST_STEPS:]
    trace = {
        "steps": [_step(number, step) for number, step in kept],
        "left_out": left_out,
        "fired": [],
        "fired_count": 0,
        "failed": [],
        "compensates": [list(key) for key in sorted(selected)],
        "skipped": [_step(number, step) for number, step in enumerate(skipped[:LAST_STEPS])],
        "reason": request.reason,
    }
    rows = [
        {
            "step": number, "rule_id": step.rule_id, "rule_name": step.agent, "delta": None, "is_added": is_added,
            "document": document, "subject": statement.subject, "property": statement.property,
            "object": statement.object.as_dict(), "copy": None, "change": change,
        }
        for number, step in enumerate(undone)
        for change, (document, removed, added) in enumerate(step.changes)
        for statement, is_added in ((removed, False), (added, True))
        if statement is not None
    ]  # fmt: skip
    return RunRecord(COMPENSATION_RUN, run_uri(request.run), "done", 0, trace, rows, {}, request.by)


def _step(number: int, step: UndoStep) -> dict[str, Any]:
    return {
        "n": number, "copy": None, "rule": step.rule_id, "name": step.agent, "state": None, "delta": None,
        "cause": None, "depth": 0, "action": None, "run": step.key.run,
        "changes": [change_json(change) for change in step.changes[:MAX_CHANGES_PER_STEP]],
        "change_count": len(step.changes), "undone": True,
    }  # fmt: skip
