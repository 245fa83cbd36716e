"""What a benchmark needs of the database: a table like filter_data that is filled with COPY alone, and quiet."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, text

COPY_FLOOR = (
    "copy bench_floor (document_id, resource_id, target_id, hash, position, property_id, shows, value, number)"
    " from stdin"
)


def make_floor(connection: Connection) -> None:
    connection.execute(text("create table bench_floor (like filter_data including all)"))


def tidy(engine: Engine) -> None:
    """Do now what autovacuum would do in the middle of a measurement."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("vacuum analyze"))
