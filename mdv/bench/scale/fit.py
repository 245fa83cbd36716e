"""Fit measurements: the exponent of a power law, and a straight line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from statistics import quantiles
from typing import Any

CONSTANT, LINEAR = 0.0, 1.0
"""The exponents of the laws."""
FLAT_EXPONENT = 0.1
"""A smaller exponent is called flat. A law is kept if the exponent exceeds it by no more than this."""
NOISY, EXCEEDS_LAW = "too noisy", "exceeds its law"


def fit_power_law(sizes: Sequence[float], costs: Sequence[float]) -> tuple[float, float, float]:
    """Return a, b and R² of cost = a · size ** b, by least squares on logarithms. R² is 1 if all costs are equal.

    >>> [round(value, 6) for value in fit_power_law([1, 10, 100], [3, 30, 300])]
    [3.0, 1.0, 1.0]
    >>> [round(value, 6) for value in fit_power_law([10, 100, 1000], [7, 7, 7])]
    [7.0, 0.0, 1.0]
    >>> a, b, r2 = fit_power_law([1, 10, 100], [1, 40, 90])
    >>> round(b, 2), r2 < 0.95
    (0.98, True)
    """
    level, slope, r2 = fit_straight_line([log(size) for size in sizes], [log(cost) for cost in costs])
    return exp(level), slope, r2


def fit_straight_line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float, float]:
    """Return c, d and R² of y = c + d · x, by least squares.

    >>> fit_straight_line([0, 10, 20], [5, 25, 45])
    (5.0, 2.0, 1.0)
    """
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    variance = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / variance if variance else 0.0
    level = mean_y - slope * mean_x
    total = sum((y - mean_y) ** 2 for y in ys)
    residual = sum((y - level - slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    return level, slope, 1 - residual / total if total > 1e-12 * max(1.0, mean_y**2) else 1.0


@dataclass(frozen=True, slots=True)
class Fit:
    """The growth of a cost. `law` is the largest exponent that is expected."""

    name: str
    grows: str
    """The thing whose number grows."""
    unit: str
    law: float
    exponent: float
    spread: float | None
    """Half of the interquartile range of the rounds' exponents, a measure of noise."""
    r2: float
    base: float
    slope: float
    """The straight line: `base` is its value at 0, `slope` the cost of each additional one."""
    largest: float
    """The largest measured size, and its cost."""
    cost: float

    @property
    def keeps_law(self) -> bool:
        return self.exponent <= self.law + FLAT_EXPONENT

    @property
    def verdict(self) -> str:
        """The verdict in a few words. If rounds disagree, there is none."""
        if not self.keeps_law:
            doubtful = self.exponent - (self.spread or 0.0) <= self.law + FLAT_EXPONENT
            return NOISY if doubtful else EXCEEDS_LAW
        return "flat" if self.exponent < FLAT_EXPONENT else "keeps its law"

    def at(self, size: float) -> float:
        """Return the cost at a size that was not measured. Costs that are linear by law follow the straight line. Other
        costs grow from the largest measured one by the exponent. Costs are never assumed to decrease.

        >>> make_fit("x", "things", "µs", LINEAR, [10, 100, 1000], [30, 120, 1020]).at(10_000)
        10020.0
        >>> make_fit("x", "things", "µs", CONSTANT, [10, 100], [30, 29]).at(10_000)
        29.0
        """
        if self.law == LINEAR and self.keeps_law:
            return self.base + self.slope * size
        return self.cost * max(1.0, float((size / self.largest) ** self.exponent))

    def growth(self, size: float) -> float:
        """Return the cost at a size relative to the largest measured one."""
        return max(1.0, self.at(size) / self.cost)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"verdict": self.verdict}


def make_fit(
    name: str,
    grows: str,
    unit: str,
    law: float,
    sizes: Sequence[float],
    costs: Sequence[float],
    rounds: Sequence[Sequence[float]] = (),
) -> Fit:
    """Fit costs, ascending by size. `rounds` holds the costs of each round, for all sizes."""
    _, exponent, r2 = fit_power_law(sizes, costs)
    each = [fit_power_law(sizes, round_costs)[1] for round_costs in rounds]
    low, _, high = quantiles(each, n=4) if len(each) > 1 else (0.0, 0.0, 0.0)
    spread = (high - low) / 2 if len(each) > 1 else None
    base, slope, _ = fit_straight_line(sizes, costs)
    if base < 0:
        base, slope = 0.0, costs[-1] / sizes[-1]
    elif slope < 0:  # costs do not decrease with the size, so this is noise
        base, slope = costs[-1], 0.0
    return Fit(name, grows, unit, law, exponent, spread, r2, base, slope, sizes[-1], costs[-1])
