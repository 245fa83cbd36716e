"""The language: what parses, what is refused and how, warnings, and the canonical text."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from random import Random

import pyoxigraph
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdv.errors import InvalidRule
from mdv.model import XSD, Statement, Term
from mdv.rdf.schema import EMPTY_SCHEMA, read_schema
from mdv.real.check import Signature, check_program
from mdv.real.parse import MAX_BYTES, MAX_NESTING, parse_program
from mdv.real.resolve import read_program
from mdv.real.syntax import (
    AndExpr,
    ContextExpr,
    OrExpr,
    Program,
    ReadExpr,
    RealConstant,
    RealList,
    RealVariable,
    RepeatExpr,
    SandboxExpr,
    UnionExpr,
    WaitExpr,
    walk,
)
from mdv.real.write import write_program
from mdv.rules.ast import Span
from tests.support.real_programs import PREFIXES, RandomText
from tests.support.real_texts import FIGURE_1, PAPER, real_expressions

LRM = Path(__file__).parents[3] / "shared" / "data" / "lrm"


@pytest.mark.parametrize("text", [*PAPER.values(), FIGURE_1], ids=[*PAPER, "Fig. 1"])
def test_all_programs_of_the_paper_parse(text: str) -> None:
    program = parse_program(text)
    assert parse_program(write_program(program)) == program


APPENDIX = [
    "[TRUE]", "{FALSE}", "IN ex:g {TRUE}", "ON ?g {TRUE}", "TRUE AND FALSE", "TRUE UNION FALSE", "TRUE OR FALSE",
    "NO TRUE", "FIRST TRUE", "LAST TRUE", "REPEAT TRUE", "REPEAT 3 TRUE", "REPEAT ?n TRUE", "(TRUE)", "CALL ex:f()",
    "CALL ex:f(>> )", "CALL ex:f(>> ?x)", "CALL ex:f(?x, 1 >> ?y, ?z)", "SPAWN ex:f(?x)", "STOP ?p", "STOP ex:p(ex:m)",
    "EXPAND ex:f(?x)", "!ex:p(?x, ?y)", "ex:i!ex:p(?x, ?y)", "$x", "WAIT +ex:p(ex:a, 1)", "+ex:p(ex:a, sym)",
    "++ex:p(ex:a, true)", "-ex:p(ex:a, 'x')", "?p(?s, ?o)", "ex:p(ex:a, “x”, en)", "ex:p(ex:a, 'x' | xsd:token)",
    "ex:p(?a, [1 [2 ?x] 3])", "ex:p(?a, {1 2})", "ex:p(?a, {1 2 | ?t})", "ex:p(?a, {| ?t})", "ex:p(?, ?)",
    "FRESH(?x)", "ON ex:g DO TRUE", "WAIT -ex:p(?x, ?y) AT MOST 0.1 seconds", "PREFIX a: <urn:a:> a:p(?x, <urn:b>)",
]  # fmt: skip


@pytest.mark.parametrize("text", APPENDIX)
def test_every_form_of_the_appendix_parses(text: str) -> None:
    program = parse_program(text)
    assert parse_program(write_program(program)) == program


def test_precedence_is_prefix_and_or_union() -> None:
    body = parse_program("NO ex:a(?, ?) AND TRUE OR TRUE UNION FALSE").body
    assert isinstance(body, UnionExpr)
    assert isinstance(body.parts[0], OrExpr)
    assert isinstance(body.parts[0].parts[0], AndExpr)


def test_a_count_is_distinguished_from_a_triple_with_a_variable_property() -> None:
    counted = parse_program("REPEAT ?c (ex:p(?x, ?y))").body
    plain = parse_program("REPEAT ?c(?x, ?y)").body
    assert isinstance(counted, RepeatExpr) and isinstance(counted.count, RealVariable)
    assert isinstance(plain, RepeatExpr) and plain.count is None


def test_braces_are_a_context_a_sandbox_or_a_list() -> None:
    body = parse_program("ON ex:g {{ex:p(?x, {?y})}}").body
    assert isinstance(body, ContextExpr) and isinstance(body.part, SandboxExpr)
    assert isinstance(body.part.part, ReadExpr) and isinstance(body.part.part.triple.object, RealList)


def test_a_keyword_is_not_the_beginning_of_a_name() -> None:
    read = read_program("IN:c(?x, ?y) AND INC:c(?x, AT)", {"IN": "urn:in:", "INC": "urn:inc:"}).body
    assert isinstance(read, AndExpr)
    constants = [one.term.value for one in walk(read) if isinstance(one, RealConstant)]
    assert constants == ["urn:in:c", "urn:inc:c", "AT"]


def test_numbers_have_the_datatype_of_their_form() -> None:
    body = read_program("ex:p(?x, [1 -2.5 3e0 true \"1\" '1'^^xsd:byte])", {"ex": "urn:ex:"}).body
    assert isinstance(body, ReadExpr) and isinstance(body.triple.object, RealList)
    entries = body.triple.object.entries
    assert [one.term.datatype for one in entries if isinstance(one, RealConstant)] == [
        *(XSD + name for name in ("integer", "decimal", "double", "boolean")), None, XSD + "byte",
    ]  # fmt: skip
    assert [one.is_typed for one in entries if isinstance(one, RealConstant)] == [True, True, True, True, False, False]


def test_every_node_has_its_span() -> None:
    text = "PREFIX ex: <urn:ex:>\nNO ex:p(?x, 'a' | ?l) AND (CALL ex:f(?x >> 3) OR $y)"
    written = {type(node).__name__: text[node.span.start : node.span.end] for node in walk(parse_program(text))}
    assert written["Program"] == text
    assert written["NoExpr"] == "NO ex:p(?x, 'a' | ?l)"
    assert written["TriplePattern"] == "ex:p(?x, 'a' | ?l)"
    assert written["OrExpr"] == "CALL ex:f(?x >> 3) OR $y"
    assert written["FreshExpr"] == "$y"
    assert written["RealLiteral"] == "3"


@pytest.mark.parametrize(
    ("text", "line", "column", "part"),
    [
        ("rdf:type(?x, ?y) AN rdf:type(?x, ?y)", 1, 18, "found 'AN' (did you mean AND?)"),
        ("INC(?x, ?y)", 1, 1, "write CALL primitive:inc(?a >> ?b)"),
        ("TRUE AND (EQ(?kind, 'MICRO'))", 1, 11, "write CALL primitive:equal(?a, ?b)"),
        ("(?x != ?y)", 1, 5, "write NO CALL primitive:equal(?a, ?b)"),
        ("TRUE\nP-UNION TRUE", 2, 1, "write UNION"),
        ("rdf:type(?x, 'a)", 1, 14, "has no closing quote"),
        ("rdf:type('a', ?x)", 1, 10, "expected a name or a variable"),
        ("REPEAT", 1, 7, "but the program ends here"),
        ("[TRUE", 1, 6, "']'"),
        ("foo(?x, ?y)", 1, 1, "write a name with its prefix"),
        ("rdf:type(?x, rdf:a | en)", 1, 22, "an IRI has no language"),
        ("rdf:type(?x, 'a'@en | de)", 1, 23, "has a language or datatype already"),
        ("EXPAND rdf:f(?x >> ?y)", 1, 20, "EXPAND has no outputs"),
        ("SPAWN rdf:f(?x >> ?y, ?z)", 1, 23, "SPAWN has one output"),
        ("FRESH(?)", 1, 7, "a variable with a name"),
        ("WAIT rdf:a(?x, ?y) AT MOST -1 days", 1, 28, "from 0 seconds"),
        ("rdfx:type(?x, ?y)", 1, 1, "unknown prefix 'rdfx:' (did you mean rdf?)"),
        ("zzzz:type(?x, ?y)", 1, 1, "declare it: PREFIX zzzz: <http://…>"),
        ("rdf:type(?x, <b>)", 1, 14, "is not an absolute URI"),
        ("TRUE\0", 1, 5, "NUL"),
    ],
)
def test_an_error_says_where_what_and_what_to_try(text: str, line: int, column: int, part: str) -> None:
    with pytest.raises(InvalidRule) as caught:
        read_program(text)
    flaw = caught.value.flaws[0]
    assert (flaw.line, flaw.column) == (line, column)
    assert part in str(flaw)
    assert "^" in caught.value.detail and caught.value.detail.startswith("The program has")


def test_the_limits_apply_before_anything_is_expanded() -> None:
    assert parse_program("(" * MAX_NESTING + "TRUE" + ")" * MAX_NESTING)
    for text, part in (
        ("(" * 30_000 + "TRUE" + ")" * 30_000, "nested more than 100 deep"),
        ("NO " * 20_000 + "TRUE", "nested more than 100 deep"),
        ("rdf:a(?x, " + "[" * 102 + "]" * 102 + ")", "nested more than 100 deep"),
        ("TRUE AND " * 6_000 + " AND ".join(["TRUE"] * 10), None),
        ("TRUE AND " * 7_000 + "TRUE //" + " " * 3000, "longer than 65,536 bytes"),
        (" AND ".join(["a:b(?,?)"] * 4_000), "more than 10,000 nodes"),
        ("é" * MAX_BYTES, "longer than 65,536 bytes"),
    ):
        if part is None:
            assert parse_program(text)
            continue
        with pytest.raises(InvalidRule) as caught:
            parse_program(text)
        assert part in str(caught.value.flaws[0])


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab:?$()[]{}<>|,'\"“”+-!^@.1 \nANDORWITUP/", max_size=40))
def test_any_text_is_a_program_or_an_error_with_its_place(text: str) -> None:
    try:
        program = parse_program(text)
    except InvalidRule as error:
        assert all(flaw.line is not None and flaw.column is not None for flaw in error.flaws)
    else:
        assert parse_program(write_program(program)) == program


@settings(max_examples=80, deadline=None)
@given(real_expressions())
def test_a_written_program_parses_to_the_same_program(body: object) -> None:
    program = Program(Span(0, 0), (("ex", "urn:ex:"),), body)  # type: ignore[arg-type]
    text = write_program(program)
    assert parse_program(text) == program
    assert write_program(parse_program(text)) == text


@settings(max_examples=50, deadline=None)
@given(st.randoms())
def test_a_resolved_program_is_written_with_full_names(random: Random) -> None:
    program = read_program(RandomText(random, with_contexts=True).program(), PREFIXES)
    assert read_program(write_program(program)) == program


# --- warnings ---


@pytest.mark.parametrize(
    ("text", "marked", "message"),
    [
        ("+ex:p(?x, ex:a)", "?x", "?x is never bound before '+'"),
        ("NO ex:p(?x, ?) AND +ex:p(?x, ex:a)", "?x", "?x is bound only inside NO or REPEAT"),
        ("REPEAT ex:p(?x, ?) AND ++ex:p(?x, ex:a)", "?x", "?x is bound only inside NO or REPEAT"),
        ("+ex:p(ex:a, ?)", "?", "'?' is never bound, so '+' is an error"),
        ("CALL ex:f(?x)", "?x", "?x is never bound before CALL"),
        ("CALL ex:f(1, 2)", "CALL ex:f(1, 2)", "the action has 1 input, but 2 given"),
        ("CALL ex:f(1 >> ?y)", "CALL ex:f(1 >> ?y)", "the action has no outputs, but 1 given"),
        ("CALL primitive:add(1 >> ?y)", "CALL primitive:add(1 >> ?y)", "the action has 2 inputs, but 1 given"),
        ("CALL primitive:ad(1 >> ?y)", "primitive:ad", "there is no primitive 'ad'"),
        ("[CALL primitive:service(ex:a)]", "CALL primitive:service(ex:a)", "a service cannot be called inside [ ]"),
        ("{CALL primitive:service(ex:a)}", "CALL primitive:service(ex:a)", "a service cannot be called inside { }"),
        ("ex:titel(?x, ?)", "ex:titel", "the schema declares no property ex:titel"),
        ("rdf:type(?x, ex:Buch)", "ex:Buch", "the schema declares no class ex:Buch"),
    ],
)
def test_warnings_have_their_spans(text: str, marked: str, message: str) -> None:
    schema = read_schema(
        [
            Statement("urn:ex:p", "http://www.w3.org/2000/01/rdf-schema#range", Term.uri("urn:ex:Book")),
            Statement("urn:ex:title", "http://www.w3.org/2000/01/rdf-schema#domain", Term.uri("urn:ex:Book")),
            Statement("urn:ex:Book", "http://www.w3.org/1999/02/22-rdf-syntax-ns#type",
                      Term.uri("http://www.w3.org/2000/01/rdf-schema#Class")),
        ],
        {"ex": "urn:ex:"},
    )  # fmt: skip
    program = read_program(text, schema.prefixes)
    (mark,) = check_program(program, schema, {"urn:ex:f": Signature(("x",), ())})
    assert (text[mark.span.start : mark.span.end], mark.message) == (marked, message)


@pytest.mark.parametrize(
    "text",
    [
        "ex:p(?x, ?) AND +ex:p(?x, ex:a)",
        "$x AND +ex:p(?x, ex:a)",
        "(ex:p(?x, ?) OR ex:q(?x, ?)) AND +ex:p(?x, ex:a)",
        "ON ?g {TRUE} AND +ex:p(?g, ex:a)",
        "REPEAT ?n ex:p(?, ?) AND +ex:p(ex:a, ?n)",
        "CALL ex:g(>> ?x) AND +ex:p(?x, ex:a)",
        "EXPAND ex:f(?x) AND +ex:p(?y, ex:a)",
    ],
)
def test_bound_variables_give_no_warning(text: str) -> None:
    assert check_program(read_program(text, {"ex": "urn:ex:"})) == ()


@pytest.mark.parametrize("name", ["rdf:Graph", "lrm:Action", "rdfs:Class"])
def test_the_classes_of_programs_need_no_declaration(name: str) -> None:
    assert check_program(read_program(f"+rdf:type(<urn:a>, {name})", {}), EMPTY_SCHEMA) == ()


# --- the programs of the authors ---


@pytest.mark.skipif(not LRM.exists(), reason="the LRM ontology is not in ../shared/data/lrm")
def test_programs_of_the_lrm_ontology_parse_or_are_refused_by_name() -> None:
    parsed, hints = 0, []
    for path in sorted(LRM.glob("*.ttl")):
        for quad in pyoxigraph.parse(path.read_bytes(), format=pyoxigraph.RdfFormat.TURTLE, base_iri="urn:base:"):
            code = quad.object
            if isinstance(code, pyoxigraph.Literal) and code.datatype.value == "http://xrce.xerox.com/ReAL#Code":
                try:
                    program = parse_program(code.value)
                except InvalidRule as error:
                    hints.append(error.flaws[0].hint)
                else:
                    assert parse_program(write_program(program)) == program
                    parsed += 1
    assert parsed == 13
    assert len(hints) == 7
    assert set(hints) == {
        "write CALL primitive:inc(?a >> ?b)",
        "write CALL primitive:equal(?a, ?b)",
        "write NO CALL primitive:equal(?a, ?b)",
    }


def test_the_time_to_wait_is_kept_in_seconds() -> None:
    body = parse_program("WAIT ex:p(?x, ?y) AT MOST 1.5 minutes").body
    assert isinstance(body, WaitExpr) and body.at_most == Decimal(90)
