"""What the parts of a system and of a batch use while it runs: memory, and processor time."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from mdv.bench.processes import MIB, PARTS, Use, look

PAUSE = 1.0
USED_BY = ("driver", "Java", "executors", *PARTS, "other", "all")
"""In the order in which they are shown."""


@dataclass
class Used:
    """What each part used while a batch ran, and `all` of them together.

    A process that comes and goes between two looks is not seen, and what one did after the last look is not counted.
    """

    batch: int
    memory: dict[str, float] = field(default_factory=dict)
    """The most at one time, in MiB."""
    _spent: dict[int, tuple[str, float]] = field(default_factory=dict)
    _before: dict[int, float] = field(default_factory=dict)

    async def watch(self, pids: tuple[int, ...]) -> None:
        self._before = {pid: use.seconds for pid, use in (await asyncio.to_thread(look, pids)).items()}
        while True:
            uses = await asyncio.to_thread(look, [*pids, self.batch])
            now: defaultdict[str, float] = defaultdict(float)
            for use in uses.values():
                part = self._part(use)
                now[part] += use.memory / MIB
                self._spent[use.pid] = part, use.seconds - self._before.get(use.pid, 0.0)
            now["all"] = sum(now.values())
            self.memory |= {part: round(max(mib, self.memory.get(part, 0.0)), 1) for part, mib in now.items()}
            await asyncio.sleep(PAUSE)

    @property
    def processor(self) -> dict[str, float]:
        """Seconds of processor time."""
        spent: defaultdict[str, float] = defaultdict(float)
        for part, seconds in self._spent.values():
            spent[part] += seconds
        spent["all"] = sum(spent.values())
        return {part: round(seconds, 2) for part, seconds in spent.items()}

    def _part(self, use: Use) -> str:
        if use.part or use.pid == self.batch:
            return use.part or "driver"
        try:
            words = Path(f"/proc/{use.pid}/cmdline").read_text(errors="replace").split("\0")
        except OSError:
            return self._spent.get(use.pid, ("other", 0.0))[0]
        if words[0].endswith("java"):
            return "Java"
        return "executors" if {"pyspark.worker", "mdv.batch.daemon"} & set(words) else "other"
