"""Extrapolate the fits to sizes that were not measured: requirements, the limits that are reached first, and remedies.

Documents, rules and LMRs grow in proportion. A limit is reached at the share of the size at which one machine is
exhausted. So the order in which limits are reached follows from the fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil, log
from typing import Any

from mdv.bench.scale import depth, documents, lmrs, rules
from mdv.bench.scale.fit import NOISY, Fit
from mdv.db.engine import MAX_PREPARED_STATEMENTS

GIB = 2**30
DAY = 86_400.0
PAGE_BYTES = 8192
"""Size of a Postgres page."""


@dataclass(frozen=True, slots=True)
class SystemSize:
    """The numbers of documents, rules and LMRs."""

    documents: float = 100e6
    rules: float = 10e6
    lmrs: float = 100e3

    def times(self, factor: float) -> SystemSize:
        return SystemSize(self.documents * factor, self.rules * factor, self.lmrs * factor)


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Assumptions that are not measured: how the system is used, and the capacity of one machine."""

    selected: float = 10_000
    """Documents that the rules of one LMR select."""
    changing: float = 0.05
    """Share of the documents that are added or changed per day."""
    peak: float = 10
    """Peak rate of changes relative to the average."""
    kept_days: float = 7
    """Retention of feeds in days."""
    rules_a_group: float = 10_000
    """Rules that differ in constants alone."""
    concerning: float = 0.02
    """Share of the groups that a document affects: those with its properties."""
    disk_gib: float = 8 * 1024
    memory_gib: float = 256
    process_gib: float = 1
    """Memory of a worker, and of each of its connections, for groups."""
    vacuum_days: float = 1
    snapshot_seconds: float = 60
    all_snapshots_days: float = 1
    """Time in which all LMRs must have a new snapshot after a restore."""
    snapshots_at_once: float = 4

    def changes_per_second(self, size: SystemSize) -> float:
        return size.documents * self.changing / DAY

    def notified_lmrs(self, size: SystemSize) -> float:
        """Return the average number of LMRs that are notified of a change."""
        return size.lmrs * min(1.0, self.selected / size.documents)

    def held(self, size: SystemSize) -> float:
        """Return the resources of one LMR: two for each selected document."""
        return 2 * min(self.selected, size.documents)

    def groups(self, size: SystemSize) -> float:
        return size.rules / self.rules_a_group

    def affected_groups(self, size: SystemSize) -> float:
        """Return the groups that a document affects."""
        return self.concerning * self.groups(size)

    def planned_groups(self, size: SystemSize) -> float:
        """Return the groups whose plans a connection keeps. In time, documents affect all groups."""
        return min(self.groups(size), MAX_PREPARED_STATEMENTS)

    def events(self, size: SystemSize) -> float:
        """Return the retained events of all feeds."""
        return (
            self.changes_per_second(size)
            * DAY
            * self.kept_days
            * self.notified_lmrs(size)
            * documents.EVENTS_PER_DOCUMENT
        )


Count = Callable[[SystemSize], float]


@dataclass(frozen=True, slots=True)
class Requirement:
    """A required amount that depends on the size, and its limit. Both are divided by `scale` for display."""

    what: str
    amount: Count
    limit: float
    unit: str
    scale: float
    remedy: str
    """What to do; {parts} is the number of parts."""
    needed_for: tuple[Requirement, ...] = ()
    """The parts of a sum. Its remedy is that of the largest part."""


