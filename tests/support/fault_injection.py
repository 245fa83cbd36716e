"""The faults. Each is injected, yields while it lasts, and is then removed; the system restarts ended processes."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import redis
import sqlalchemy

from mdv.config import Config
from tests.support.commit_proxy import CommitProxy
from tests.support.eventually import eventually
from tests.support.faulty_system import System, died
from tests.support.retrying_writer import Writer
from workers.app import make_celery

Strike = Callable[[System, Writer], Iterator[None]]

MANY = 120
"""More than a worker claims by default."""


# Workers


def dies_at(point: str, many: bool, whole: bool) -> Strike:
    """A worker whose processes kill themselves at a failpoint of a change. With `whole`, the first one ends the whole
    worker; else Celery replaces it, and the new process dies there too. With `many`, a large batch waits for it.
    """

    def strike(system: System, writer: Writer) -> Iterator[None]:
        system.workers[0].kill()
        if many:
            writer.queue(MANY)
        system.workers[0] = system.new_worker(MDV_DIE_AT=f"{point}:{1 if many else 3}")
        died(system.workers[0], 1 if whole else 2)
        system.workers[0].kill()
        yield

    return strike


def kill_pool_child(system: System, writer: Writer) -> Iterator[None]:
    for _ in range(3):
        for child in eventually(system.workers[0].children):
            _kill(child)
        writer.goes_on(5)
    yield


def kill_worker(system: System, writer: Writer) -> Iterator[None]:
    system.workers[0].kill()
    yield


def kill_parent_alone(system: System, writer: Writer) -> Iterator[None]:
    _kill(system.workers[0].pid)
    yield


# Postgres and Valkey


def kill_postgres(system: System, writer: Writer) -> Iterator[None]:
    system.kill_postgres()
    yield


def stop_postgres_at_once(system: System, writer: Writer) -> Iterator[None]:
    """The effect of `pg_ctl stop -m immediate`."""
    os.kill(system.postgres.process.pid, signal.SIGQUIT)
    yield


def kill_valkey(system: System, writer: Writer) -> Iterator[None]:
    _kill(system.valkey.process.pid)
    yield


def empty_valkey(system: System, writer: Writer) -> Iterator[None]:
    with redis.Redis.from_url(system.valkey.url) as client:
        for _ in range(10):
            client.flushall()
            time.sleep(0.1)
    yield


def freeze_valkey(system: System, writer: Writer) -> Iterator[None]:
    with _frozen(system.valkey.process.pid):
        yield


# Web servers and LMRs


def kill_web(system: System, writer: Writer) -> Iterator[None]:
    system.webs[0].kill()
    yield


def kill_web_child(system: System, writer: Writer) -> Iterator[None]:
    _kill(system.webs[0].worker_pid())
    yield


def freeze_web_child(system: System, writer: Writer) -> Iterator[None]:
    with _frozen(system.webs[0].worker_pid()):
        yield


def hang_web_child(system: System, writer: Writer) -> Iterator[None]:
    """Freeze a worker until gunicorn replaces it."""
    port = system.webs[0].port
    system.webs[0].kill()
    system.webs[0] = system.new_web("--timeout", "3", port=port)
    writer.goes_on(5)  # gunicorn monitors workers that have started to serve
    frozen = system.webs[0].worker_pid()
    os.kill(frozen, signal.SIGSTOP)
    eventually(lambda: frozen not in system.webs[0].children())
    yield
    system.webs[0].kill()


def kill_lmrs(times: int) -> Strike:
    """Kill LMRs that have many events to apply, repeatedly, each time after they have resumed."""

    def strike(system: System, writer: Writer) -> Iterator[None]:
        writer.queue(MANY)
        for turn in range(times):
            if turn:
                system.mend()
                time.sleep(0.3)
            for lmr in system.lmrs.values():
                lmr.kill()
        yield

    return strike


def cut_network(times: int) -> Strike:
    """Cut connections to an LMR after any number of bytes."""

    def strike(system: System, writer: Writer) -> Iterator[None]:
        rng = random.Random("cuts")
        system.network.cut_after([int(10 ** rng.uniform(0, 4)) for _ in range(times)])
        eventually(lambda: not system.network.cuts_left, 180)
        yield

    return strike


def hold_network(system: System, writer: Writer) -> Iterator[None]:
    """Let no byte through, and close no connection."""
    system.network.hold()
    yield
    system.network.flow()


# Combined and other faults


def kill_everything(system: System, writer: Writer) -> Iterator[None]:
    system.kill_postgres()
    _kill(system.valkey.process.pid)
    for part in (*system.workers, *system.webs, *system.lmrs.values()):
        part.kill()
    yield


def work_in_twos(system: System, writer: Writer) -> Iterator[None]:
    """No fault: two workers and two web servers on the same documents. Then two of the four are killed."""
    system.workers.append(system.new_worker())
    system.webs.append(system.new_web())
    writer.queue(MANY)
    yield
    for part in (system.workers.pop(), system.webs.pop()):
        part.kill()


def lose_answers_to_commit(system: System, writer: Writer) -> Iterator[None]:
    """A worker never receives the answer to its commits."""
    proxy = CommitProxy(system.postgres.port)
    url = sqlalchemy.make_url(system.postgres.url).set(port=proxy.port).render_as_string(hide_password=False)
    system.workers[0].kill()
    system.workers[0] = system.new_worker(url)
    eventually(lambda: proxy.cuts >= 3, 90)
    yield
    system.workers[0].kill()
    proxy.close()


def move_clock(part: str, by: str) -> Strike:
    """The clock of a worker, a web server or an LMR differs from the others."""

    def strike(system: System, writer: Writer) -> Iterator[None]:
        library = faketime()
        assert library is not None
        clock = {"LD_PRELOAD": str(library), "FAKETIME": by, "DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}
        if part == "worker":
            system.workers[0].kill()
            system.workers[0] = system.new_worker(**clock)
            # Retention runs now; by the clock of the database, nothing has expired.
            make_celery(Config.from_environment({"MDV_REDIS_URL": system.valkey.url})).send_task("mdv.tend")
        elif part == "web":
            system.webs[0].kill()
            system.webs[0] = system.new_web(port=system.webs[0].port, **clock)
        else:
            system.lmrs["near"].kill()
            system.lmrs["near"] = system.new_lmr("near", **clock)
        writer.goes_on(30)
        system.heals()
        yield
        # The clock jumps back.
        {"worker": system.workers[0], "web": system.webs[0], "LMR": system.lmrs["near"]}[part].kill()

    return strike


def faketime() -> Path | None:
    """Return the library that changes clocks, from its wheel. In Debian 12's, Python's `time.sleep` fails."""
    spec = find_spec("libfaketime")
    library = Path(spec.origin or "").parent / "vendor/libfaketime/src/libfaketime.so.1" if spec else None
    return library if library is not None and library.exists() else None


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextmanager
def _frozen(pid: int) -> Iterator[None]:
    """A process that neither runs nor exits."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
