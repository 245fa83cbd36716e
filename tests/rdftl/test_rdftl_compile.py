"""Rules and updates of RDFTL after names are resolved: what each form means, and the limits of a text."""

from __future__ import annotations

import pytest

from mdv.errors import InvalidRule
from mdv.model import RDF, RDF_TYPE, XSD, Term
from mdv.rdf.schema import EMPTY_SCHEMA
from mdv.rdf.values import ValueKind, typed_text
from mdv.rdftl.compile import compile_rules, compile_update
from mdv.rdftl.model import (
    AbortDependency,
    AllNodes,
    AllOf,
    AnyOf,
    ArcAction,
    Axis,
    Condition,
    ConstantValue,
    ContextNode,
    Coupling,
    Delta,
    DeltaField,
    DeltaValue,
    EcaRule,
    Exists,
    NamedNode,
    Negation,
    NodeEvent,
    NodePath,
    NodeStep,
    Operand,
    SequenceNext,
    Triple,
    ValueComparison,
)
from mdv.rdftl.names import MAX_FLAWS
from mdv.rdftl.parse import MAX_ACTIONS, MAX_BYTES, MAX_NESTING, MAX_STEPS
from mdv.rdftl.resolve import MAX_EXPANDED_PARTS
from mdv.rdftl.write import write_delta
from mdv.rules.operators import Operator
from tests.support.rdftl_texts import rdftl_schema

BASE = "http://while.example/"
DC = "http://purl.org/dc/elements/1.1/"


def rule(text: str) -> EcaRule:
    (compiled,) = compile_rules(text, rdftl_schema())
    return compiled.rule


def condition(text: str, event: str = "INSERT resource()") -> Condition:
    return rule(f"ON {event} IF {text} DO DELETE $delta").condition


def comparison(text: str) -> ValueComparison:
    found = condition(text)
    assert isinstance(found, ValueComparison)
    return found


def triples(text: str) -> tuple[Triple, ...]:
    (action,) = compile_update(text, rdftl_schema()).actions
    assert isinstance(action, ArcAction)
    return action.triples


def target(text: str) -> Operand | None:
    return triples(f"INSERT (x, {text})")[0].target.value


def resource(name: str) -> NodePath:
    return NodePath(NamedNode(BASE + name))


def literal(text: str, lang: str | None = None, datatype: str | None = None) -> ConstantValue:
    return ConstantValue(text, BASE + text, lang, datatype)


def refusal(text: str) -> list[str]:
    compiler = compile_rules if " IF " in text else compile_update
    with pytest.raises(InvalidRule) as caught:
        compiler(text, rdftl_schema())
    return [flaw.message for flaw in caught.value.flaws]


# --- headers ---


def test_a_rule_is_immediate_and_mutual_by_default() -> None:
    plain = rule("ON INSERT resource() IF TRUE DO DELETE $delta")
    assert (plain.name, plain.coupling, plain.abort) == (None, Coupling.IMMEDIATE, AbortDependency.MUTUAL)
    assert not plain.local and not plain.strict and not plain.precedes and not plain.follows


def test_headers_and_keywords_ignore_case() -> None:
    full = rule(
        "rule a.b-1; coupling DETACHED abort independent; precedes c, 'd e'; follows f local strict; "
        "using namespace d http://purl.org/dc/elements/1.1/; base http://other.example/; "
        "on Insert Resource() If tRue Do dELETE $delta"
    )
    assert (full.name, full.coupling, full.abort) == ("a.b-1", Coupling.DETACHED, AbortDependency.INDEPENDENT)
    assert (full.precedes, full.follows, full.local, full.strict) == (("c", "d e"), ("f",), True, True)


def test_several_rules_are_separated_by_two_semicolons() -> None:
    texts = [
        "RULE a ON INSERT resource() IF TRUE DO DELETE $delta;",
        "RULE b ON DELETE (x, _, _) IF TRUE DO DELETE $delta",
    ]
    compiled = compile_rules("\n;;\n# next\n".join(texts) + ";;", rdftl_schema())
    assert [one.text for one in compiled] == texts


# --- names ---


@pytest.mark.parametrize(
    ("written", "iri"),
    [
        ("has-value", BASE + "has-value"),
        (":size", BASE + "size"),
        ("dc:subject", DC + "subject"),
        (f"<{DC}subject>", DC + "subject"),
        (f"'{DC}subject'", DC + "subject"),
        ("'dc:subject'", DC + "subject"),
        ("subject USING NAMESPACE dc", DC + "subject"),
        (f"subject USING NAMESPACE <{DC}>", DC + "subject"),
        ("rdf:_12", RDF + "_12"),
        ("type", DC + "type"),
        ("rdf:type", RDF_TYPE),
    ],
)
def test_a_property_is_named_in_many_ways(written: str, iri: str) -> None:
    found = condition(f"$delta/source({written})")
    assert found == Exists(NodePath(DeltaValue(), steps=(NodeStep(Axis.SOURCE, iri),)))


