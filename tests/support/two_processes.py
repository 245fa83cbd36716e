"""Two processes on one database, for the state machines."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

import psycopg
import sqlalchemy

from mdv.db.engine import make_engine
from mdv.embedded import Postgres
from tests.support.mdp import Mdp

System: TypeAlias = "Callable[[], AbstractContextManager[list[Mdp]]]"

_numbers = itertools.count(1)


def systems(kind: type[Mdp], postgres: Postgres, template: str) -> System:
    """A new database on each call, and two processes on it, each with its own cached schema, vocabulary and rules."""

    @contextmanager
    def start() -> Iterator[list[Mdp]]:
        name = f"machine_{next(_numbers)}"
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute(f"create database {name} template {template} strategy file_copy")
            url = sqlalchemy.make_url(postgres.url).set(database=name).render_as_string(hide_password=False)
            engine = make_engine(url)
            try:
                yield [kind(engine), kind(engine)]
            finally:
                engine.dispose()
                connection.execute(f"drop database {name} with (force)")

    return start
