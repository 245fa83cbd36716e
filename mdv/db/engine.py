"""Connections to Postgres."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import psycopg
import sqlalchemy
import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry

from mdv.errors import SystemNotFound

log = structlog.get_logger()

PING_AFTER_IDLE_SECONDS = 1.0
"""A pooled connection is tested before use if it was idle for longer. A test costs one round trip."""


CLIENT_CHECK_INTERVAL_SECONDS = 2
"""How often the server checks, during a statement, that its client is still connected. The transaction of a dead client
is rolled back, which releases the lock."""


EXIT_RESTORED = 75
"""Exit code of a process whose database was restored. Its supervisor starts another one."""
EPOCH_LOCK_SECONDS = 5
"""How long a new connection waits for a restore. Until it ends, the database counts as unavailable."""

MAX_PREPARED_STATEMENTS = 250
"""Limit of prepared statements for each connection. The filter has one for each rule group. With more groups than this,
each registration would plan all of them again. Each takes up to 2 MiB on the server."""


def make_engine(url: str, longest: float = 0, exits_if_restored: bool = False, **options: Any) -> Engine:
    """Return an engine for `url`, as given to libpq: postgresql://… `longest`: the time limit of a transaction in
    seconds, of which it may wait half for locks; 0: no limit. `exits_if_restored`: the process ends when it finds that
    the content of the database was replaced, because it has cached IDs and rules of the old one."""
    if not url:
        raise SystemNotFound("No database is configured. Set MDV_DATABASE_URL, or start a whole system with `mdv up`.")
    name = sqlalchemy.make_url(url).set(drivername="postgresql+psycopg")
    engine = sqlalchemy.create_engine(name, **options)
    epochs: set[Any] = set()

    def configure(session: psycopg.Connection[Any], record: ConnectionPoolEntry) -> None:
        session.prepared_max = MAX_PREPARED_STATEMENTS
        autocommit, session.autocommit = session.autocommit, True
        if exits_if_restored:
            epochs.update(_read_epoch(session))
        for setting in _settings(session.info.server_version, longest).items():
            session.execute("select set_config(%s, %s, false)", setting)
        session.autocommit = autocommit
        if len(epochs) > 1:
            log.warning("the database was restored, so this process ends; its supervisor starts another one")
            os._exit(EXIT_RESTORED)

    def record_use(connection: Any, record: ConnectionPoolEntry) -> None:
        record.info["used"] = time.monotonic()

    def check(connection: Any, record: ConnectionPoolEntry, proxy: object) -> None:
        if time.monotonic() - record.info.get("used", float("-inf")) > PING_AFTER_IDLE_SECONDS:
            try:
                engine.dialect.do_ping(connection)
            except psycopg.Error as error:
                raise DisconnectionError("the connection is closed") from error

    sqlalchemy.event.listen(engine, "checkin", record_use)
    sqlalchemy.event.listen(engine, "connect", configure)
    sqlalchemy.event.listen(engine, "connect", record_use)
    sqlalchemy.event.listen(engine, "checkout", check)
    return engine


def _read_epoch(session: psycopg.Connection[Any]) -> list[Any]:
    """Return the epoch in a list, which is empty if there are no tables yet."""
    try:
        session.execute(f"set lock_timeout = '{EPOCH_LOCK_SECONDS}s'")
        found = [row[0] for row in session.execute("select epoch from mdp_state")]
        session.execute("reset lock_timeout")
    except psycopg.errors.UndefinedTable:
        found = []
    return found


def _settings(version: int, longest: float) -> dict[str, str]:
    settings = {"client_connection_check_interval": f"{CLIENT_CHECK_INTERVAL_SECONDS}s"}
    if longest:
        # Postgres 16 has no transaction_timeout, and does not detect an idle client after a pipeline.
        limits = ("transaction_timeout",) if version >= 170000 else (
            "statement_timeout", "idle_in_transaction_session_timeout")  # fmt: skip
        settings |= dict.fromkeys(limits, f"{longest:.0f}s") | {"lock_timeout": f"{500 * longest:.0f}ms"}
    return settings


def use_read_only_snapshot(connection: Connection) -> None:
    """Make this transaction read-only with one snapshot for all its statements. Call it first in the transaction."""
    driver(connection).execute("set transaction isolation level repeatable read, read only")


@contextmanager
def try_exclusive_lock(engine: Engine, task: str) -> Iterator[bool]:
    """Yield True if no other process holds the lock of this task; it is held until the end of the block."""
    with engine.connect() as connection:
        row = driver(connection).execute("select pg_try_advisory_xact_lock(hashtext(%s))", (f"mdv {task}",)).fetchone()
        yield row is not None and bool(row[0])


def postgres_duration(seconds: float) -> str:
    """Return a duration in the format of Postgres settings; 0 means no limit.

    >>> postgres_duration(0.25), postgres_duration(0), postgres_duration(0.0001)
    ('250ms', '0', '1ms')
    """
    return f"{max(1, round(seconds * 1000))}ms" if seconds else "0"


def pipelined_if(connection: Connection, wanted: bool) -> AbstractContextManager[object]:
    """Send the statements of the block in one pipeline, if `wanted`.

    Within an open pipeline, they become a part of that one.
    """
    return pipelined(driver(connection)) if wanted else nullcontext()


def pipelined(session: psycopg.Connection[Any]) -> AbstractContextManager[object]:
    """Send the statements of the block in one pipeline of a psycopg connection."""
    is_open = session.pgconn.pipeline_status != psycopg.pq.PipelineStatus.OFF
    return nullcontext() if is_open else session.pipeline()


def driver(connection: Connection) -> psycopg.Connection[Any]:
    """Return the underlying psycopg connection, for COPY, pipelines and named statements.

    A transaction is begun in SQLAlchemy, so that it commits or rolls back the statements of this connection.
    """
    if not connection.in_transaction():
        connection.begin()
    return cast("psycopg.Connection[Any]", connection.connection.driver_connection)