@pytest.mark.parametrize(
    ("written", "uri"),
    [
        ("x", BASE + "x"),
        ("'x y'", None),
        ("'x'", BASE + "x"),
        ("http://a/b(", None),
        ("http://a/b,c;d", "http://a/b,c;d"),
        ("<http://a/b(c)>", "http://a/b(c)"),
        ("dc:x", DC + "x"),
        ("'dc:x'", "dc:x"),
        ("urn:x:y", "urn:x:y"),
    ],
)
def test_a_resource_is_named_in_full_or_relative_to_base(written: str, uri: str | None) -> None:
    text = f"DELETE resource({written})"
    if uri is None:
        refusal(text)
    else:
        (action,) = compile_update(text, rdftl_schema()).actions
        assert action.path == NodePath(NamedNode(uri))  # type: ignore[union-attr]


@pytest.mark.parametrize("written", ["", " ", "''", '""'])
def test_a_resource_without_a_uri_is_every_resource(written: str) -> None:
    (action,) = compile_update(f"DELETE resource({written})", rdftl_schema()).actions
    assert action.path == NodePath(AllNodes())  # type: ignore[union-attr]


def test_base_and_namespaces_of_the_text_come_before_those_of_the_schema() -> None:
    found = rule(
        f"BASE <http://b/> USING NAMESPACE dc {BASE} "
        "ON INSERT resource(x) IF $delta/target(dc:note) = 'y' DO DELETE resource(dc:z)"
    )
    assert isinstance(found.event, NodeEvent) and found.event.path == NodePath(NamedNode("http://b/x"))
    assert isinstance(found.condition, ValueComparison) and found.condition.right == ConstantValue("y", "http://b/y")
    assert found.actions[0].path == NodePath(NamedNode(BASE + "z"))  # type: ignore[union-attr]


def test_without_base_a_relative_name_is_refused() -> None:
    with pytest.raises(InvalidRule, match="'x' is a relative name, and there is no BASE"):
        compile_update("DELETE resource(x)", EMPTY_SCHEMA)


def test_a_namespace_without_a_class_belongs_to_the_name() -> None:
    (triple,) = triples("DELETE (x USING NAMESPACE dc, _, resource(y) USING NAMESPACE ext3)")
    assert triple.source.value == NodePath(NamedNode(DC + "x"))
    assert isinstance(triple.target.value, NodePath) and isinstance(triple.target.value.head, NamedNode)
    assert triple.target.value.head.uri.endswith("lo#y")


# --- nodes of triples ---


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("succ, 1", resource("1")),
        ("succ, one", resource("one")),
        ("succ, 'one'", resource("one")),
        ("succ, <http://a/b>", NodePath(NamedNode("http://a/b"))),
        ("succ, dc:b", NodePath(NamedNode(DC + "b"))),
        ("size, 1", literal("1")),
        ("size, '1'", literal("1")),
        ("size, '1'^^xsd:integer", literal("1", datatype=XSD + "integer")),
        ("up, true", literal("true")),
        ("dc:type, Book", literal("Book")),
        ("dc:type, 'Book'^^xsd:string", literal("Book")),
        ("home, <http://a/b>", ConstantValue("http://a/b", "http://a/b")),
        ("note, word", resource("word")),
        ("note, 5", resource("5")),
        ("note, 'a text'@en-GB", literal("a text", lang="en-GB")),
        ('note, "it\'s ""it"""', literal('it\'s "it"')),
        ("seq++, 'x'", literal("x")),
        ("rdf:type, LO", NodePath(NamedNode("http://www.dcs.bbk.ac.uk/~gpapa05/semapeer/lo#LO"))),
        ("rdf:type, 'Counter'", resource("Counter")),
        ("note, resource()/element(2)", NodePath(AllNodes(), steps=(NodeStep(Axis.ELEMENT, index=2),))),
    ],
)
def test_the_range_decides_between_resource_and_literal(written: str, value: Operand) -> None:
    assert target(written) == value


