"""List the versions of the schema."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, select

from mdv.db.tables import schema_versions


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A version of the schema: its position, its time, its number of statements, and who changed it."""

    version: int
    position: int
    at: datetime
    statements: int
    by: str | None


def list_schema_versions(connection: Connection, before: int, limit: int) -> list[SchemaVersion]:
    """Return a page of schema versions below `before`, newest first."""
    v = schema_versions.c
    columns = (v.version, v.position, v.at, func.jsonb_array_length(v.statements), v.changed_by)
    query = select(*columns).where(v.version < before)
    return [SchemaVersion(*row) for row in connection.execute(query.order_by(v.version.desc()).limit(limit))]
