"""Connections: a process that dies or hangs does not hold locks that others need."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psycopg
import pytest
from sqlalchemy import Engine, text

from mdv.db.engine import driver, make_engine
from mdv.db.state import lock_state

SLEEPER = """
import sys
from sqlalchemy import text
from mdv.db.engine import make_engine
from mdv.db.state import lock_state
with make_engine(sys.argv[1]).begin() as connection:
    lock_state(connection)
    print("locked", flush=True)
    connection.execute(text("select pg_sleep(300)"))
"""


def test_a_process_killed_during_a_statement_releases_its_locks(database_url: str, engine: Engine) -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", SLEEPER, database_url], stdout=subprocess.PIPE)
    assert sleeper.stdout is not None and sleeper.stdout.readline() == b"locked\n"
    os.kill(sleeper.pid, signal.SIGKILL)
    sleeper.wait(60)
    sleeper.stdout.close()
    with engine.begin() as connection:
        connection.execute(text("set local lock_timeout = '60s'"))  # the statement would take five minutes
        assert lock_state(connection).position == 0


def test_a_transaction_over_the_time_limit_is_ended_even_if_it_is_idle(database_url: str, engine: Engine) -> None:
    silent = make_engine(database_url, longest=1)
    with silent.connect() as connection:
        lock_state(connection)
        with engine.begin() as other:
            other.execute(text("set local lock_timeout = '60s'"))
            assert lock_state(other).position == 0
        with pytest.raises(psycopg.Error):
            lock_state(connection)
        connection.invalidate()
    silent.dispose()


def test_a_statement_over_the_time_limit_is_cancelled(database_url: str) -> None:
    hurried = make_engine(database_url, longest=1)
    with hurried.connect() as connection, pytest.raises(Exception, match="transaction timeout"):
        connection.execute(text("select pg_sleep(60)"))
    hurried.dispose()


def test_waiting_for_a_lock_fails_before_the_transaction_times_out(database_url: str, engine: Engine) -> None:
    hurried = make_engine(database_url, longest=2)
    with engine.begin() as connection:
        lock_state(connection)
        with hurried.begin() as waiting, pytest.raises(psycopg.errors.LockNotAvailable):
            lock_state(waiting)
    hurried.dispose()


def test_the_sql_of_very_many_groups_stays_prepared(engine: Engine) -> None:
    with engine.begin() as connection:
        session = driver(connection)
        for _ in range(2):
            for number in range(200):
                session.execute(f"select {number}", prepare=True)
        kept = connection.execute(text("select count(*) from pg_prepared_statements where generic_plans > 0"))
        assert kept.scalar_one() >= 200
