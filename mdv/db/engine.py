"""Connections to Postgres."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import psycopg
import sqlalchemy
from sqlalchemy import Connection, Engine

from mdv.errors import SystemNotFound


def make_engine(url: str, **options: Any) -> Engine:
    """An engine for `url`, as given to libpq: postgresql://…"""
    if not url:
        raise SystemNotFound("No database is named: set MDV_DATABASE_URL, or start a whole system with `mdv up`.")
    name = sqlalchemy.make_url(url).set(drivername="postgresql+psycopg")
    return sqlalchemy.create_engine(name, pool_pre_ping=True, **options)


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
    """The psycopg connection below: for COPY, pipelines and the named statements."""
    return cast("psycopg.Connection[Any]", connection.connection.driver_connection)
