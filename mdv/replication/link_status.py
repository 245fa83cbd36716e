"""What a member knows about its connections to the others. It is shown, and lost with Redis: nothing depends on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

LINKS_KEY = "mdv:backbone:links"
LINKS_SECONDS = 60
"""Links are shown as unknown after this time without news of `mdv replicate`."""


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """The connection to one member. Times are in seconds since 1970; 0: never.

    `offered`: the operations that the peer could send. `error`: of the last attempt. `clock_skew`: how far the clock of
    the peer is ahead.
    """

    contact: float = 0.0
    offered: Mapping[str, int] = field(default_factory=dict)
    error: str = ""
    since: float = 0.0
    """When the link began to fail; 0: it works."""
    clock_skew: float = 0.0
    transport: str = "http"
    """How its operations arrive: http or postgres."""
    version: str = ""
    """The version of MDV there; empty: unknown."""


@dataclass(frozen=True, slots=True)
class CheckProgress:
    """How far a check or a repair is: its job, its step, and how much of it is done. `total`: 0 if it is unknown."""

    job: str
    step: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class ReplicationStatus:
    """The state of `mdv replicate` at one time. `waiting`: operations that wait for others. `behind_since`: since when
    operations are missing here that a peer has; 0: none is. `check`: the check that runs."""

    at: float = 0.0
    links: Mapping[str, LinkStatus] = field(default_factory=dict)
    waiting: int = 0
    behind_since: Mapping[str, float] = field(default_factory=dict)
    check: CheckProgress | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes | None) -> ReplicationStatus | None:
        """Return the status; None if there is none, or if it is not readable.

        >>> status = ReplicationStatus(3.0, {"m2": LinkStatus(2.0, {"a": 7})})
        >>> ReplicationStatus.from_json(status.to_json()) == status
        True
        >>> ReplicationStatus.from_json("{")
        """
        try:
            fields = json.loads(text or "")
            links = {name: LinkStatus(**link) for name, link in fields.pop("links").items()}
            check = fields.pop("check", None)
            return cls(links=links, check=CheckProgress(**check) if check else None, **fields)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

    def known_vector(self) -> dict[str, int]:
        """Return the last operation of each life that a peer could send."""
        known: dict[str, int] = {}
        for link in self.links.values():
            for life, seq in link.offered.items():
                known[life] = max(seq, known.get(life, 0))
        return known


def missing_operations(known: Mapping[str, int], vector: Mapping[str, int]) -> int:
    """Return the number of operations that others have and we have not.

    >>> missing_operations({"a": 7, "b": 2}, {"a": 4, "b": 3})
    3
    """
    return sum(max(0, seq - vector.get(life, 0)) for life, seq in known.items())
