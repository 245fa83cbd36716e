"""Kill any process at any time: acknowledged changes exist exactly once, and the system recovers on its own."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from mdv.failpoints import FAILPOINTS
from tests.support import fault_injection as strikes
from tests.support.eventually import eventually
from tests.support.fault_injection import Strike
from tests.support.faulty_system import System
from tests.support.recovery_checks import prove
from tests.support.retrying_writer import Writer


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, of one of the kinds below; `lasting` is its duration in seconds."""

    kind: str
    name: str
    strike: Strike
    lasting: float = 0.5
    always: bool = False
    """True if every test run includes it."""


KILLED_AT = [
    Fault(
        "worker",
        f"{'worker' if whole else 'process of the pool'} killed {point}, {'a large batch' if many else 'under load'}",
        strikes.dies_at(point, many, whole),
        always=point == "before the commit" and many and not whole,
    )
    for point in FAILPOINTS
    for many in (False, True)
    for whole in (False, True)
]
OTHERS = [
    Fault("worker", "processes of the pool killed anywhere", strikes.kill_pool_child),
    Fault("worker", "worker killed with all its processes", strikes.kill_worker),
    Fault("worker", "worker killed, its processes left behind", strikes.kill_parent_alone),
    Fault("Postgres", "Postgres killed, all of it", strikes.kill_postgres, always=True),
    Fault("Postgres", "Postgres stopped at once", strikes.stop_postgres_at_once, lasting=3),
    Fault("Valkey", "Valkey killed", strikes.kill_valkey, always=True),
    Fault("Valkey", "Valkey away for 10 s", strikes.kill_valkey, lasting=10),
    Fault("Valkey", "Valkey emptied again and again", strikes.empty_valkey),
    Fault("Valkey", "Valkey hangs for 10 s", strikes.freeze_valkey, lasting=10),
    Fault("web", "web server killed", strikes.kill_web, always=True),
    Fault("web", "process of the web server killed", strikes.kill_web_child),
    Fault("web", "process of the web server hangs for 5 s", strikes.freeze_web_child, lasting=5),
    Fault("web", "process of the web server hangs until it is replaced", strikes.hang_web_child),
    Fault("LMR", "LMRs killed while they apply", strikes.kill_lmrs(1), always=True),
    Fault("LMR", "LMRs killed again and again", strikes.kill_lmrs(4)),
    Fault("everything", "everything killed at once", strikes.kill_everything, always=True),
    Fault("two of each", "two workers and two web servers, one of each killed", strikes.work_in_twos, always=True),
    Fault("commit", "COMMIT sent, its answer lost", strikes.lose_answers_to_commit, always=True),
    Fault("network", "network to an LMR cut at any byte", strikes.cut_network(3), always=True),
    Fault("network", "network to an LMR cut at any byte, 20 times", strikes.cut_network(20)),
    Fault("network", "network to an LMR carries nothing for 10 s", strikes.hold_network, lasting=10),
]
CLOCKS = [
    Fault("clock", f"clock of {part} {words}", strikes.move_clock(part, by), always=part == "worker" and by == "+30d")
    for part in ("worker", "web", "LMR")
    for by, words in (("+1h", "an hour ahead"), ("+30d", "a month ahead"), ("-1d", "a day behind"))
]


def cases(faults: list[Fault]) -> list[object]:
    return [pytest.param(fault, id=fault.name, marks=() if fault.always else pytest.mark.matrix) for fault in faults]


def go_through(system: System, fault: Fault, record: Callable[[str, object], None], changes: int = 15) -> Writer:
    """Inject a fault while clients write, end it, and compare the whole state with the acknowledged changes."""
    system.healthy = False
    with system.load(fault.name) as writer:
        writer.goes_on(changes)
        strike = fault.strike(system, writer)
        next(strike)
        time.sleep(fault.lasting)
        began = time.monotonic()
        next(strike, None)
        system.mend()
        system.heals()
        healed = time.monotonic() - began
        writer.goes_on(changes)
    assert not writer.asked_again["500"], "an unavailable part was reported as an internal error of MDV"
    prove(system)
    system.healthy = True
    record("fault", {
        "kind": fault.kind, "fault": fault.name, "healed_seconds": round(healed, 2),
        "changes": writer.acknowledged, "asked_again": dict(writer.asked_again),
    })  # fmt: skip
    return writer


@pytest.mark.parametrize("fault", cases(KILLED_AT + OTHERS))
def test_a_fault_loses_and_repeats_no_acknowledged_change(
    fault: Fault, system: System, record_property: Callable[[str, object], None]
) -> None:
    go_through(system, fault, record_property)


@pytest.mark.skipif(strikes.faketime() is None, reason="libfaketime is not installed, so clocks cannot be changed")
@pytest.mark.parametrize("fault", cases(CLOCKS))
def test_a_wrong_clock_loses_and_repeats_nothing(
    fault: Fault, system: System, record_property: Callable[[str, object], None]
) -> None:
    go_through(system, fault, record_property)


# A full disk

SMALL = {"shared_buffers": "32MB", "min_wal_size": "32MB", "max_wal_size": "64MB"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate disk for the database."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=320m,mode=755", "tmpfs", str(disk)]
    try:
        made = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command, so no disk can be filled")
    if made.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {made.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path) -> Strike:
    """First tables have no room to grow; then the database's log has none, and Postgres stops."""

    def strike(system: System, writer: Writer) -> Iterator[None]:
        ballast = disk / "ballast"
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(4096)):
                pass
        writer.queue(strikes.MANY, wait=False)
        eventually(lambda: _has_no_room_for_its_log(system), interval=0.2)
        yield
        ballast.unlink()

    return strike


def _has_no_room_for_its_log(system: System) -> bool:
    try:
        system.rows("select pg_switch_wal()")
    except psycopg.OperationalError:
        return True
    return False


def test_a_full_disk_loses_no_acknowledged_change(
    small_disk: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    system = System(tmp_path, small_disk / "postgres", SMALL)
    try:
        fault = Fault("disk", "disk of the database full", fill(small_disk), lasting=3)
        assert go_through(system, fault, record_property).asked_again["503"], "no answer reported a full disk"
    finally:
        system.stop()
