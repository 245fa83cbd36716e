"""Faults: which ones run, a system for them, and a table of recovery times."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.faulty_system import System

ALL = os.environ.get("MDV_FAULTS") == "all"
REPORT = os.environ.get("MDV_FAULTS_REPORT") or "build/faults.json"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `matrix` take long and are run by `make faults` only."""
    left = [item for item in items if item.get_closest_marker("matrix")] if not ALL else []
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


@pytest.fixture(scope="module")
def systems(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], System]]:
    """Return a healthy system: that of the previous fault if it passed all checks, else a new one."""
    from tests.support.faulty_system import System

    running: list[System] = []

    def give() -> System:
        if running and not running[-1].healthy:
            running.pop().stop()
        if not running:
            running.append(System(tmp_path_factory.mktemp("faults")))
        return running[-1]

    yield give
    for system in running:
        system.stop()


@pytest.fixture
def system(systems: Callable[[], System]) -> System:
    return systems()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the recovery time of each fault."""
    rows = [
        value
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        for name, value in getattr(report, "user_properties", [])
        if name == "fault"
    ]
    if not rows or not ALL:
        return
    terminalreporter.section("faults")
    terminalreporter.write_line(f"{'healed in':>9}  {'changes':>7}  fault, and why clients asked again")
    for row in rows:
        why = ", ".join(f"{words} {count} times" for words, count in row["asked_again"].items())
        terminalreporter.write_line(
            f"{row['healed_seconds']:7.2f} s  {row['changes']:7}  {row['fault']}{f' ({why})' if why else ''}"
        )
    Path(REPORT).parent.mkdir(parents=True, exist_ok=True)
    Path(REPORT).write_text(json.dumps({"faults": rows}, indent=1) + "\n")
