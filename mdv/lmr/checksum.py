"""Whether a cache holds what the MDP says it should: 256 sums, compared at one position.

Both sides add up hashes of what is in the cache, by bucket. Buckets that differ are fetched again, and only they: they
come as a snapshot at some position, and are swapped in when the cache stands exactly there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from mdv.db import cache as db
from mdv.db.cache_collect import bucket_sums
from mdv.errors import MustRefetch, Unavailable
from mdv.lmr.apply import apply, swap_buckets
from mdv.lmr.store import Cache

Json = Mapping[str, Any]
MOST_PAGES = 100_000
"""How many pages a bucket's snapshot or the way to a position may take: an MDP that never ends must not hold us."""


class Source(Protocol):
    """What an LMR asks of an MDP to be current (`mdv.lmr.mdp.Mdp` has more)."""

    def feed(self, after: str | None, *, wait: float = 0, buckets: Sequence[int] | None = None) -> Json: ...

    def checksum(self) -> Json: ...


class Verified(NamedTuple):
    """The position at which was compared, and the buckets that differed and were fetched again."""

    position: int
    mended: tuple[int, ...]


def checksum(cache: Cache) -> tuple[int, list[int]]:
    """The position of the cache, and a sum for each bucket."""
    with cache.reading() as connection:
        return db.read_state(connection).position, bucket_sums(connection)


def verify(cache: Cache, mdp: Source) -> Verified | None:
    """Compare with the MDP and mend what differs; None: the cache has no state yet that could be compared. Nobody else
    may apply the feed meanwhile."""
    if cache.state().cursor is None:
        return None
    told = mdp.checksum()
    advance(cache, mdp, int(told["position"]))
    position, sums = checksum(cache)
    if position != int(told["position"]):
        raise Unavailable(f"The MDP summed up position {told['position']}, and the cache is at {position} already.")
    differing = tuple(n for n, (ours, theirs) in enumerate(zip(sums, map(int, told["buckets"]), strict=True))
                      if ours != theirs)  # fmt: skip
    if differing:
        mend(cache, mdp, differing)
    return Verified(position, differing)


def mend(cache: Cache, mdp: Source, buckets: Sequence[int]) -> None:
    """Fetch buckets again and swap them in."""
    position = _stage_buckets(cache, mdp, buckets)
    advance(cache, mdp, position)
    if cache.state().position != position:
        raise Unavailable(f"The buckets are of position {position}, and the cache is beyond it.")
    swap_buckets(cache, buckets)


def advance(cache: Cache, mdp: Source, position: int) -> None:
    """Apply the feed up to `position`, and nothing after it."""
    for _ in range(MOST_PAGES):
        state = cache.state()
        if state.position >= position:
            return
        page = mdp.feed(state.next_cursor)
        apply(cache, page, after=state.next_cursor, until=position)
        if page.get("paused"):
            raise Unavailable("The feed of this LMR is paused: it can be compared once it is resumed.")
    raise Unavailable(f"The feed does not come to position {position}.")


def _stage_buckets(cache: Cache, mdp: Source, buckets: Sequence[int]) -> int:
    """Keep a snapshot of buckets for later; its position."""
    with cache.writing() as connection:
        db.clear_staged(connection, db.REPAIR)
    after: str | None = None
    for _ in range(MOST_PAGES):
        try:
            page = mdp.feed(after, buckets=buckets) if after is None else mdp.feed(after)
        except MustRefetch as error:
            raise Unavailable(f"The buckets cannot be fetched now: {error.detail}") from None
        with cache.writing() as connection:
            db.stage(connection, page["events"], db.REPAIR)
        if page["events"] and page["events"][-1].get("last"):
            return int(page["position"])
        after = page["cursor"]
    raise Unavailable("The snapshot of some buckets does not end.")
