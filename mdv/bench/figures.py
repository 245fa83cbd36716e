"""The figures of a load: how long calls took, how many went through, and what that cost each part of the system."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sample:
    """One request: when it was to be sent, when it was answered and how, and the position that it got."""

    planned: float
    answered: float
    outcome: str
    position: int | None = None

    @property
    def seconds(self) -> float:
        return self.answered - self.planned


@dataclass(frozen=True, slots=True)
class Spread:
    """How a time is distributed, in milliseconds."""

    count: int
    p50: float
    p90: float
    p99: float
    most: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Spread | None:
        """
        >>> Spread.of(n / 1000 for n in range(1, 101))
        Spread(count=100, p50=50.0, p90=90.0, p99=99.0, most=100.0)
        """
        ordered = sorted(seconds)
        if not ordered:
            return None
        at = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.9, 0.99, 1.0))
        return cls(len(ordered), *(round(1000 * value, 3) for value in at))


@dataclass(frozen=True, slots=True)
class PartUse:
    """What one part of the system used: cores on the average, and MiB of memory at first, last and most."""

    part: str
    cores: float
    first_mib: float
    last_mib: float
    most_mib: float


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a load."""

    name: str
    clients: int
    rate: float | None
    seconds: float
    documents: int
    """Answered within the time that counts; of a queued run, carried out from the first sent to the last done."""
    per_second: float
    answer: Spread | None
    visible: Spread | None
    """From sending to the moment that an LMR had it."""
    batch: float | None
    """Documents of one transaction, on the average."""
    outcomes: dict[str, int]
    most_waiting: int
    parts: tuple[PartUse, ...]

    @property
    def errors(self) -> int:
        """Requests that were answered otherwise than they should be; to be told to come later is no error."""
        return sum(count for outcome, count in self.outcomes.items() if outcome not in (DONE, ACCEPTED, TOO_MANY))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"errors": self.errors}


DONE, ACCEPTED, TOO_MANY = "done", "accepted", "429"


def mean_batch(samples: Sequence[Sample]) -> float | None:
    """Documents for each position.

    >>> mean_batch([Sample(0, 1, "done", position) for position in (7, 7, 8, 9)])
    1.3333333333333333
    """
    sizes = Counter(sample.position for sample in samples if sample.position is not None)
    return sum(sizes.values()) / len(sizes) if sizes else None


def visible_after(samples: Iterable[Sample], seen: Sequence[tuple[float, int]]) -> list[float]:
    """The seconds from sending until an LMR stood at the position, where it was seen at ascending positions.

    >>> visible_after([Sample(0, 1, "done", 5), Sample(1, 2, "done", 9)], [(2.0, 4), (3.0, 7)])
    [3.0]
    """
    positions = [position for _, position in seen]
    found = []
    for sample in samples:
        if sample.position is not None and (at := bisect_left(positions, sample.position)) < len(seen):
            found.append(seen[at][0] - sample.planned)
    return found
