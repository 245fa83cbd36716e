"""What the fits mean at a size that nobody has measured: what it would need, what breaks first, what would be done.

All grows together, documents, rules and LMRs: a limit is reached where what is needed at some share of that size is all
that one machine has. So what breaks first, and in which order, follows from the fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from math import ceil, log
from typing import Any

from mdv.bench.scale import depth, documents, lmrs, rules
from mdv.bench.scale.fit import NOISY, Fit

GIB = 2**30
DAY = 86_400.0
PAGE = 8192
"""Bytes of a page of Postgres."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is of everything."""

    documents: float = 100e6
    rules: float = 10e6
    lmrs: float = 100e3

    def times(self, factor: float) -> Size:
        return Size(self.documents * factor, self.rules * factor, self.lmrs * factor)


@dataclass(frozen=True, slots=True)
class Assumed:
    """What no measurement tells: how the system is used, and what one machine has."""

    selected: float = 10_000
    """Documents that one LMR's rules select."""
    changing: float = 0.05
    """The share of the documents that comes or changes in a day."""
    peak: float = 10
    """How much more comes in the busiest moments than on the average."""
    kept_days: float = 7
    """How long feeds are kept."""
    rules_a_group: float = 10_000
    """Rules that differ in constants alone."""
    disk_gib: float = 8 * 1024
    memory_gib: float = 256
    process_gib: float = 1
    """What a worker may have for compiled groups."""
    vacuum_days: float = 1
    snapshot_seconds: float = 60
    all_snapshots_days: float = 1
    """How soon all LMRs must have begun anew after a restore."""
    snapshots_at_once: float = 4

    def changes_a_second(self, size: Size) -> float:
        return size.documents * self.changing / DAY

    def told(self, size: Size) -> float:
        """LMRs that are told of one change, on the average."""
        return size.lmrs * min(1.0, self.selected / size.documents)

    def held(self, size: Size) -> float:
        """Resources of one LMR: two for each document that it selects."""
        return 2 * min(self.selected, size.documents)

    def events(self, size: Size) -> float:
        """Events of all feeds that are kept."""
        return self.changes_a_second(size) * DAY * self.kept_days * self.told(size) * documents.EVENTS_TOLD


@dataclass(frozen=True, slots=True)
class Need:
    """Something that is needed, by size, and how much of it there is; both are shown in a unit of so many."""

    what: str
    amount: Callable[[Size], float]
    limit: float
    unit: str
    scale: float
    remedy: str
    """What would be done, with {parts} of it."""


@dataclass(frozen=True, slots=True)
class Row:
    """A need at the size asked for. `reached`: at which share of that size the limit is, if it is found at all."""

    what: str
    amount: float
    limit: float
    unit: str
    share: float
    reached: float | None
    remedy: str

    @property
    def breaks(self) -> bool:
        return self.share > 1

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"breaks": self.breaks}


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """What would be at a size: what is limited, what is reached first at the top; and what else there is to know."""

    size: Size
    assumed: Assumed
    rows: tuple[Row, ...]
    notes: tuple[tuple[str, str], ...]

    @property
    def breaking(self) -> tuple[Row, ...]:
        """What breaks before that size, the first first."""
        return tuple(row for row in self.rows if row.breaks)

    def sentences(self) -> Iterator[str]:
        """What breaks first, in words."""
        if not self.rows:
            yield "Nothing was measured that could be extrapolated."
            return
        if not self.breaking:
            row = self.rows[0]
            yield f"Nothing breaks up to that size. Nearest is {row.what}: {row.share:.0%} of what one machine has."
        for place, row in enumerate(self.breaking):
            when = f"at {100 * (row.reached or 0):,.2g} % of that size" if row.reached else "at any size"
            order = "First" if place == 0 else "Then"
            yield f"{order} breaks {row.what}, {when}: {row.share:,.1f} times what one machine has. {row.remedy}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "size": asdict(self.size),
            "assumed": asdict(self.assumed),
            "rows": [row.as_dict() for row in self.rows],
            "notes": dict(self.notes),
            "sentences": list(self.sentences()),
        }


