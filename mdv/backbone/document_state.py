"""The replicated state of a document besides its statements, and how operations change it.

`make_change` makes the change where it happens, `merge_change` applies it elsewhere. Both return the new states of the
statements concerned; the cost does not depend on the size of the document.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from mdv.backbone.etag import document_etag
from mdv.backbone.operation import NumberedStatement, Operation, ReplicatedChange
from mdv.backbone.replicated_set import ElementState, SetKind
from mdv.backbone.vector import NO_DOT, Dot, Vector, includes, joined
from mdv.model import Statement
from mdv.rdf.digest import statement_hash

_MODULUS = 2**64


class RecentOperation(NamedTuple):
    """An operation on a document that is not stable yet: later ones can be concurrent with it."""

    dot: Dot
    at: int
    is_deletion: bool


class ReplicatedDocument(NamedTuple):
    """A document without its statements. It is equal at all members that have applied the same operations.

    `version`: the number of operations that were applied to it. `digest`: the sum of the hashes of its statements.
    `statements`: their number. `prefixes_by`: the hybrid time and life of the last writer of its prefixes.
    `last`: the last operation here; the dot of the rows that it wrote. `merges`: the last operations of each life that
    were concurrent with others. `remnants`: pairs of a deletion and a concurrent change which no later operation has
    seen both of.
    """

    version: int = 0
    digest: int = 0
    statements: int = 0
    prefixes: Mapping[str, str] = MappingProxyType({})
    prefixes_by: tuple[int, str] = (0, "")
    last: Dot = NO_DOT
    recent: tuple[RecentOperation, ...] = ()
    merges: Vector = MappingProxyType({})
    merged_at: int = 0
    remnants: frozenset[tuple[Dot, Dot]] = frozenset()

    @property
    def is_present(self) -> bool:
        return self.statements > 0

    @property
    def etag(self) -> str:
        """The ETag: the version and the first digits of the digest.

        >>> ReplicatedDocument(5, 0x1F0C9A2E00000000, 3).etag
        '"5-1f0c9a2e"'
        """
        return f'"{document_etag(self.version, self.digest)}"'


NO_DOCUMENT = ReplicatedDocument()
"""A document that no operation has changed."""

States = Mapping[Statement, ElementState]


class AppliedChange(NamedTuple):
    """The document after a change, the new states of the statements concerned, and the statements that became visible
    and invisible. `diverged`: nothing was concurrent, but the digest before differs from the one of the origin."""

    document: ReplicatedDocument
    states: dict[Statement, ElementState]
    gained: list[Statement]
    lost: list[Statement]
    diverged: bool = False


def digest_of(statements: Iterable[Statement]) -> int:
    """Return the digest of a document: a sum, so that a change of one statement changes it by one hash.

    >>> digest_of([])
    0
    """
    return sum(map(statement_hash, statements)) % _MODULUS


def make_change(
    kind: SetKind,
    uri: str,
    document: ReplicatedDocument,
    states: States,
    insert: Collection[Statement],
    delete: Collection[Statement],
    prefixes: Mapping[str, str] | None,
    operation: Operation,
) -> tuple[ReplicatedChange, AppliedChange]:
    """Change a document here. `operation`: the one that will contain the change, without it.

    `states`: those of all statements to be inserted and deleted. Return what to send, and the effect here.
    """
    after: dict[Statement, ElementState] = {}
    inserted, deleted = [], []
    for statement in insert:
        after[statement], number = kind.insert(states[statement], operation.dot)
        inserted.append((statement, number))
    for statement in delete:
        after[statement], number = kind.delete(states[statement])
        if number:
            deleted.append((statement, number))
    return record_change(kind, uri, document, states, after, inserted, deleted, prefixes, operation)


def record_change(
    kind: SetKind,
    uri: str,
    document: ReplicatedDocument,
    states: States,
    after: dict[Statement, ElementState],
    inserted: Iterable[NumberedStatement],
    deleted: Iterable[NumberedStatement],
    prefixes: Mapping[str, str] | None,
    operation: Operation,
) -> tuple[ReplicatedChange, AppliedChange]:
    """Return what to send for a change that was made here, and its effect. `after`: the new states."""
    gained, lost = _flipped(kind, states, after)
    content = (document.digest + digest_of(gained) - digest_of(lost)) % _MODULUS
    change = ReplicatedChange(
        uri, document.version + 1, document.digest, content, prefixes, tuple(inserted), tuple(deleted)
    )
    changed = advance(document, change, operation, len(gained) - len(lost), content)
    return change, AppliedChange(changed, after, gained, lost)


def merge_change(
    kind: SetKind, document: ReplicatedDocument, states: States, change: ReplicatedChange, operation: Operation
) -> AppliedChange:
    """Apply a change of another member. `states`: those of all statements of the change."""
    after: dict[Statement, ElementState] = {}
    dot, deps = operation.dot, operation.deps
    for statement, number in change.inserted:
        after[statement] = kind.remote_insert(states[statement], number, dot)
    for statement, number in change.deleted:
        after[statement] = kind.remote_delete(states[statement], number, deps)
    gained, lost = _flipped(kind, states, after)
    diverged = False
    if change.version == document.version + 1:
        content = change.content  # nothing is concurrent
        diverged = change.base != document.digest
    else:
        content = (document.digest + digest_of(gained) - digest_of(lost)) % _MODULUS
    changed = advance(document, change, operation, len(gained) - len(lost), content)
    return AppliedChange(changed, after, gained, lost, diverged)


def _flipped(kind: SetKind, before: States, after: States) -> tuple[list[Statement], list[Statement]]:
    """Return the statements that became visible, and those that became invisible."""
    gained: list[Statement] = []
    lost: list[Statement] = []
    is_visible: Callable[[ElementState], bool] = kind.is_visible
    for statement, state in after.items():
        was, now = is_visible(before[statement]), is_visible(state)
        if was != now:
            (gained if now else lost).append(statement)
    return gained, lost


def advance(
    document: ReplicatedDocument, change: ReplicatedChange, operation: Operation, more: int, content: int
) -> ReplicatedDocument:
    """Return a document after a change of an operation. `more`: by how much the number of its statements grows.
    `content`: the new digest."""
    dot, deps, at = operation.dot, operation.deps, operation.at
    prefixes, prefixes_by = document.prefixes, document.prefixes_by
    if change.prefixes is not None and (at, operation.life) > prefixes_by:
        prefixes, prefixes_by = change.prefixes, (at, operation.life)
    remnants, merges, merged_at = document.remnants, document.merges, document.merged_at
    if remnants:
        remnants = frozenset(pair for pair in remnants if not all(includes(deps, seen) for seen in pair))
    concurrent = [one for one in document.recent if not includes(deps, one.dot)]
    if concurrent:
        merges = joined(merges, {operation.life: operation.seq})
        for one in concurrent:
            merges = joined(merges, {one.dot[0]: one.dot[1]})
        merged_at = max(merged_at, at, *(one.at for one in concurrent))
        pairs = [(dot, one.dot) if change.is_deletion else (one.dot, dot) for one in concurrent
                 if one.is_deletion != change.is_deletion]  # fmt: skip
        remnants |= frozenset(pairs)
    return ReplicatedDocument(
        document.version + 1, content, document.statements + more, prefixes, prefixes_by, dot,
        (*document.recent, RecentOperation(dot, at, change.is_deletion)), merges, merged_at, remnants,
    )  # fmt: skip


def without_stable(document: ReplicatedDocument, stable: Vector) -> ReplicatedDocument:
    """Forget the recent operations that are stable: no later operation is concurrent with them."""
    recent = tuple([one for one in document.recent if not includes(stable, one.dot)])
    return document if len(recent) == len(document.recent) else document._replace(recent=recent)
