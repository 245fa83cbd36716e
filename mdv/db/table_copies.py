"""Copy all tables out of a database and into another, for backups: rows by COPY, tables and indexes by the migrations.

A backup contains rows only. Restoring runs the migrations up to the revision of the backup, replaces all rows, and runs
the migrations that follow. So it depends neither on the version of Postgres nor on programs of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from alembic import command
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg import sql
from sqlalchemy import Connection, Engine, text

from mdv.db.engine import driver, use_read_only_snapshot
from mdv.db.load_sql import load_sql
from mdv.db.migrate import MIGRATION_LOCK, alembic_config
from mdv.db.tables import metadata
from mdv.errors import Conflict, MdvError, Unavailable

LEFT_OUT = frozenset({"alembic_version", "batch_chunks", "snapshot_events", "snapshots", "web_sessions"})
"""Tables whose rows are not part of a backup, besides unlogged tables. The manifest has the revision. Snapshots end
with the epoch, staged chunks with their run. A session that was signed out after the backup must not be open again."""

OWN_LMR = "local"
"""The LMR that `mdv up` creates. A database that has no other one, and nothing else, is empty."""

SESSION_END_SECONDS = 30.0
"""How long to wait until the other sessions of a database have ended."""


_SQL = load_sql("table_copies")


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table with the columns that are copied."""

    name: str
    columns: tuple[str, ...]


# Reading


@contextmanager
def consistent_snapshot(engine: Engine) -> Iterator[Connection]:
    """Provide one read-only snapshot of the whole database. Migrations and restores wait until it ends."""
    with engine.connect() as connection:
        session = driver(connection)
        session.rollback()
        session.autocommit = True
        try:
            # Before the transaction: its snapshot must not be older than the lock.
            session.execute("select pg_advisory_lock_shared(%s)", [MIGRATION_LOCK])
            session.autocommit = False
            use_read_only_snapshot(connection)
            yield connection
        finally:
            connection.invalidate()  # closes the session, which releases the lock


def read_revision(connection: Connection) -> str | None:
    """Return the revision of the tables; None if there are none."""
    return MigrationContext.configure(connection).get_current_revision()


def read_position(connection: Connection) -> int:
    """Return the position of the last transaction, also if the tables are those of another version."""
    return int(_row(driver(connection), "select position from mdp_state")[0])


def is_known_revision(connection: Connection, revision: str) -> bool:
    """True if the migrations of this version contain `revision`."""
    known = ScriptDirectory.from_config(alembic_config(connection)).walk_revisions()
    return revision in {script.revision for script in known}


def list_tables(connection: Connection) -> list[CopiedTable]:
    """Return the tables that belong to a backup, in a fixed order."""
    rows = driver(connection).execute(_SQL["list_copied_tables"], {"left_out": list(LEFT_OUT)})
    return [CopiedTable(name, tuple(columns)) for name, columns in rows]


def estimate_rows(connection: Connection) -> int:
    """Return about how many rows a backup will have."""
    return int(_row(driver(connection), _SQL["estimate_rows"], {"left_out": list(LEFT_OUT)})[0])


def copy_out(connection: Connection, table: CopiedTable) -> Iterator[bytes]:
    """Yield the rows of a table in COPY's text format, one line for each."""
    with driver(connection).cursor() as cursor, cursor.copy(_copy(table, "to stdout")) as copy:
        yield from map(bytes, copy)


def read_sequences(connection: Connection) -> dict[str, int]:
    """Return the last value of each sequence that was used. Values are never lower than those in the rows."""
    return dict(driver(connection).execute(_SQL["read_sequences"]).fetchall())


# Writing


def begin_restore(connection: Connection) -> None:
    """Make this transaction the only one in the database. All other sessions are ended; new ones wait for its end.

    So no process can write with what it has cached of the old content: `make_engine` checks the epoch of every new
    session.
    """
    session = driver(connection)
    if not _row(session, "select pg_try_advisory_xact_lock(%s)", [MIGRATION_LOCK])[0]:
        raise Conflict(
            "A backup, a restore or a migration of this database is running. Try again when it has ended; `mdv doctor`"
            " shows the open transactions."
        )
    if read_revision(connection) is not None:
        # A process that connects now reads the epoch first, and waits for this lock.
        session.execute("lock table mdp_state in access exclusive mode")
    (locked_at,) = _row(session, "select clock_timestamp()")
    deadline = time.monotonic() + SESSION_END_SECONDS
    while others := session.execute(_SQL["end_sessions"], {"before": locked_at}).fetchall():
        if time.monotonic() > deadline:
            names = ", ".join(sorted({str(name) for name, _ in others}))
            raise Unavailable(
                f"{len(others)} sessions of {names} are connected to the database and cannot be ended. Stop these"
                " programs, then restore again. Nothing was changed."
            )
        time.sleep(0.1)
        session.execute("select pg_stat_clear_snapshot()")  # otherwise the transaction sees the same sessions again