@dataclass(frozen=True, slots=True)
class RequirementRow:
    """A requirement at the given size. `reached` is the share of that size at which the limit is reached, if at all."""

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
    """The requirements at a size, ordered by when their limits are reached, and further estimates."""

    size: SystemSize
    assumed: Assumptions
    rows: tuple[RequirementRow, ...]
    notes: tuple[tuple[str, str], ...]

    @property
    def assumptions(self) -> str:
        """The assumptions as text."""
        a = self.assumed
        return (
            f"Assumptions: the rules of an LMR select {a.selected:,.0f} documents; {a.changing:.2%} of all documents"
            f" change per day, and the peak is {a.peak:g} times the average; feeds are retained for"
            f" {a.kept_days:g} days; {a.rules_a_group:,.0f} rules differ in constants alone, and a document"
            f" affects {a.concerning:.0%} of such groups; a machine has {a.disk_gib:,.0f} GiB of disk"
            f" and {a.memory_gib:,.0f} GiB of memory."
        )

    @property
    def breaking(self) -> tuple[RequirementRow, ...]:
        """The limits that are exceeded at that size, the first one first."""
        return tuple(row for row in self.rows if row.breaks)

    def sentences(self) -> Iterator[str]:
        """Yield sentences about the limits that are reached first."""
        if not self.rows:
            yield "Nothing was measured that can be extrapolated."
            return
        if not self.breaking:
            row = self.rows[0]
            yield f"No limit is exceeded at that size. The closest one is {row.what}: {row.share:.0%} of one machine."
        for place, row in enumerate(self.breaking):
            when = f"at {100 * (row.reached or 0):,.2g} % of that size" if row.reached else "at any size"
            order = "First" if place == 0 else "Next"
            yield f"{order} limit: {row.what}, {when}, {row.share:,.1f} times the capacity of one machine. {row.remedy}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "size": asdict(self.size),
            "assumed": asdict(self.assumed),
            "rows": [row.as_dict() for row in self.rows],
            "notes": dict(self.notes),
            "sentences": list(self.sentences()),
        }


def extrapolate(fits: Mapping[str, Fit], size: SystemSize, assumed: Assumptions) -> Extrapolation:
    """Return all requirements that the fits allow, ordered by when their limits are reached."""
    rows = [_row(need, size) for need in find_requirements(fits, assumed)]
    rows.sort(key=lambda row: (float("inf") if row.reached is None else row.reached, -row.share))
    return Extrapolation(size, assumed, tuple(rows), tuple(find_notes(fits, size, assumed)))


MIN_SHARE, MAX_SHARE = 1e-6, 1e6
"""Range of shares in which a limit is searched for."""


def _row(need: Requirement, size: SystemSize) -> RequirementRow:
    amount = need.amount(size)
    share = amount / need.limit
    helps = max(need.needed_for, key=lambda part: part.amount(size), default=need)
    remedy = helps.remedy.format(parts=f"{max(2, ceil(share)):,}")
    return RequirementRow(
        need.what, amount / need.scale, need.limit / need.scale, need.unit, share, _reached(need, size), remedy
    )


def _reached(need: Requirement, size: SystemSize) -> float | None:
    """Return the share of a size at which a limit is reached. Requirements do not decrease with the size.

    >>> half = Requirement("x", lambda size: size.documents, 50e6, "", 1, "")
    >>> round(_reached(half, SystemSize()), 3), _reached(Requirement("x", lambda size: 1, 2, "", 1, ""), SystemSize())
    (0.5, None)
    """
    low, high = MIN_SHARE, MAX_SHARE
    if need.amount(size.times(high)) <= need.limit:
        return None
    if need.amount(size.times(low)) > need.limit:
        return low
    for _ in range(100):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if need.amount(size.times(middle)) > need.limit else (middle, high)
    return high


# Requirements

_DIVIDE_DOCUMENTS = "Remedy: divide the documents among {parts} MDPs by URI, by hash or by prefix."
_PARTITION_TABLES = "Remedy: partition filter_data into {parts} ranges of resources that are vacuumed separately."
_DIVIDE_LMRS = "Remedy: divide the LMRs among {parts} feed shards, each with its own lmr_resources and feed."
_DIVIDE_RULES = "Remedy: divide the rules by class among {parts} MDPs that receive only documents of their classes."
_SHORTEN_RETENTION = "Remedy: shorten the retention of feeds, or divide them with their LMRs among {parts} shards."
_NOTIFY_LATER = "Remedy: notify LMRs after the commit, in transactions of {parts} shards of LMRs."
_READ_REPLICAS = "Remedy: read snapshots from {parts} replicas."


