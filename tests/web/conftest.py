"""A running system for the tests of the web: Valkey, a database, gunicorn and a Celery worker."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy
from running import ADMIN, SCHEMA, Api, Process, Server, provider, start_server, start_worker, stopping
from visitors import new_visitor, viewer, visitor

from mdv.db.engine import make_engine
from mdv.db.tokens import create_token
from mdv.embedded import Postgres, Valkey

__all__ = ["new_visitor", "viewer", "visitor"]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def new_database(postgres: Postgres, template: str) -> Callable[[], str]:
    """Makes databases that live as long as the servers of the session."""

    def make() -> str:
        name = f"web_{next(_numbers)}"
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(f"create database {name} template {template} strategy file_copy")
        return sqlalchemy.make_url(postgres.url).set(database=name).render_as_string(hide_password=False)

    return make


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("web")


@pytest.fixture(scope="session")
def system_database(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture(scope="session")
def worker(folder: Path, system_database: str, valkey: Valkey) -> Iterator[Process]:
    process = start_worker(folder, system_database, valkey.url)
    with stopping(process):
        yield process


@pytest.fixture(scope="session")
def server(worker: Process, folder: Path, system_database: str, valkey: Valkey) -> Iterator[Server]:
    """The web server of the running system, with the test schema in force."""
    server = start_server(folder, system_database, valkey.url)
    with stopping(server):
        assert server.api().put_schema(SCHEMA).status_code == 200
        assert server.api().put("http://warm.example/up", provider()).status_code == 201
        yield server


@pytest.fixture(scope="session")
def api(server: Server) -> Api:
    """The admin."""
    return server.api(ADMIN)


@pytest.fixture
def doc() -> str:
    """A document's URI that no other test uses."""
    return f"http://docs.example/{next(_numbers)}.rdf"


@pytest.fixture(scope="session")
def make_token(system_database: str) -> Callable[..., tuple[str, int]]:
    """Makes a token of the running system: its secret and its number."""

    def make(
        role: str = "admin", documents: list[str] | None = None, resources: list[str] | None = None
    ) -> tuple[str, int]:
        engine = make_engine(system_database)
        with engine.begin() as connection:
            secret, token = create_token(connection, f"token {next(_numbers)}", role, documents, resources)
        engine.dispose()
        return secret, token.id

    return make


@pytest.fixture(scope="session")
def small_database(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture(scope="session")
def small(folder: Path, small_database: str, valkey: Valkey) -> Iterator[Server]:
    """A web server with small limits and public reading, on a database for which no worker works."""
    other_queue = valkey.url.removesuffix("/0") + "/1"
    server = start_server(
        folder, small_database, other_queue,
        MDV_PUBLIC_READ="true", MDV_MAX_DOCUMENT_BYTES="20000", MDV_BODY_SECONDS="2", MDV_MAX_WAIT_SECONDS="1",
    )  # fmt: skip
    with stopping(server):
        yield server
