"""The goals for speed and scale, and what was measured beside each: those that need no other system, and those
against peers.

They hold at batches of 1,000 and 100,000 rules unless they say otherwise. What was measured elsewhere is shown with the
place where it was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mdv.bench.paper import BULK, FILTER, INSERT, OWN_QUERY, SINGLE, STORE, STRPOS, UPDATE
from mdv.bench.report import Result

RULES, BATCH = 100_000, 1000


@dataclass(frozen=True, slots=True)
class Growth:
    """How much more a document costs with the largest rule base than with the smallest."""

    name: str
    batch: int
    from_rules: int
    to_rules: int
    ratio: float


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal: what, the bound (at most, or at least) and the stretch, and what was measured, where."""

    what: str
    most: float | None = None
    least: float | None = None
    stretch: float | None = None
    measured: float | None = None
    at: str = ""

    @property
    def met(self) -> bool | None:
        """Whether it was reached; None where nothing was measured.

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
            f"{sign} {_shown(bound)}",
            "" if self.stretch is None else f"{sign} {_shown(self.stretch)}",
            _shown(self.measured),
            self.at,
            {True: "yes", False: "no", None: "not measured"}[self.met],
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"met": self.met}


def growth(results: Sequence[Result]) -> list[Growth]:
    """Of each rule type, at batches of 1,000 or the largest measured.

    >>> growth([Result("OID: filter alone", n, 1000, us, 1) for n, us in ((10, 40.0), (100, 50.0))])[0].ratio
    1.25
    """
    found = []
    for name in dict.fromkeys(result.name for result in results if result.name.endswith((FILTER, STORE))):
        mine = [result for result in results if result.name == name]
        batch = _nearest({result.batch for result in mine}, BATCH)
        ordered = sorted((result for result in mine if result.batch == batch), key=lambda result: result.rules)
        if ordered[0].rules < ordered[-1].rules:
            ratio = ordered[-1].ours_us / ordered[0].ours_us
            found.append(Growth(name, batch, ordered[0].rules, ordered[-1].rules, ratio))
    return found


def goals(results: Sequence[Result]) -> list[Goal]:
    """The table of goals with what was measured."""
    return list(_goals(_Figures(results)))


def _goals(figures: _Figures) -> Iterator[Goal]:
    for name, most, stretch in (("OID", 1.0, 0.7), ("PATH", 1.0, 0.7), ("JOIN", 3.0, 2.0)):
        found = figures.find(f"{name}: {FILTER}")
        yield Goal(f"{FILTER} / floor: {name}", most, stretch=stretch, **_ratio(found))
    for name, most, stretch in (("OID", 3.5, 2.5), ("PATH", 3.5, 2.5), ("JOIN", 6.0, 4.0)):
        found = figures.find(f"{name}: {STORE}")
        yield Goal(f"{STORE} / floor: {name}", most, stretch=stretch, **_ratio(found))
    for name in ("OID", "PATH", "JOIN"):
        what = f"growth of that from 10,000 to 1,000,000 rules: {name}"
        yield Goal(what, 1.5, stretch=1.25, **figures.grown(f"{name}: {STORE}"))
    for name in ("OID", "PATH", "JOIN"):
        found = figures.find(f"{name}: {STORE}", 1)
        found = found if found is not None and found.batch == 1 else None
        yield Goal(f"batch of 1 / floor at batch 1: {name}", 2.5, stretch=1.5, **_ratio(found))
    for name in ("COMP 10 %", "ne"):
        yield Goal(f"growth from 10,000 to 100,000 rules: {name}", 1.2, **figures.grown(f"{name}: {FILTER}"))
    contains = f"contains: {FILTER}"
    against = _against(figures.find(contains), STRPOS)
    yield Goal("contains: strpos on all constants / ours", least=100, stretch=1000, **against)
    yield Goal("contains: growth", 2.5, **figures.grown(contains))
    for name in ("PATH", "JOIN"):
        found = figures.find(f"{name}: {UPDATE}")
        times = _ratio(found, found.peers[INSERT] if found is not None else None)
        yield Goal(f"three-pass update / insert and filter: {name}", 1.6, stretch=1.2, **times)
    for name in ("OID", "JOIN"):
        yield Goal(f"rules one by one, a second: {name}", least=1500, **_rate(figures.find(f"{name}: {SINGLE}", 1)))
    for name in ("OID", "JOIN"):
        found = figures.find(f"{name}: {BULK}")
        yield Goal(f"rules in bulk, a second: {name}", least=20_000, stretch=50_000, **_rate(found))
    yield from _own_queries(figures)


def peer_goals(results: Sequence[Result]) -> list[Goal]:
    """The goals against peers. Those in memory insert and match in one, so that they are held against both of ours: the
    filter, which does less than they do, and store and filter, which does more, as it is durable. Queries that rules
    ask of what is stored are held against the filter."""
    return list(_peer_goals(_Figures(results)))


def _peer_goals(figures: _Figures) -> Iterator[Goal]:
    for peer, name, least, stretch in (
        ("CLIPS", "OID", 1.5, 2.0),
        ("CLIPS", "PATH", 1.5, 2.0),
        ("CLIPS", "JOIN", 1.0, 1.3),
        *(("Pathway", name, 1.2, None) for name in ("OID", "PATH", "JOIN")),
    ):
        for part in (FILTER, STORE):
            against = _against(figures.find(f"{name}: {part}"), peer)
            yield Goal(f"{peer} / our {part}: {name}", least=least, stretch=stretch, **against)
    yield from _own_queries(figures)


def _own_queries(figures: _Figures) -> Iterator[Goal]:
    for name in ("OID", "PATH", "JOIN"):
        against = _against(figures.find(f"{name}: {FILTER}"), OWN_QUERY)
        yield Goal(f"{OWN_QUERY} (extrapolated from a sample) / ours: {name}", least=400, **against)


class _Figures:
    """The results by name, at the size that goals are for or the largest."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._results = results
        self._growth = {grown.name: grown for grown in growth(results)}

    def find(self, name: str, batch: int = BATCH) -> Result | None:
        mine = [result for result in self._results if result.name == name]
        if not mine:
            return None
        rules = _nearest({result.rules for result in mine}, RULES)
        mine = [result for result in mine if result.rules == rules]
        size = _nearest({result.batch for result in mine}, batch)
        return next(result for result in mine if result.batch == size)

    def grown(self, name: str) -> dict[str, Any]:
        grown = self._growth.get(name)
        if grown is None:
            return {}
        at = f"{grown.from_rules:,} to {grown.to_rules:,} rules, batches of {grown.batch:,}"
        return {"measured": grown.ratio, "at": at}


def _nearest(sizes: set[int], wanted: int) -> int:
    return wanted if wanted in sizes else max(sizes)


def _at(result: Result) -> str:
    return f"{result.rules:,} rules, batches of {result.batch:,}"


def _ratio(result: Result | None, against: float | None = None) -> dict[str, Any]:
    if result is None:
        return {}
    return {"measured": result.ratio if against is None else result.ours_us / against, "at": _at(result)}


def _against(result: Result | None, peer: str) -> dict[str, Any]:
    if result is None or peer not in result.peers:
        return {}
    return {"measured": result.peers[peer] / result.ours_us, "at": _at(result)}


def _rate(result: Result | None) -> dict[str, Any]:
    return {} if result is None else {"measured": 1e6 / result.ours_us, "at": _at(result)}


def _shown(number: float | None) -> str:
    """
    >>> _shown(0.923), _shown(20000), _shown(None)
    ('0.92', '20,000', '')
    """
    if number is None:
        return ""
    return f"{number:,.0f}" if number >= 100 else f"{number:.2f}"
