"""Connections to Postgres."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import psycopg
import sqlalchemy
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import ConnectionPoolEntry

from mdv.errors import SystemNotFound

TRUSTED = 1.0
"""Seconds within which a connection that was just used is not asked whether it is still there: that would cost a busy
worker a message for each run."""


GONE_SECONDS = 2
"""A server looks so often, while it works, whether its client is still there: who dies must not hold the lock."""


PREPARED = 250
"""Statements that a connection keeps prepared; the filter has one for each group of rules. A registration that needs
more of them would have all planned again each time. Each takes the server up to 2 MiB."""


def make_engine(url: str, longest: float = 0, **options: Any) -> Engine:
    """An engine for `url`, as given to libpq: postgresql://… `longest`: the seconds that a transaction may take before
    the server gives it up, half of them waiting for others; 0 for any."""
    if not url:
        raise SystemNotFound("No database is named: set MDV_DATABASE_URL, or start a whole system with `mdv up`.")
    name = sqlalchemy.make_url(url).set(drivername="postgresql+psycopg")
    engine = sqlalchemy.create_engine(name, **options)

    def begin(session: psycopg.Connection[Any], record: ConnectionPoolEntry) -> None:
        session.prepared_max = PREPARED
        was, session.autocommit = session.autocommit, True
        for setting in _settings(session.info.server_version, longest).items():
            session.execute("select set_config(%s, %s, false)", setting)
        session.autocommit = was

    def note(connection: Any, record: ConnectionPoolEntry) -> None:
        record.info["used"] = time.monotonic()

    def check(connection: Any, record: ConnectionPoolEntry, proxy: object) -> None:
        if time.monotonic() - record.info.get("used", float("-inf")) > TRUSTED:
            try:
                engine.dialect.do_ping(connection)
            except psycopg.Error as error:
                raise DisconnectionError("the connection is gone") from error

    sqlalchemy.event.listen(engine, "checkin", note)
    sqlalchemy.event.listen(engine, "connect", begin)
    sqlalchemy.event.listen(engine, "connect", note)
    sqlalchemy.event.listen(engine, "checkout", check)
    return engine


def _settings(version: int, longest: float) -> dict[str, str]:
    settings = {"client_connection_check_interval": f"{GONE_SECONDS}s"}
    if longest:
        # Postgres 16 limits no transaction as a whole, and does not see who is silent after a pipeline.
        limits = ("transaction_timeout",) if version >= 170000 else (
            "statement_timeout", "idle_in_transaction_session_timeout")  # fmt: skip
        settings |= dict.fromkeys(limits, f"{longest:.0f}s") | {"lock_timeout": f"{500 * longest:.0f}ms"}
    return settings


def in_one_message(connection: Connection, wanted: bool) -> AbstractContextManager[object]:
    """What is sent within it goes to the database at once, without waiting for answers in between, if `wanted`.

    Within another such message it is a part of that.
    """
    return together(driver(connection)) if wanted else nullcontext()


def together(session: psycopg.Connection[Any]) -> AbstractContextManager[object]:
    """The same for a psycopg connection."""
    is_open = session.pgconn.pipeline_status != psycopg.pq.PipelineStatus.OFF
    return nullcontext() if is_open else session.pipeline()


def driver(connection: Connection) -> psycopg.Connection[Any]:
    """The psycopg connection below: for COPY, pipelines and the named statements.

    SQLAlchemy is told that a transaction has begun, so that it will commit or roll back what is done there.
    """
    if not connection.in_transaction():
        connection.begin()
    return cast("psycopg.Connection[Any]", connection.connection.driver_connection)
