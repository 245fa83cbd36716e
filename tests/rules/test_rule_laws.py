"""Laws of normal forms and templates, on random rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mdv.errors import InvalidRule
from mdv.rules.normal import Comparison, Conjunction, Constant, NormalRule
from mdv.rules.normalise import MAX_CONJUNCTIONS, normalise
from mdv.rules.operators import WORDS
from mdv.rules.parse import parse
from mdv.rules.show import format_rule
from mdv.rules.template import Templates, skeleton
from tests.support.rule_schemas import GOLDEN, library, world

KINDS = world("kinds")
HEADS = ["search Thing t, Part p register t where ", "search <http://kinds.example/Thing> t, :Part p register p where "]

# Each path with the constants that it takes.
FITTING = {
    "t.whole": ["5", "-5", "1.50", "6e3", "0"],
    "t.part.whole": ["5", "-1"],
    "t.parts?.wholes?": ["7"],
    "t.up": ["true", "FALSE"],
    "t.text": ["'a'", "'it''s'", "'<x>'", "'5'"],
    "p.:name": ["'ä'", "' and '"],
    "t.part.part.texts?": ["'漢'"],
    "t.year": ["1800", "'1900'"],
    "t.part.day": ["'2024-02-29'"],
    "t.part": ["<http://a/b>", "'http://a/b'"],
    "t": ["<http://a/it's>", "'b'"],
    "t.free": ["<http://a/b>", "'b'"],
    "t.free.frees?": ["'b'", "<u:(x)>"],
    "t.address": ["<http://a/b>", "'c'"],
}
EQUALS, ORDERS = ["=", "!=", " = ", " != ", "  =  "], ["<", ">=", " < ", " <= ", " > "]
WORD_OPERATORS = [f" {word} " for word in WORDS]
ORDERED = ("whole", "wholes?", "year", "day")
SAME_SORT = ["t.whole < p.double", "t.part = p", "t = p.part", "t != p", "t.free = p.see", "t.text != p.:name"]

CONSTANTS = [*sorted({one for fitting in FITTING.values() for one in fitting}), "''", "1e9999", "<doc.rdf>", "20240229"]


@st.composite
def predicates(draw: st.DrawFn, fitting: bool) -> str:
    """A comparison with `fitting` constants, or with any."""
    if draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(SAME_SORT))
    path = draw(st.sampled_from(list(FITTING)))
    constant = draw(st.sampled_from(FITTING[path] if fitting else CONSTANTS))
    texts = constant.startswith("'") and "year" not in path and "day" not in path
    operators = EQUALS + (ORDERS if path.endswith(ORDERED) else []) + (WORD_OPERATORS if texts else [])
    operator = draw(st.sampled_from(operators if fitting else [*EQUALS, *ORDERS, *WORD_OPERATORS, "contains"]))
    if operator not in WORD_OPERATORS and draw(st.booleans()):
        return f"{constant}{operator}{path}"
    return f"{path}{operator}{constant}"


def expressions(fitting: bool) -> st.SearchStrategy[str]:
    return st.recursive(
        predicates(fitting),
        lambda inner: st.one_of(
            inner.map("not {}".format),
            inner.map("({})".format),
            st.tuples(inner, st.sampled_from([" and ", " or "]), inner).map(lambda three: "({}{}{})".format(*three)),
            st.tuples(inner, inner).map(" and ".join),
        ),
        max_leaves=6,
    )


def rules(fitting: bool = True) -> st.SearchStrategy[str]:
    return st.tuples(st.sampled_from(HEADS), expressions(fitting)).map("".join)


def without_slots(part: Conjunction) -> Conjunction:
    return filled(NormalRule((part,)), None).conjunctions[0]


def filled(rule: NormalRule, constants: tuple[Constant, ...] | None) -> NormalRule:
    """Return the rule with the constants in their slots; with None, as if each came from another rule."""

    def fill(one: Constant) -> Constant:
        if one.slot is None or constants is None:
            return replace(one, slot=None)
        return constants[one.slot]

    return replace(
        rule,
        conjunctions=tuple(
            replace(
                part,
                predicates=tuple(
                    replace(p, constant=fill(p.constant)) if isinstance(p, Comparison) else p for p in part.predicates
                ),
            )
            for part in rule.conjunctions
        ),
    )


@settings(deadline=None, max_examples=300)
@given(rules())
def test_a_formatted_conjunction_parses_to_itself(text: str) -> None:
    for part in normalise(parse(text), KINDS).conjunctions:
        (again,) = normalise(parse(format_rule(part, KINDS)), KINDS).conjunctions
        assert without_slots(again) == without_slots(part)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*/*.normal")), ids=lambda path: path.stem)
def test_a_golden_normal_form_parses_to_itself(path: object) -> None:
    schema = world(path.parent.name)  # type: ignore[attr-defined]
    rule = parse(path.with_suffix(".rule").read_text("utf-8"))  # type: ignore[attr-defined]
    for part in normalise(rule, schema, library(path.parent.name).get).conjunctions:  # type: ignore[attr-defined]
        (again,) = normalise(parse(format_rule(part, schema)), schema).conjunctions
        assert without_slots(again) == without_slots(part)


@settings(deadline=None, max_examples=300)
@given(rules())
def test_a_normal_form_has_no_paths_and_declares_its_variables(text: str) -> None:
    rule = normalise(parse(text), KINDS)
    assert 0 < len(rule.conjunctions) <= MAX_CONJUNCTIONS
    for part in rule.conjunctions:
        names = [variable.name for variable in part.variables]
        assert len(names) == len(set(names)) and part.register in names
        for predicate in part.predicates:
            if isinstance(predicate, Comparison):
                assert predicate.access.variable in names
            else:
                assert {predicate.left.variable, predicate.right.variable} <= set(names)
                assert predicate.left.property is not None or predicate.right.property is None


def slow(text: str) -> NormalRule | str:
    try:
        return normalise(parse(text), KINDS)
    except InvalidRule as error:
        return error.detail


def fast(text: str, templates: Templates) -> NormalRule | str:
    try:
        template, constants = templates.match(text)
    except InvalidRule as error:
        return error.detail
    assert [constant.slot for constant in constants] == list(range(len(constants)))
    return filled(template.rule, constants)


@st.composite
def variations(draw: st.DrawFn) -> list[str]:
    """Texts that differ in constants only, fitting or not, and of the same or of another kind."""
    text = draw(rules(draw(st.booleans())))
    found = skeleton(text)
    assert found is not None
    texts = [text]
    for _ in range(2):
        for written in found[1]:
            text = text.replace(written, draw(st.sampled_from(CONSTANTS)), 1)
        texts.append(text)
    return texts


@pytest.mark.full
@settings(deadline=None, max_examples=500)
@given(variations())
@example([HEADS[0] + "(t.whole <5)and(t.whole> 3)", HEADS[0] + "(t.whole <6)and(t.whole> 4)"])
@example([HEADS[0] + "t.up = true", HEADS[0] + "t.up = False", HEADS[0] + "t.up = 1"])
@example([HEADS[0] + "t.text contains 'a'", HEADS[0] + "t.text contains ''"])
@example([HEADS[0] + "not t.text endswith 'a'", HEADS[0] + "not t.text endswith ''"])
@example([HEADS[0] + "t.whole = 1", HEADS[0] + "t.whole = " + "9" * 1001, HEADS[0] + "t.whole = 2-3"])
def test_templates_and_parser_agree(texts: list[str]) -> None:
    templates = Templates(KINDS)
    for text in [*texts, *texts]:
        assert fast(text, templates) == slow(text)


@pytest.mark.parametrize(
    "form",
    ["t.whole = {}", "t.text contains '{}'", "t.text startswith '{}'", "t = <http://a/{}>", "t.part.whole > -{}"],
)
def test_rules_that_differ_only_in_constants_share_a_template(form: str) -> None:
    templates = Templates(KINDS)
    found = {id(templates.match(HEADS[0] + form.format(number))[0]) for number in range(10)}
    assert len(found) == 1


def test_a_rule_that_searches_another_is_normalised_again_after_a_change() -> None:
    known = {"big": parse("search Thing t register t where t.whole > 10")}
    templates = Templates(KINDS, known.get)
    text = "search big b register b where b.text = 'a'"
    before, constants = templates.match(text)
    assert before.rule.searches == {"big"} and [constant.value for constant in constants] == ["a"]
    known["big"] = parse("search Thing t register t where t.whole > 20")
    after, _ = templates.match(text)
    assert before.rule != after.rule
    put_in = [p.constant for p in after.rule.conjunctions[0].predicates if isinstance(p, Comparison)]
    assert [(constant.shown, constant.slot) for constant in put_in] == [("'a'", 0), ("20", None)]


def test_constants_are_typed_by_their_comparison() -> None:
    text = "t.year = 1970 and t.day = '1970-01-02' and t.whole = -0.0 and t.up = TRUE and t.part = <http://a/b>"
    (part,) = normalise(parse(HEADS[0] + text), KINDS).conjunctions
    values = [(p.sort.value, p.constant.value) for p in part.predicates if isinstance(p, Comparison)]
    assert values == [("instant", 0), ("instant", 86400), ("number", 0), ("truth", True), ("reference", "http://a/b")]


def test_a_class_takes_precedence_over_a_rule_of_its_name() -> None:
    rule = normalise(parse("search Thing t register t"), KINDS, lambda name: parse("search Part p register p"))
    assert rule.searches == frozenset() and rule.conjunctions[0].variables[0].class_iri == "http://kinds.example/Thing"


def test_a_rule_that_searches_itself_is_refused_by_name() -> None:
    known = {"A": parse("search B b register b where b.whole = 1"), "B": parse("search A a register a")}
    with pytest.raises(InvalidRule, match="rule 'A' searches itself through 'B'"):
        normalise(known["A"], KINDS, known.get)
    alone = {"A": parse("search A a register a")}
    with pytest.raises(InvalidRule, match="rule 'A' searches itself"):
        normalise(alone["A"], KINDS, alone.get)


def test_long_chains_and_exponential_growth_of_searched_rules_are_refused() -> None:
    row = {f"r{i}": parse(f"search r{i + 1} r register r") for i in range(1000)}
    with pytest.raises(InvalidRule, match="more than 32 rules search one another in a chain"):
        normalise(row["r0"], KINDS, row.get)
    doubling = {f"d{i}": parse(f"search d{i - 1} a, d{i - 1} b register a") for i in range(1, 30)}
    doubling["d0"] = parse("search Thing t register t")
    assert len(normalise(doubling["d9"], KINDS, doubling.get).conjunctions[0].variables) == 512
    with pytest.raises(InvalidRule, match="2,048 in total"):
        normalise(doubling["d29"], KINDS, doubling.get)
