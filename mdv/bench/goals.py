"""The goals for speed and scale, with the measured values: goals for MDV alone, and goals against peers.

Unless stated otherwise, they apply to batches of 1,000 documents and 100,000 rules. Values of other sizes are shown
with their sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mdv.bench.paper import (
    BULK,
    COMPARED_WITH_EQUAL,
    EQUAL,
    FILTER,
    INSERT,
    OWN_QUERY,
    SINGLE,
    STORE,
    STRPOS,
    UPDATE,
)
from mdv.bench.report import BenchResult

GOAL_RULES, GOAL_BATCH = 100_000, 1000


@dataclass(frozen=True, slots=True)
class CostGrowth:
    """The cost of a document with the largest rule base, relative to the smallest."""

    name: str
    batch: int
    from_rules: int
    to_rules: int
    ratio: float


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal: its name, the bound (at most or at least), the stretch goal, and the measured value with its size."""

    what: str
    most: float | None = None
    least: float | None = None
    stretch: float | None = None
    measured: float | None = None
    at: str = ""

    @property
    def met(self) -> bool | None:
        """True if the goal was reached; None if it was not measured.

        >>> Goal("x", most=1.0, measured=0.9).met, Goal("x", least=100, measured=90).met, Goal("x", most=1).met
        (True, False, None)
        """
        if self.measured is None:
            return None
        return self.measured <= self.most if self.most is not None else self.measured >= (self.least or 0)

    def as_row(self) -> tuple[str, ...]:
        sign = "≤" if self.most is not None else "≥"
        bound = self.most if self.most is not None else self.least
        return (
            self.what,
            f"{sign} {_format_number(bound)}",
            "" if self.stretch is None else f"{sign} {_format_number(self.stretch)}",
            _format_number(self.measured),
            self.at,
            {True: "yes", False: "no", None: "not measured"}[self.met],
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"met": self.met}


def measure_growth(results: Sequence[BenchResult]) -> list[CostGrowth]:
    """Return the growth for each rule type, at batches of 1,000 or the largest measured.

    >>> measure_growth([BenchResult("OID: filter alone", n, 1000, us, 1) for n, us in ((10, 40), (100, 50))])[0].ratio
    1.25
    """
    found = []
    for name in dict.fromkeys(result.name for result in results if result.name.endswith((FILTER, STORE))):
        own = [result for result in results if result.name == name]
        batch = _nearest({result.batch for result in own}, GOAL_BATCH)
        ordered = sorted((result for result in own if result.batch == batch), key=lambda result: result.rules)
        if ordered[0].rules < ordered[-1].rules:
            ratio = ordered[-1].ours_us / ordered[0].ours_us
            found.append(CostGrowth(name, batch, ordered[0].rules, ordered[-1].rules, ratio))
    return found


def evaluate_goals(results: Sequence[BenchResult]) -> list[Goal]:
    """Return the goals with the measured values."""
    return list(_goals(_Results(results)))


def _goals(measurements: _Results) -> Iterator[Goal]:
    for name, most, stretch in (("OID", 1.0, 0.7), ("PATH", 1.0, 0.7), ("JOIN", 3.0, 2.0)):
        found = measurements.find(f"{name}: {FILTER}")
        yield Goal(f"{FILTER} / floor: {name}", most, stretch=stretch, **_ratio(found))
    for name, most, stretch in (("OID", 3.5, 2.5), ("PATH", 3.5, 2.5), ("JOIN", 6.0, 4.0)):
        found = measurements.find(f"{name}: {STORE}")
        yield Goal(f"{STORE} / floor: {name}", most, stretch=stretch, **_ratio(found))
    for name in ("OID", "PATH", "JOIN"):
        what = f"growth of {STORE} from 10,000 to 1,000,000 rules: {name}"
        yield Goal(what, 1.5, stretch=1.25, **measurements.growth_of(f"{name}: {STORE}"))
    for name in ("OID", "PATH", "JOIN"):
        found = measurements.find(f"{name}: {STORE}", 1)
        found = found if found is not None and found.batch == 1 else None
        yield Goal(f"batch of 1 / floor at batch 1: {name}", 2.5, stretch=1.5, **_ratio(found))
    for name in ("COMP 10 %", "ne"):
        yield Goal(f"growth from 10,000 to 100,000 rules: {name}", 1.2, **measurements.growth_of(f"{name}: {FILTER}"))
    contains = f"contains: {FILTER}"
    against = _against(measurements.find(contains), STRPOS)
    yield Goal("contains: strpos on all constants / ours", least=100, stretch=1000, **against)
    yield Goal("contains: growth", 2.5, **measurements.growth_of(contains))
    for name in COMPARED_WITH_EQUAL:
        found = measurements.find(f"{name}: {FILTER}")
        times = _ratio(found, found.peers[EQUAL] if found is not None else None)
        yield Goal(f"{name} / =, with as many constants", 1.5, **times)
    for name in ("PATH", "JOIN"):
        found = measurements.find(f"{name}: {UPDATE}")
        times = _ratio(found, found.peers[INSERT] if found is not None else None)
        yield Goal(f"three-pass update / insert and filter: {name}", 1.6, stretch=1.2, **times)
    for name in ("OID", "JOIN"):
        yield Goal(
            f"rules one by one, per second: {name}", least=1500, **_rate(measurements.find(f"{name}: {SINGLE}", 1))
        )
    for name in ("OID", "JOIN"):
        found = measurements.find(f"{name}: {BULK}")
        yield Goal(f"rules in bulk, per second: {name}", least=20_000, stretch=50_000, **_rate(found))
    yield from _own_queries(measurements)


