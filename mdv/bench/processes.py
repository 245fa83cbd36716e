"""What the parts of a system use, read from /proc: processor time, and memory.

Memory is each process's proportional share (PSS): what several share is counted once. What Postgres shares among its
processes is left out, since it fills up to what is set and not beyond. To see growth there is `own`: without programs
and libraries, whose shares change when others start or end that use them, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
MIB = 2**20

_SIGNS = (
    ("web.lmr.wsgi", "LMR"),
    ("web.wsgi", "web"),
    ("celery", "worker"),
    ("valkey-server", "Valkey"),
    ("postgres", "Postgres"),
)
PARTS = ("web", "worker", "Postgres", "Valkey", "LMR", "generator")
"""In the order in which they are shown. What is neither of them started the others."""


@dataclass(frozen=True, slots=True)
class Use:
    """One process at one moment: seconds of processor time since its start, and bytes of memory."""

    part: str
    pid: int
    seconds: float
    memory: int
    own: int


def look(roots: Iterable[int]) -> dict[int, Use]:
    """The processes of a system, those above all of it in `roots`, and this one, which makes the load."""
    found = {}
    for pid in [*_family(roots), os.getpid()]:
        use = _use(pid)
        if use is not None:
            found[pid] = use
    return found


def memory_of(uses: Mapping[int, Use]) -> dict[str, float]:
    """MiB of each part."""
    sums = dict.fromkeys(PARTS, 0.0)
    for use in uses.values():
        if use.part in sums:
            sums[use.part] += use.memory / MIB
    return {part: mib for part, mib in sums.items() if mib}


def seconds_between(before: Mapping[int, Use], after: Mapping[int, Use]) -> dict[str, float]:
    """The processor time that each part used between two looks."""
    sums = dict.fromkeys(PARTS, 0.0)
    for pid, use in after.items():
        if use.part in sums:
            sums[use.part] += use.seconds - (before[pid].seconds if pid in before else 0.0)
    return {part: seconds for part, seconds in sums.items() if any(use.part == part for use in after.values())}


def _family(roots: Iterable[int]) -> list[int]:
    """The processes and all below them."""
    below: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        fields = _fields(int(place.name))
        if fields:
            below.setdefault(int(fields[1]), []).append(int(place.name))
    found, todo = [], list(roots)
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += below.get(pid, [])
    return found


def _fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name, which may hold anything; none when it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()
    except OSError:
        return []


def _use(pid: int) -> Use | None:
    fields = _fields(pid)
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        memory, own = _memory(pid)
    except OSError:
        return None
    if not fields:
        return None
    part = next((part for sign, part in _SIGNS if sign in words), "")
    seconds = (int(fields[11]) + int(fields[12])) / TICKS
    return Use("generator" if pid == os.getpid() else part, pid, seconds, memory, own)


def _memory(pid: int) -> tuple[int, int]:
    sizes = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, size = line.partition(":")
        sizes[name] = int(size.split()[0]) * 1024
    return sizes["Pss"] - sizes["Pss_Shmem"], sizes["Pss_Anon"]