def find_requirements(fits: Mapping[str, Fit], assumed: Assumptions) -> Iterator[Requirement]:
    """Yield all requirements that were measured."""
    for group in (_disk(fits, assumed), _memory(fits, assumed), _lock(fits, assumed)):
        parts = list(group)
        yield from parts
        if len(parts) > 1:
            yield _sum(parts)
    yield from _processes(fits, assumed)
    yield from _maintenance(fits, assumed)


def _sum(parts: Sequence[Requirement]) -> Requirement:
    """Return the sum of requirements with the same limit."""
    first = parts[0]
    what = first.what.partition(" for ")[0]
    return Requirement(f"{what}, all", lambda size: sum(part.amount(size) for part in parts), first.limit, first.unit,
                       first.scale, "", tuple(parts))  # fmt: skip


def _disk(fits: Mapping[str, Fit], assumed: Assumptions) -> Iterator[Requirement]:
    parts: list[tuple[str, str, Count, str]] = [
        ("disk for documents", documents.DOCUMENT_BYTES, lambda size: size.documents, _DIVIDE_DOCUMENTS),
        ("disk for rules", rules.RULE_BYTES, lambda size: size.rules, _DIVIDE_RULES),
        (
            "disk for the resources of LMRs",
            documents.HELD_BYTES,
            lambda size: size.lmrs * assumed.held(size),
            _DIVIDE_LMRS,
        ),
        ("disk for feeds", documents.EVENT_BYTES, assumed.events, _SHORTEN_RETENTION),
    ]
    yield from _stored(fits, parts, assumed.disk_gib)


def _memory(fits: Mapping[str, Fit], assumed: Assumptions) -> Iterator[Requirement]:
    """Indexes are accessed at random, so they should be in memory."""
    parts: list[tuple[str, str, Count, str]] = [
        ("memory for indexes of documents", documents.INDEX_BYTES, lambda size: size.documents, _DIVIDE_DOCUMENTS),
        ("memory for indexes of rules", rules.RULE_INDEX_BYTES, lambda size: size.rules, _DIVIDE_RULES),
        ("memory for indexes of the resources of LMRs", documents.HELD_INDEX_BYTES,
         lambda size: size.lmrs * assumed.held(size), _DIVIDE_LMRS),
    ]  # fmt: skip
    yield from _stored(fits, parts, assumed.memory_gib)


def _processes(fits: Mapping[str, Fit], assumed: Assumptions) -> Iterator[Requirement]:
    """Yield the memory of each worker and each of its connections for groups."""
    parts: list[tuple[str, str, Count, str]] = [
        ("a worker's memory for groups", depth.GROUP_BYTES, assumed.groups, _DIVIDE_RULES),
        ("a connection's memory for plans", depth.PLAN_BYTES, assumed.planned_groups, _DIVIDE_RULES),
    ]
    yield from _stored(fits, parts, assumed.process_gib)


def _stored(fits: Mapping[str, Fit], parts: Iterable[tuple[str, str, Count, str]], gib: float) -> Iterator[Requirement]:
    for what, name, count, remedy in parts:
        if name in fits:
            yield Requirement(what, _cost_of(fits[name], count), gib * GIB, "GiB", GIB, remedy)


def _cost_of(fit: Fit, count: Count) -> Count:
    return lambda size: fit.at(count(size))


def _lock(fits: Mapping[str, Fit], assumed: Assumptions) -> Iterator[Requirement]:
    """Yield the share of time for which registrations hold the lock on mdp_state, which serializes them: at the largest
    measured number of documents, with additional LMRs and groups."""
    if documents.IN_BATCHES not in fits:
        return
    parts: list[tuple[str, Count, str]] = [
        ("storing and filtering", lambda size: registration_us(fits, size), _DIVIDE_DOCUMENTS),
    ]
    if lmrs.NOTIFIED in fits:
        each = fits[lmrs.NOTIFIED].slope
        parts.append(
            (
                "notifying LMRs",
                lambda size: max(0.0, assumed.notified_lmrs(size) - documents.LMRS) * each,
                _NOTIFY_LATER,
            )
        )
    if depth.GROUPED in fits:
        group = fits[depth.GROUPED].slope / documents.BATCHES[0]
        parts.append(("evaluating groups of rules", lambda size: assumed.affected_groups(size) * group, _DIVIDE_RULES))
    for what, us, remedy in parts:
        yield Requirement(f"the serialized transactions for {what}", _seconds_of(us, assumed), 1.0, "s/s", 1.0, remedy)


