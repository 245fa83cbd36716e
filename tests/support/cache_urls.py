"""Locations for caches of LMRs, on both databases."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeAlias

import psycopg
import sqlalchemy

from mdv.embedded import Postgres

_numbers = itertools.count(1)


Urls: TypeAlias = Callable[[], AbstractContextManager[str]]


def sqlite_urls_in(folder: Path) -> Urls:
    @contextmanager
    def make() -> Iterator[str]:
        path = folder / f"cache{next(_numbers)}.db"
        yield f"sqlite:///{path}"
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)

    return make


def postgres_urls(postgres: Postgres) -> Urls:
    """One database, emptied each time: faster than creating another."""

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
