"""Databases for several members."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from mdv.embedded import Postgres
from tests.support.replicas import Databases, NewDatabase

_numbers = itertools.count(1)


@pytest.fixture
def new_database(postgres: Postgres, template: str) -> Iterator[NewDatabase]:
    """Makes databases for this test."""
    databases = Databases(postgres, template, f"site_{next(_numbers)}")
    yield databases.new
    databases.close()


@pytest.fixture(scope="module")
def new_database_url(postgres: Postgres, template: str) -> Iterator[Callable[[], str]]:
    """Makes databases for a file, and returns their URLs."""
    databases = Databases(postgres, template, f"site_{next(_numbers)}")
    yield lambda: databases.new().url.render_as_string(hide_password=False)
    databases.close()