def _seconds_of(us: Count, assumed: Assumptions) -> Count:
    """Return the seconds per second at the peak, from microseconds per document."""
    return lambda size: assumed.peak * assumed.changes_per_second(size) * us(size) / 1e6


def registration_us(fits: Mapping[str, Fit], size: SystemSize) -> float:
    """Return the microseconds per document in batches: the value for the most documents, times the growth with rules
    and LMRs."""
    cost = fits[documents.IN_BATCHES].at(size.documents)
    for name, many in ((rules.JOIN, size.rules), (lmrs.IDLE_IN_BATCHES, size.lmrs)):
        if name in fits:
            cost *= fits[name].growth(many)
    return cost


def _maintenance(fits: Mapping[str, Fit], assumed: Assumptions) -> Iterator[Requirement]:
    if documents.VACUUM in fits:
        amount = _cost_of(fits[documents.VACUUM], lambda size: size.documents)
        yield Requirement("time for a full vacuum", amount, assumed.vacuum_days * DAY, "h", 3600.0, _PARTITION_TABLES)
    if documents.SNAPSHOT in fits:
        first = _cost_of(fits[documents.SNAPSHOT], assumed.held)
        yield Requirement("time for the snapshot of one LMR", first, assumed.snapshot_seconds, "s", 1.0, _READ_REPLICAS)
        yield Requirement(
            "time for the snapshots of all LMRs", lambda size: size.lmrs * first(size) / assumed.snapshots_at_once,
            assumed.all_snapshots_days * DAY, "h", 3600.0, _READ_REPLICAS,
        )  # fmt: skip


def find_notes(fits: Mapping[str, Fit], size: SystemSize, assumed: Assumptions) -> Iterator[tuple[str, str]]:
    """Yield further estimates that have no limit."""
    if doubtful := [fit.name for fit in fits.values() if fit.verdict == NOISY]:
        yield "fits that are too noisy to rely on", "; ".join(doubtful)
    yield (
        "changes per second, average and peak",
        (f"{assumed.changes_per_second(size):,.1f}, {assumed.peak * assumed.changes_per_second(size):,.0f}"),
    )
    yield "LMRs notified of a change", f"{assumed.notified_lmrs(size):,.1f}"
    yield "events retained in feeds", f"{assumed.events(size):,.0f}"
    yield "resources held by LMRs", f"{size.lmrs * assumed.held(size):,.0f}"
    if documents.IN_BATCHES in fits:
        cost = registration_us(fits, size)
        yield "µs per document, in batches of 100", f"{cost:,.0f}"
        yield "days to register all documents again", f"{size.documents * cost / 1e6 / DAY:,.1f}"
    if documents.ONE_BY_ONE in fits:
        yield "µs per document, one by one", f"{fits[documents.ONE_BY_ONE].at(size.documents):,.0f}"
    if documents.INDEX_BYTES in fits:
        fit = fits[documents.INDEX_BYTES]
        for what, count in (("now", fit.largest), ("then", size.documents)):
            yield f"depth of an index of statements, {what}", str(index_depth(count * STATEMENTS_PER_DOCUMENT))


STATEMENTS_PER_DOCUMENT = 8
"""Statements in one document of the workload."""
INDEX_ENTRY_BYTES = 40
"""Bytes of an index entry, including the free space of pages."""


def index_depth(entries: float) -> int:
    """Return the number of pages from the root of a B-tree to an entry.

    >>> index_depth(100), index_depth(100_000), index_depth(100_000_000)
    (1, 3, 4)
    """
    return max(1, ceil(log(max(2.0, entries)) / log(PAGE_BYTES / INDEX_ENTRY_BYTES)))