def test_the_wildcards_of_deletions_and_updates() -> None:
    (deleted,) = triples("DELETE (_, _, _)")
    assert deleted.source.value is deleted.arc is deleted.target.value is None
    (updated,) = triples("UPDATE (_ AS INSTANCE OF Number, size, _ → 5)")
    assert updated.source.class_iri == BASE + "Number" and updated.target.value is None
    assert updated.new_target is not None and updated.new_target.value == literal("5")
    assert triples("INSERT (_, seq++, x)")[0].arc == SequenceNext()


def test_a_value_that_is_valid_but_not_finite_can_be_inserted_only_where_the_datatype_has_it() -> None:
    assert refusal("INSERT (x, price, 'INF')") == ["price: 'INF' is not an xsd:decimal, such as 3.14"]


# --- conditions ---


def test_not_binds_stronger_than_and_which_binds_stronger_than_or() -> None:
    found = condition("not TRUE and $delta or (TRUE or $delta/element()) and $delta")
    assert isinstance(found, AnyOf) and len(found.parts) == 2
    first, second = found.parts
    assert isinstance(first, AllOf) and isinstance(first.parts[0], Negation)
    assert isinstance(second, AllOf) and isinstance(second.parts[0], AnyOf)


def test_groups_of_the_same_kind_are_flat() -> None:
    assert condition("($delta and ($delta and TRUE))") == condition("$delta and $delta and TRUE")


def test_a_path_of_a_qualifier_begins_at_the_tested_node() -> None:
    found = condition("resource(x)[target(note) = 'a']/target(note)[element() and $delta][TRUE]")
    assert isinstance(found, Exists)
    (tested,) = found.path.qualifiers
    assert isinstance(tested, ValueComparison) and isinstance(tested.left, NodePath)
    assert tested.left.head == ContextNode()
    assert len(found.path.steps[0].qualifiers) == 2


@pytest.mark.parametrize(
    ("text", "operator", "kind"),
    [
        ("$delta/target(size) >= 5", Operator.GE, ValueKind.NUMBER),
        ("$delta/target(size) ≠ '5.0'", Operator.NE, ValueKind.NUMBER),
        ("'5' < $delta/target(size)", Operator.LT, ValueKind.NUMBER),
        ("$delta/target(size) <> $delta/target(price)", Operator.NE, ValueKind.NUMBER),
        ("$delta/target(day) ≤ '2024-02-29'", Operator.LE, ValueKind.INSTANT),
        ("$delta/target(up) = TRUE", Operator.EQ, ValueKind.TRUTH),
        ("$delta/target(up) != '1'", Operator.NE, ValueKind.TRUTH),
        ("$delta/target(note) = 5", Operator.EQ, ValueKind.TEXT),
        ("$delta/target(succ) = '5'", Operator.EQ, ValueKind.TEXT),
        ("$delta/target(_) = 5", Operator.EQ, ValueKind.TEXT),
        ("$delta/source(size) = 'x'", Operator.EQ, ValueKind.TEXT),
        ("$delta/element() = resource(x)", Operator.EQ, ValueKind.TEXT),
        ("$delta = 'x'", Operator.EQ, ValueKind.TEXT),
    ],
)
def test_the_range_of_the_last_property_decides_the_kind(text: str, operator: Operator, kind: ValueKind) -> None:
    found = comparison(text)
    assert (found.operator, found.kind) == (operator, kind)


@pytest.mark.parametrize(
    ("text", "event", "kind"),
    [
        ("$delta.target = 5", "INSERT (_, size, _)", ValueKind.NUMBER),
        ("$delta.new_target < $delta.old_target", "UPDATE (_, price, _ -> _)", ValueKind.NUMBER),
        ("$delta.target > resource(x)/target(size)", "DELETE (_, size, _)", ValueKind.NUMBER),
        ("resource(x)[target(size) = $delta.target]", "DELETE (_, size, _)", ValueKind.NUMBER),
        ("$delta.target ≥ '2024-02-29'", "INSERT (_, day, _)", ValueKind.INSTANT),
        ("$delta.target = 5", "INSERT (_, note, _)", ValueKind.TEXT),
        ("$delta.target = 5", "INSERT (_, _, _)", ValueKind.TEXT),
        ("$delta.source = 'x'", "INSERT (_, size, _)", ValueKind.TEXT),
        ("$delta.arc_name = 'x'", "INSERT (_, size, _)", ValueKind.TEXT),
    ],
)
def test_the_property_of_the_event_decides_the_kind_of_its_targets(text: str, event: str, kind: ValueKind) -> None:
    found = condition(text, event)
    if isinstance(found, Exists):
        (found,) = found.path.qualifiers
    assert isinstance(found, ValueComparison) and found.kind is kind


