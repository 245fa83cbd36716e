"""Results of a benchmark, as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import mdv


@dataclass(frozen=True, slots=True)
class BenchResult:
    """Medians of interleaved rounds, in microseconds per document."""

    name: str
    rules: int
    batch: int
    ours_us: float
    floor_us: float
    peers: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return self.ours_us / self.floor_us

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": round(self.ratio, 3)}


def machine_info() -> dict[str, Any]:
    """Return the machine, the versions and the time of a measurement."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": memory,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "mdv": mdv.__version__,
        "measured": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _processor() -> str:
    """Return the processor's model name."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def as_json(command: str, results: Sequence[BenchResult], **more: Any) -> str:
    body = {"machine": machine_info(), "command": command, "results": [result.as_dict() for result in results], **more}
    return json.dumps(body, indent=1) + "\n"


def write_json(path: Path, command: str, results: Sequence[BenchResult], **more: Any) -> None:
    path.write_text(as_json(command, results, **more), "utf-8")
