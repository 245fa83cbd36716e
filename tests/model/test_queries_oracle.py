"""Queries against the oracle: rules of the tiny world with `return` in place of `register`."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from queries_oracle import answer
from rule_worlds import (
    _HEADS,
    ANYTHING,
    INSTANTS,
    NUMBERS,
    REFERENCES,
    SCHEMA,
    TEXTS,
    TRUTHS,
    RuleText,
    Said,
    contents,
    populations,
    rule_texts,
    turtle,
)
from rules_oracle import World

from mdv.mdp.query import Resources, Rows, run_query
from mdv.rules.ast import ParsedQuery
from mdv.rules.parse import parse, parse_query

if TYPE_CHECKING:
    from conftest import Mdp

EXAMPLES = int(os.environ.get("MDV_MODEL_EXAMPLES", "60"))
LASTS = [*NUMBERS, *INSTANTS, *TRUTHS, *TEXTS, *REFERENCES, *REFERENCES, *ANYTHING, "rdf:type?"]

WAYS = ["author", "author", "sequel", "source", "home", "sequel.author", "about?"]


@st.composite
def paths(draw: st.DrawFn, variables: list[str], ways: list[str]) -> str:
    """A variable, a path, or one that goes a way that others of the query go, or just to its end."""
    variable = draw(st.sampled_from(variables))
    kind = draw(st.integers(0, 8))
    if kind == 0:
        return variable
    way = draw(st.sampled_from(ways)).split(".")
    if kind == 1:
        return ".".join([variable, *way])
    head = way if kind < 7 else draw(st.sampled_from(_HEADS))
    return ".".join([variable, *head, draw(st.sampled_from(LASTS))])


@st.composite
def query_texts(draw: st.DrawFn) -> str:
    rule = draw(rule_texts(small=True))
    search = re.match(r"search (.*) register \w+", rule.text)
    assert search is not None
    variables = [extension.split()[1] for extension in search[1].split(", ")]
    passed = re.findall(r"\b[abc]((?:\.[a-z]+\??)+)\.", rule.text)
    ways = [way.removeprefix(".") for way in passed] or [draw(st.sampled_from(WAYS))]
    returned = draw(st.lists(paths(variables, ways), min_size=1, max_size=3))
    ordered = draw(st.lists(st.one_of(paths(variables, ways), st.sampled_from(returned)), max_size=2))
    order = ", ".join(path + draw(st.sampled_from(["", " asc", " desc"])) for path in ordered)
    text = re.sub(r" register \w+", "", rule.text) + f" return {', '.join(returned)}"
    return text + (f" order by {order}" if order else "")


@pytest.fixture
def world(mdp: Mdp, monkeypatch: pytest.MonkeyPatch) -> Mdp:
    # Variables that nothing joins take long on a machine that is busy: every query is answered all the same.
    monkeypatch.setattr("mdv.mdp.query.MAX_SECONDS", 120)
    mdp.put_schema(SCHEMA)
    return mdp


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
def test_a_query_gives_the_rows_of_the_oracle_in_their_order(
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
        assert isinstance(found, Rows)
        assert found.rows == wanted[:10_000], text
        assert found.truncated == (len(wanted) > 10_000)


@settings(
    max_examples=EXAMPLES // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
@given(content=populations(), texts=st.lists(rule_texts(), min_size=2, max_size=6), size=st.integers(1, 4))
def test_a_rule_as_a_query_gives_what_it_would_register_page_by_page(
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
            assert isinstance(page, Resources)
            found += [uri for uri, _ in page.items]
            after = page.next
            if after is None:
                break
        assert found == sorted(World(schema, content, {}).registered(parse(text.text))), text.text