def test_a_let_before_the_event_compares_its_targets_by_kind() -> None:
    found = rule("LET $x := resource(y)[target(size) < $delta.target] ON INSERT (_, size, _) IF $x DO DELETE $x")
    assert isinstance(found.condition, Exists)
    (tested,) = found.condition.path.qualifiers
    assert isinstance(tested, ValueComparison) and tested.kind is ValueKind.NUMBER


def test_a_target_that_does_not_compare_is_described_by_its_range() -> None:
    text = "ON INSERT (_, size, _) IF $delta.target = 'many' DO DELETE $delta"
    assert refusal(text) == ["'many' is not a number, and $delta.target is of range xsd:integer"]


def test_the_fields_of_an_arc() -> None:
    found = condition("$delta.source and $delta.arc_name and $delta.target and $delta", "INSERT (_, note, _)")
    assert isinstance(found, AllOf)
    fields = [DeltaField.SOURCE, DeltaField.ARC_NAME, DeltaField.TARGET, DeltaField.SOURCE]
    assert [part.path.head for part in found.parts if isinstance(part, Exists)] == list(map(DeltaValue, fields))


def test_steps_from_literals_get_a_warning() -> None:
    text = (
        "ON INSERT resource() IF $delta/target(size)/target(note) and $delta/target(size)/source(size) DO DELETE $delta"
    )
    (compiled,) = compile_rules(text, rdftl_schema())
    (warning,) = compiled.warnings
    assert warning.message == "this step selects nothing: the values of size are literals, of range xsd:integer"
    assert (warning.line, warning.column, warning.length) == (1, 45, len("target(note)"))
    through_let = "LET $s := $delta/target(size) " + text.replace("$delta/target(size)/target(note)", "$s/element()")
    assert len(compile_rules(through_let, rdftl_schema())[0].warnings) == 1


# --- LET ---


def test_a_let_is_replaced_by_its_path() -> None:
    with_let = rule(
        "LET $a := $delta/target(note)[TRUE], $b := $a[target(size) = 1]/element() "
        "ON INSERT resource() IF $b[$a]/target(note) DO LET $a := resource(y) IN DELETE $a; DELETE $b"
    )
    without = rule(
        "ON INSERT resource() "
        "IF $delta/target(note)[TRUE][target(size) = 1]/element()[$delta/target(note)[TRUE]]/target(note) "
        "DO DELETE resource(y); DELETE $delta/target(note)[TRUE][target(size) = 1]/element()"
    )
    assert with_let == without


def test_a_word_is_a_variable_only_where_a_let_defines_it() -> None:
    text = "UPDATE (x, succ, _ -> a); LET $a := resource(y) IN UPDATE (x, succ, _ -> a)"
    compiled = compile_update(text, rdftl_schema())
    targets = [action.triples[0].new_target for action in compiled.actions if isinstance(action, ArcAction)]
    assert [one and one.value for one in targets] == [resource("a"), resource("y")]
    assert [warning.message for warning in compiled.warnings] == ["'a' is read as $a, which a LET defines"]


# --- limits ---


def test_a_text_has_at_most_16_kilobytes() -> None:
    text = "DELETE resource(x)"
    padded = text + " " * (MAX_BYTES - len(text))
    assert compile_update(padded, rdftl_schema()).actions
    assert refusal(padded + " ") == ["the text is longer than 16,384 bytes"]
    assert refusal("DELETE resource('\0')") == ["the text contains a NUL character"]


def test_a_path_has_at_most_64_steps() -> None:
    path = "resource(x)" + "/element()" * MAX_STEPS
    assert compile_update(f"DELETE {path}", rdftl_schema()).actions
    assert refusal(f"DELETE {path}/element()") == ["the path has more than 64 steps"]
    halves = "LET $a := resource(x)" + "/element()" * 32 + " IN DELETE $a" + "/element()" * 32
    assert compile_update(halves, rdftl_schema()).actions
    assert refusal(halves + "/element()") == ["the path has more than 64 steps after LETs are expanded"]


def test_there_are_at_most_32_actions() -> None:
    action = "DELETE resource(x);"
    assert len(compile_update(action * MAX_ACTIONS, rdftl_schema()).actions) == MAX_ACTIONS
    assert refusal(action * (MAX_ACTIONS + 1)) == ["there are more than 32 actions"]


