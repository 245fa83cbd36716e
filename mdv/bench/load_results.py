"""The results of a load: latencies, throughput, and resource usage of each part of the system."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RequestSample:
    """One request: its planned and actual times, its outcome and its position."""

    planned: float
    answered: float
    outcome: str
    position: int | None = None

    @property
    def seconds(self) -> float:
        return self.answered - self.planned


@dataclass(frozen=True, slots=True)
class Latency:
    """The distribution of a duration, in milliseconds."""

    count: int
    p50: float
    p90: float
    p99: float
    most: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Latency | None:
        """
        >>> Latency.of(n / 1000 for n in range(1, 101))
        Latency(count=100, p50=50.0, p90=90.0, p99=99.0, most=100.0)
        """
        ordered = sorted(seconds)
        if not ordered:
            return None
        at = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.9, 0.99, 1.0))
        return cls(len(ordered), *(round(1000 * value, 3) for value in at))


@dataclass(frozen=True, slots=True)
class PartUsage:
    """Resource usage of one part of the system: average cores, and MiB of memory at the start, at the end and at the
    peak."""

    part: str
    cores: float
    first_mib: float
    last_mib: float
    most_mib: float


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of one run of a load."""

    name: str
    clients: int
    rate: float | None
    seconds: float
    documents: int
    """Documents answered within the measured time; for a queued run, all that were carried out."""
    per_second: float
    answer: Latency | None
    visible: Latency | None
    """From sending to the moment when an LMR had the document."""
    batch: float | None
    """Average number of documents in a transaction."""
    outcomes: dict[str, int]
    most_waiting: int
    parts: tuple[PartUsage, ...]

    @property
    def errors(self) -> int:
        """Number of failed requests. A 429 response is not an error."""
        return sum(count for outcome, count in self.outcomes.items() if outcome not in (DONE, ACCEPTED, TOO_MANY))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"errors": self.errors}


DONE, ACCEPTED, TOO_MANY = "done", "accepted", "429"


def mean_batch_size(samples: Sequence[RequestSample]) -> float | None:
    """Return the average number of documents per position.

    >>> mean_batch_size([RequestSample(0, 1, "done", position) for position in (7, 7, 8, 9)])
    1.3333333333333333
    """
    sizes = Counter(sample.position for sample in samples if sample.position is not None)
    return sum(sizes.values()) / len(sizes) if sizes else None


def visibility_delays(samples: Iterable[RequestSample], seen: Sequence[tuple[float, int]]) -> list[float]:
    """Return the seconds from sending until an LMR had reached the position. `seen` holds ascending positions with
    times.

    >>> visibility_delays([RequestSample(0, 1, "done", 5), RequestSample(1, 2, "done", 9)], [(2.0, 4), (3.0, 7)])
    [3.0]
    """
    positions = [position for _, position in seen]
    found = []
    for sample in samples:
        if sample.position is not None and (at := bisect_left(positions, sample.position)) < len(seen):
            found.append(seen[at][0] - sample.planned)
    return found
