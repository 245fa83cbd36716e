"""The limits of rules and queries. SQLAlchemy compiles SQL recursively: accepted rules stay far from Python's
recursion limit in every compilation, and larger ones are refused with their own error message."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import Engine

from mdv.db.cache import create_tables, make_cache_engine, writing_engine
from mdv.errors import InvalidRule, TooCostly
from mdv.inspect.drawing import draw_rule
from mdv.inspect.explain_resource import explain_resource
from mdv.inspect.explain_rule import explain_rule
from mdv.inspect.filter_replay import replay_filter
from mdv.inspect.query import run_query
from mdv.lmr.query import run_query as run_at_lmr
from mdv.rules.normalise import MAX_JOIN_DEPTH
from mdv.rules.normalise_query import MAX_JOINS, MAX_RETURNED_PATHS
from mdv.rules.parse import MAX_SEARCH_VARIABLES
from tests.support.mdp import Mdp

SCHEMA = """
:C a rdfs:Class . :next rdfs:range :C ; mdv:setValued true . :n rdfs:range xsd:integer . :t rdfs:range xsd:string .
"""
EIGHT = ".".join(["next?"] * 8)
SEVEN = ".".join(["next?"] * 7)
FRAMES_LEFT = 200
"""The recursion limit is lowered by this much, for callers with deeper stacks than a test has."""


def variables(number: int) -> list[str]:
    return [f"v{n}" for n in range(number)]


def search(names: list[str]) -> str:
    return "search " + ", ".join(f"C {name}" for name in names)


def chain(depth: int, from_the_end: bool = False) -> str:
    """A rule of `depth` joins in a row from the registered variable, by paths of up to 8 steps."""
    paths, rest = divmod(depth, 8)
    names = variables(paths + 1)
    where = [f"{one}.{EIGHT} = {other}" for one, other in pairwise(names)]
    where.append(".".join([names[-1], *["next?"] * rest, "n > 1"]))
    return f"{search(names)} register {names[-1] if from_the_end else names[0]} where {' and '.join(where)}"


def without_constant(rule: str) -> str:
    """The query begins at the registered variable and nests deepest."""
    return rule.rpartition(" and ")[0]


@contextmanager
def less_stack() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit - FRAMES_LEFT)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


@pytest.fixture
def ring(mdp: Mdp) -> Mdp:
    """One resource that refers to itself, so that every chain of references holds."""
    mdp.put_schema(SCHEMA)
    mdp.put_one("http://d/1", "<http://r/1> a :C ; :next <http://r/1> ; :n 5 ; :t 'x' .")
    return mdp


@pytest.mark.full
@pytest.mark.parametrize("from_the_end", [False, True], ids=["from the first", "from the last"])
def test_the_longest_chain_of_joins_works_in_every_evaluation(ring: Mdp, from_the_end: bool) -> None:
    text = chain(MAX_JOIN_DEPTH, from_the_end)
    lmr = ring.create_lmr("north")
    with less_stack():
        (subscription,) = ring.subscribe(lmr, text)
        assert ring.results_of(subscription.id) == {"http://r/1"}
        ring.put_one("http://d/1", "<http://r/1> a :C ; :next <http://r/1> ; :n 1 ; :t 'x' .")
        assert ring.results_of(subscription.id) == set()
        ring.put_one("http://d/1", "<http://r/1> a :C ; :next <http://r/1> ; :n 9 ; :t 'x' .")
        ring.put_schema(SCHEMA + ":D rdfs:subClassOf :C .")
        with ring.engine.connect() as connection:
            assert run_query(connection, text, ring.schemas).items == [("http://r/1", ["http://v/C"])]  # type: ignore[union-attr]
        with ring.engine.connect() as connection:
            assert draw_rule(explain_rule(connection, text, ring.schemas, ring.rules))
        with ring.engine.connect() as connection:
            assert replay_filter(connection, "http://d/1", ring.schemas).results
        with ring.engine.connect() as connection:
            why = explain_resource(connection, lmr.id, "http://r/1", ring.provider)
            assert why.rules


@pytest.mark.parametrize("from_the_end", [False, True], ids=["from the first", "from the last"])
def test_a_longer_chain_of_joins_is_refused(ring: Mdp, from_the_end: bool) -> None:
    """It would make every later registration fail: the filter nests most deeply."""
    too_long = chain(MAX_JOIN_DEPTH + 8, from_the_end)
    with pytest.raises(InvalidRule, match=f"a chain of 48 joins.*the limit is {MAX_JOIN_DEPTH} .*shorten the paths"):
        ring.subscribe(ring.create_lmr("north"), too_long)
    ring.put_one("http://d/2", "<http://r/2> a :C .")


@pytest.mark.parametrize("from_the_end", [False, True], ids=["from the first", "from the last"])
def test_a_query_may_have_a_longer_chain_of_joins_up_to_a_limit(ring: Mdp, from_the_end: bool) -> None:
    with ring.engine.connect() as connection:
        assert run_query(connection, chain(MAX_JOIN_DEPTH + 8, from_the_end), ring.schemas).items  # type: ignore[union-attr]
    with ring.engine.connect() as connection, pytest.raises(TooCostly, match="a chain of joins that is too long"):
        run_query(connection, without_constant(chain(240, from_the_end)), ring.schemas)
    with ring.engine.connect() as connection:  # nothing was left behind
        assert run_query(connection, chain(1), ring.schemas).items  # type: ignore[union-attr]


def test_a_chain_of_joins_over_searched_rules_counts_as_a_whole(ring: Mdp) -> None:
    half = MAX_JOIN_DEPTH // 2
    steps = ".".join(["next?"] * 8)
    lower, upper = chain(half), f"search Lower b, C a register a where a.{steps} = b"
    ring.add_rules([("Lower", lower), ("Upper", upper)])
    too_far = f"search Upper b, C a, C c register a where a.{steps} = c and c.{steps} = b"
    with pytest.raises(InvalidRule, match="a chain of 44 joins"):
        ring.add_rules([too_far])


def test_the_maximum_number_of_variables_can_be_searched(ring: Mdp) -> None:
    names = variables(MAX_SEARCH_VARIABLES)
    joined = " and ".join(f"v0.next? = {name}" for name in names[1:33])
    with less_stack():
        (rule,) = ring.add_rules([f"{search(names)} register v0 where {joined}"])
        assert ring.results_of(rule.id) == {"http://r/1"}
        ring.put_one("http://d/1", "<http://r/1> a :C ; :n 1 .")
        assert ring.results_of(rule.id) == set()


@pytest.mark.parametrize("ending", ["register v0", "return v0"])
@pytest.mark.parametrize("number", [MAX_SEARCH_VARIABLES + 1, 600])
def test_too_many_variables_are_refused_with_the_place_of_the_first(ring: Mdp, number: int, ending: str) -> None:
    text = f"{search(variables(number))} {ending}"
    with ring.engine.connect() as connection, pytest.raises(InvalidRule, match="more than 64 variables") as refused:
        run_query(connection, text, ring.schemas)
    (flaw,) = refused.value.flaws
    assert flaw.column == text.index("C v64") + 1


LARGE_QUERIES = {
    "returned paths": f"search C a where a.{SEVEN}.n > 1 return " + ", ".join([f"a.{EIGHT}"] * MAX_RETURNED_PATHS),
    "a long way": f"{search(variables(33))} where "
    + " and ".join(f"{one}.{EIGHT} = {other}" for one, other in pairwise(variables(33)))
    + " return v0",
    "values of two sides": f"{search(variables(20))} where "
    + " and ".join(f"v0.{SEVEN}.t = {other}.{SEVEN}.t" for other in variables(20)[1:])
    + " return v0",
}


@pytest.mark.parametrize("name", LARGE_QUERIES)
def test_the_largest_queries_are_answered(ring: Mdp, name: str) -> None:
    with less_stack(), ring.engine.connect() as connection:
        answer = run_query(connection, LARGE_QUERIES[name], ring.schemas)
    assert len(answer.rows) == 1  # type: ignore[union-attr]


def test_a_query_with_too_many_joins_is_refused(ring: Mdp) -> None:
    names = variables(33)
    two_sides = " and ".join(f"v0.{SEVEN}.t = {other}.{SEVEN}.t" for other in names[1:])
    with (
        ring.engine.connect() as connection,
        pytest.raises(InvalidRule, match=f"481 variables and returned steps, .* the limit is {MAX_JOINS} "),
    ):
        run_query(connection, f"{search(names)} where {two_sides} return v0", ring.schemas)


@pytest.fixture
def cache(tmp_path: Path) -> Engine:
    engine = make_cache_engine(f"sqlite:///{tmp_path / 'cache.db'}")
    with writing_engine(engine).begin() as connection:
        create_tables(connection)
    return engine


AT_AN_LMR = [chain(MAX_JOIN_DEPTH), chain(MAX_JOIN_DEPTH, True), *LARGE_QUERIES.values()]
AT_AN_LMR += [without_constant(chain(240)), without_constant(chain(240, True))]


@pytest.mark.parametrize("text", AT_AN_LMR)
def test_an_lmr_answers_a_large_query_or_refuses_it_with_a_reason(ring: Mdp, cache: Engine, text: str) -> None:
    with ring.engine.connect() as connection:
        schema = ring.schemas.now(connection).schema
    with less_stack(), cache.connect() as connection:
        try:
            run_at_lmr(connection, schema, text)
        except TooCostly as refusal:
            # SQLite joins at most 64 tables.
            assert "needs more than" in refusal.detail or "a chain of joins that is too long" in refusal.detail
