"""The cost of another home for an LMR: bytes and seconds of an adoption, against those of a snapshot.

Two members of a backbone are databases of this process, and the cache is a SQLite file. The network costs nothing.
Bytes are those of the bodies of responses, without compression.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mdv.bench.backbone import BenchMember, connect_members
from mdv.bench.sql.bench_store import BenchDatabases
from mdv.bench.workload import make_document
from mdv.db.lmrs import Lmr
from mdv.inspect.sql.cache import count_cache
from mdv.lmr.apply import apply
from mdv.lmr.cache import Cache
from mdv.lmr.change_home import get_adopted
from mdv.lmr.checksum import verify
from mdv.mdp.adopt_lmr import adopt_lmr, follow_definitions
from mdv.mdp.feed import FeedReader
from mdv.mdp.lmr_definitions import announce_lmrs
from mdv.mdp.lmrs import create_lmr, get_lmr
from mdv.mdp.register import prepare
from mdv.mdp.subscribe import subscribe

PrintProgress = Callable[[str], None]

RULE = "search CycleProvider c register c"
CHANGED_MEMORY = 7
EVENTS_PER_PAGE = 5000


@dataclass(frozen=True, slots=True)
class AdoptionFigure:
    """What was measured. `buckets`: of 256. `activation_seconds`: for the rules at the new home, part of `seconds`."""

    name: str
    resources: int
    buckets: int
    size: int
    seconds: float
    activation_seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class LocalHome:
    """An MDP of this process, as an LMR asks it."""

    def __init__(self, member: BenchMember, name: str) -> None:
        self.url, self.member, self._name = member.name, member, name
        self.received_bytes, self.activation_seconds = 0, 0.0
        self._feeds = FeedReader(member.engine, member.bench.provider.vocabulary)

    def lmr(self) -> Lmr:
        with self.member.engine.connect() as connection:
            return get_lmr(connection, self._name)

    def feed(self, after: str | None, *, wait: float = 0, buckets: Sequence[int] | None = None) -> Any:
        lmr = self.lmr()
        if buckets is not None:
            text = self._feeds.read_buckets(lmr, buckets, EVENTS_PER_PAGE).text
        else:
            text = self._feeds.read(lmr, after, EVENTS_PER_PAGE).text
        self.received_bytes += len(text.encode())
        return json.loads(text)

    def checksum(self) -> Mapping[str, Any]:
        position, sums = self._feeds.checksum(self.lmr())
        return {"position": position, "buckets": sums}

    def adopt(
        self, term: int, vector: Mapping[str, int], sums: Sequence[int], accept_older: bool = False, wait: float = 0
    ) -> dict[str, Any]:
        began = time.perf_counter()
        with self.member.engine.begin() as connection:
            adopted = adopt_lmr(connection, self.lmr(), self.member.bench.provider, term)
        self.activation_seconds = time.perf_counter() - began
        cursor, position, buckets = self._feeds.take_differences(self.lmr(), sums)
        answer = {"term": adopted.term, "cursor": cursor, "position": position, "buckets": buckets, "home": self.url}
        self.received_bytes += len(json.dumps(answer))
        return answer


def run_adoption(
    databases: BenchDatabases, folder: Path, documents: int, changed: Sequence[int], print_progress: PrintProgress
) -> list[AdoptionFigure]:
    """Measure adoptions after changes of some documents, and a snapshot. A document describes two resources."""
    with ExitStack() as stack:
        members = [BenchMember(stack.enter_context(databases.new()), name, "orset") for name in ("a", "b")]
        origin, other = members
        connect_members(origin, other)
        print_progress(f"{documents:,} documents at two members")
        for first in range(0, documents, 1000):
            origin.bench.register(origin.bench.prepared(min(1000, documents - first)))
            other.pull(origin)
        _make_lmr(origin, other)
        cache = stack.enter_context(Cache.open(f"sqlite:///{folder / 'adoption.db'}"))
        homes = [LocalHome(origin, "bench"), LocalHome(other, "bench@a")]
        _read_feed(cache, homes[0])
        figures = []
        for count in changed:
            print_progress(f"adoption after {count:,} changes")
            homes.reverse()
            home, previous = homes
            _change(home.member, count)
            previous.member.pull(home.member)
            figures.append(_adopt(cache, home, previous, count))
            previous.member.pull(home.member)
            follow_definitions(previous.member.bench.provider, previous.member.name, None)
        print_progress("snapshot")
        figures.append(_take_snapshot(cache, homes[0]))
        return figures


def _make_lmr(origin: BenchMember, other: BenchMember) -> None:
    provider = origin.bench.provider
    with origin.engine.begin() as connection:
        lmr, _ = create_lmr(connection, "bench")
    with origin.engine.begin() as connection:
        subscribe(connection, lmr, [(None, RULE)], provider)
    announce_lmrs(provider)
    other.pull(origin)
    follow_definitions(other.bench.provider, other.name, None)


def _change(member: BenchMember, count: int) -> None:
    schema = member.bench.schema()
    made = [make_document(number, memory=CHANGED_MEMORY * count) for number in range(count)]
    with member.engine.begin() as connection:
        batch = [prepare(uri, body, "application/rdf+xml", schema) for uri, body in made]
        if batch:
            member.bench.replace(connection, batch)


def _adopt(cache: Cache, home: LocalHome, previous: LocalHome, count: int) -> AdoptionFigure:
    change = get_adopted(cache, previous.url, home, accept_older=False)
    _check(cache, home)
    return AdoptionFigure(
        f"adoption, {count:,} documents changed", _count(cache), change.buckets, change.size, change.seconds,
        round(home.activation_seconds, 3),
    )  # fmt: skip


def _take_snapshot(cache: Cache, home: LocalHome) -> AdoptionFigure:
    size, began = home.received_bytes, time.perf_counter()
    cache.refetch()
    _read_feed(cache, home)
    seconds = round(time.perf_counter() - began, 3)
    _check(cache, home)
    return AdoptionFigure("snapshot", _count(cache), 256, home.received_bytes - size, seconds)


def _read_feed(cache: Cache, home: LocalHome) -> None:
    while True:
        cursor = cache.state().next_cursor
        if apply(cache, home.feed(cursor), after=cursor).up_to_date:
            return


def _check(cache: Cache, home: LocalHome) -> None:
    """Raise an error if the cache differs from what the home would send."""
    compared = verify(cache, home)
    if compared is None or compared.mended:
        raise AssertionError(f"The cache differs after the adoption: {compared}")


def _count(cache: Cache) -> int:
    with cache.reading() as connection:
        return count_cache(connection).resources