def find_content(connection: Connection) -> str | None:
    """Return what the database contains, as words; None if it is empty. It must have the tables of this version."""
    row = driver(connection).execute(_SQL["find_content"], {"own_lmr": OWN_LMR}).fetchone()
    return None if row is None else f"{row[0]:,} {row[1]}"


def foreign_tables(connection: Connection) -> list[str]:
    """Return the tables in the schema of the database that are not MDV's."""
    found = {name for (name,) in driver(connection).execute(_SQL["list_all_tables"])}
    return sorted(found - metadata.tables.keys() - {"alembic_version"})


def create_tables(connection: Connection, revision: str) -> None:
    """Drop all tables of MDV, and create those of `revision`, without rows."""
    session = driver(connection)
    for _, drop in session.execute(_SQL["list_drops"], {}).fetchall():
        session.execute(drop)
    command.upgrade(alembic_config(connection), revision)
    names = [name for (name,) in session.execute(_SQL["list_all_tables"]) if name != "alembic_version"]
    session.execute(sql.SQL("truncate {}").format(sql.SQL(", ").join(map(sql.Identifier, names))))


@contextmanager
def without_indexes(connection: Connection) -> Iterator[None]:
    """Drop indexes and foreign keys for the block, and build them after it, which is faster than to update them.
    Building a foreign key checks all rows."""
    session = driver(connection)
    keys = session.execute(_SQL["list_foreign_keys"], {}).fetchall()
    indexes = session.execute(_SQL["list_indexes"], {}).fetchall()
    for drop, _ in [*keys, *indexes]:
        session.execute(drop)
    yield
    for _, create in [*indexes, *keys]:
        session.execute(create)


def copy_in(connection: Connection, table: CopiedTable, blocks: Iterable[bytes]) -> None:
    """Add rows in COPY's text format to a table."""
    with driver(connection).cursor() as cursor, cursor.copy(_copy(table, "from stdin")) as copy:
        for block in blocks:
            copy.write(block)


def set_sequences(connection: Connection, values: Mapping[str, int]) -> None:
    """Set the last values of sequences, by their names."""
    session = driver(connection)
    for name, value in values.items():
        session.execute("select setval(%s::text::regclass, %s)", [sql.Identifier(name).as_string(session), value])


def migrate_to_head(connection: Connection) -> None:
    """Run the migrations of this version that are missing, in this transaction."""
    command.upgrade(alembic_config(connection), "head")


def analyze(engine: Engine) -> None:
    """Collect the statistics that the planner needs."""
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text("analyze"))


def expect_tables(tables: Iterable[CopiedTable], present: Iterable[CopiedTable]) -> None:
    """Raise an error if `tables` are not those that are `present`, with some of their columns."""
    known = {table.name: set(table.columns) for table in present}
    given = list(tables)
    missing = sorted(known.keys() - {table.name for table in given})
    if missing or len(given) > len(known):
        what = f"lacks the table {missing[0]}" if missing else "has a table twice"
        raise MdvError(f"The backup {what}. It was not written by `mdv backup`: use another one.")
    for table in given:
        unknown = set(table.columns) - known.get(table.name, set())
        if table.name not in known or unknown:
            what = f"the columns {', '.join(sorted(unknown))} of " if table.name in known else ""
            raise MdvError(
                f"The backup has {what}the table {table.name}, which the tables of its revision lack. It was made by"
                " a changed MDV: restore it with the same one."
            )


def _copy(table: CopiedTable, direction: str) -> sql.Composed:
    columns = sql.SQL(", ").join(map(sql.Identifier, table.columns))
    return sql.SQL("copy {} ({}) " + direction).format(sql.Identifier(table.name), columns)


def _row(session: Any, query: str, parameters: Any = None) -> tuple[Any, ...]:
    row: tuple[Any, ...] = session.execute(query, parameters).fetchone()
    return row
