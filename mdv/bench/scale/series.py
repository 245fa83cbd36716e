"""A series: the same thing measured at several sizes, whose stores stand side by side and take turns round by round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from mdv.bench.report import Result
from mdv.bench.scale.fit import LINEAR, Fit, fit_of

Say = Callable[[str], None]

WARM_UP = 2
"""Rounds that warm caches and plans."""
MORE_OF_ONE = 3
"""How many times more rounds there are where each is one short transaction."""


class Timed(NamedTuple):
    """Seconds of one registration, from prepared documents to commit, and of the floor beside it."""

    ours: float
    floor: float


Turn = Callable[[], Timed]
"""One round at one size, which checks what it did."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How far to go: the largest number of documents and of rules, and rounds of which the median counts."""

    documents: int = 100_000
    rules: int = 100_000
    rounds: int = 9

    def rounds_of(self, batch: int) -> int:
        return self.rounds * MORE_OF_ONE if batch == 1 else self.rounds

    @property
    def document_sizes(self) -> tuple[int, ...]:
        return sizes_up_to(self.documents, 3)

    @property
    def rule_sizes(self) -> tuple[int, ...]:
        return sizes_up_to(self.rules, 3)

    @property
    def lmr_sizes(self) -> tuple[int, ...]:
        """A hundredth of the documents: who has ten LMRs seldom has a hundred thousand."""
        return sizes_up_to(max(20, self.documents // 100), 3)

    @property
    def set_sizes(self) -> tuple[int, ...]:
        return sizes_up_to(max(20, self.documents // 10), 4)


def sizes_up_to(largest: int, count: int) -> tuple[int, ...]:
    """That many sizes, each ten times the one before.

    >>> sizes_up_to(100_000, 3), sizes_up_to(20, 4)
    ((1000, 10000, 100000), (2, 20))
    """
    return tuple(sorted({largest // 10**less for less in range(count)} - {0}))


@dataclass(frozen=True, slots=True)
class Series:
    """What was measured at several sizes, in one run. `rules` and `batch`: at each size."""

    name: str
    grows: str
    law: float
    sizes: tuple[int, ...]
    rules: tuple[int, ...]
    batch: int
    rounds: tuple[tuple[Timed, ...], ...]
    """Of each size, round by round."""

    @property
    def ours_us(self) -> list[float]:
        """Microseconds a document."""
        return [1e6 / self.batch * median(timed.ours for timed in rounds) for rounds in self.rounds]

    @property
    def floor_us(self) -> list[float]:
        return [1e6 / self.batch * median(timed.floor for timed in rounds) for rounds in self.rounds]

    def results(self) -> list[Result]:
        """In the common form."""
        points = zip(self.sizes, self.rules, self.ours_us, self.floor_us, strict=True)
        return [
            Result(f"{self.name}: {size:,} {self.grows}", rules, self.batch, ours, floor)
            for size, rules, ours, floor in points
        ]

    def fit(self) -> Fit:
        by_round = [[timed.ours for timed in turn] for turn in zip(*self.rounds, strict=True)]
        return fit_of(self.name, self.grows, "µs", self.law, self.sizes, self.ours_us, by_round)


@dataclass(frozen=True, slots=True)
class Weight:
    """What something weighs at several sizes: bytes, or seconds where no floor can stand beside them."""

    name: str
    grows: str
    unit: str
    sizes: tuple[int, ...]
    values: tuple[float, ...]

    def fit(self) -> Fit:
        return fit_of(self.name, self.grows, self.unit, LINEAR, self.sizes, self.values)

    def as_dict(self) -> dict[str, Any]:
        points = [{"size": size, "value": value} for size, value in zip(self.sizes, self.values, strict=True)]
        return {"name": self.name, "grows": self.grows, "unit": self.unit, "points": points}


Found = Series | Weight


def take_turns(turns: Mapping[int, Turn], rounds: int, warm_up: int = WARM_UP) -> tuple[tuple[Timed, ...], ...]:
    """Let all sizes take turns; what each took, round by round, without the rounds that warmed up."""
    taken: dict[int, list[Timed]] = {size: [] for size in turns}
    for _ in range(rounds + warm_up):
        for size, turn in turns.items():
            taken[size].append(turn())
    return tuple(tuple(rounds[warm_up:]) for rounds in taken.values())


def measure(
    name: str, grows: str, law: float, turns: Mapping[int, Turn], rules: Sequence[int], batch: int, rounds: int
) -> Series:
    """Measure a series."""
    return Series(name, grows, law, tuple(turns), tuple(rules), batch, take_turns(turns, rounds))
