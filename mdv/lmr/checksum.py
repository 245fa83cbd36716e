"""Verify a cache with a checksum of 256 buckets, compared with that of the MDP at the same position.

Both sides sum the hashes of the cached statements per bucket. Only the buckets that differ are fetched again: they
arrive as a snapshot at some position, and are swapped in when the cache is at exactly that position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from mdv.db import cache as db
from mdv.db.cache_gc import compute_bucket_sums
from mdv.errors import MustRefetch, Unavailable
from mdv.lmr.apply import apply, swap_buckets
from mdv.lmr.cache import Cache

Json = Mapping[str, Any]
MAX_PAGES = 100_000
"""Maximum number of pages of a snapshot of buckets or up to a position, in case an MDP sends pages without end."""


class FeedSource(Protocol):
    """The requests that keep a cache current. `mdv.lmr.mdp_client.MdpClient` implements them."""

    def feed(self, after: str | None, *, wait: float = 0, buckets: Sequence[int] | None = None) -> Json: ...

    def checksum(self) -> Json: ...


class VerifyResult(NamedTuple):
    """The position of the comparison, and the buckets that differed and were fetched again."""

    position: int
    mended: tuple[int, ...]


def checksum(cache: Cache) -> tuple[int, list[int]]:
    """Return the position of the cache, and the sum of each bucket."""
    with cache.reading() as connection:
        return db.read_state(connection).position, compute_bucket_sums(connection)


def verify(cache: Cache, mdp: FeedSource) -> VerifyResult | None:
    """Compare the cache with the MDP and repair the buckets that differ. None if the cache has no state yet.

    No other thread may apply the feed at the same time.
    """
    if cache.state().cursor is None:
        return None
    expected = mdp.checksum()
    apply_until(cache, mdp, int(expected["position"]))
    position, sums = checksum(cache)
    if position != int(expected["position"]):
        raise Unavailable(
            f"The checksum of the MDP is for position {expected['position']}, but the cache is already at {position}."
        )
    differing = tuple(n for n, (ours, theirs) in enumerate(zip(sums, map(int, expected["buckets"]), strict=True))
                      if ours != theirs)  # fmt: skip
    if differing:
        repair_buckets(cache, mdp, differing)
    return VerifyResult(position, differing)


def repair_buckets(cache: Cache, mdp: FeedSource, buckets: Sequence[int]) -> None:
    """Fetch buckets again, and swap them in."""
    position = _stage_buckets(cache, mdp, buckets)
    apply_until(cache, mdp, position)
    if cache.state().position != position:
        raise Unavailable(f"The buckets are of position {position}, but the cache is already after it.")
    swap_buckets(cache, buckets)


def apply_until(cache: Cache, mdp: FeedSource, position: int) -> None:
    """Apply the feed up to `position`, and no further."""
    for _ in range(MAX_PAGES):
        state = cache.state()
        if state.position >= position:
            return
        page = mdp.feed(state.next_cursor)
        apply(cache, page, after=state.next_cursor, until=position)
        if page.get("paused"):
            raise Unavailable("The feed of this LMR is paused: resume it to verify the cache.")
    raise Unavailable(f"The feed does not reach position {position}.")


def _stage_buckets(cache: Cache, mdp: FeedSource, buckets: Sequence[int]) -> int:
    """Stage a snapshot of buckets. Return its position."""
    with cache.writing() as connection:
        db.clear_staged(connection, db.LANE_REPAIR)
    after: str | None = None
    for _ in range(MAX_PAGES):
        try:
            page = mdp.feed(after, buckets=buckets) if after is None else mdp.feed(after)
        except MustRefetch as error:
            raise Unavailable(f"The buckets cannot be fetched now: {error.detail}") from None
        with cache.writing() as connection:
            db.stage_events(connection, page["events"], db.LANE_REPAIR)
        if page["events"] and page["events"][-1].get("last"):
            return int(page["position"])
        after = page["cursor"]
    raise Unavailable("The snapshot of some buckets does not end.")
