"""Effective changes: what an update did to documents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from mdv.db.delta import EffectiveEdits
from mdv.model import Statement
from mdv.rdftl.model import Delta


class EffectiveChange(NamedTuple):
    """A statement that a document gained, lost, or replaced by another."""

    document: str
    removed: Statement | None
    added: Statement | None

    def sort_key(self) -> tuple[Any, ...]:
        """Deletions first, then replacements, then insertions."""
        return (
            (self.added is not None) + (self.removed is None), self.document,
            *(statement.sort_key() if statement else () for statement in (self.removed, self.added)),
        )  # fmt: skip


def pair_changes(effective: EffectiveEdits, updates: Iterable[Delta]) -> tuple[EffectiveChange, ...]:
    """Return the changes of an update, sorted. An old value and the new value of an UPDATE are one change."""
    added, removed = dict.fromkeys(effective.added), dict.fromkeys(effective.removed)
    for same in added.keys() & removed.keys():
        del added[same], removed[same]
    changes = []
    documents = {uri for uri, _ in (*added, *removed)}
    for source, name, old_target, new_target in sorted(updates):
        assert old_target is not None and new_target is not None
        old, new = Statement(source, name, old_target), Statement(source, name, new_target)
        for uri in documents:
            if (uri, old) in removed and (uri, new) in added:
                changes.append(EffectiveChange(uri, old, new))
                del removed[uri, old], added[uri, new]
    changes += [EffectiveChange(uri, one, None) for uri, one in removed]
    changes += [EffectiveChange(uri, None, one) for uri, one in added]
    return tuple(sorted(changes, key=EffectiveChange.sort_key))
