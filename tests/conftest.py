"""Real servers for tests: one Postgres a test process, a copy of a migrated template database a test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import Connection, Engine

from mdv.db.engine import make_engine
from mdv.db.migrate import migrate
from mdv.embedded import Postgres, Valkey, start_postgres, start_valkey

UNSAFE_AND_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "shared_buffers": "128MB"}

GUTENBERG = Path(__file__).parents[2] / "shared" / "data" / "gutenberg"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with start_postgres(tmp_path_factory.mktemp("pg") / "data", UNSAFE_AND_FAST) as running:
        yield running


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    with start_valkey(tmp_path_factory.mktemp("valkey")) as running:
        yield running


@pytest.fixture(scope="session")
def template(postgres: Postgres) -> str:
    """The name of a database with all migrations, to copy from."""
    url = sqlalchemy.make_url(postgres.url).set(database="template_mdv")
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("create database template_mdv")
    engine = make_engine(url.render_as_string(hide_password=False))
    migrate(engine)
    engine.dispose()
    return "template_mdv"


@pytest.fixture
def database_url(postgres: Postgres, template: str) -> Iterator[str]:
    """A database of the test's own."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"create database {name} template {template} strategy file_copy")
        yield sqlalchemy.make_url(postgres.url).set(database=name).render_as_string(hide_password=False)
        connection.execute(f"drop database {name} with (force)")


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = make_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as connection:
        yield connection
