"""Alembic environment. Migrations run on the connection that `mdv.db.migrate` passes."""

from __future__ import annotations

from alembic import context

from mdv.db.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
