"""Parsing rules and queries: the tree, the limits, and that bad text raises only `InvalidRule`."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mdv.errors import InvalidRule
from mdv.rules.ast import And, LiteralKind, Not, Or, ParsedQuery, ParsedRule, Predicate
from mdv.rules.normalise import normalise
from mdv.rules.operators import Operator
from mdv.rules.parse import KEYWORDS, MAX_NESTING, parse, parse_query
from mdv.rules.template import Templates
from tests.support.rule_schemas import world

HEAD = "search Thing t register t where "


def refused(text: str, read: object = parse) -> str:
    with pytest.raises(InvalidRule) as caught:
        read(text)  # type: ignore[operator]
    (flaw,) = caught.value.flaws
    return flaw.message


def test_every_part_has_its_place() -> None:
    text = "search Thing t register t\nwhere t.part.texts? contains 'it''s'"
    rule = parse(text)
    where = rule.where
    assert isinstance(where, Predicate)

    def at(span: object) -> str:
        return text[span.start : span.end]  # type: ignore[attr-defined]

    assert at(rule.search[0].name.span) == "Thing" and at(rule.register.span) == "t"
    assert at(where.left.span) == "t.part.texts?" and at(where.right.span) == "'it''s'"
    assert [at(step.name.span) for step in where.left.steps] == ["part", "texts"]
    assert [step.any for step in where.left.steps] == [False, True]
    assert where.right.value == "it's"


def test_constants_are_counted_from_the_left() -> None:
    rule = parse(HEAD + "1 = t.a and (t.b = 'x' or not t.c = <u:v>) and t.d != FALSE")
    assert isinstance(rule.where, And)
    first, either, last = rule.where.parts
    assert isinstance(either, Or) and isinstance(either.parts[1], Not)
    found = [first.left, either.parts[0].right, either.parts[1].part.right, last.right]
    assert [(one.slot, one.written, one.value) for one in found] == [
        (0, LiteralKind.NUMBER, Decimal(1)),
        (1, LiteralKind.TEXT, "x"),
        (2, LiteralKind.URI, "u:v"),
        (3, LiteralKind.TRUTH, False),
    ]


def test_names_may_have_letters_of_any_script_and_hyphens() -> None:
    rule = parse("search größe:Straße-2 ß register ß where ß.naïve-name = -1.50E+2")
    assert rule.search[0].name.text == "größe:Straße-2"
    assert rule.where.left.steps[0].name.text == "naïve-name" and rule.where.right.value == Decimal(-150)


def test_keywords_are_those_of_the_grammar() -> None:
    for word in KEYWORDS:
        with pytest.raises(InvalidRule, match=f"'{word}' is a keyword"):
            parse(f"search {word} t register t")
        assert parse(HEAD + f"t.{word} = 1").where.left.steps[0].name.text == word
        assert parse(f"search {word}x t register t").search[0].name.text == word + "x"


def test_a_long_s_is_not_accepted_as_s() -> None:
    assert refused("ſearch Thing t register t").startswith("expected 'search'")
    assert refused(HEAD + "t.a containſ 'x'").startswith("expected")


@pytest.mark.parametrize(
    ("written", "operators"),
    [
        ("t.a<5 and t.b>3", [Operator.LT, Operator.GT]),
        ("t.a <5 and t.b> 3", [Operator.LT, Operator.GT]),
        ("(t.a<5)and(t.b>3)", [Operator.LT, Operator.GT]),
        ("t.a<=<u:v>and<u:w>=t.b", [Operator.LE, Operator.EQ]),
        ("t.a<-5 and t.b>=-3", [Operator.LT, Operator.GE]),
    ],
)
def test_angle_brackets_are_distinguished_by_their_context(written: str, operators: list[Operator]) -> None:
    where = parse(HEAD + written).where
    assert isinstance(where, And) and [part.operator for part in where.parts] == operators


def test_queries_have_return_order_and_limit() -> None:
    query = parse_query("search A a, B b where a.x = b RETURN a, b.y.z? ORDER BY b.y DESC, a ASC, a.x LIMIT 10")
    assert isinstance(query, ParsedQuery)
    assert [len(path.steps) for path in query.returns] == [0, 2]
    assert [(len(one.path.steps), one.descending) for one in query.order] == [(1, True), (0, False), (1, False)]
    assert query.limit == 10 and isinstance(query.where, Predicate)


def test_a_query_may_have_no_clauses_and_a_rule_is_a_query() -> None:
    query = parse_query("search A a return a")
    assert isinstance(query, ParsedQuery) and query.where is None and query.order == () and query.limit is None
    assert isinstance(parse_query("search A a register a where a.x = 1"), ParsedRule)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("search A a register a return a", "expected 'where' or the end, found 'return'"),
        ("search A a where a.x = 1", "expected 'and', 'or' or 'return', but the query ends here"),
        ("search A a return", "expected a variable, but the query ends here"),
        ("search A a return a limit -1", "expected a whole number, found '-1'"),
        ("search A a return a limit 1.5", "expected a whole number, found '1.5'"),
        ("search A a return a limit 9999999999", "a limit has at most 9 digits"),
        ("search A a return a order a", "expected 'by', found 'a'"),
        ("search A a return a limit 1 order by a", "expected the end, found 'order'"),
        ("search A a return 'x'", 'expected a variable, found "\'x"'),
        ("search A a", "expected ',', 'register', 'where' or 'return', but the query ends here"),
    ],
)
def test_invalid_queries_are_refused_with_a_message(text: str, message: str) -> None:
    assert refused(text, parse_query) == message


def test_characters_that_cannot_be_stored_are_refused() -> None:
    assert refused("search Thing t\0 register t") == "the text contains a NUL character"
    assert refused(HEAD + "t.text = '\ud800'") == "the text contains an unpaired surrogate, which is not a character"


def test_the_size_is_counted_in_bytes() -> None:
    padding = 8192 - len(HEAD + "t.text = ''")
    assert parse(HEAD + f"t.text = '{'x' * padding}'")
    assert refused(HEAD + f"t.text = '{'x' * (padding + 1)}'") == "the text is longer than 8,192 bytes"
    assert parse(HEAD + f"t.text = '{'漢' * (padding // 3)}'")
    assert refused(HEAD + f"t.text = '{'漢' * (padding // 3 + 1)}'") == "the text is longer than 8,192 bytes"


@pytest.mark.parametrize("opening", ["(", "not ", "not ("])
def test_nesting_is_limited(opening: str) -> None:
    depth = MAX_NESTING // (2 if opening == "not (" else 1)

    def nested(times: int) -> str:
        return HEAD + opening * times + "t.whole = 1" + ")" * opening.count("(") * times

    normalise(parse(nested(depth)), world("kinds"))
    assert "nested more than 100 deep" in refused(nested(depth + 1))


@pytest.mark.parametrize(
    "bomb",
    [
        HEAD + " and ".join(["t.a = 1"] * 20_000),
        HEAD + " or ".join(["t.a=1"] * 1000),
        HEAD + "(" * 100_000 + "t.a = 1" + ")" * 100_000,
        HEAD + "(" * 4000 + "t.a=1" + ")" * 4000,
        HEAD + "not " * 2000 + "t.a=1",
        HEAD + "(" * 8000,
        HEAD + "t" + ".a" * 4000 + "=1",
        HEAD + "t.a = " + "1" * 8000,
        HEAD + "t.a = 1e" + "9" * 8000,
        HEAD + "t.a = '" + "''" * 4000,
        HEAD + "t.a = <" + "a" * 8000,
        HEAD + "t.a = " + "a:" * 4000,
        HEAD + "-" * 8000,
        "a" * 10_000_000,
        "\n" * 10_000_000,
        " " * 8192,
        "search " * 1000,
        "search " + "A a," * 2000,
    ],
    ids=lambda bomb: f"{bomb[32:44]!r}-{len(bomb)}",
)
def test_oversized_rules_are_refused(bomb: str) -> None:
    assert refused(bomb)
    assert refused(bomb, parse_query)
    assert refused(bomb, Templates(world("kinds")).match)


WORDS = "Thing Part t p t.whole t.part t.parts? . , ? : a: ( ) = != < <= > >= ' 'a' '' 5 - -1.5 1e <http://a/b> \" \\ é"
PHRASES = ["search Thing t register t where", "t.whole = 1", "t.text contains 'a'", "t = p", "\n", "\t", "\0"]
TOKENS = st.sampled_from([*sorted(KEYWORDS), *WORDS.split(), *PHRASES])
SOUP = st.lists(st.tuples(TOKENS, st.sampled_from([" ", ""])), max_size=30).map(
    lambda parts: "".join(token + gap for token, gap in parts)
)
RAW = st.text(st.characters(codec=None, exclude_categories=()), max_size=200)  # lone surrogates, too


@settings(deadline=None, max_examples=500)
@given(st.one_of(RAW, SOUP, SOUP.map(HEAD.__add__), RAW.map(HEAD.__add__)))
@example("search Thing t register t where t.a containſ 'a'")
@example(HEAD + "t.whole = ٣")
@example(HEAD + "t.whole = ²")
def test_any_text_parses_or_raises_invalid_rule(text: str) -> None:
    templates = Templates(world("kinds"))
    for read in (parse, parse_query, templates.match, templates.match):
        try:
            read(text)
        except InvalidRule as error:
            assert error.flaws[0].line and error.flaws[0].column
            assert error.detail
            assert error.problem()["errors"]
