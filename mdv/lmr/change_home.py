"""Get another home for an LMR, whose present one does not answer.

    term, vector, checksum → adoption → buckets that differ → swapped in together with the home and its cursor

Until the last step the cache serves what it has, and a failure changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from mdv.db import cache as db
from mdv.db.cache_gc import compute_bucket_sums
from mdv.errors import MustRefetch, Unavailable
from mdv.failpoints import ADOPTED, STAGED_BUCKETS, hit_failpoint
from mdv.lmr.apply import swap_home
from mdv.lmr.cache import Cache
from mdv.lmr.checksum import MAX_PAGES

MAX_ADOPTIONS_KEPT = 20
BEHIND_WAIT_SECONDS = 5.0
"""How long an MDP may wait for changes that it lacks, in one request."""


class ChangedHome(NamedTuple):
    """A change of the home. `size`: the bytes of the responses. `buckets`: how many differed."""

    at: str
    previous: str
    home: str
    name: str
    term: int
    position: int
    buckets: int
    events: int
    size: int
    seconds: float
    problems: Sequence[str]


class NewHome(Protocol):
    """The requests that make an MDP the home. `mdv.lmr.mdp_client.MdpClient` implements them."""

    url: str
    received_bytes: int

    def adopt(
        self, term: int, vector: Mapping[str, int], sums: Sequence[int], accept_older: bool = False, wait: float = 0
    ) -> dict[str, Any]: ...

    def feed(self, after: str | None) -> dict[str, Any]: ...


def get_adopted(cache: Cache, previous: str, mdp: NewHome, accept_older: bool) -> ChangedHome:
    """Make an MDP the home of this LMR. No other thread may apply the feed at the same time. Raise `Behind` if the MDP
    lacks changes that the cache has, unless `accept_older`."""
    begun, size = time.monotonic(), mdp.received_bytes
    term = cache.next_term()
    with cache.reading() as connection:
        seen, sums = db.read_home(connection).seen, compute_bucket_sums(connection)
    adopted = mdp.adopt(term, seen, sums, accept_older, BEHIND_WAIT_SECONDS)
    hit_failpoint(ADOPTED)
    page, events = _stage(cache, mdp, str(adopted["cursor"]))
    hit_failpoint(STAGED_BUCKETS)
    buckets = [int(bucket) for bucket in adopted["buckets"]]
    change: ChangedHome | None = None

    def new_home(home: db.CacheHome) -> db.CacheHome:
        nonlocal change
        change = ChangedHome(
            datetime.now(UTC).isoformat(), previous, mdp.url, str(adopted.get("home", "")), int(adopted["term"]),
            int(page["position"]), len(buckets), events, mdp.received_bytes - size,
            round(time.monotonic() - begun, 3), list(adopted.get("problems", ())),
        )  # fmt: skip
        vector = page.get("vector", {}) if page["up_to_date"] else {}
        kept = [change._asdict(), *home.adoptions][:MAX_ADOPTIONS_KEPT]
        return db.CacheHome(mdp.url, max(home.term, change.term), vector, page.get("vector", {}), kept)

    swap_home(cache, page, buckets, new_home)
    assert change is not None
    return change


def _stage(cache: Cache, mdp: NewHome, cursor: str) -> tuple[dict[str, Any], int]:
    """Stage the snapshot of the buckets that differ. Return its last page, and the number of its events."""
    with cache.writing() as connection:
        db.clear_staged(connection, db.LANE_REPAIR)
    events = 0
    for _ in range(MAX_PAGES):
        try:
            page = mdp.feed(cursor)
        except MustRefetch as error:
            raise Unavailable(f"The buckets of the new home cannot be fetched: {error.detail}") from None
        with cache.writing() as connection:
            db.stage_events(connection, page["events"], db.LANE_REPAIR)
        events += len(page["events"])
        if page["events"] and page["events"][-1].get("last"):
            return page, events
        cursor = page["cursor"]
    raise Unavailable("The snapshot of the new home does not end.")
