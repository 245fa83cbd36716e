"""Queries at an LMR against the oracle: in SQLite and in Postgres, global and local statements together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mdv.embedded import Postgres
from mdv.lmr.query import QueryRows, ResourcePage
from mdv.rules.ast import ParsedQuery
from mdv.rules.parse import parse, parse_query
from tests.support.generated_queries import query_texts
from tests.support.generated_rules import RuleText, Said, contents, populations, rule_texts, schema_in_force
from tests.support.loaded_cache import Cache, cache_engine
from tests.support.query_oracle import answer
from tests.support.rule_oracle import World

pytestmark = pytest.mark.full

EXAMPLES = int(os.environ.get("MDV_MODEL_EXAMPLES", "60"))
RELAXED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]


@pytest.fixture(params=["sqlite", "postgres"])
def cache(request: pytest.FixtureRequest, postgres: Postgres, tmp_path: Path) -> Iterator[Cache]:
    with cache_engine(request.param, postgres.url, tmp_path) as engine:
        yield Cache(engine, schema_in_force().schema)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=RELAXED)
@given(
    content=populations(),
    local=st.one_of(populations(), contents()),
    texts=st.lists(query_texts(), min_size=2, max_size=6),
)
def test_a_query_at_an_lmr_returns_the_rows_of_the_oracle_in_order(
    cache: Cache, content: Said, local: Said, texts: list[str]
) -> None:
    cache.load({0: content, 1: local})
    known = World(cache.schema, content | local, {})
    for text in texts:
        parsed = parse_query(text)
        assert isinstance(parsed, ParsedQuery)
        wanted = answer(parsed, known)
        found = cache.ask(text, limit=10_000)
        assert isinstance(found, QueryRows)
        assert found.rows == wanted[:10_000], text
        assert found.truncated == (len(wanted) > 10_000)


@settings(max_examples=EXAMPLES // 2, deadline=None, suppress_health_check=RELAXED)
@given(content=populations(), texts=st.lists(rule_texts(), min_size=2, max_size=6), size=st.integers(1, 4))
def test_a_rule_queried_at_an_lmr_returns_its_matches_in_pages(
    cache: Cache, content: Said, texts: list[RuleText], size: int
) -> None:
    cache.load({0: content})
    known = World(cache.schema, content, {})
    for text in texts:
        found: list[str] = []
        after: str | None = None
        while True:
            page = cache.ask(text.text, limit=size, after=after)
            assert isinstance(page, ResourcePage)
            found += [uri for uri, _ in page.items]
            after = page.next
            if after is None:
                break
        assert found == sorted(known.registered(parse(text.text))), text.text
