"""Queries converted to rules and reordered: their texts, and how these are parsed."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mdv.rules.ast import ParsedQuery, Span
from mdv.rules.normalise_query import normalise_query
from mdv.rules.parse import parse, parse_query
from mdv.rules.rewrite_query import query_to_rule, registrable_variables, reorder_query
from tests.support.rule_schemas import world

GOLDEN = [
    ("search X c return c", "search X c register c"),
    ("search X c return c.h", "search X c register c"),
    ("search X c where c.h = 1 return c, c.h order by c.h limit 5", "search X c register c where c.h = 1"),
    ("search X c where (c.h = 1)return c", "search X c register c where (c.h = 1)"),
    ("search X c where c.h = 'where return x'return c", "search X c register c where c.h = 'where return x'"),
    ("search X c where not (not c.h = 1 or (c.g = 2)) return c",
     "search X c register c where not (not c.h = 1 or (c.g = 2))"),
    ("search X c where c.return = 1 return c.return, c", "search X c register c where c.return = 1"),
    ("SEARCH X c WHERE c.h = 1 RETURN c", "SEARCH X c register c WHERE c.h = 1"),
    ("  search X  c\n  where c.h   = 1\n    and c.g = 'a''b'\nreturn c\nlimit 3\n",
     "search X  c\nregister c\nwhere c.h   = 1\n    and c.g = 'a''b'"),
    ("search X c\u2003where c.h = <http://a/b?return> return\u00a0c",
     "search X c register c where c.h = <http://a/b?return>"),
    ("search X c, a:Y d where c.p = d return d.q, c", "search X c, a:Y d register d where c.p = d"),
    ("search <http://x/return> returns return returns", "search <http://x/return> returns register returns"),
]  # fmt: skip


def query_of(text: str) -> ParsedQuery:
    found = parse_query(text)
    assert isinstance(found, ParsedQuery)
    return found


def without_places(tree: Any) -> Any:
    """Return a syntax tree without the places of its parts."""
    if is_dataclass(tree):
        named = [(one.name, getattr(tree, one.name)) for one in fields(tree)]
        return type(tree).__name__, [(name, without_places(value)) for name, value in named
                                     if not isinstance(value, Span)]  # fmt: skip
    return [without_places(each) for each in tree] if isinstance(tree, tuple) else tree


def assert_same_meaning(text: str, register: str | None = None) -> None:
    query = query_of(text)
    rule = parse(query_to_rule(query, register))
    assert without_places(rule.search) == without_places(query.search)
    assert without_places(rule.where) == without_places(query.where)
    assert rule.register.text == (register or query.returns[0].variable.text)


@pytest.mark.parametrize(("query", "rule"), GOLDEN)
def test_a_query_is_converted_to_the_rule_of_its_golden_pair(query: str, rule: str) -> None:
    assert query_to_rule(query_of(query)) == rule
    assert_same_meaning(query)


def test_any_searched_variable_can_be_registered() -> None:
    text = "search X a, Y b where a.p = b return b, a.q, b.r"
    assert registrable_variables(query_of(text)) == ["b", "a"]
    assert query_to_rule(query_of(text), "a") == "search X a, Y b register a where a.p = b"
    assert_same_meaning(text, "a")


PATHS = st.sampled_from(["c", "d", "c.p", "d.q.return?", "c .  where", "d.<http://a/order>.x:limit"])
CONSTANTS = st.sampled_from(["'return c'", "'it''s'", "-1.5e3", "TRUE", "<http://a/b>", "'\n where'"])
SIGNS = st.sampled_from(["=", "!=", "<", ">=", " contains ", " CONTAINS\n", " startswith ", "\tEndsWith "])
PREDICATES = st.builds(lambda path, sign, right: f"{path}{sign}{right}", PATHS, SIGNS, CONSTANTS)
EXPRESSIONS = st.recursive(
    PREDICATES,
    lambda parts: st.one_of(
        st.builds("({})".format, parts),
        st.builds("not ({})".format, parts),
        st.builds("({}) and ({})".format, parts, parts),
        st.builds("({})\nOR\t({})".format, parts, parts),
    ),
    max_leaves=6,
)
WHERES = st.one_of(st.just(""), EXPRESSIONS.map("where {}".format), EXPRESSIONS.map("\n  WHERE ({})".format))
RETURNS = st.lists(PATHS, min_size=1, max_size=4).map(" ,\n".join)
ORDERS = st.lists(
    st.builds(lambda path, way: path + way, PATHS, st.sampled_from(["", " asc", "\nDESC"])), max_size=2
).map(lambda orders: f"order by {', '.join(orders)}" if orders else "")
LIMITS = st.sampled_from(["", "limit 7", "\nLIMIT 10\n"])
SPACES = st.sampled_from([" ", "\n", "\t\n  ", "\u2003"])


@st.composite
def queries(draw: st.DrawFn) -> str:
    space = draw(SPACES)
    parts = [f"search X c, x:Y{space}d", draw(WHERES), "return " + draw(RETURNS), draw(ORDERS), draw(LIMITS)]
    return draw(st.sampled_from(["", "\n "])) + space.join(part for part in parts if part)


@given(queries(), st.sampled_from([None, "c", "d"]))
def test_a_converted_rule_has_the_same_search_and_where_as_the_query(text: str, register: str | None) -> None:
    assert_same_meaning(text, register)


@given(queries(), st.data())
def test_reordering_a_query_keeps_its_other_clauses(text: str, data: st.DataObject) -> None:
    query = query_of(text)
    column = data.draw(st.integers(0, len(query.returns) - 1))
    descending = data.draw(st.booleans())
    again = query_of(reorder_query(query, column, descending))
    for part in ("search", "where", "returns", "limit"):
        assert without_places(getattr(again, part)) == without_places(getattr(query, part))
    (order,) = again.order
    assert without_places(order.path) == without_places(query.returns[column])
    assert order.descending is descending


@pytest.mark.parametrize(
    ("text", "column", "ordered"),
    [
        ("search X c return c, c.h", 1, "search X c return c, c.h order by c.h desc"),
        ("search X c return c limit 5", 0, "search X c return c order by c desc limit 5"),
        ("search X c\nreturn c, c.h\norder by c.h ASC, c desc\nlimit 5\n", 0,
         "search X c\nreturn c, c.h\norder by c desc\nlimit 5"),
        ("search X c return c.desc order by c.desc limit 5", 0,
         "search X c return c.desc order by c.desc desc limit 5"),
    ],
)  # fmt: skip
def test_an_order_is_inserted_at_its_place(text: str, column: int, ordered: str) -> None:
    assert reorder_query(query_of(text), column, descending=True) == ordered


def test_a_reordered_query_keeps_its_meaning() -> None:
    text = "search CycleProvider c where c.serverPort > 1 return c, c.serverInformation.memory limit 5"
    normal = normalise_query(query_of(reorder_query(query_of(text), 1, False)), world("demo"))
    assert normal.order[0].column == 1 and normal.limit == 5
