"""The state of a superpeer as records, one for each rule, transaction, copy, known resource and so on.

A store keeps the records, and writes those that a message has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import NamedTuple

from mdv.federation.encode import decode_record, encode
from mdv.federation.superpeer_state import SuperpeerState

SITE = "site"
"""The table of all that is not a collection."""
RESOURCES = "resources"
"""The table of the resource index: by peer and URI."""


class RecordKey(NamedTuple):
    """The name of a record: its table, which is a field of the state, and its key there, as JSON."""

    table: str
    key: str


def records_of(state: SuperpeerState) -> dict[RecordKey, str]:
    """Return the state as records.

    >>> records_of(SuperpeerState("lib-a", neighbours={"lib-b"}))[RecordKey("neighbours", '"lib-b"')]
    'null'
    """
    found: dict[RecordKey, str] = {}
    for peer, known in state.index.resources.items():
        found |= {RecordKey(RESOURCES, encode((peer, uri))): encode(classes) for uri, classes in known.items()}
    for name, value in _parts(state).items():
        if isinstance(value, dict):
            found |= {RecordKey(name, encode(key)): encode(one) for key, one in value.items()}
        elif isinstance(value, set):
            found |= {RecordKey(name, encode(one)): "null" for one in value}
        else:
            found[RecordKey(SITE, name)] = encode(value)
    return found


def state_of(records: Mapping[RecordKey, str]) -> SuperpeerState:
    """Return the state that is stored as records.

    >>> state = SuperpeerState("lib-a", neighbours={"lib-b"})
    >>> state_of(records_of(state)) == state
    True
    """
    state = SuperpeerState(decode_record(records[RecordKey(SITE, "name")]))
    parts = _parts(state)
    for (table, key), text in records.items():
        part = parts.get(table)
        if table == RESOURCES:
            peer, uri = decode_record(key)
            state.index.resources.setdefault(peer, {})[uri] = decode_record(text)
        elif table == SITE:
            setattr(state, key, decode_record(text))
        elif isinstance(part, dict):
            part[decode_record(key)] = decode_record(text)
        elif isinstance(part, set):
            part.add(decode_record(key))
    for peer in state.index.nodes:
        state.index.resources.setdefault(peer, {})
    return state


def changed_records(
    before: Mapping[RecordKey, str], after: Mapping[RecordKey, str]
) -> tuple[dict[RecordKey, str], set[RecordKey]]:
    """Return the records to be written, and the keys of those to be removed.

    >>> changed_records({RecordKey("ended", "1"): "null"}, {RecordKey("site", "life"): "2"})
    ({RecordKey(table='site', key='life'): '2'}, {RecordKey(table='ended', key='1')})
    """
    written = {key: text for key, text in after.items() if before.get(key) != text}
    return written, before.keys() - after.keys()


def _parts(state: SuperpeerState) -> dict[str, object]:
    """Return the fields of the state, with the annotated schema of its index."""
    parts = {field.name: getattr(state, field.name) for field in fields(state) if field.name != "index"}
    return {**parts, "nodes": state.index.nodes}