def extrapolate(fits: Mapping[str, Fit], size: Size, assumed: Assumed) -> Extrapolation:
    """All needs that the fits tell of, ordered by what is reached first."""
    rows = [_row(need, size) for need in needs(fits, assumed)]
    rows.sort(key=lambda row: (float("inf") if row.reached is None else row.reached, -row.share))
    return Extrapolation(size, assumed, tuple(rows), tuple(notes(fits, size, assumed)))


LEAST, MOST = 1e-6, 1e6
"""Shares of the size between which a limit is looked for."""


def _row(need: Need, size: Size) -> Row:
    amount = need.amount(size)
    share = amount / need.limit
    remedy = need.remedy.format(parts=f"{max(2, ceil(share)):,}")
    return Row(need.what, amount / need.scale, need.limit / need.scale, need.unit, share, _reached(need, size), remedy)


def _reached(need: Need, size: Size) -> float | None:
    """The share of a size at which a limit is reached; what is needed does not fall where all grows.

    >>> half = Need("x", lambda size: size.documents, 50e6, "", 1, "")
    >>> round(_reached(half, Size()), 3), _reached(Need("x", lambda size: 1, 2, "", 1, ""), Size())
    (0.5, None)
    """
    low, high = LEAST, MOST
    if need.amount(size.times(high)) <= need.limit:
        return None
    if need.amount(size.times(low)) > need.limit:
        return low
    for _ in range(100):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if need.amount(size.times(middle)) > need.limit else (middle, high)
    return high


# What is needed

_SPLIT = "Several MDPs, each with the documents of a part of the URIs (by hash or by prefix): {parts}."
_RANGES = "filter_data and its history partitioned by ranges of resources, each part vacuumed by itself: {parts}."
_SHARDS = "LMRs divided among feed shards, each with its own lmr_resources and feed: {parts}."
_RULE_PARTS = "Rules divided by class among MDPs that are sent only documents of their classes: {parts}."
_SHORTER = "Feeds kept for a shorter time, or divided with their LMRs among shards: {parts}."
_TOLD_LATER = "LMRs told in transactions of their own after the commit, by shard of LMRs: {parts}."
_REPLICAS = "Snapshots read from replicas: {parts}."


def needs(fits: Mapping[str, Fit], assumed: Assumed) -> Iterator[Need]:
    """What is limited, as far as it was measured."""
    yield from _disk(fits, assumed)
    yield from _memory(fits, assumed)
    yield from _lock(fits, assumed)
    yield from _upkeep(fits, assumed)


def _disk(fits: Mapping[str, Fit], assumed: Assumed) -> Iterator[Need]:
    limit = assumed.disk_gib * GIB
    parts: list[tuple[str, str, Callable[[Size], float], str]] = [
        ("disk for documents", documents.DOCUMENT_BYTES, lambda size: size.documents, _SPLIT),
        ("disk for rules", rules.RULE_BYTES, lambda size: size.rules, _RULE_PARTS),
        ("disk for what LMRs hold", documents.HELD_BYTES, lambda size: size.lmrs * assumed.held(size), _SHARDS),
        ("disk for feeds", documents.EVENT_BYTES, assumed.events, _SHORTER),
    ]
    for what, name, count, remedy in parts:
        if name in fits:
            yield Need(what, _bytes_of(fits[name], count), limit, "GiB", GIB, remedy)


def _memory(fits: Mapping[str, Fit], assumed: Assumed) -> Iterator[Need]:
    limit = assumed.memory_gib * GIB
    if documents.INDEX_BYTES in fits:
        amount = _bytes_of(fits[documents.INDEX_BYTES], lambda size: size.documents)
        yield Need("memory for indexes of documents", amount, limit, "GiB", GIB, _SPLIT)
    if rules.RULE_INDEX_BYTES in fits:
        amount = _bytes_of(fits[rules.RULE_INDEX_BYTES], lambda size: size.rules)
        yield Need("memory for indexes of rules", amount, limit, "GiB", GIB, _RULE_PARTS)
    if depth.GROUP_BYTES in fits:
        amount = _bytes_of(fits[depth.GROUP_BYTES], lambda size: size.rules / assumed.rules_a_group)
        yield Need("memory of a process for groups", amount, assumed.process_gib * GIB, "GiB", GIB, _RULE_PARTS)


