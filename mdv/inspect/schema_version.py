"""Read a version of the schema."""

from __future__ import annotations

from sqlalchemy import Engine

from mdv.db.schemas import read_schema_version
from mdv.db.state import read_state
from mdv.errors import NotFound
from mdv.mdp.schemas import SchemaCache, SchemaInForce, build_schema
from mdv.query.offload import Offload, run_inline


def find_schema_version(
    engine: Engine, schemas: SchemaCache, version: int | None, apart: Offload = run_inline
) -> SchemaInForce:
    """Return a version of the schema; the active one by default. `apart` builds an earlier version."""
    with engine.connect() as connection:
        newest = read_state(connection).schema_version
        if version is None or version == newest:
            return schemas.at(connection, newest)
        if version > newest:
            raise NotFound(f"The schema has no version {version}. The newest version is {newest}.")
        statements, prefixes = read_schema_version(connection, version)
    return apart(build_schema, version, statements, prefixes)
