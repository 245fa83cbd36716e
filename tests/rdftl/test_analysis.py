"""The analysis of RDFTL rules: the examples of the paper, strict mode, constants, termination and warnings."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from mdv.model import RDF, RDF_TYPE, RDFS, XSD
from mdv.rdf.schema import Schema
from mdv.rdf.values import ValueKind
from mdv.rdftl.analysis import Analysis, analyse, analyse_new
from mdv.rdftl.cells import Cell, triples
from mdv.rdftl.footprint import queried, updated
from mdv.rdftl.model import AllNodes, Coupling, DeltaField, EcaRule, Exists, Negation, ValueComparison
from mdv.rdftl.rule_index import MAX_SINGLE_RULES, RuleIndex
from mdv.rdftl.triggering import AnalysisMode, may_trigger, triggered
from mdv.rules.operators import Operator
from tests.support.rdftl_builders import (
    ALL,
    DELTA,
    HERE,
    SEQ,
    E,
    delete,
    delete_node,
    delta,
    element,
    insert,
    insert_node,
    named,
    node,
    on,
    path,
    schema_of,
    source,
    target,
    text,
    triple,
    update,
)

PAPER, STRICT = AnalysisMode
MEMBERS = RDFS + "ContainerMembershipProperty"

LEARNING = schema_of("""
:LO a rdfs:Class . :Book rdfs:subClassOf :LO . :User a rdfs:Class . :Messages a rdfs:Class . :Interest a rdfs:Class .
:UpdatedLOs rdfs:subClassOf rdf:Seq ; mdv:members :LO . :NewLOs rdfs:subClassOf rdf:Seq ; mdv:members :LO .
:Interests rdfs:subClassOf rdf:Bag ; mdv:members :Interest .
:type rdfs:domain :LO ; rdfs:range xsd:string . :subject rdfs:domain :LO ; rdfs:range xsd:string .
:messages rdfs:domain :User ; rdfs:range :Messages . :interests rdfs:domain :User ; rdfs:range :Interests .
:updated_LOs rdfs:domain :Messages ; rdfs:range :UpdatedLOs . :new_LOs rdfs:domain :Messages ; rdfs:range :NewLOs .
:interest_typename rdfs:domain :Interest ; rdfs:range xsd:string .
""")
"""The schemas S1 and S2 of the paper, rebuilt from its text."""

SCHEMA = schema_of("""
:C a rdfs:Class . :D rdfs:subClassOf :C . :F a rdfs:Class .
:Basket rdfs:subClassOf rdf:Bag . :Row rdfs:subClassOf rdf:Seq .
:p mdv:setValued true . :q rdfs:subPropertyOf :p . :r mdv:setValued true . :s mdv:setValued true .
:one rdfs:range xsd:string . :other rdfs:range xsd:string . :basket rdfs:range :Basket . :row rdfs:range :Row .
""")


def new_los(user: str) -> EcaRule:
    """Return the rule of Example 3, for a user."""
    interests = named(user, target("interests"), element(), target("interest_typename"))
    return on(
        insert_node(ALL, "LO"),
        insert(named(user, target("messages"), target("new_LOs")), SEQ, DELTA),
        where=ValueComparison(delta(target("subject")), Operator.EQ, interests, ValueKind.TEXT),
    )


def verdicts(analysis: Analysis) -> set[tuple[str, ...]]:
    """Return the tests that fail, each with its rules."""
    units = {unit.number: unit.rules for unit in analysis.units}
    return {
        (finding.test, *(id_ for number in finding.units for id_ in units[number]))
        for finding in (*analysis.instances, *analysis.pairs)
    }


def failing(rules: dict[str, EcaRule], mode: AnalysisMode, schema: Schema = SCHEMA) -> set[tuple[str, ...]]:
    return verdicts(analyse(rules, schema, mode))


# The paper


@pytest.mark.parametrize("mode", AnalysisMode)
def test_example_1_an_inserted_instance_may_trigger_a_rule_on_its_class(mode: AnalysisMode) -> None:
    r1 = on(insert_node(ALL, "User"), insert_node("BK187", "LO"))
    updated_los = path(AllNodes(), target("messages"), target("updated_LOs"), element())
    r2 = on(insert_node(updated_los, "LO"), delete(DELTA, "type"))
    assert may_trigger(r1, r2, LEARNING, mode)
    assert not may_trigger(r2, r1, LEARNING, mode)


def test_example_2_schema_triples_that_triggered_rules_query_and_update() -> None:
    updated_lo = named("users/sys", target("messages"), target("updated_LOs"))
    rule = on(insert(ALL, "type"), insert(updated_lo, SEQ, DELTA))
    action = insert("LOs/BK187", "type", text("Book"))
    assert triggered(action, {"r": rule}, LEARNING, PAPER) == {"r"}
    assert queried(rule, LEARNING) == {
        Cell(E + "LO", E + "type", XSD + "string"),
        Cell(E + "User", E + "messages", E + "Messages"),
        Cell(E + "Messages", E + "updated_LOs", E + "UpdatedLOs"),
    }
    assert updated(rule.actions[0], LEARNING, rule.event) == {Cell(E + "UpdatedLOs", MEMBERS, E + "LO")}


def test_example_3_lists_make_a_rule_not_well_defined() -> None:
    rules = {"r128": new_los("users/128"), "r129": new_los("users/129")}
    # The paths can lead to the same collection, so that constants do not help.
    assert failing(rules, PAPER, LEARNING) == {("I1", "r128"), ("I1", "r129"), ("C1", "r128", "r129")}
    assert failing(rules, STRICT, LEARNING) == {("I1", "r128"), ("I1", "r129"), ("C1", "r128", "r129")}
    assert analyse(rules, LEARNING).cycles == ()


def test_a_type_statement_may_trigger_a_rule_on_the_class_and_its_superclasses() -> None:
    book = on(insert_node(ALL, "User"), insert("BK187", RDF_TYPE, "Book"))
    for event in (insert_node(ALL, "LO"), insert_node(ALL, "Book"), insert(None, RDF_TYPE, "LO"), insert(None, None)):
        assert may_trigger(book, on(event, delete("x", "type")), LEARNING, PAPER), event
    assert not may_trigger(book, on(insert_node(ALL, "User"), delete("x", "type")), LEARNING, PAPER)


def test_subproperties_match_the_triples_of_superproperties() -> None:
    assert triples(triple("a", "q", "b"), SCHEMA) == {Cell(None, E + "q", None), Cell(None, E + "p", None)}
    assert triples(triple("a", "p", "b"), SCHEMA) == {Cell(None, E + "p", None)}


def test_rules_that_trigger_through_others_are_triggered() -> None:
    rules = {
        "a": on(insert(None, "p"), insert("x", "r", DELTA)),
        "b": on(insert(None, "r"), delete("x", "s")),
        "c": on(delete(None, "s"), insert("x", "one", text("1"))),
        "d": on(delete(None, "p"), insert("x", "one", text("1"))),
    }
    for mode in AnalysisMode:
        assert triggered(insert("y", "q", "z"), rules, SCHEMA, mode) == {"a", "b", "c"}
        assert triggered(delete("y", "q", "z"), rules, SCHEMA, mode) == {"d"}
        assert triggered(update("y", "one", None, text("2")), rules, SCHEMA, mode) == set()


@pytest.mark.parametrize(
    ("action", "holds"),
    [
        (insert(DELTA, "p", "x"), True),
        (delete("x", "p", DELTA), True),
        (update("x", "one", None, DELTA), False),
        (insert(named("x", target("basket")), SEQ, DELTA), True),
        (insert(named("x", target("row")), SEQ, DELTA), False),
        (insert(named("x", target("row")), SEQ, "y"), True),
        (delete(DELTA, None), False),
    ],
)
def test_i1_of_the_paper(action: object, holds: bool) -> None:
    rule = on(insert_node(ALL, "C"), insert("u", "s", DELTA), action)  # type: ignore[arg-type]
    assert (("I1", "r") not in failing({"r": rule}, PAPER)) is holds


# The cases that the tests of the paper miss


def test_delete_then_insert_of_the_same_arcs_is_not_well_defined() -> None:
    copy = delta(field=DeltaField.TARGET)
    rules = {"r": on(insert(None, "r"), delete("x", "p"), insert("x", "p", copy))}
    assert failing(rules, PAPER) == set()
    assert failing(rules, STRICT) == {("I1", "r")}


def test_two_updates_by_triggered_rules_do_not_commute() -> None:
    rules = {
        "a": on(insert(None, "p"), insert("x", "r", "y")),
        "b": on(insert(None, "p"), insert("x", "s", "y")),
        "after a": on(insert(None, "r"), update("z", "one", None, text("a"))),
        "after b": on(insert(None, "s"), update("z", "one", None, text("b"))),
    }
    paper, strict = failing(rules, PAPER), failing(rules, STRICT)
    assert ("C2", "a", "b") in strict - paper
    assert not {("C1", "a", "b"), ("C2", "a", "b")} & paper


def test_a_direct_update_that_a_triggered_condition_reads_does_not_commute() -> None:
    done = ValueComparison(named("x", target("one")), Operator.EQ, text("done"), ValueKind.TEXT)
    rules = {
        "a": on(insert(None, "p"), insert("x", "r", "y")),
        "b": on(insert(None, "p"), update("x", "one", None, text("done"))),
        "after a": on(insert(None, "r"), insert("x", "s", "y"), where=done),
    }
    paper, strict = failing(rules, PAPER), failing(rules, STRICT)
    assert ("C2", "a", "b") in strict
    assert not {finding for finding in paper if {"a", "b"} <= {*finding}}
    [finding] = [one for one in analyse(rules, SCHEMA).pairs if one.test == "C2" and one.units == (0, 1)]
    assert finding.reason.text == "after a reads (_, one, xsd:string), which b updates"


# Strict mode


INSTANCE = insert_node(ALL, "C")
ARC = insert(None, "r")


@pytest.mark.parametrize(
    ("rule", "well_defined"),
    [
        (on(INSTANCE, insert(DELTA, "p", "x"), insert("x", "p", DELTA)), True),
        (on(INSTANCE, delete(DELTA, "p"), delete("x", "p", DELTA)), True),
        (on(INSTANCE, insert("x", "one", delta(target("other")))), False),  # one value only
        (on(INSTANCE, insert(DELTA, "one", text("a"))), True),
        (on(ARC, insert(DELTA, "one", delta(field=DeltaField.TARGET))), False),  # two arcs can have one source
        (on(ARC, insert(DELTA, "one", text("a"))), True),  # the same value
        (on(INSTANCE, update(DELTA, "one", None, text("a"))), True),  # nodes differ
        (on(ARC, update(DELTA, "one", None, delta(field=DeltaField.TARGET))), False),
        (on(INSTANCE, delete(DELTA, "p"), insert(DELTA, "p", "x")), True),
        (on(INSTANCE, delete("y", "p"), insert("x", "p", DELTA)), True),  # resources with different names
        (on(INSTANCE, delete("x", "q"), insert("x", "p", DELTA)), False),  # q is a subproperty of p
        (on(INSTANCE, insert(named("x", target("p")), "s", DELTA), insert("x", "p", DELTA)), False),  # reads p
        (on(INSTANCE, insert(named("x", target("basket")), SEQ, DELTA)), True),
        (on(INSTANCE, insert(named("x", target("row")), SEQ, DELTA)), False),
        (on(INSTANCE, insert(None, "s", DELTA)), False),  # depends on which nodes exist
        (on(INSTANCE, insert(ALL, "s", DELTA)), False),
        (on(INSTANCE, insert(DELTA, "s", ALL)), False),
        (on(INSTANCE, insert(node(None, "C"), "s", DELTA)), False),
        (on(INSTANCE, delete_node(DELTA)), True),
        (on(INSTANCE, insert("x", "one", text("a")), update("y", "one", None, text("b"))), True),  # without $delta
        (on(insert_node("x", "C"), update("y", "one", None, delta(target("other")))), True),  # one $delta only
    ],
)
def test_well_definedness_in_strict_mode(rule: EcaRule, well_defined: bool) -> None:
    found = analyse({"r": rule}, SCHEMA)
    assert found.is_well_defined("r") is well_defined, found.instances


@pytest.mark.parametrize(
    ("one", "other", "commute"),
    [
        (insert("x", "p", "a"), insert("x", "p", "b"), True),
        (insert("x", "one", text("a")), insert("x", "one", text("b")), False),
        (insert("x", "one", text("a")), insert("x", "one", text("a")), True),
        (insert("x", "one", text("a")), insert("y", "one", text("b")), True),
        (insert("x", "p", "a"), delete("x", "p", "b"), True),
        (insert("x", "p", "a"), delete("x", "p"), False),
        (insert("x", "q", "a"), delete("x", "p"), False),
        (insert("x", "p", "a"), delete(DELTA, "p"), False),
        (insert("x", "p", "a"), delete(None, None, "b"), True),
        (insert("x", "p", "a"), delete_node("y"), True),
        (insert("x", "p", "a"), delete_node("a"), False),
        (insert("x", "p", "a"), delete_node(path(AllNodes(), source("r"))), False),
        (insert_node("x", "D"), insert("y", "s", node(ALL, "C")), False),
        (insert_node("x", "F"), insert("y", "s", node("z", "C")), True),
        (insert_node("x", "D"), insert("y", "s", node("x", "C")), False),
        (update("x", "one", None, text("a")), update("y", "one", None, text("b")), True),
        (update("x", "one", None, text("a")), update("x", "one", None, text("b")), False),
        (update("x", "one", None, text("a")), insert("y", "s", named("x", target("one"))), False),
        (update("x", "one", None, text("a")), insert("y", "s", named("y", target("one"))), True),
        (insert("x", SEQ, "a"), insert("y", SEQ, "a"), True),
        (insert("x", SEQ, "a"), insert("x", RDF + "_1", "b"), False),
        (insert("x", SEQ, "a"), insert_node("x", "Row"), False),
        (insert("x", SEQ, "a"), insert("y", "s", named("x", element())), False),
        (insert("x", "p", "z"), insert("y", "s", named("z", where=Negation(Exists(path(HERE, target("r")))))), False),
        (insert("x", "p", "a"), insert("y", "s", named("z", where=Negation(Exists(path(HERE, target("r")))))), True),
        (insert("x", "p", "z"), insert("y", "s", named("z", where=Exists(path(HERE, target("r"))))), True),
        (insert("x", "one", text("a")), delete("x", "one", text("b")), False),
    ],
)
def test_commutativity_of_actions_in_strict_mode(one: object, other: object, commute: bool) -> None:
    rules = {"a": on(ARC, one), "b": on(ARC, other)}  # type: ignore[arg-type]
    assert analyse(rules, SCHEMA).commute("a", "b") is commute
    assert analyse(dict(reversed(rules.items())), SCHEMA).commute("a", "b") is commute


def test_strict_mode_compares_members_by_property_because_domains_refuse_nothing() -> None:
    rules = {
        "a": on(ARC, insert(named("x", target("updated_LOs")), SEQ, "y")),
        "b": on(ARC, delete(named("x", target("new_LOs")), RDF + "_1")),
    }
    assert failing(rules, PAPER, LEARNING) == set()
    assert failing(rules, STRICT, LEARNING) == {("C1", "a", "b")}


def test_a_node_event_conflicts_with_changes_of_other_properties() -> None:
    rules = {
        "a": on(ARC, insert("x", "p", "y")),
        "b": on(ARC, delete("x", "s")),
        "new node": on(insert_node(ALL, RDFS + "Resource"), insert("log", "one", text("new"))),
    }
    assert not analyse(rules, SCHEMA).commute("a", "b")
    del rules["new node"]
    assert analyse(rules, SCHEMA).commute("a", "b")


def test_a_triggered_append_to_a_bag_can_run_once_or_twice() -> None:
    append = insert(named("x", target("basket")), SEQ, "y")
    rules = {
        "a": on(ARC, insert("x", "p", "y")),
        "b": on(ARC, insert("x", "p", "z")),
        "append": on(insert(None, "p"), append),
    }
    assert not analyse(rules, SCHEMA).commute("a", "b")
    assert analyse({"a": on(ARC, append), "b": on(ARC, append)}, SCHEMA).commute("a", "b")


def test_appends_to_a_bag_conflict_if_a_rule_watches_the_numbers() -> None:
    rules = {
        "a": on(ARC, insert(named("x", target("basket")), SEQ, "y")),
        "b": on(ARC, insert(named("x", target("basket")), SEQ, "z")),
        "first": on(insert(None, RDF + "_1"), insert("log", "s", delta(field=DeltaField.TARGET))),
    }
    assert not analyse(rules, SCHEMA).commute("a", "b")


@pytest.mark.parametrize("order", [{"precedes": ("b",)}, {"follows": ("m",)}])
def test_rules_in_a_fixed_order_need_not_commute(order: dict[str, tuple[str, ...]]) -> None:
    first, second = update("x", "one", None, text("a")), update("x", "one", None, text("b"))
    middle = on(ARC, insert("x", "s", "y"), name="m", follows=("b",))
    rules = {"1": on(ARC, first, name="a", **order), "2": on(ARC, second, name="b"), "3": middle}
    assert analyse(rules, SCHEMA).commute("1", "2")
    rules["1"] = on(ARC, first, name="a")
    assert not analyse(rules, SCHEMA).commute("1", "2")
    rules["1"] = on(ARC, first, name="a", coupling=Coupling.DEFERRED)
    assert analyse(rules, SCHEMA).commute("1", "2")


# Termination


def terminations(*rules: EcaRule, schema: Schema = SCHEMA) -> list[str]:
    return [cycle.termination for cycle in analyse({str(n): rule for n, rule in enumerate(rules)}, schema).cycles]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([on(insert(None, "p"), insert(DELTA, "r", "x"))], []),
        ([on(insert(None, "p"), insert(delta(field=DeltaField.TARGET), "p", DELTA))], ["terminates"]),
        ([on(insert(None, "p"), insert("x", "q", DELTA))], ["terminates"]),
        ([on(insert(None, "q"), insert("x", "p", DELTA))], []),
        ([on(delete(None, "p"), delete(None, "p", DELTA))], ["terminates"]),
        ([on(delete_node(ALL, "C"), delete_node(delta(target("p"))))], ["terminates"]),
        ([on(update(None, "one"), update("x", "one", None, text("a")))], ["may not terminate"]),
        ([on(insert("x", RDF + "_2"), insert("x", SEQ, DELTA))], ["may not terminate"]),
        ([on(insert(None, "p"), delete("x", "p"), insert("x", "p", DELTA))], ["may not terminate"]),
        ([on(insert(None, "p"), delete("x", "s"), insert("x", "p", DELTA))], ["terminates"]),
        # Each deletes what the other inserts.
        ([on(insert("x", "p"), delete("y", "p")), on(delete("y", "p"), insert("x", "p", "z"))], ["terminates"]),
        ([on(insert("x", "p"), delete("x", "p")), on(delete("x", "p"), insert("x", "p", "z"))], ["may not terminate"]),
        # A rule that the cycle triggers undoes its changes.
        (
            [
                on(insert(None, "p"), insert("x", "p", DELTA), insert("x", "s", "y")),
                on(insert(None, "s"), delete("x", "p")),
            ],
            ["may not terminate"],
        ),
        # A rule that no cycle triggers undoes them once.
        ([on(insert(None, "p"), insert("x", "p", DELTA)), on(insert(None, "s"), delete("x", "p"))], ["terminates"]),
        # Two cycles undo each other's changes.
        (
            [on(insert(None, "p"), insert("x", "p", DELTA)), on(delete(None, "p"), delete("x", "p"))],
            ["may not terminate", "may not terminate"],
        ),
        # The node comes and goes with another property than the one that was inserted.
        (
            [on(insert_node(ALL, RDFS + "Resource"), insert("x", "p", "y"), delete("x", "s"))],
            ["may not terminate"],
        ),
    ],
)
def test_termination(rules: list[EcaRule], expected: list[str]) -> None:
    assert terminations(*rules) == expected


def test_while_programs_may_not_terminate_but_sequences_do() -> None:
    schema = schema_of(":Counter a rdfs:Class . :value rdfs:range xsd:string .")

    def flag(n: int) -> str:
        return f"flag_{n}"

    steps = [
        on(insert_node(flag(n), "Counter"), insert_node(flag(n + 1), "Counter"), delete_node(flag(n))) for n in range(5)
    ]
    assert terminations(*steps, schema=schema) == []
    zero = Exists(
        named("x", where=ValueComparison(path(HERE, target("value")), Operator.EQ, text("0"), ValueKind.TEXT))
    )
    actions = delete_node(flag(0)), insert_node(flag(1), "Counter"), insert_node(flag(0), "Counter")
    loop = on(insert_node(flag(0), "Counter"), *actions, where=Negation(zero))
    assert terminations(loop, schema=schema) == ["may not terminate"]


# Groups and warnings


def test_many_rules_of_one_template_are_one_unit() -> None:
    index = RuleIndex(LEARNING, {f"r{n}": new_los(f"users/{n}") for n in range(MAX_SINGLE_RULES + 1)})
    index.add("other", on(insert_node(ALL, "User"), insert_node("BK187", "LO")))
    found = analyse(index, LEARNING)
    assert [len(unit.rules) for unit in found.units] == [MAX_SINGLE_RULES + 1, 1]
    assert found.units[1].triggers == (0,)
    assert not found.commute("r0", "r1") and not found.is_well_defined("r7")
    index.remove("r0")
    index.remove("r2")
    assert [len(unit.rules) for unit in analyse(index, LEARNING).units] == [1] * MAX_SINGLE_RULES
    index.add("r1", on(insert_node(ALL, "User"), insert_node("BK188", "LO")))
    assert len(index.groups) == 2 and len(index.rules) == MAX_SINGLE_RULES


def test_constants_count_for_few_rules_and_are_unknown_in_large_groups() -> None:
    rules = {f"r{n}": on(ARC, update(f"x{n}", "one", None, text("a"))) for n in range(MAX_SINGLE_RULES + 1)}
    assert not analyse(rules, SCHEMA).commute("r0", "r1")
    del rules["r0"]
    assert analyse(rules, SCHEMA).pairs == ()


def test_an_analysis_is_plain_data() -> None:
    found = analyse({"r": on(ARC, update(DELTA, "one", None, delta(field=DeltaField.TARGET)))}, SCHEMA)
    assert json.loads(json.dumps(asdict(found))) == {
        "mode": "strict",
        "units": [{"number": 0, "rules": ["r"], "triggers": [], "more": 0}],
        "instances": [
            {
                "test": "I1",
                "units": [0],
                "reason": {
                    "first_rule": "r",
                    "first_does": "updates",
                    "second_rule": "r",
                    "second_does": "updates",
                    "triple": "(_, one, xsd:string)",
                    "text": "r updates (_, one, xsd:string)",
                },
            }
        ],
        "pairs": [],
        "cycles": [],
    }


def test_a_new_rule_is_compared_with_the_others() -> None:
    rules = {f"r{n}": on(ARC, update("x", "one", None, text(str(n)))) for n in range(5)}
    rules |= {"apart": on(ARC, insert("x", "s", "y"))}
    new = on(update(None, "one"), update("x", "one", None, delta(target("other"))), name="new")
    warnings = analyse_new(new, rules, SCHEMA)
    assert [(one.code, one.rules, one.count) for one in warnings] == [
        ("not-well-defined", (), 0),
        ("does-not-commute", ("r0", "r1", "r2"), 5),
        ("may-not-terminate", ("new",), 1),
    ]
    assert [one.message for one in warnings] == [
        "The result can depend on the order in which the rule handles several events: "
        "new updates (_, one, xsd:string).",
        "The result can depend on the order of this rule and r0, r1, r2 and 2 more: new updates (_, one, xsd:string), "
        "which r0 updates. Order them with PRECEDES or FOLLOWS.",
        "The rule new may trigger itself without end: new updates (_, one, xsd:string).",
    ]


def test_a_new_rule_that_replaces_another_is_not_compared_with_it() -> None:
    rules = {"a": on(ARC, update("x", "one", None, text("a")), name="a")}
    changed = on(ARC, update("x", "one", None, text("b")), name="a")
    assert analyse_new(changed, rules, SCHEMA) == ()
    assert [one.code for one in analyse_new(changed, rules, SCHEMA, id_="b")] == ["does-not-commute"]


def test_a_new_rule_that_undoes_the_changes_of_a_cycle_is_reported() -> None:
    rules = {"a": on(insert(None, "p"), insert("x", "p", DELTA), insert("x", "s", "y"))}
    new = on(insert(None, "s"), delete("x", "p"), name="new", follows=("a",))
    assert [(one.code, one.rules) for one in analyse_new(new, rules, SCHEMA)] == [
        ("does-not-commute", ("a",)),
        ("may-not-terminate", ("a",)),
    ]
    old = {"b": on(update(None, "one"), update("x", "one", None, text("a")))}
    assert analyse_new(on(ARC, insert("x", "s", "y")), old, SCHEMA) == ()
