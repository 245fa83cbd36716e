"""Measure the memory and CPU time of a system and of a batch while it runs."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from mdv.bench.process_usage import MIB, PARTS, ProcessUsage, sample_processes

SAMPLE_SECONDS = 1.0
PARTS_SHOWN = ("driver", "Java", "executors", *PARTS, "other", "all")
"""In display order."""


@dataclass
class BatchUsage:
    """The usage of each part while a batch ran, and the sum under `all`.

    Processes that live only between two samples are missed, and CPU time after the last sample is not counted.
    """

    batch: int
    memory: dict[str, float] = field(default_factory=dict)
    """Peak memory in MiB."""
    _cpu_seconds: dict[int, tuple[str, float]] = field(default_factory=dict)
    _before: dict[int, float] = field(default_factory=dict)

    async def watch(self, pids: tuple[int, ...]) -> None:
        self._before = {pid: use.seconds for pid, use in (await asyncio.to_thread(sample_processes, pids)).items()}
        while True:
            uses = await asyncio.to_thread(sample_processes, [*pids, self.batch])
            memory_now: defaultdict[str, float] = defaultdict(float)
            for use in uses.values():
                part = self._part(use)
                memory_now[part] += use.memory / MIB
                self._cpu_seconds[use.pid] = part, use.seconds - self._before.get(use.pid, 0.0)
            memory_now["all"] = sum(memory_now.values())
            self.memory |= {part: round(max(mib, self.memory.get(part, 0.0)), 1) for part, mib in memory_now.items()}
            await asyncio.sleep(SAMPLE_SECONDS)

    @property
    def processor(self) -> dict[str, float]:
        """CPU seconds of each part."""
        cpu_seconds: defaultdict[str, float] = defaultdict(float)
        for part, seconds in self._cpu_seconds.values():
            cpu_seconds[part] += seconds
        cpu_seconds["all"] = sum(cpu_seconds.values())
        return {part: round(seconds, 2) for part, seconds in cpu_seconds.items()}

    def _part(self, use: ProcessUsage) -> str:
        if use.part or use.pid == self.batch:
            return use.part or "driver"
        try:
            arguments = Path(f"/proc/{use.pid}/cmdline").read_text(errors="replace").split("\0")
        except OSError:
            return self._cpu_seconds.get(use.pid, ("other", 0.0))[0]
        if arguments[0].endswith("java"):
            return "Java"
        return "executors" if {"pyspark.worker", "mdv.batch.daemon"} & set(arguments) else "other"
