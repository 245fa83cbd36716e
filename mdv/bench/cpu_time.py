"""The CPU time of a piece of work: of this process, and of the Postgres processes that serve a database.

On a busy machine, elapsed times of two variants differ by what other programs do; their CPU times do not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from mdv.bench.sql.bench_store import list_backends


@dataclass
class CpuTime:
    """The seconds that were used, once the block has ended."""

    seconds: float = 0.0


@contextmanager
def measure_cpu(engine: Engine) -> Iterator[CpuTime]:
    """Measure the CPU time of a block. The server is on this machine; connections that are opened in the block do not
    count."""
    found, processes = CpuTime(), list_backends(engine)
    before = time.process_time() + sum(map(_seconds, processes))
    yield found
    found.seconds = time.process_time() + sum(map(_seconds, processes)) - before


def _seconds(process: int) -> float:
    """Return the time that a process has run."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
