"""Wake the processes that wait for what a transaction changes, in the same transaction.

A transaction that changes no watched property does nothing here.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Protocol

from sqlalchemy import Connection

from mdv.db.delta import EncodedStatement
from mdv.db.real.process_waits import (
    ANY_PROPERTY,
    StoredWait,
    WaitingProcess,
    find_waiting,
    name_resources,
    store_waits,
    wake,
)
from mdv.db.vocabulary import Vocabulary
from mdv.model import Statement, Term
from mdv.rdf.schema import Schema
from mdv.rdf.values import ValueKind
from mdv.real.checkpoint import read_term, write_term
from mdv.real.store import ReadPattern, ScopedRead, StatementChange
from mdv.real.waits import change_keys, change_matches, wait_keys


class ChangedStore(Protocol):
    """What a transaction has changed."""

    def changes_of(self, properties: Collection[int] | None) -> list[tuple[str, EncodedStatement, bool]]: ...

    def known_names(self, ids: Collection[int]) -> dict[int, str]: ...


def wake_waiting(
    connection: Connection, store: ChangedStore, watched: Collection[int], vocabulary: Vocabulary, schema: Schema
) -> int:
    """Make the processes ready that wait for a change of the store. Return their number."""
    found = store.changes_of(None if ANY_PROPERTY in watched else frozenset(watched))
    if not found:
        return 0
    changes = list(_decoded(connection, found, store, vocabulary))
    keys: dict[StatementChange, frozenset[int]] = {change: change_keys(change) for change in changes}
    numbers = Counter(key for change in changes for key in keys[change])
    waiting: dict[int, list[WaitingProcess]] = defaultdict(list)
    for one in find_waiting(connection, numbers):
        for key in wait_keys(read_from_json(one.read)):
            waiting[key].append(one)
    if not waiting:
        return 0
    woken = _chosen(changes, keys, waiting, lambda name: range_kind(schema, name))
    if woken:
        wake(connection, woken.keys(), [process for process, takes in woken.items() if takes])
    return len(woken)


def _chosen(
    changes: Sequence[StatementChange],
    keys: dict[StatementChange, frozenset[int]],
    waiting: dict[int, list[WaitingProcess]],
    kind_of: Callable[[str], ValueKind],
) -> dict[int, bool]:
    """Return the processes to be woken, and whether each takes: all readers, and one taker for each new statement."""
    woken: dict[int, bool] = {}
    for change in changes:
        kind = kind_of(change.statement.property)
        candidates = [one for key in keys[change] for one in waiting.get(key, ())]
        is_taken = False
        for one in sorted(candidates, key=lambda one: (one.since, one.process)):
            if one.process in woken or (one.takes and (is_taken or not change.is_added)):
                continue
            if change_matches(read_from_json(one.read), change, kind):
                woken[one.process] = one.takes
                is_taken |= one.takes
    return woken


def _decoded(
    connection: Connection,
    changes: Iterable[tuple[str, EncodedStatement, bool]],
    store: ChangedStore,
    vocabulary: Vocabulary,
) -> Iterator[StatementChange]:
    """Yield the changes with URIs instead of IDs."""
    changes = list(changes)
    ids = {number for _, key, _ in changes for number in (key.resource, key.target) if number is not None}
    names = store.known_names(ids)
    if missing := ids - names.keys():
        names |= name_resources(connection, missing)
    terms = {number for _, key, _ in changes for number in (key.property, key.datatype) if number is not None}
    words = vocabulary.names(terms)
    for document, key, is_added in changes:
        if key.target is not None:
            value = Term("uri", names[key.target])
        else:
            datatype = None if key.datatype is None else words[key.datatype]
            value = Term("literal", key.value or "", key.lang, datatype)
        yield StatementChange(document, Statement(names[key.resource], words[key.property], value), is_added)


def range_kind(schema: Schema, name: str) -> ValueKind:
    """Return how the schema types the values of a property."""
    declared = schema.property_of(name)
    return ValueKind.TEXT if declared is None else declared.kind


def begin_waiting(
    connection: Connection, process: int, reads: Iterable[ScopedRead], takes: bool, vocabulary: Vocabulary
) -> None:
    """Note what a process waits for. The lock is taken, and nothing that it waits for has changed."""
    reads = list(reads)
    ids = vocabulary.ids({read.pattern.property for read in reads if read.pattern.property is not None})
    waits = [
        StoredWait(key, write_as_json(read), ids[name] if (name := read.pattern.property) else ANY_PROPERTY)
        for read in reads
        for key in wait_keys(read)
    ]
    # A typed value matches several keys, so the number of takers to be woken is not known: all are.
    takes = takes and len(waits) == 1 and not reads[0].pattern.is_typed
    store_waits(connection, process, waits, takes)


def write_as_json(read: ScopedRead) -> list[Any]:
    """Return a read as JSON.

    >>> write_as_json(ScopedRead(ReadPattern("urn:a", None, Term.uri("urn:b")), ("urn:d",)))
    ['urn:a', None, '<urn:b', False, ['urn:d']]
    """
    (subject, name, value, is_typed), scope = read
    written = None if value is None else write_term(value)
    return [subject, name, written, is_typed, None if scope is None else list(scope)]


def read_from_json(given: Any) -> ScopedRead:
    """Return a read from JSON.

    >>> read_from_json(["urn:a", None, "<urn:b", False, ["urn:d"]])[1]
    ('urn:d',)
    """
    subject, name, value, is_typed, scope = json.loads(given) if isinstance(given, str) else given
    pattern = ReadPattern(subject, name, None if value is None else read_term(value), is_typed)
    return ScopedRead(pattern, None if scope is None else tuple(scope))