def evaluate_peer_goals(results: Sequence[BenchResult]) -> list[Goal]:
    """Return the goals against peers.

    Peers in memory insert and match in one step. So they are compared with two of our costs: the filter, which does
    less, and store and filter, which does more because it is durable. Queries per rule on stored documents are compared
    with the filter.
    """
    return list(_peer_goals(_Results(results)))


def _peer_goals(measurements: _Results) -> Iterator[Goal]:
    for peer, name, least, stretch in (
        ("CLIPS", "OID", 1.5, 2.0),
        ("CLIPS", "PATH", 1.5, 2.0),
        ("CLIPS", "JOIN", 1.0, 1.3),
        *(("Pathway", name, 1.2, None) for name in ("OID", "PATH", "JOIN")),
    ):
        for part in (FILTER, STORE):
            against = _against(measurements.find(f"{name}: {part}"), peer)
            yield Goal(f"{peer} / our {part}: {name}", least=least, stretch=stretch, **against)
    yield from _own_queries(measurements)


def _own_queries(measurements: _Results) -> Iterator[Goal]:
    for name in ("OID", "PATH", "JOIN"):
        against = _against(measurements.find(f"{name}: {FILTER}"), OWN_QUERY)
        yield Goal(f"{OWN_QUERY} (extrapolated from a sample) / ours: {name}", least=400, **against)


class _Results:
    """The results by name, at the size of the goals or the largest one."""

    def __init__(self, results: Sequence[BenchResult]) -> None:
        self._results = results
        self._growth = {growth.name: growth for growth in measure_growth(results)}

    def find(self, name: str, batch: int = GOAL_BATCH) -> BenchResult | None:
        own = [result for result in self._results if result.name == name]
        if not own:
            return None
        rules = _nearest({result.rules for result in own}, GOAL_RULES)
        own = [result for result in own if result.rules == rules]
        size = _nearest({result.batch for result in own}, batch)
        return next(result for result in own if result.batch == size)

    def growth_of(self, name: str) -> dict[str, Any]:
        growth = self._growth.get(name)
        if growth is None:
            return {}
        at = f"{growth.from_rules:,} to {growth.to_rules:,} rules, batches of {growth.batch:,}"
        return {"measured": growth.ratio, "at": at}


def _nearest(sizes: set[int], wanted: int) -> int:
    return wanted if wanted in sizes else max(sizes)


def _at(result: BenchResult) -> str:
    return f"{result.rules:,} rules, batches of {result.batch:,}"


def _ratio(result: BenchResult | None, against: float | None = None) -> dict[str, Any]:
    if result is None:
        return {}
    return {"measured": result.ratio if against is None else result.ours_us / against, "at": _at(result)}


def _against(result: BenchResult | None, peer: str) -> dict[str, Any]:
    if result is None or peer not in result.peers:
        return {}
    return {"measured": result.peers[peer] / result.ours_us, "at": _at(result)}


def _rate(result: BenchResult | None) -> dict[str, Any]:
    return {} if result is None else {"measured": 1e6 / result.ours_us, "at": _at(result)}


def _format_number(number: float | None) -> str:
    """
    >>> _format_number(0.923), _format_number(20000), _format_number(None)
    ('0.92', '20,000', '')
    """
    if number is None:
        return ""
    return f"{number:,.0f}" if number >= 100 else f"{number:.2f}"
