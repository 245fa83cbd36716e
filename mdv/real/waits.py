"""What waiting programs wait for: keys for an index, and the choice of the processes that a commit wakes.

Law: if a change matches a read, `change_keys` of the change contains `wait_key` of the read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import product
from typing import NamedTuple

from mdv.rdf.values import ValueKind
from mdv.real.store import ScopedRead, StatementChange, pattern_matches, scope_contains


class WaitEntry(NamedTuple):
    """A process that waits. `takes`: it takes what it reads. `since`: the order in which processes began to wait."""

    process: str
    reads: tuple[ScopedRead, ...]
    takes: bool = False
    since: int = 0


def wait_keys(read: ScopedRead) -> tuple[int, ...]:
    """Return the 64-bit keys of a read: one per document of its scope, or one for all documents.

    A number or boolean is any object here, since it also matches literals of equal value.
    """
    subject, name, value, is_typed = read.pattern
    object_ = None if value is None or is_typed else repr(tuple(value))
    documents: tuple[str | None, ...] = (None,) if read.scope is None else read.scope
    return tuple(_key(document, name, subject, object_) for document in documents)


def change_keys(change: StatementChange) -> frozenset[int]:
    """Return the keys under which the reads that match a change wait."""
    statement = change.statement
    parts = (change.document, statement.property, statement.subject, repr(tuple(statement.object)))
    return frozenset(_key(*chosen) for chosen in product(*((part, None) for part in parts)))


def _key(*parts: str | None) -> int:
    text = "\0".join("" if part is None else f"={part}" for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def change_matches(read: ScopedRead, change: StatementChange, range_kind: ValueKind = ValueKind.TEXT) -> bool:
    """True if a change may change the result of a read. `range_kind`: how the schema types the changed property."""
    return scope_contains(read.scope, change.document) and pattern_matches(read.pattern, change.statement, range_kind)


def choose_woken(
    entries: Iterable[WaitEntry], changes: Sequence[StatementChange], range_kind: Callable[[str], ValueKind]
) -> list[str]:
    """Return the processes that changes wake: all readers, and of takers one per new statement, the oldest first.

    `range_kind`: how the schema types a property. A process that is chosen as a taker and ends before it runs must be
    replaced: the host wakes all takers then.

    >>> from mdv.model import Statement, Term
    >>> from mdv.real.store import ReadPattern
    >>> read = ScopedRead(ReadPattern(property="urn:task"))
    >>> new = StatementChange("urn:d", Statement("urn:1", "urn:task", Term.literal("x")), True)
    >>> takers = [WaitEntry("b", (read,), True, 2), WaitEntry("a", (read,), True, 1)]
    >>> choose_woken([*takers, WaitEntry("c", (read,))], [new], lambda name: ValueKind.TEXT)
    ['c', 'a']
    """
    ordered = sorted(entries, key=lambda entry: entry.since)
    woken: dict[str, None] = {}
    for change in changes:
        is_taken, kind = False, range_kind(change.statement.property)
        for entry in ordered:
            if entry.process in woken or (entry.takes and (is_taken or not change.is_added)):
                continue
            if any(change_matches(read, change, kind) for read in entry.reads):
                woken[entry.process] = None
                is_taken |= entry.takes
    return list(woken)
