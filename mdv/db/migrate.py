"""Migrate the database to the schema of this version."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

import migrations
from mdv.db.tables import metadata

_LOCK = 0x6D6476  # "mdv": an advisory lock, so that processes that start together migrate one after the other


def migrate(engine: Engine, revision: str = "head") -> None:
    """Upgrade to `revision`, in one transaction."""
    with engine.begin() as connection:
        _lock(connection)
        command.upgrade(_config(connection), revision)


def downgrade(engine: Engine, revision: str) -> None:
    """Downgrade to `revision`; `base` removes every table."""
    with engine.begin() as connection:
        _lock(connection)
        command.downgrade(_config(connection), revision)


def is_migrated(connection: Connection) -> bool:
    """True if the database is at the newest revision."""
    heads = ScriptDirectory.from_config(_config(connection)).get_heads()
    return set(MigrationContext.configure(connection).get_current_heads()) == set(heads)


def table_differences(connection: Connection) -> list[object]:
    """Return the differences between the tables of the database and those of the code."""
    return list(compare_metadata(MigrationContext.configure(connection), metadata))


def _lock(connection: Connection) -> None:
    connection.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["connection"] = connection
    return config
