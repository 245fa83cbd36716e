"""The replay of the paper's filter compared with the real filter."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mdv.inspect.filter_replay import replay_filter
from tests.support.generated_rules import SCHEMA, RuleText, Said, contents, populations, rule_texts, turtle
from tests.support.mdp import Mdp

pytestmark = pytest.mark.full

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
    """Start without documents and with these rules."""
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
        found = replay_filter(connection, document, world.schemas)
    assert not found.truncated
    shown = [(row.resource, row.rule) for rows in found.iterations for row in rows]
    assert len(shown) == len(set(shown))
    return {(row.rule, row.resource) for row in found.results}


@CHECKED
@given(rules=st.lists(rule_texts(), min_size=1, max_size=5), content=populations())
def test_for_a_single_document_the_trace_ends_with_the_matches_of_the_filter(
    world: Mdp, rules: list[RuleText], content: Said
) -> None:
    begin(world, rules)
    world.put({ONE: turtle(content)})
    assert results(world, ONE) == gained(world)


@CHECKED
@given(rules=st.lists(rule_texts(), min_size=1, max_size=5), content=populations(), more=contents(2))
def test_for_a_second_document_the_trace_finds_all_new_matches_and_no_wrong_ones(
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
