"""Queries against the oracle: generated rules with `return` in place of `register`."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mdv.inspect.query import QueryRows, ResourcePage, run_query
from mdv.rules.ast import ParsedQuery
from mdv.rules.parse import parse, parse_query
from tests.support.generated_queries import query_texts
from tests.support.generated_rules import (
    SCHEMA,
    RuleText,
    Said,
    contents,
    populations,
    rule_texts,
    turtle,
)
from tests.support.mdp import Mdp
from tests.support.query_oracle import answer
from tests.support.rule_oracle import World

EXAMPLES = int(os.environ.get("MDV_MODEL_EXAMPLES", "60"))


@pytest.fixture
def world(mdp: Mdp, monkeypatch: pytest.MonkeyPatch) -> Mdp:
    # Cross products take long on a busy machine; every query is answered nevertheless.
    monkeypatch.setattr("mdv.inspect.query.MAX_SECONDS", 120)
    mdp.put_schema(SCHEMA)
    return mdp


@pytest.mark.full
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
@given(
    content=populations(),
    more=st.one_of(populations(), contents()),
    texts=st.lists(query_texts(), min_size=2, max_size=6),
)
def test_a_query_returns_the_rows_of_the_oracle_in_order(
    world: Mdp, content: Said, more: Said, texts: list[str]
) -> None:
    world.put({"http://d/1": turtle(content), "http://d/2": turtle(more)})
    with world.engine.connect() as connection:
        schema = world.schemas.now(connection).schema
    known = World(schema, content | more, {})
    for text in texts:
        parsed = parse_query(text)
        assert isinstance(parsed, ParsedQuery)
        wanted = answer(parsed, known)
        with world.engine.connect() as connection:
            found = run_query(connection, text, world.schemas, limit=10_000)
        assert isinstance(found, QueryRows)
        assert found.rows == wanted[:10_000], text
        assert found.truncated == (len(wanted) > 10_000)


@settings(
    max_examples=EXAMPLES // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
@given(content=populations(), texts=st.lists(rule_texts(), min_size=2, max_size=6), size=st.integers(1, 4))
def test_a_rule_as_a_query_returns_its_matches_in_pages(
    world: Mdp, content: Said, texts: list[RuleText], size: int
) -> None:
    world.put({"http://d/1": turtle(content), "http://d/2": None})
    with world.engine.connect() as connection:
        schema = world.schemas.now(connection).schema
    for text in texts:
        found: list[str] = []
        after: str | None = None
        while True:
            with world.engine.connect() as connection:
                page = run_query(connection, text.text, world.schemas, limit=size, after=after)
            assert isinstance(page, ResourcePage)
            found += [uri for uri, _ in page.items]
            after = page.next
            if after is None:
                break
        assert found == sorted(World(schema, content, {}).registered(parse(text.text))), text.text
