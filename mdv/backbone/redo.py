"""Repeat changes in a new life: drafts, and operations that no other member can accept any more.

A change that was made long ago can be concurrent with operations whose details are no longer kept. So it is not sent as
it was, but repeated on the present state, by an operation that has seen everything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from mdv.backbone.document_state import AppliedChange, ReplicatedDocument, States, record_change
from mdv.backbone.operation import NumberedStatement, Operation, ReplicatedChange
from mdv.backbone.replicated_set import ElementState, SetKind
from mdv.backbone.vector import Vector, covers, includes
from mdv.model import Statement


@dataclass(slots=True)
class RepeatedChange:
    """The net change of one document by several operations.

    `numbers`: the sum for each statement, deletions negative. `inserted`: the statements whose last change is an
    insertion. `deleted`: the others, with what the deletion had seen.
    """

    numbers: dict[Statement, int] = field(default_factory=lambda: defaultdict(int))
    inserted: dict[Statement, None] = field(default_factory=dict)
    deleted: dict[Statement, Vector] = field(default_factory=dict)
    prefixes: Mapping[str, str] | None = None


def net_changes(operations: Iterable[Operation]) -> dict[str, RepeatedChange]:
    """Return the net change of each document. The operations are in the order in which they were applied."""
    found: dict[str, RepeatedChange] = defaultdict(RepeatedChange)
    for operation in operations:
        for change in operation.documents:
            net = found[change.uri]
            for statement, number in change.inserted:
                net.numbers[statement] += number
                net.deleted.pop(statement, None)
                net.inserted[statement] = None
            for statement, number in change.deleted:
                net.numbers[statement] -= number
                net.inserted.pop(statement, None)
                net.deleted[statement] = operation.deps
            net.prefixes = change.prefixes if change.prefixes is not None else net.prefixes
    return found


def redo_change(
    kind: SetKind, uri: str, document: ReplicatedDocument, states: States, net: RepeatedChange, operation: Operation
) -> tuple[ReplicatedChange, AppliedChange] | None:
    """Repeat the change of a document. `operation`: the one that will contain it. None if there is nothing to repeat.

    In an add-wins set, a statement is inserted also if it is visible, so that deletions elsewhere do not remove it. It
    is deleted only if the deletion had certainly seen all its insertions: when in doubt, it remains.
    """
    after: dict[Statement, ElementState] = {}
    inserted: list[NumberedStatement] = []
    deleted: list[NumberedStatement] = []
    if kind.is_causal:
        for statement in net.inserted:
            after[statement], number = kind.insert(states[statement], operation.dot)
            inserted.append((statement, number))
        for statement, deps in net.deleted.items():
            if kind.is_visible(states[statement]) and has_seen(document, states[statement], deps):
                after[statement], number = kind.delete(states[statement])
                deleted.append((statement, number))
    else:
        for statement, number in net.numbers.items():
            if number > 0:
                after[statement] = kind.remote_insert(states[statement], number, operation.dot)
                inserted.append((statement, number))
            elif number < 0:
                after[statement] = kind.remote_delete(states[statement], -number, operation.deps)
                deleted.append((statement, -number))
    if not inserted and not deleted and net.prefixes is None:
        return None
    return record_change(kind, uri, document, states, after, inserted, deleted, net.prefixes, operation)


def has_seen(document: ReplicatedDocument, dots: Iterable[tuple[str, int]], deps: Vector) -> bool:
    """True if `deps` certainly include all insertions of a statement. Dots of merged operations may be forgotten."""
    return covers(deps, document.merges) and all(includes(deps, dot) for dot in dots)


def touched_documents(operations: Iterable[Operation]) -> set[str]:
    """Return the URIs of all documents that the operations change."""
    return {change.uri for operation in operations for change in operation.documents}


NewLife = Callable[[], str]
"""Returns the identifier of a new life: random, and never used before."""