def _bytes_of(fit: Fit, count: Callable[[Size], float]) -> Callable[[Size], float]:
    return lambda size: fit.at(count(size))


def _lock(fits: Mapping[str, Fit], assumed: Assumed) -> Iterator[Need]:
    """Seconds in each second that registrations hold the lock on mdp_state, which makes them one order."""
    if documents.AT_ONCE not in fits:
        return

    def at_peak(size: Size) -> float:
        return assumed.peak * assumed.changes_a_second(size)

    yield Need(
        "the one order of transactions, for storing and filtering",
        lambda size: at_peak(size) * registration_us(fits, size) / 1e6, 1.0, "s/s", 1.0, _SPLIT,
    )  # fmt: skip
    if lmrs.TOLD in fits:
        each = fits[lmrs.TOLD].slope
        yield Need(
            "the one order of transactions, for telling LMRs",
            lambda size: at_peak(size) * assumed.told(size) * each / 1e6, 1.0, "s/s", 1.0, _TOLD_LATER,
        )  # fmt: skip


def registration_us(fits: Mapping[str, Fit], size: Size) -> float:
    """Microseconds a document, in batches: as measured with the most documents, times the growth with each thing."""
    cost = fits[documents.AT_ONCE].at(size.documents)
    for name, many in ((rules.JOIN, size.rules), (lmrs.IDLE_AT_ONCE, size.lmrs)):
        if name in fits:
            cost *= fits[name].growth(many)
    return cost


def _upkeep(fits: Mapping[str, Fit], assumed: Assumed) -> Iterator[Need]:
    if documents.VACUUM in fits:
        amount = _bytes_of(fits[documents.VACUUM], lambda size: size.documents)
        yield Need("time to vacuum all", amount, assumed.vacuum_days * DAY, "h", 3600.0, _RANGES)
    if documents.SNAPSHOT in fits:
        one = _bytes_of(fits[documents.SNAPSHOT], assumed.held)
        yield Need("time of one LMR's snapshot", one, assumed.snapshot_seconds, "s", 1.0, _REPLICAS)
        yield Need(
            "time of all LMRs' snapshots", lambda size: size.lmrs * one(size) / assumed.snapshots_at_once,
            assumed.all_snapshots_days * DAY, "h", 3600.0, _REPLICAS,
        )  # fmt: skip


def notes(fits: Mapping[str, Fit], size: Size, assumed: Assumed) -> Iterator[tuple[str, str]]:
    """What has no limit, but should be known."""
    if doubtful := [fit.name for fit in fits.values() if fit.verdict == NOISY]:
        yield "fits that are too noisy to rely on", "; ".join(doubtful)
    yield (
        "changes a second, on the average and at the peak",
        (f"{assumed.changes_a_second(size):,.1f}, {assumed.peak * assumed.changes_a_second(size):,.0f}"),
    )
    yield "LMRs told of a change", f"{assumed.told(size):,.1f}"
    yield "events kept in feeds", f"{assumed.events(size):,.0f}"
    yield "resources held by LMRs", f"{size.lmrs * assumed.held(size):,.0f}"
    if documents.AT_ONCE in fits:
        cost = registration_us(fits, size)
        yield "µs a document, in batches of 100", f"{cost:,.0f}"
        yield "days to register all documents anew", f"{size.documents * cost / 1e6 / DAY:,.1f}"
    if documents.ALONE in fits:
        yield "µs a document that comes alone", f"{fits[documents.ALONE].at(size.documents):,.0f}"
    if documents.INDEX_BYTES in fits:
        fit = fits[documents.INDEX_BYTES]
        for what, count in (("now", fit.largest), ("then", size.documents)):
            yield f"depth of an index of statements, {what}", str(index_depth(count * STATEMENTS))


STATEMENTS = 8
"""Of one document of the workload."""
ENTRY = 40
"""Bytes of an entry of an index, with what a page that is not full leaves free."""


def index_depth(entries: float) -> int:
    """Pages on the way from the root of a B-tree to an entry.

    >>> index_depth(100), index_depth(100_000), index_depth(100_000_000)
    (1, 3, 4)
    """
    return max(1, ceil(log(max(2.0, entries)) / log(PAGE / ENTRY)))
