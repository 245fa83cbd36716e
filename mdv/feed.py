"""The messages of the feed, which an MDP sends and an LMR applies.

An event is one change of the closure of one LMR. Events belong to transactions. The last event of a transaction is
marked, and an LMR applies a transaction only when it is complete. A response of the feed is a page of events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

from mdv.model import Statement, Term

BUCKET_COUNT = 256
CHECKSUM_MODULUS = 2**64


class EventKind(StrEnum):
    """The kinds of events, in their order within a transaction."""

    SCHEMA = "schema"
    DELETE = "delete"
    PUT = "put"
    UNMATCH = "unmatch"
    MATCH = "match"
    SUSPENDED = "suspended"
    RESUMED = "resumed"


@dataclass(frozen=True, slots=True)
class FeedSchema:
    """The schema as it is sent: its version, its statements and its prefixes."""

    version: int
    statements: tuple[Statement, ...]
    prefixes: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        statements = [[s, p, o.as_dict()] for s, p, o in self.statements]
        return {"version": self.version, "statements": statements, "prefixes": dict(self.prefixes)}

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> FeedSchema:
        statements = tuple(Statement(s, p, Term(**o)) for s, p, o in body["statements"])
        return cls(int(body["version"]), statements, dict(body["prefixes"]))


class Event(NamedTuple):
    """One event. `resource` is empty for a schema and for suspended or resumed rules; only a put has `statements`.

    A resource with very many statements is sent as several puts with the same offset. `start` is the number of
    statements in the previous ones, and `more` is true if another one follows.
    """

    kind: EventKind
    offset: int
    prev: int | None
    tx: int
    resource: str = ""
    classes: tuple[str, ...] = ()
    statements: tuple[Statement, ...] = ()
    schema: FeedSchema | None = None
    last: bool = False
    rule: int | None = None
    reason: str = ""
    """Why a rule was suspended or resumed."""
    start: int | None = None
    more: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the event as JSON.

        >>> Event(EventKind.MATCH, 8, 7, 3, "http://a/b", last=True).as_dict()
        {'event': 'match', 'offset': 8, 'prev': 7, 'tx': 3, 'resource': 'http://a/b', 'last': True}
        """
        body: dict[str, Any] = {"event": self.kind.value, "offset": self.offset, "prev": self.prev, "tx": self.tx}
        if self.schema is not None:
            body["schema"] = self.schema.as_dict()
        elif self.rule is not None:
            body |= {"rule": self.rule, "reason": self.reason}
        else:
            body["resource"] = self.resource
        if self.kind is EventKind.PUT:
            body["classes"] = list(self.classes)
            body["statements"] = [[p, o.as_dict()] for _, p, o in self.statements]
        body |= {} if self.start is None else {"from": self.start}
        body |= {"more": True} if self.more else {}
        return body | ({"last": True} if self.last else {})

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Event:
        """Return the event for its JSON.

        >>> event = Event(EventKind.DELETE, 8, 7, 3, "http://a/b")
        >>> Event.from_dict(event.as_dict()) == event
        True
        """
        resource = str(body.get("resource", ""))
        schema = body.get("schema")
        return cls(
            EventKind(body["event"]),
            int(body["offset"]),
            body.get("prev"),
            int(body["tx"]),
            resource,
            tuple(body.get("classes", ())),
            tuple(Statement(resource, p, Term(**o)) for p, o in body.get("statements", ())),
            FeedSchema.from_dict(schema) if schema is not None else None,
            body.get("last") is True,
            body.get("rule"),
            str(body.get("reason", "")),
            body.get("from"),
            body.get("more") is True,
        )


class FeedPage(NamedTuple):
    """A response of the feed. Every transaction up to `position` is in this page or in previous ones.

    `snapshot`: its events are part of the complete state at one position.
    """

    events: tuple[Event, ...]
    cursor: str
    position: int
    up_to_date: bool
    snapshot: bool = False

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> FeedPage:
        return cls(
            tuple(map(Event.from_dict, body["events"])),
            str(body["cursor"]),
            int(body["position"]),
            bool(body["up_to_date"]),
            body.get("snapshot") is True,
        )


def bucket_of(uri: str) -> int:
    """Return the checksum bucket of a resource: the first byte of the hash of its URI.

    >>> bucket_of("http://a/b")
    25
    """
    return sha256(uri.encode()).digest()[0]


def selection_hash(uri: str) -> int:
    """Return the signed 64-bit hash that marks a resource as selected in the checksum.

    >>> selection_hash("http://a/b")
    5812095638197964906
    """
    return int.from_bytes(sha256(b"selected\0" + uri.encode()).digest()[:8], "big", signed=True)
