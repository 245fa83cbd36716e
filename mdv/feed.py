"""The feed's messages: what an MDP sends and an LMR applies.

An event is one change of one LMR's closure. Events come in transactions; the last event of a transaction says so, and
what was sent of a transaction counts only when it is whole. An answer of the feed is a page of events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

from mdv.model import Statement, Term

BUCKETS = 256
MODULUS = 2**64


class Kind(StrEnum):
    """What an event tells, in the order in which the events of a transaction stand."""

    SCHEMA = "schema"
    DELETE = "delete"
    PUT = "put"
    UNMATCH = "unmatch"
    MATCH = "match"


@dataclass(frozen=True, slots=True)
class FeedSchema:
    """The schema as it travels: its version, its statements and its prefixes."""

    version: int
    statements: tuple[Statement, ...]
    prefixes: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        said = [[s, p, o.as_dict()] for s, p, o in self.statements]
        return {"version": self.version, "statements": said, "prefixes": dict(self.prefixes)}

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> FeedSchema:
        said = tuple(Statement(s, p, Term(**o)) for s, p, o in body["statements"])
        return cls(int(body["version"]), said, dict(body["prefixes"]))


class Event(NamedTuple):
    """One event. `resource` is empty for a schema; `statements` are those of a put."""

    kind: Kind
    offset: int
    prev: int | None
    tx: int
    resource: str = ""
    classes: tuple[str, ...] = ()
    statements: tuple[Statement, ...] = ()
    schema: FeedSchema | None = None
    last: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The event as JSON has it.

        >>> Event(Kind.MATCH, 8, 7, 3, "http://a/b", last=True).as_dict()
        {'event': 'match', 'offset': 8, 'prev': 7, 'tx': 3, 'resource': 'http://a/b', 'last': True}
        """
        body: dict[str, Any] = {"event": self.kind.value, "offset": self.offset, "prev": self.prev, "tx": self.tx}
        if self.schema is not None:
            body["schema"] = self.schema.as_dict()
        else:
            body["resource"] = self.resource
        if self.kind is Kind.PUT:
            body["classes"] = list(self.classes)
            body["statements"] = [[p, o.as_dict()] for _, p, o in self.statements]
        return body | ({"last": True} if self.last else {})

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Event:
        """The event that JSON tells.

        >>> event = Event(Kind.DELETE, 8, 7, 3, "http://a/b")
        >>> Event.from_dict(event.as_dict()) == event
        True
        """
        resource = str(body.get("resource", ""))
        schema = body.get("schema")
        return cls(
            Kind(body["event"]),
            int(body["offset"]),
            body.get("prev"),
            int(body["tx"]),
            resource,
            tuple(body.get("classes", ())),
            tuple(Statement(resource, p, Term(**o)) for p, o in body.get("statements", ())),
            FeedSchema.from_dict(schema) if schema is not None else None,
            body.get("last") is True,
        )


class Page(NamedTuple):
    """An answer of the feed: every transaction up to `position` is in it, or was in one before. `snapshot`: its events
    are of the state at one position, of which they tell all."""

    events: tuple[Event, ...]
    cursor: str
    position: int
    up_to_date: bool
    snapshot: bool = False

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Page:
        return cls(
            tuple(map(Event.from_dict, body["events"])),
            str(body["cursor"]),
            int(body["position"]),
            bool(body["up_to_date"]),
            body.get("snapshot") is True,
        )


def bucket_of(uri: str) -> int:
    """The bucket of a resource, by a hash of its URI.

    >>> bucket_of("http://a/b")
    25
    """
    return sha256(uri.encode()).digest()[0]


def mark_hash(uri: str) -> int:
    """64 bits, signed, for the mark of a resource as selected.

    >>> mark_hash("http://a/b")
    5812095638197964906
    """
    return int.from_bytes(sha256(b"selected\0" + uri.encode()).digest()[:8], "big", signed=True)
