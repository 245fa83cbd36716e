"""Read the CPU time and memory of a system's processes from /proc.

Memory is the proportional set size (PSS), which divides shared memory among its users. The shared memory of Postgres is
left out, since it is limited by configuration. `own` serves to detect growth: it excludes programs and libraries, whose
shares change when other processes start or end.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
MIB = 2**20

_COMMAND_PATTERNS = (
    ("web.lmr.wsgi", "LMR"),
    ("web.wsgi", "web"),
    ("celery", "worker"),
    ("valkey-server", "Valkey"),
    ("postgres", "Postgres"),
)
PARTS = ("web", "worker", "Postgres", "Valkey", "LMR", "generator")
"""In display order. Other processes are those that started these."""


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """One process at one moment: CPU seconds since its start, and bytes of memory."""

    part: str
    pid: int
    seconds: float
    memory: int
    own: int


def sample_processes(roots: Iterable[int]) -> dict[int, ProcessUsage]:
    """Return the processes of a system, below those in `roots`, and this process, which generates the load."""
    found = {}
    for pid in [*_descendants(roots), os.getpid()]:
        use = _read_process(pid)
        if use is not None:
            found[pid] = use
    return found


def memory_by_part(uses: Mapping[int, ProcessUsage]) -> dict[str, float]:
    """Return the MiB of each part."""
    sums = dict.fromkeys(PARTS, 0.0)
    for use in uses.values():
        if use.part in sums:
            sums[use.part] += use.memory / MIB
    return {part: mib for part, mib in sums.items() if mib}


def cpu_seconds_by_part(before: Mapping[int, ProcessUsage], after: Mapping[int, ProcessUsage]) -> dict[str, float]:
    """Return the CPU time that each part used between two samples."""
    sums = dict.fromkeys(PARTS, 0.0)
    for pid, use in after.items():
        if use.part in sums:
            sums[use.part] += use.seconds - (before[pid].seconds if pid in before else 0.0)
    return {part: seconds for part, seconds in sums.items() if any(use.part == part for use in after.values())}


def _descendants(roots: Iterable[int]) -> list[int]:
    """Return the processes and all of their descendants."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        fields = _fields(int(path.name))
        if fields:
            children.setdefault(int(fields[1]), []).append(int(path.name))
    found, remaining = [], list(roots)
    while remaining:
        pid = remaining.pop()
        found.append(pid)
        remaining += children.get(pid, [])
    return found


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may contain anything; empty if the process has
    ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()
    except OSError:
        return []


def _read_process(pid: int) -> ProcessUsage | None:
    fields = _fields(pid)
    try:
        command_line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        memory, own = _memory(pid)
    except OSError:
        return None
    if not fields:
        return None
    part = next((part for pattern, part in _COMMAND_PATTERNS if pattern in command_line), "")
    seconds = (int(fields[11]) + int(fields[12])) / TICKS
    return ProcessUsage("generator" if pid == os.getpid() else part, pid, seconds, memory, own)


def _memory(pid: int) -> tuple[int, int]:
    sizes = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, size = line.partition(":")
        sizes[name] = int(size.split()[0]) * 1024
    return sizes["Pss"] - sizes["Pss_Shmem"], sizes["Pss_Anon"]
