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

MIGRATION_LOCK = 0x6D6476
"""An advisory lock, "mdv": processes that start together migrate one after the other, and not during a backup."""


def migrate(engine: Engine, revision: str = "head") -> None:
    """Upgrade to `revision`, in one transaction."""
    with engine.begin() as connection:
        _lock(connection)
        command.upgrade(alembic_config(connection), revision)


def downgrade(engine: Engine, revision: str) -> None:
    """Downgrade to `revision`; `base` removes every table."""
    with engine.begin() as connection:
        _lock(connection)
        command.downgrade(alembic_config(connection), revision)


def is_migrated(connection: Connection) -> bool:
    """True if the database is at the newest revision."""
    heads = ScriptDirectory.from_config(alembic_config(connection)).get_heads()
    return set(MigrationContext.configure(connection).get_current_heads()) == set(heads)


def table_differences(connection: Connection) -> list[object]:
    """Return the differences between the tables of the database and those of the code."""
    return list(compare_metadata(MigrationContext.configure(connection), metadata))


def _lock(connection: Connection) -> None:
    connection.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})


def alembic_config(connection: Connection) -> Config:
    """Return the settings of the migrations, which run on `connection`."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["connection"] = connection
    return config
