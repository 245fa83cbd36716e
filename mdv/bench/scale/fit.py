"""How something grows: the exponent of a power law, and the straight line, through what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from statistics import quantiles
from typing import Any

CONSTANT, LINEAR = 0.0, 1.0
"""The exponents that laws speak of."""
FLAT = 0.1
"""What is called flat has a smaller exponent; a law is kept up to as much more."""
NOISY, BROKEN = "too noisy to say", "more than its law"


def power_law(sizes: Sequence[float], costs: Sequence[float]) -> tuple[float, float, float]:
    """a, b and R² of cost = a · size ** b, by least squares on logarithms. Of costs that are all equal R² is 1.

    >>> [round(value, 6) for value in power_law([1, 10, 100], [3, 30, 300])]
    [3.0, 1.0, 1.0]
    >>> [round(value, 6) for value in power_law([10, 100, 1000], [7, 7, 7])]
    [7.0, 0.0, 1.0]
    >>> a, b, r2 = power_law([1, 10, 100], [1, 40, 90])
    >>> round(b, 2), r2 < 0.95
    (0.98, True)
    """
    level, slope, r2 = straight([log(size) for size in sizes], [log(cost) for cost in costs])
    return exp(level), slope, r2


def straight(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float, float]:
    """c, d and R² of y = c + d · x, by least squares.

    >>> straight([0, 10, 20], [5, 25, 45])
    (5.0, 2.0, 1.0)
    """
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    wide = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / wide if wide else 0.0
    level = mean_y - slope * mean_x
    total = sum((y - mean_y) ** 2 for y in ys)
    left = sum((y - level - slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    return level, slope, 1 - left / total if total > 1e-12 * max(1.0, mean_y**2) else 1.0


@dataclass(frozen=True, slots=True)
class Fit:
    """How one cost grows with one thing. `law`: the exponent that it should have at most."""

    name: str
    grows: str
    """What is counted."""
    unit: str
    law: float
    exponent: float
    spread: float | None
    """Half of what the middle half of the rounds differ by in their exponents: a noisy fit shows here."""
    r2: float
    base: float
    slope: float
    """The straight line: what there is without any, and what each one more costs."""
    largest: float
    """The largest size that was measured, and its cost."""
    cost: float

    @property
    def keeps_law(self) -> bool:
        return self.exponent <= self.law + FLAT

    @property
    def verdict(self) -> str:
        """What to make of it, in a word or two. What rounds do not agree on is no verdict."""
        if not self.keeps_law:
            doubtful = self.exponent - (self.spread or 0.0) <= self.law + FLAT
            return NOISY if doubtful else BROKEN
        return "flat" if self.exponent < FLAT else "keeps its law"

    def at(self, size: float) -> float:
        """The cost at a size that was not measured: along the straight line where it is linear by law and no worse, and
        otherwise from the largest that was measured, by the exponent. What seems to fall stays.

        >>> fit_of("x", "things", "µs", LINEAR, [10, 100, 1000], [30, 120, 1020]).at(10_000)
        10020.0
        >>> fit_of("x", "things", "µs", CONSTANT, [10, 100], [30, 29]).at(10_000)
        29.0
        """
        if self.law == LINEAR and self.keeps_law:
            return self.base + self.slope * size
        return self.cost * max(1.0, float((size / self.largest) ** self.exponent))

    def growth(self, size: float) -> float:
        """How many times the cost of the largest size that was measured."""
        return max(1.0, self.at(size) / self.cost)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"verdict": self.verdict}


def fit_of(
    name: str,
    grows: str,
    unit: str,
    law: float,
    sizes: Sequence[float],
    costs: Sequence[float],
    rounds: Sequence[Sequence[float]] = (),
) -> Fit:
    """The fit of costs, ascending by size. `rounds`: the costs of each round alone, all sizes of which took turns."""
    _, exponent, r2 = power_law(sizes, costs)
    each = [power_law(sizes, one)[1] for one in rounds]
    low, _, high = quantiles(each, n=4) if len(each) > 1 else (0.0, 0.0, 0.0)
    spread = (high - low) / 2 if len(each) > 1 else None
    base, slope, _ = straight(sizes, costs)
    if base < 0:
        base, slope = 0.0, costs[-1] / sizes[-1]
    elif slope < 0:  # nothing costs less where there is more of it: that is noise
        base, slope = costs[-1], 0.0
    return Fit(name, grows, unit, law, exponent, spread, r2, base, slope, sizes[-1], costs[-1])
