"""The state of a superpeer over its records: what a message has changed is found without reading the rest.

Dictionaries of the state note which keys were used or written. A dictionary of values that cannot change needs only
those that were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from sqlalchemy import Connection

from mdv.db.federation.record_store import read_records, write_records
from mdv.federation.encode import decode_record, encode
from mdv.federation.records import RESOURCES, SITE, RecordKey, state_of
from mdv.federation.superpeer_state import SuperpeerState

Key = TypeVar("Key")
Value = TypeVar("Value")

IMMUTABLE = ("presence", "hops", "rules", "annotations", "sent_aborts")
"""Fields whose values are never changed in place."""
MUTABLE = ("seen", "pulls", "reactions", "transactions", "copies", "local_copies", "abort_requests")
SETS = ("neighbours", "ended", "seen_queries", "cancelled", "away")
SCALARS = ("name", "counter", "flooded", "rule_count", "queue", "grants", "order", "max_depth")


class TrackedDict(dict[Key, Value]):
    """A dictionary that notes which keys may have changed. `is_immutable`: its values do not change in place."""

    def __init__(self, content: Iterable[tuple[Key, Value]] = (), is_immutable: bool = False) -> None:
        super().__init__(content)
        self.is_immutable = is_immutable
        self.touched: set[Key] = set()
        self.is_scanned = False

    def take_touched(self) -> set[Key]:
        """Return the keys that may have changed since the last call."""
        found = self.touched | self.keys() if self.is_scanned else self.touched
        self.touched, self.is_scanned = set(), False
        return found

    def __getitem__(self, key: Key) -> Value:
        if not self.is_immutable:
            self.touched.add(key)
        return super().__getitem__(key)

    def get(self, key: Key, default: Any = None) -> Any:
        if not self.is_immutable and key in self:
            self.touched.add(key)
        return super().get(key, default)

    def __setitem__(self, key: Key, value: Value) -> None:
        self.touched.add(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: Key) -> None:
        self.touched.add(key)
        super().__delitem__(key)

    def pop(self, key: Key, *default: Any) -> Any:
        self.touched.add(key)
        return super().pop(key, *default)

    def setdefault(self, key: Key, default: Any = None) -> Any:
        self.touched.add(key)
        return super().setdefault(key, default)

    def update(self, *given: Any, **named: Any) -> None:
        for key, value in dict(*given, **named).items():
            self[key] = value

    def clear(self) -> None:
        self.touched |= self.keys()
        super().clear()

    def values(self) -> Any:
        self._scan()
        return super().values()

    def items(self) -> Any:
        self._scan()
        return super().items()

    def _scan(self) -> None:
        if not self.is_immutable:
            self.is_scanned = True


class StoredState:
    """The state of a superpeer, and what of it is stored."""

    def __init__(self, state: SuperpeerState, is_stored: bool) -> None:
        self.state = state
        self._records: dict[RecordKey, str] = {}
        self._sets: dict[str, set[Any]] = {name: set() for name in SETS}
        self._wrap_all()
        if is_stored:
            self.changes()

    @classmethod
    def read(cls, connection: Connection) -> StoredState:
        """Return the state that is stored."""
        return cls(state_of(read_records(connection)), is_stored=True)

    def _wrap_all(self) -> None:
        for name in (*IMMUTABLE, *MUTABLE):
            self._wrap(self.state, name, name in IMMUTABLE)
        self._wrap(self.state.index, "nodes", False)
        self._wrap(self.state.index, "resources", False)

    def _wrap(self, owner: object, name: str, is_immutable: bool) -> TrackedDict[Any, Any]:
        """Return the tracked dictionary of a field. One that was replaced by the core is tracked again."""
        given = getattr(owner, name)
        if isinstance(given, TrackedDict):
            return given
        tracked: TrackedDict[Any, Any] = TrackedDict(given.items(), is_immutable)
        tracked.touched |= tracked.keys()
        known = (key for key in self._records if key.table == name)
        tracked.touched |= {_decoded_key(key) for key in known}
        setattr(owner, name, tracked)
        return tracked

    def changes(self) -> tuple[dict[RecordKey, str], set[RecordKey]]:
        """Return the records to be written, and those to be removed, since the last call."""
        found = dict(self._touched())
        written = {key: text for key, text in found.items() if text is not None and self._records.get(key) != text}
        removed = {key for key, text in found.items() if text is None and key in self._records}
        self._records |= written
        for key in removed:
            del self._records[key]
        return written, removed

    def _touched(self) -> Iterator[tuple[RecordKey, str | None]]:
        for name in (*IMMUTABLE, *MUTABLE):
            yield from _records_of(name, self._wrap(self.state, name, name in IMMUTABLE))
        index = self.state.index
        yield from _records_of("nodes", self._wrap(index, "nodes", False))
        yield from self._touched_resources()
        for name in SCALARS:
            yield RecordKey(SITE, name), encode(getattr(self.state, name))
        for name in SETS:
            now, before = set(getattr(self.state, name)), self._sets[name]
            for one in now ^ before:
                yield RecordKey(name, encode(one)), "null" if one in now else None
            self._sets[name] = now

    def _touched_resources(self) -> Iterator[tuple[RecordKey, str | None]]:
        every = self._wrap(self.state.index, "resources", False)
        for peer in every.take_touched():
            known = dict.get(every, peer)
            if not isinstance(known, TrackedDict):
                gone = [key for key in self._records if key.table == RESOURCES and _decoded_key(key)[0] == peer]
                yield from ((key, None) for key in gone)
                if known is None:
                    continue
                tracked: TrackedDict[Any, Any] = TrackedDict(known.items(), is_immutable=True)
                tracked.touched |= tracked.keys()
                dict.__setitem__(every, peer, tracked)
                known = tracked
            for uri in known.take_touched():
                text = encode(dict.get(known, uri)) if uri in known else None
                yield RecordKey(RESOURCES, encode((peer, uri))), text

    def store(self, connection: Connection) -> None:
        """Store what has changed."""
        written, removed = self.changes()
        write_records(connection, written, removed)


def _records_of(name: str, tracked: TrackedDict[Any, Any]) -> Iterator[tuple[RecordKey, str | None]]:
    for key in tracked.take_touched():
        yield RecordKey(name, encode(key)), encode(dict.__getitem__(tracked, key)) if key in tracked else None


def _decoded_key(key: RecordKey) -> Any:
    return decode_record(key.key)
