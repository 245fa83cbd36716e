"""Documents that are stored: what a registration costs beside more and more of them, and what they weigh.

A thousand rules of all types are in place, of two LMRs. Every document, stored or new, is matched by one PATH, one JOIN
and one `contains` rule, by half of the COMP rules and by nearly all with `!=`; so both LMRs are told of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from sqlalchemy import Engine

from mdv.bench.rulebase import TYPES, comp
from mdv.bench.scale.fit import CONSTANT
from mdv.bench.scale.series import Found, Plan, Say, Timed, Weight, measure
from mdv.bench.scale.store import Store, Text
from mdv.bench.workload import provider_uri, rdf_xml
from mdv.db.bench import DOCUMENT_TABLES, FEED_TABLES, HELD_TABLES, Databases, Weighed, weigh
from mdv.mdp.feed import Feeds

GROWS = "stored documents"
RULES = 1000
LMRS = 2
EVENTS_TOLD = 3
"""Of one document to one LMR: two resources are put, and one of them matches."""
FAR = 1_000_000_000
"""From here on, rules name resources that never come."""
BATCHES = (100, 1)
SNAPSHOTS = 3
"""Of these the fastest counts: each is long, and others only make it longer."""

AT_ONCE, ALONE = (f"documents: batches of {size}" for size in BATCHES)
DOCUMENT_BYTES, INDEX_BYTES = "documents: bytes on disk", "documents: bytes of indexes"
HELD_BYTES, HELD_INDEX_BYTES = "held resources: bytes on disk", "held resources: bytes of indexes"
EVENT_BYTES = "feed events: bytes on disk"
VACUUM, SNAPSHOT = "documents: vacuum", "held resources: snapshot"


class Full:
    """A store with that many documents. `vacuum`: the seconds that the first vacuum of all took."""

    def __init__(self, engine: Engine, stored: int, rules: int = RULES) -> None:
        self.store, self.size = Store(engine), stored
        exact, ranges = [TYPES[name] for name in ("path", "join", "contains")], [comp(1), TYPES["ne"]]
        types = len(exact) + len(ranges) + 1
        self._each = max(1, rules // types)
        self.rules = self._each * types
        numbers = range(self._each)
        nowhere = [TYPES["oid"].rule(FAR + number) for number in numbers]
        one, two = self.store.follow(
            [[t.rule(n) for t in exact for n in numbers] + nowhere, [t.rule(n) for t in ranges for n in numbers]]
        )
        self._exact = [one[place : place + self._each] for place in range(0, len(exact) * self._each, self._each)]
        above, other = two[: self._each], two[self._each :]
        self._synth = self._each // 2
        self._ranged = [*above[: self._synth], *other[: self._synth], *other[self._synth + 1 :]]
        self.vacuum = self.store.fill(map(self._document, range(stored)))
        self._next = stored

    def turn(self, size: int) -> Timed:
        """Register that many new documents, and check all that the filter found."""
        numbers = range(self._next, self._next + size)
        self._next += size
        timed = self.store.turn([self._document(number) for number in numbers], matched=1, lmrs=LMRS)
        due = {(end, provider_uri(number), True) for number in numbers for end in self._matching(number)}
        found = self.store.changes()
        if len(found) != len(due) or set(found) != due:
            raise AssertionError(f"{self.size:,} stored documents: {len(found)} changes, not the {len(due)} due.")
        return timed

    def _document(self, number: int) -> Text:
        place = number % self._each
        return rdf_xml(number, place, self._synth, place)

    def _matching(self, number: int) -> list[int]:
        return [ends[number % self._each] for ends in self._exact] + self._ranged

    def weigh(self, names: tuple[str, ...], each: int) -> Weighed:
        """What tables weigh; the first of them must have that many rows for each document."""
        with self.store.engine.begin() as connection:
            weighed = weigh(connection, names)
        if weighed.rows != each * self._next:
            raise AssertionError(f"{names[0]} has {weighed.rows:,} rows for {self._next:,} documents, not {each} each.")
        return weighed

    def snapshot(self) -> float:
        """The seconds until an LMR that wants all it holds has the beginning of it."""
        seconds = []
        for _ in range(SNAPSHOTS):
            self.turn(1)  # an LMR that was told of nothing gets the snapshot from before
            feeds = Feeds(self.store.engine, self.store.bench.vocabulary)
            began = time.perf_counter()
            page = feeds.read(self.store.lmrs[1], None)
            seconds.append(time.perf_counter() - began)
            if not page.events:
                raise AssertionError("A snapshot of what an LMR holds is empty.")
        return min(seconds)


def documents(databases: Databases, plan: Plan, say: Say) -> Iterator[Found]:
    """What registration costs, and what is stored weighs, in stores of several sizes."""
    with ExitStack() as opened:
        stores = []
        for size in plan.document_sizes:
            say(f"{size:,} documents to store")
            stores.append(Full(opened.enter_context(databases.new()), size))
        yield from _weights(stores)
        for name, batch in zip((AT_ONCE, ALONE), BATCHES, strict=True):
            turns = {store.size: partial(store.turn, batch) for store in stores}
            yield measure(name, GROWS, CONSTANT, turns, [store.rules for store in stores], batch, plan.rounds_of(batch))
        held = [store.weigh(HELD_TABLES, 2 * LMRS).rows // LMRS for store in stores]
        yield Weight(SNAPSHOT, "resources of an LMR", "s", tuple(held), tuple(store.snapshot() for store in stores))


def _weights(stores: list[Full]) -> Iterator[Weight]:
    sizes = tuple(store.size for store in stores)
    stored, held, events = (
        [store.weigh(tables, each) for store in stores]
        for tables, each in ((DOCUMENT_TABLES, 1), (HELD_TABLES, 2 * LMRS), (FEED_TABLES, EVENTS_TOLD * LMRS))
    )
    yield Weight(DOCUMENT_BYTES, GROWS, "bytes", sizes, tuple(one.total for one in stored))
    yield Weight(INDEX_BYTES, GROWS, "bytes", sizes, tuple(one.indexes for one in stored))
    rows = tuple(one.rows for one in held)
    yield Weight(HELD_BYTES, "resources held by LMRs", "bytes", rows, tuple(one.total for one in held))
    yield Weight(HELD_INDEX_BYTES, "resources held by LMRs", "bytes", rows, tuple(one.indexes for one in held))
    rows = tuple(one.rows for one in events)
    yield Weight(EVENT_BYTES, "events kept", "bytes", rows, tuple(one.total for one in events))
    yield Weight(VACUUM, GROWS, "s", sizes, tuple(store.vacuum for store in stores))
