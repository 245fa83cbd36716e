"""Faults during a run: driver, executors and Postgres are killed. Nothing is lost or registered twice."""

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
from sqlalchemy import Engine

from mdv.batch.run import BatchOptions, BatchSummary, run_batch
from mdv.batch.spark_preparation import SparkPreparation
from mdv.db.engine import make_engine
from mdv.db.migrate import migrate
from mdv.embedded import Postgres, start_postgres
from tests.support.catalogues import BASE, RULES, SCHEMA, catalogue, write
from tests.support.eventually import eventually
from tests.support.listed_documents import Listed, register_one_by_one
from tests.support.mdp import Mdp
from tests.support.mdp_content import assert_alike
from tests.support.two_processes import systems
from tests.support.whole_system import MDV, command_line, descendants, environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.full

FILES = catalogue(600)
CUT_CONNECTIONS = """
    create sequence writes;
    create sequence cuts;
    create function cut_connections() returns trigger language plpgsql as $$
    begin
        if nextval('writes') in (2, 6, 10, 14) then
            perform nextval('cuts');
            perform pg_terminate_backend(pid) from pg_stat_activity
            where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid();
            perform pg_terminate_backend(pg_backend_pid());
        end if;
        return new;
    end $$;
    create trigger cut_connections after insert or update on batch_partitions
    for each row execute function cut_connections();
    create trigger cut_connections after update of registered on batch_runs
    for each row execute function cut_connections();"""


class Durable:
    """An MDP with its own Postgres, which can be killed and restarted at the same address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.postgres: Postgres = start_postgres(folder)
        self.url = self.postgres.url
        self.engine: Engine = make_engine(self.url)
        self._watching = sqlalchemy.create_engine(self.engine.url, pool_size=1, pool_pre_ping=True)
        migrate(self.engine)
        self.mdp = Mdp(self.engine)
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
        self._watching.dispose()
        self.postgres.stop()

    def progress(self) -> tuple[int, int]:
        """Return the numbers of documents prepared and promoted."""
        query = (
            "select coalesce((select sum(prepared) from batch_partitions), 0)::int,"
            " coalesce((select sum(registered) from batch_runs), 0)::int"
        )
        with self._watching.connect() as connection:
            return tuple(connection.execute(sqlalchemy.text(query)).one())  # type: ignore[return-value]

    def runs(self) -> int:
        return self._number("select count(*) from batch_runs")

    def cut_connections_of_a_run(self) -> None:
        """Cut all connections at four writes of a run. Sequences count them: they keep their value on a rollback."""
        with self.engine.begin() as connection:
            connection.exec_driver_sql(CUT_CONNECTIONS)

    def cuts(self) -> int:
        return self._number("select last_value from cuts")

    def _number(self, query: str) -> int:
        with self._watching.connect() as connection:
            return int(connection.execute(sqlalchemy.text(query)).scalar_one())

    def run(self, spark: SparkSession) -> BatchSummary:
        documents = Listed(spark, FILES, BASE, partitions=4)
        options = BatchOptions("faults", 1 << 25)
        return run_batch(SparkPreparation(spark, documents), self.engine, self.url, options, lambda progress: None)


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Durable]:
    made = Durable(tmp_path / "postgres")
    yield made
    made.close()


@pytest.fixture(scope="module")
def reference(postgres: Postgres, template: str) -> Iterator[Mdp]:
    """Register the same documents one by one. The tests only compare with it."""
    with systems(Mdp, postgres, template)() as (mdp, _):
        mdp.put_schema(SCHEMA)
        mdp.subscribe(mdp.create_lmr("reader"), *RULES)
        register_one_by_one(mdp, FILES)
        yield mdp


def struck(run: Callable[[], BatchSummary], strike: Callable[[], None]) -> BatchSummary:
    """Return the result of a run while this thread injects faults: Postgres ends with the thread that started it."""
    with ThreadPoolExecutor(1) as beside:
        running = beside.submit(run)
        strike()
        return running.result()


def test_killed_executors_are_replaced_and_nothing_is_registered_twice(
    spark: SparkSession, durable: Durable, reference: Mdp
) -> None:
    killed: list[int] = []

    def strike() -> None:
        for mark in (1, 200):
            eventually(lambda mark=mark: durable.progress()[0] >= mark)
            for pid in python_workers():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    found = struck(lambda: durable.run(spark), strike)
    assert killed
    assert (found.documents, found.registered, found.refused) == (600, 600, 0), "each document is counted once"
    assert_alike(durable.engine, reference.engine)


def python_workers() -> list[int]:
    """Return the Python worker processes of local executors: children of Spark's daemon."""
    daemons = [pid for pid in descendants(os.getpid()) if b"mdv.batch.daemon" in command_line(pid)]
    return [child for pid in daemons for child in descendants(pid)]


def test_a_run_waits_for_a_killed_postgres(spark: SparkSession, durable: Durable, reference: Mdp) -> None:
    def strike() -> None:
        eventually(lambda: durable.progress()[1] > 0)
        durable.kill()

    found = struck(lambda: durable.run(spark), strike)
    assert (found.documents, found.registered, found.refused) == (600, 600, 0)
    assert_alike(durable.engine, reference.engine)


def test_repeatedly_cut_connections_lose_and_repeat_nothing(
    spark: SparkSession, durable: Durable, reference: Mdp
) -> None:
    durable.cut_connections_of_a_run()
    found = durable.run(spark)
    assert durable.cuts() == 4
    assert (found.documents, found.registered, found.refused) == (600, 600, 0), "each document is counted once"
    assert_alike(durable.engine, reference.engine)


def test_a_killed_driver_resumes_when_the_same_command_is_run_again(
    tmp_path: Path, durable: Durable, reference: Mdp
) -> None:
    folder = write(FILES, tmp_path / "documents")
    argv = [str(MDV), "batch", str(folder), "--uri-base", BASE, "--spark", "--json"]
    run = environment(MDV_DATABASE_URL=durable.url)
    died = subprocess.run(argv, env=run | {"MDV_DIE_AT": "before the commit:2"}, capture_output=True, timeout=120)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    _, promoted = durable.progress()
    assert 0 < promoted < 600
    again = subprocess.Popen(argv, env=run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    eventually(lambda: durable.runs() == 2)
    again.send_signal(signal.SIGINT)
    said, complained = again.communicate(timeout=60)
    assert (again.returncode, said, complained.strip()) == (130, "", ""), "Ctrl-C prints no error"
    _, promoted = durable.progress()
    ended = subprocess.run(argv, env=run, capture_output=True, timeout=120, text=True)
    assert ended.returncode == 0, ended.stderr
    assert f'"registered": {600 - promoted}' in ended.stdout and f'"unchanged": {promoted}' in ended.stdout
    assert_alike(durable.engine, reference.engine)
