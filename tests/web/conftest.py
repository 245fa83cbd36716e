"""A running system for the web tests: Valkey, a database, gunicorn and a Celery worker.

With `--quick`, the application and the worker run as threads of the test process instead."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy

from mdv.db.engine import make_engine
from mdv.db.tokens import create_token
from mdv.embedded import Postgres, Valkey
from tests.support.in_process_server import serve_in_process
from tests.support.page_visitor import new_visitor, viewer, visitor
from tests.support.server import (
    ADMIN,
    SCHEMA,
    Api,
    Process,
    WebAddress,
    provider,
    start_server,
    start_worker,
    stopping,
)

__all__ = ["new_visitor", "viewer", "visitor"]

_numbers = itertools.count(1)
STARTED = pytest.StashKey[WebAddress]()
"""The shared server, once it is started."""


@pytest.fixture(scope="session")
def new_database(postgres: Postgres, template: str) -> Callable[[], str]:
    """Create databases that live as long as the servers of the session."""

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
def server(request: pytest.FixtureRequest, folder: Path, system_database: str, valkey: Valkey) -> Iterator[WebAddress]:
    """The web server of the running system, with the test schema in force."""
    with ExitStack() as stack:
        server: WebAddress
        if request.config.getoption("quick"):
            server = stack.enter_context(serve_in_process(system_database, valkey.url))
        else:
            request.getfixturevalue("worker")
            server = started = start_server(folder, system_database, valkey.url)
            stack.enter_context(stopping(started))
        assert server.api().put_schema(SCHEMA).status_code == 200
        assert server.api().put("http://warm.example/up", provider()).status_code == 201
        request.config.stash[STARTED] = server
        yield server
        del request.config.stash[STARTED]


@pytest.fixture(scope="module", autouse=True)
def remove_lmrs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Remove the LMRs of a file with their rules, so that they do not affect the next one."""
    yield
    if request.config.stash.get(STARTED, None) is not None:
        api = request.config.stash[STARTED].api()
        for lmr in api.all("/lmrs", 1000):
            assert api.http.delete(f"/api/v1/lmrs/{lmr['name']}").status_code == 200


@pytest.fixture(scope="session")
def api(server: WebAddress) -> Api:
    """The client of the administrator."""
    return server.api(ADMIN)


@pytest.fixture
def doc() -> str:
    """A document's URI that no other test uses."""
    return f"http://docs.example/{next(_numbers)}.rdf"


@pytest.fixture(scope="session")
def make_token(system_database: str) -> Callable[..., tuple[str, int]]:
    """Create a token of the running system; return its secret and its number."""

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


SMALL_LIMITS: dict[str, Any] = {
    "MDV_PUBLIC_READ": "true",
    "MDV_MAX_DOCUMENT_BYTES": "20000",
    "MDV_BODY_SECONDS": "2",
    "MDV_MAX_WAIT_SECONDS": "1",
}


@pytest.fixture(scope="session")
def small(
    request: pytest.FixtureRequest, folder: Path, small_database: str, new_queue: Callable[[], str]
) -> Iterator[WebAddress]:
    """A web server with small limits and public reading, on a database without a worker."""
    other_queue = new_queue()
    if request.config.getoption("quick"):
        with serve_in_process(small_database, other_queue, work=False, **SMALL_LIMITS) as server:
            yield server
    else:
        process = start_server(folder, small_database, other_queue, **SMALL_LIMITS)
        with stopping(process):
            yield process
