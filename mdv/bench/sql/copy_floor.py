"""SQL of the floor: a table like filter_data that is filled by COPY alone."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, text

COPY_INTO_FLOOR = (
    "copy bench_floor (document_id, resource_id, target_id, hash, position, property_id, shows, value, number)"
    " from stdin"
)


def create_floor_table(connection: Connection) -> None:
    connection.execute(text("create table bench_floor (like filter_data including all)"))


def vacuum_analyze(engine: Engine) -> None:
    """Run now what autovacuum would run during a measurement."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("vacuum analyze"))
