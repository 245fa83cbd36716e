"""Results of a benchmark: for people as a table, for machines as JSON."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Result:
    """Medians of interleaved rounds, in microseconds a document."""

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


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30
    return {
        "cores": os.cpu_count(),
        "memory_gib": memory,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def write_json(path: Path, command: str, results: list[Result], **more: Any) -> None:
    body = {"machine": machine(), "command": command, "results": [result.as_dict() for result in results], **more}
    path.write_text(json.dumps(body, indent=1) + "\n", "utf-8")