@pytest.mark.parametrize("opening", ["(", "not ", "resource()[", "not ("])
def test_conditions_are_nested_at_most_32_deep(opening: str) -> None:
    levels = opening.count("(") - opening.count("()") + opening.count("not") + opening.count("[")
    closing = ")" if opening.endswith("(") else "]" if "[" in opening else ""

    def text(times: int) -> str:
        return f"ON INSERT resource() IF {opening * times}TRUE{closing * times} DO DELETE $delta"

    most = MAX_NESTING // levels
    (compiled,) = compile_rules(text(most), rdftl_schema())
    assert compile_rules(compiled.normal, rdftl_schema())[0].rule == compiled.rule
    assert refusal(text(most + 1)) == ["parentheses, qualifiers and 'not' are nested more than 32 deep"]
    assert refusal(text(1200)) == ["parentheses, qualifiers and 'not' are nested more than 32 deep"]


def test_nesting_counts_the_conditions_of_lets() -> None:
    def chain(length: int) -> str:
        lets = [
            "$a0 := resource(x)",
            *(f"$a{n} := resource(x)[(TRUE or $a{n - 1}) and TRUE]" for n in range(1, length)),
        ]
        return f"LET {', '.join(lets)} IN DELETE $a{length - 1}"

    compiled = compile_update(chain(17), rdftl_schema())
    assert compile_update(compiled.normal, rdftl_schema()).actions == compiled.actions
    assert refusal(chain(18)) == ["conditions are nested more than 32 deep after LETs are expanded"]
    assert refusal(chain(300)) == ["conditions are nested more than 32 deep after LETs are expanded"]


def test_lets_that_double_do_not_explode() -> None:
    lets = ["$a0 := resource(x)", *(f"$a{n} := resource(x)[$a{n - 1} and $a{n - 1}]" for n in range(1, 31))]
    assert refusal(f"LET {', '.join(lets)} IN DELETE $a30") == [
        "the update has more than 4,096 parts after LETs are expanded"
    ]
    wide = ", ".join(["(_, note, $a)"] * 1000)
    steps = "/element()" * (MAX_EXPANDED_PARTS // 1000)
    assert refusal(f"LET $a := resource(x){steps} IN DELETE {wide}") == [
        "the update has more than 4,096 parts after LETs are expanded"
    ]


def test_the_longest_text_without_lets_is_not_too_large() -> None:
    text = "ON INSERT resource() IF $delta=$delta" + " or $delta=$delta" * 950 + " DO DELETE $delta"
    assert MAX_BYTES - 400 < len(text) <= MAX_BYTES
    assert compile_rules(text, rdftl_schema())


def test_a_long_list_of_flaws_is_cut() -> None:
    assert len(refusal("DELETE " + ", ".join(f"(_, unknown{n}, _)" for n in range(500)))) == MAX_FLAWS


def test_all_rules_of_a_text_are_checked() -> None:
    flawed = "ON INSERT resource() AS INSTANCE OF Nothing IF TRUE DO DELETE $delta"
    assert refusal(f"{flawed};;{flawed.replace('Nothing', 'None')}") == [
        "unknown class 'Nothing'",
        "unknown class 'None'",
    ]


# --- deltas and values ---


def test_a_delta_is_written_as_a_node_or_triple() -> None:
    schema = rdftl_schema()
    assert write_delta(Delta("http://a/b"), schema) == "<http://a/b>"
    arc = Delta("http://a/b", DC + "subject", Term.literal("it's", lang="en"))
    assert write_delta(arc, schema) == "(<http://a/b>, dc:subject, 'it''s'@en)"
    updated = arc._replace(new_target=Term.literal("1", datatype=XSD + "integer"))
    assert write_delta(updated, schema) == "(<http://a/b>, dc:subject, 'it''s'@en -> '1'^^xsd:integer)"


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("-0", ValueKind.NUMBER, "0"),
        ("100", ValueKind.NUMBER, "100"),
        ("1.50", ValueKind.NUMBER, "1.5"),
        ("1.5e-3", ValueKind.NUMBER, "0.0015"),
        ("NaN", ValueKind.NUMBER, None),
        ("1970-01-01T00:00:00.50Z", ValueKind.INSTANT, "0.5"),
        ("5", ValueKind.INSTANT, None),
        ("0", ValueKind.TRUTH, "false"),
        ("yes", ValueKind.TRUTH, None),
        ("", ValueKind.TEXT, ""),
    ],
)
def test_equal_constants_have_equal_texts(text: str, kind: ValueKind, expected: str | None) -> None:
    assert typed_text(text, kind) == expected


def test_what_was_expected_is_one_enumeration() -> None:
    with pytest.raises(InvalidRule, match="expected INSERT, DELETE, UPDATE or LET, found 'INSRT'"):
        rule("ON INSRT (_, title, _) IF TRUE DO DELETE $delta")
