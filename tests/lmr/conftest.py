"""Caches for tests, on both databases."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

import psycopg
import pytest
import sqlalchemy

from mdv.embedded import Postgres
from mdv.lmr.store import Cache

_numbers = itertools.count(1)

Urls: TypeAlias = Callable[[], AbstractContextManager[str]]


@pytest.fixture(params=["sqlite", "postgres"])
def cache_urls(request: pytest.FixtureRequest, tmp_path: Path) -> Urls:
    """Makes a new place for a cache each time."""
    return sqlite_urls_in(tmp_path) if request.param == "sqlite" else postgres_urls(request.getfixturevalue("postgres"))


@pytest.fixture
def sqlite_urls(tmp_path: Path) -> Urls:
    return sqlite_urls_in(tmp_path)


def sqlite_urls_in(folder: Path) -> Urls:
    @contextmanager
    def make() -> Iterator[str]:
        path = folder / f"cache{next(_numbers)}.db"
        yield f"sqlite:///{path}"
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)

    return make


def postgres_urls(postgres: Postgres) -> Urls:
    """One database, emptied each time: that is faster than making another."""

    @contextmanager
    def make() -> Iterator[str]:
        url = sqlalchemy.make_url(postgres.url).set(database="caches").render_as_string(hide_password=False)
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            if not connection.execute("select 1 from pg_database where datname = 'caches'").fetchone():
                connection.execute("create database caches")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("drop schema public cascade")
            connection.execute("create schema public")
        yield url

    return make


@pytest.fixture
def cache_url(cache_urls: Urls) -> Iterator[str]:
    with cache_urls() as url:
        yield url


@pytest.fixture
def cache(cache_url: str) -> Iterator[Cache]:
    with Cache.open(cache_url) as cache:
        yield cache
