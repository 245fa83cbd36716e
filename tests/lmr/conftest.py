"""Caches for tests, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mdv.lmr.cache import Cache
from tests.support.cache_urls import Urls, postgres_urls, sqlite_urls_in


@pytest.fixture(params=["sqlite", "postgres"])
def cache_urls(request: pytest.FixtureRequest, tmp_path: Path) -> Urls:
    """Return a new location for a cache on each call."""
    return sqlite_urls_in(tmp_path) if request.param == "sqlite" else postgres_urls(request.getfixturevalue("postgres"))


@pytest.fixture
def sqlite_urls(tmp_path: Path) -> Urls:
    return sqlite_urls_in(tmp_path)


@pytest.fixture
def cache_url(cache_urls: Urls) -> Iterator[str]:
    with cache_urls() as url:
        yield url


@pytest.fixture
def cache(cache_url: str) -> Iterator[Cache]:
    with Cache.open(cache_url) as cache:
        yield cache
