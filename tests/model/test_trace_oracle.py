"""The paper's filter, replayed, against the filter that ran."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rule_worlds import SCHEMA, RuleText, Said, contents, populations, rule_texts, turtle

from mdv.mdp.trace import trace

if TYPE_CHECKING:
    from conftest import Mdp

EXAMPLES = int(os.environ.get("MDV_MODEL_EXAMPLES", "25"))
ONE, OTHER = "http://d/1", "http://d/2"
CHECKED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)


@pytest.fixture
def world(mdp: Mdp) -> Mdp:
    mdp.put_schema(SCHEMA)
    return mdp


def begin(world: Mdp, rules: list[RuleText]) -> list[int]:
    """No documents, and these rules."""
    world.put({ONE: None, OTHER: None})
    old = [number for (number,) in world.rows("select id from rules")]
    if old:
        world.remove_rules(old)
    return [rule.id for rule in world.add_rules([rule.text for rule in rules])]


def gained(world: Mdp) -> set[tuple[int, str]]:
    changes = world.changes()
    assert all(matched for _, _, matched in changes)
    return {(rule, resource) for rule, resource, _ in changes}


def results(world: Mdp, document: str) -> set[tuple[int, str]]:
    with world.engine.connect() as connection:
        found = trace(connection, document, world.schemas)
    assert not found.truncated
    shown = [(row.resource, row.rule) for rows in found.iterations for row in rows]
    assert len(shown) == len(set(shown))
    return {(row.rule, row.resource) for row in found.results}


@CHECKED
@given(rules=st.lists(rule_texts(), min_size=1, max_size=5), content=populations())
def test_for_a_document_alone_the_trace_ends_with_what_the_filter_found(
    world: Mdp, rules: list[RuleText], content: Said
) -> None:
    begin(world, rules)
    world.put({ONE: turtle(content)})
    assert results(world, ONE) == gained(world)


@CHECKED
@given(rules=st.lists(rule_texts(), min_size=1, max_size=5), content=populations(), more=contents(2))
def test_for_a_further_document_the_trace_finds_what_the_filter_found_and_nothing_untrue(
    world: Mdp, rules: list[RuleText], content: Said, more: Said
) -> None:
    ids = begin(world, rules)
    world.put({ONE: turtle(content)})
    world.put({OTHER: turtle(more)})
    found = results(world, OTHER)
    assert gained(world) <= found
    described = {statement.subject for statement in more}
    for rule in ids:
        true, ends = world.results_of(rule), world.ends_of(rule)
        mine = {resource for end, resource in found if end in ends}
        assert true & described <= mine <= true
