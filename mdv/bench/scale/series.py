"""A series measures the same operation at several sizes. The stores exist side by side and take turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from mdv.bench.report import BenchResult
from mdv.bench.scale.fit import LINEAR, Fit, make_fit

PrintProgress = Callable[[str], None]

WARM_UP_ROUNDS = 2
"""Rounds that fill caches and plans. They are not counted."""
SINGLE_DOCUMENT_ROUNDS_FACTOR = 3
"""Factor for the number of rounds if each round is one short transaction."""


class TimedRound(NamedTuple):
    """Seconds of one registration, from prepared documents to commit, and of its floor."""

    ours: float
    floor: float


RunRound = Callable[[], TimedRound]
"""Runs one round at one size and checks its results."""


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """The largest numbers of documents and rules, and the number of rounds. The median of the rounds counts."""

    documents: int = 100_000
    rules: int = 100_000
    rounds: int = 9

    def rounds_of(self, batch: int) -> int:
        return self.rounds * SINGLE_DOCUMENT_ROUNDS_FACTOR if batch == 1 else self.rounds

    @property
    def document_sizes(self) -> tuple[int, ...]:
        return sizes_up_to(self.documents, 3)

    @property
    def rule_sizes(self) -> tuple[int, ...]:
        return sizes_up_to(self.rules, 3)

    @property
    def lmr_sizes(self) -> tuple[int, ...]:
        """A hundredth of the documents."""
        return sizes_up_to(max(20, self.documents // 100), 3)

    @property
    def set_sizes(self) -> tuple[int, ...]:
        return sizes_up_to(max(20, self.documents // 10), 4)


def sizes_up_to(largest: int, count: int) -> tuple[int, ...]:
    """Return a number of sizes, each ten times the previous one.

    >>> sizes_up_to(100_000, 3), sizes_up_to(20, 4)
    ((1000, 10000, 100000), (2, 20))
    """
    return tuple(sorted({largest // 10**less for less in range(count)} - {0}))


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """Times at several sizes, measured in one run. `rules` holds the number of rules at each size."""

    name: str
    grows: str
    law: float
    sizes: tuple[int, ...]
    rules: tuple[int, ...]
    batch: int
    rounds: tuple[tuple[TimedRound, ...], ...]
    """The rounds of each size."""

    @property
    def ours_us(self) -> list[float]:
        """Microseconds per document."""
        return [1e6 / self.batch * median(timed.ours for timed in rounds) for rounds in self.rounds]

    @property
    def floor_us(self) -> list[float]:
        return [1e6 / self.batch * median(timed.floor for timed in rounds) for rounds in self.rounds]

    def results(self) -> list[BenchResult]:
        """Return the results in the common form."""
        points = zip(self.sizes, self.rules, self.ours_us, self.floor_us, strict=True)
        return [
            BenchResult(f"{self.name}: {size:,} {self.grows}", rules, self.batch, ours, floor)
            for size, rules, ours, floor in points
        ]

    def fit(self) -> Fit:
        by_round = [[timed.ours for timed in turn] for turn in zip(*self.rounds, strict=True)]
        return make_fit(self.name, self.grows, "µs", self.law, self.sizes, self.ours_us, by_round)


@dataclass(frozen=True, slots=True)
class SizeSeries:
    """Bytes at several sizes, or seconds without a floor."""

    name: str
    grows: str
    unit: str
    sizes: tuple[int, ...]
    values: tuple[float, ...]

    def fit(self) -> Fit:
        return make_fit(self.name, self.grows, self.unit, LINEAR, self.sizes, self.values)

    def as_dict(self) -> dict[str, Any]:
        points = [{"size": size, "value": value} for size, value in zip(self.sizes, self.values, strict=True)]
        return {"name": self.name, "grows": self.grows, "unit": self.unit, "points": points}


ScaleResult = TimeSeries | SizeSeries


def run_rounds(
    turns: Mapping[int, RunRound], rounds: int, warm_up: int = WARM_UP_ROUNDS
) -> tuple[tuple[TimedRound, ...], ...]:
    """Let all sizes take turns. Return the rounds of each size without the warm-up rounds."""
    taken: dict[int, list[TimedRound]] = {size: [] for size in turns}
    for _ in range(rounds + warm_up):
        for size, turn in turns.items():
            taken[size].append(turn())
    return tuple(tuple(rounds[warm_up:]) for rounds in taken.values())


def measure_series(
    name: str, grows: str, law: float, turns: Mapping[int, RunRound], rules: Sequence[int], batch: int, rounds: int
) -> TimeSeries:
    """Measure a series."""
    return TimeSeries(name, grows, law, tuple(turns), tuple(rules), batch, run_rounds(turns, rounds))
