"""Migrate: bring a database to the tables that this version expects."""

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

_LOCK = 0x6D6476  # "mdv": two processes that start at once migrate one after the other


def migrate(engine: Engine, revision: str = "head") -> None:
    """Upgrade to `revision`, in one transaction."""
    with engine.begin() as connection:
        _lock(connection)
        command.upgrade(_config(connection), revision)


def unmigrate(engine: Engine, revision: str) -> None:
    """Downgrade to `revision`; `base` removes every table."""
    with engine.begin() as connection:
        _lock(connection)
        command.downgrade(_config(connection), revision)


def is_migrated(connection: Connection) -> bool:
    """Whether the database stands at the newest revision."""
    heads = ScriptDirectory.from_config(_config(connection)).get_heads()
    return set(MigrationContext.configure(connection).get_current_heads()) == set(heads)


def differences(connection: Connection) -> list[object]:
    """What the tables in the database and the tables in the code do not agree on."""
    return list(compare_metadata(MigrationContext.configure(connection), metadata))


def _lock(connection: Connection) -> None:
    connection.execute(text("select pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["connection"] = connection
    return config
