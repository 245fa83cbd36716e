"""Caches with given statements, for tests: written directly into the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy
from sqlalchemy import Engine

from mdv.db.cache import (
    create_tables,
    get_or_create_names,
    get_or_create_resources,
    insert_statements,
    make_cache_engine,
    writing_engine,
)
from mdv.db.cache_tables import resources, statements
from mdv.lmr.query import QueryRows, ResourcePage, run_query
from mdv.model import Statement
from mdv.rdf.digest import statement_hash
from mdv.rdf.schema import Schema
from mdv.rdf.sortkey import sort_key
from mdv.rdf.validate import ValueTyper

_numbers = count(1)


@contextmanager
def cache_engine(database: str, postgres_url: str, folder: Path) -> Iterator[Engine]:
    """An empty cache in SQLite, or in a separate Postgres database."""
    if database == "sqlite":
        engine = make_cache_engine(f"sqlite:///{folder / 'cache.db'}")
    else:
        name = f"cache_{next(_numbers)}"
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(f"create database {name}")
        engine = make_cache_engine(
            sqlalchemy.make_url(postgres_url).set(database=name).render_as_string(hide_password=False)
        )
    with writing_engine(engine).begin() as connection:
        create_tables(connection)
    yield engine
    engine.dispose()


class Cache:
    """A cache for tests: documents by number (0: from the MDP) in, answers out."""

    def __init__(self, engine: Engine, schema: Schema) -> None:
        self.engine, self.schema = engine, schema

    def load(self, documents: Mapping[int, Iterable[Statement]]) -> None:
        """Replace the content with these statements."""
        typing = ValueTyper(self.schema)
        said = [(document, s) for document, some in documents.items() for s in some]
        with writing_engine(self.engine).begin() as connection:
            connection.execute(statements.delete())
            connection.execute(resources.delete())
            uris = {s.subject for _, s in said} | {s.object.value for _, s in said if s.object.is_uri}
            ids = get_or_create_resources(connection, uris)
            names = get_or_create_names(
                connection, {s.property for _, s in said} | {s.object.datatype or "" for _, s in said}
            )
            rows = []
            for document, s in said:
                number, instant, truth = typing.typed_values(s.property, s.object)
                literal = not s.object.is_uri
                rows.append((
                    document, ids[s.subject], None if literal else ids[s.object.value], statement_hash(s),
                    names[s.property], names[s.object.datatype] if s.object.datatype else None, False,
                    s.object.value if literal else None, s.object.lang,
                    None if number is None else sort_key(number), None if instant is None else sort_key(instant), truth,
                ))  # fmt: skip
            insert_statements(connection, rows)

    def ask(self, query: str, **options: Any) -> QueryRows | ResourcePage:
        with self.engine.connect() as connection:
            return run_query(connection, self.schema, query, **options)
