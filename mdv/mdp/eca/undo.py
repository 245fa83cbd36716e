"""Undo: invert effective changes of documents in reverse order, where what they left is still there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mdv.cause import Cause
from mdv.db.delta import EffectiveEdits
from mdv.errors import InvalidDocument
from mdv.failpoints import AFTER_UNDO, hit_failpoint
from mdv.mdp.eca.changes import EffectiveChange
from mdv.mdp.edit import Edit
from mdv.mdp.write_limits import UNLIMITED, WriteLimits
from mdv.model import Statement


class UndoingTransaction(Protocol):
    """The transaction that changes are undone in."""

    def apply_edits(
        self, cause: Cause, additions: Sequence[Edit], deletions: Sequence[Edit], document: str | None,
        limits: WriteLimits, is_checked: bool, is_restored: bool,
    ) -> EffectiveEdits: ...  # fmt: skip

    def is_in(self, document: str, statement: Statement) -> bool: ...


def undo_changes(
    tx: UndoingTransaction, changes: Sequence[EffectiveChange], cause: Cause
) -> tuple[EffectiveChange, ...]:
    """Undo the changes of one update. Return the inverse changes, without those whose result is not there any more, or
    that would make the document invalid. The statements are looked up.

    The changes of an update concern different statements. If all of them can be undone, one round of edits does it.
    """
    possible = [change for change in reversed(changes) if _can_undo(tx, change)]
    try:
        _apply(tx, possible, cause)
    except InvalidDocument:
        possible = [change for change in possible if _try(tx, change, cause)]
    hit_failpoint(AFTER_UNDO)
    return tuple(EffectiveChange(document, added, removed) for document, removed, added in possible)


def _can_undo(tx: UndoingTransaction, change: EffectiveChange) -> bool:
    document, removed, added = change
    return (added is None or tx.is_in(document, added)) and (removed is None or not tx.is_in(document, removed))


def _try(tx: UndoingTransaction, change: EffectiveChange, cause: Cause) -> bool:
    try:
        _apply(tx, [change], cause)
    except InvalidDocument:
        return False
    return True


def _apply(tx: UndoingTransaction, changes: Sequence[EffectiveChange], cause: Cause) -> None:
    additions = [Edit(removed, document) for document, removed, _ in changes if removed is not None]
    deletions = [Edit(added, document) for document, _, added in changes if added is not None]
    if additions or deletions:
        tx.apply_edits(cause, additions, deletions, None, UNLIMITED, is_checked=True, is_restored=True)
