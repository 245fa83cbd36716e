"""Faults of a run: the driver, the executors and Postgres are killed, and nothing is lost or there twice."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy
from alike import assert_alike
from catalogues import BASE, RULES, SCHEMA, catalogue, write
from listed import Listed
from sqlalchemy import Engine
from systems import MDV, descendants, environment, eventually
from test_batch_run import register_one_by_one

from mdv.batch.run import Order, Summary, run_batch
from mdv.db.engine import make_engine
from mdv.db.migrate import migrate
from mdv.embedded import Postgres, start_postgres

if TYPE_CHECKING:
    from conftest import Mdp
    from pyspark.sql import SparkSession

FILES = catalogue(600)
CUT_ALL_OTHERS = """
    select count(pg_terminate_backend(pid)) from pg_stat_activity
    where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()"""


class Durable:
    """An MDP on a Postgres of its own, which can be killed and comes back at the same place."""

    def __init__(self, folder: Path, kind: type[Mdp]) -> None:
        self._folder = folder
        self.postgres: Postgres = start_postgres(folder)
        self.url = self.postgres.url
        self.engine: Engine = make_engine(self.url)
        self._watching = sqlalchemy.create_engine(self.engine.url, poolclass=sqlalchemy.NullPool)
        migrate(self.engine)
        self.mdp = kind(self.engine)
        self.mdp.put_schema(SCHEMA)
        self.mdp.subscribe(self.mdp.create_lmr("reader"), *RULES)

    def kill(self) -> None:
        pid, port = self.postgres.process.pid, self.postgres.port
        for each in (pid, *descendants(pid)):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self.postgres.stop()
        self.postgres = start_postgres(self._folder, port=port)

    def close(self) -> None:
        self.engine.dispose()
        self.postgres.stop()

    def progress(self) -> tuple[int, int]:
        """How many documents are prepared and promoted."""
        query = (
            "select coalesce((select sum(prepared) from batch_partitions), 0)::int,"
            " coalesce((select sum(registered) from batch_runs), 0)::int"
        )
        with self._watching.connect() as connection:
            return tuple(connection.execute(sqlalchemy.text(query)).one())  # type: ignore[return-value]

    def runs(self) -> int:
        return self._number("select count(*) from batch_runs")

    def cut_connections(self) -> int:
        """Cut everybody's connection; how many there were."""
        return self._number(CUT_ALL_OTHERS)

    def _number(self, query: str) -> int:
        with self._watching.connect() as connection:
            return int(connection.execute(sqlalchemy.text(query)).scalar_one())

    def run(self, spark: SparkSession) -> Summary:
        documents = Listed(spark, FILES, BASE, partitions=4)
        return run_batch(spark, self.engine, self.url, documents, Order("faults", 1 << 25), lambda progress: None)


@pytest.fixture
def durable(tmp_path: Path, mdp: Mdp) -> Iterator[Durable]:
    made = Durable(tmp_path / "postgres", type(mdp))
    yield made
    made.close()


@pytest.fixture
def reference(mdp: Mdp) -> Mdp:
    """The same documents, one by one."""
    mdp.put_schema(SCHEMA)
    mdp.subscribe(mdp.create_lmr("reader"), *RULES)
    register_one_by_one(mdp, FILES)
    return mdp


def struck(run: Callable[[], Summary], strike: Callable[[], None]) -> Summary:
    """What a run comes to while this thread strikes: a Postgres ends with the thread that has started it."""
    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(run)
        strike()
        return running.result()


def test_executors_that_are_killed_are_replaced_and_nothing_is_there_twice(
    spark: SparkSession, durable: Durable, reference: Mdp
) -> None:
    killed: list[int] = []

    def strike() -> None:
        for mark in (1, 200):
            assert eventually(lambda mark=mark: durable.progress()[0] >= mark, 60)
            for pid in python_workers():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    found = struck(lambda: durable.run(spark), strike)
    assert killed
    assert (found.documents, found.registered, found.refused) == (600, 600, 0), "each is counted once"
    assert_alike(durable.engine, reference.engine)


def python_workers() -> list[int]:
    """The processes in which executors of this process run Python: children of Spark's own daemon."""
    daemons = [pid for pid in descendants(os.getpid()) if b"mdv.batch.daemon" in _line(pid)]
    return [child for pid in daemons for child in descendants(pid)]


def _line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_a_postgres_that_is_killed_is_waited_for(spark: SparkSession, durable: Durable, reference: Mdp) -> None:
    def strike() -> None:
        assert eventually(lambda: durable.progress()[1] > 0, 60)
        durable.kill()

    found = struck(lambda: durable.run(spark), strike)
    assert (found.documents, found.registered, found.refused) == (600, 600, 0)
    assert_alike(durable.engine, reference.engine)


def test_connections_that_are_cut_again_and_again_cost_nothing(
    spark: SparkSession, durable: Durable, reference: Mdp
) -> None:
    cut: list[int] = []

    def strike() -> None:
        for mark in (1, 150, 300, 450):
            assert eventually(lambda mark=mark: durable.progress()[0] >= mark, 60)
            cut.append(durable.cut_connections())

    found = struck(lambda: durable.run(spark), strike)
    assert sum(cut) >= 4
    assert (found.documents, found.registered, found.refused) == (600, 600, 0), "each is counted once"
    assert_alike(durable.engine, reference.engine)


def test_a_driver_that_is_killed_leaves_what_the_same_command_goes_on_from(
    tmp_path: Path, durable: Durable, reference: Mdp
) -> None:
    folder = write(FILES, tmp_path / "documents")
    argv = [str(MDV), "batch", str(folder), "--uri-base", BASE, "--json"]
    run = environment(MDV_DATABASE_URL=durable.url)
    died = subprocess.run(argv, env=run | {"MDV_DIE_AT": "before the commit:2"}, capture_output=True, timeout=120)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    _, promoted = durable.progress()
    assert 0 < promoted < 600
    again = subprocess.Popen(argv, env=run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert eventually(lambda: durable.runs() == 2, 60)
    again.send_signal(signal.SIGINT)
    said, complained = again.communicate(timeout=60)
    assert (again.returncode, said, complained.strip()) == (130, "", ""), "Ctrl-C is no failure to be explained"
    _, promoted = durable.progress()
    ended = subprocess.run(argv, env=run, capture_output=True, timeout=120, text=True)
    assert ended.returncode == 0, ended.stderr
    assert f'"registered": {600 - promoted}' in ended.stdout and f'"unchanged": {promoted}' in ended.stdout
    assert_alike(durable.engine, reference.engine)
