"""What the fits mean at a size that nobody has measured: what it would need, what breaks first, what would be done.

All grows together, documents, rules and LMRs: a limit is reached where what is needed at some share of that size is all
that one machine has. So what breaks first, and in which order, follows from the fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil, log
from typing import Any

from mdv.bench.scale import depth, documents, lmrs, rules
from mdv.bench.scale.fit import NOISY, Fit
from mdv.db.engine import PREPARED

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
    concerning: float = 0.02
    """The share of the groups that a document concerns: those that speak of its properties."""
    disk_gib: float = 8 * 1024
    memory_gib: float = 256
    process_gib: float = 1
    """What a worker, and each of its connections, may have for groups."""
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

    def groups(self, size: Size) -> float:
        return size.rules / self.rules_a_group

    def concerned(self, size: Size) -> float:
        """Groups that a document concerns."""
        return self.concerning * self.groups(size)

    def planned(self, size: Size) -> float:
        """Groups whose plans a connection keeps: in time documents concern all of them."""
        return min(self.groups(size), PREPARED)

    def events(self, size: Size) -> float:
        """Events of all feeds that are kept."""
        return self.changes_a_second(size) * DAY * self.kept_days * self.told(size) * documents.EVENTS_TOLD


Count = Callable[[Size], float]


@dataclass(frozen=True, slots=True)
class Need:
    """Something that is needed, by size, and how much of it there is; both are shown in a unit of so many."""

    what: str
    amount: Count
    limit: float
    unit: str
    scale: float
    remedy: str
    """What would be done; {parts}: divided by how many."""
    needed_for: tuple[Need, ...] = ()
    """Of a sum, its parts: what would be done is what helps the largest of them."""


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
    def assumptions(self) -> str:
        """What was taken for granted, in words."""
        a = self.assumed
        return (
            f"Assumed: an LMR's rules select {a.selected:,.0f} documents; {a.changing:.2%} of all documents change in a"
            f" day, at the peak {a.peak:g} times as many; feeds are kept for {a.kept_days:g} days;"
            f" {a.rules_a_group:,.0f} rules differ in constants alone, and a document concerns {a.concerning:.0%} of"
            f" such groups; a machine has {a.disk_gib:,.0f} GiB of disk and {a.memory_gib:,.0f} GiB of memory."
        )

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
    helps = max(need.needed_for, key=lambda part: part.amount(size), default=need)
    remedy = helps.remedy.format(parts=f"{max(2, ceil(share)):,}")
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

_SPLIT = "To be done: {parts} MDPs, each with the documents of a part of the URIs, by hash or by prefix."
_RANGES = "To be done: filter_data in {parts} partitions by ranges of resources, each vacuumed by itself."
_SHARDS = "To be done: LMRs divided among {parts} feed shards, each with its own lmr_resources and feed."
_RULE_PARTS = "To be done: rules divided by class among {parts} MDPs, which are sent documents of their classes alone."
_SHORTER = "To be done: feeds kept for a shorter time, or divided with their LMRs among {parts} shards."
_TOLD_LATER = "To be done: LMRs told after the commit, in transactions of {parts} shards of LMRs."
_REPLICAS = "To be done: snapshots read from {parts} replicas."


def needs(fits: Mapping[str, Fit], assumed: Assumed) -> Iterator[Need]:
    """What is limited, as far as it was measured."""
    for some in (_disk(fits, assumed), _memory(fits, assumed), _lock(fits, assumed)):
        parts = list(some)
        yield from parts
        if len(parts) > 1:
            yield _sum(parts)
    yield from _processes(fits, assumed)
    yield from _upkeep(fits, assumed)


def _sum(parts: Sequence[Need]) -> Need:
    """All of what shares one limit."""
    one = parts[0]
    what = one.what.partition(" for ")[0]
    return Need(f"{what}, all", lambda size: sum(part.amount(size) for part in parts), one.limit, one.unit, one.scale,
                "", tuple(parts))  # fmt: skip


def _disk(fits: Mapping[str, Fit], assumed: Assumed) -> Iterator[Need]:
    parts: list[tuple[str, str, Count, str]] = [
        ("disk for documents", documents.DOCUMENT_BYTES, lambda size: size.documents, _SPLIT),
        ("disk for rules", rules.RULE_BYTES, lambda size: size.rules, _RULE_PARTS),
        ("disk for what LMRs hold", documents.HELD_BYTES, lambda size: size.lmrs * assumed.held(size), _SHARDS),
        ("disk for feeds", documents.EVENT_BYTES, assumed.events, _SHORTER),
    ]
    yield from _stored(fits, parts, assumed.disk_gib)


def _memory(fits: Mapping[str, Fit], assumed: Assumed) -> Iterator[Need]:
    """Indexes are looked into at random, so that they should be in memory."""
    parts: list[tuple[str, str, Count, str]] = [
        ("memory for indexes of documents", documents.INDEX_BYTES, lambda size: size.documents, _SPLIT),
        ("memory for indexes of rules", rules.RULE_INDEX_BYTES, lambda size: size.rules, _RULE_PARTS),
        ("memory for indexes of what LMRs hold", documents.HELD_INDEX_BYTES,
         lambda size: size.lmrs * assumed.held(size), _SHARDS),
    ]  # fmt: skip
    yield from _stored(fits, parts, assumed.memory_gib)


def _processes(fits: Mapping[str, Fit], assumed: Assumed) -> Iterator[Need]:
    """What each worker and each of its connections has for groups."""
    parts: list[tuple[str, str, Count, str]] = [
        ("a worker's memory for groups", depth.GROUP_BYTES, assumed.groups, _RULE_PARTS),
        ("a connection's memory for plans", depth.PLAN_BYTES, assumed.planned, _RULE_PARTS),
    ]
    yield from _stored(fits, parts, assumed.process_gib)


def _stored(fits: Mapping[str, Fit], parts: Iterable[tuple[str, str, Count, str]], gib: float) -> Iterator[Need]:
    for what, name, count, remedy in parts:
        if name in fits:
            yield Need(what, _cost_of(fits[name], count), gib * GIB, "GiB", GIB, remedy)


def _cost_of(fit: Fit, count: Count) -> Count:
    return lambda size: fit.at(count(size))


def _lock(fits: Mapping[str, Fit], assumed: Assumed) -> Iterator[Need]:
    """Seconds in each second that registrations hold the lock on mdp_state, which makes them one order: for what was
    measured with the most documents, and for more LMRs and groups than there were then."""
    if documents.AT_ONCE not in fits:
        return
    parts: list[tuple[str, Count, str]] = [
        ("storing and filtering", lambda size: registration_us(fits, size), _SPLIT),
    ]
    if lmrs.TOLD in fits:
        each = fits[lmrs.TOLD].slope
        parts.append(("telling LMRs", lambda size: max(0.0, assumed.told(size) - documents.LMRS) * each, _TOLD_LATER))
    if depth.GROUPED in fits:
        group = fits[depth.GROUPED].slope / documents.BATCHES[0]
        parts.append(("asking groups of rules", lambda size: assumed.concerned(size) * group, _RULE_PARTS))
    for what, us, remedy in parts:
        yield Need(f"the one order of transactions for {what}", _seconds_of(us, assumed), 1.0, "s/s", 1.0, remedy)


def _seconds_of(us: Count, assumed: Assumed) -> Count:
    """Seconds of each second at the peak, of microseconds a document."""
    return lambda size: assumed.peak * assumed.changes_a_second(size) * us(size) / 1e6


def registration_us(fits: Mapping[str, Fit], size: Size) -> float:
    """Microseconds a document, in batches: as measured with the most documents, times the growth with each thing."""
    cost = fits[documents.AT_ONCE].at(size.documents)
    for name, many in ((rules.JOIN, size.rules), (lmrs.IDLE_AT_ONCE, size.lmrs)):
        if name in fits:
            cost *= fits[name].growth(many)
    return cost


def _upkeep(fits: Mapping[str, Fit], assumed: Assumed) -> Iterator[Need]:
    if documents.VACUUM in fits:
        amount = _cost_of(fits[documents.VACUUM], lambda size: size.documents)
        yield Need("time to vacuum all", amount, assumed.vacuum_days * DAY, "h", 3600.0, _RANGES)
    if documents.SNAPSHOT in fits:
        one = _cost_of(fits[documents.SNAPSHOT], assumed.held)
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
