"""The oracle of RDFTL on the examples of the papers and on the laws of the specification.

[L] is "RDFTL: An Event-Condition-Action Language for RDF", [P] is "Event-Condition-Action Rules on RDF Metadata in P2P
Environments". Their figures are lost: the data are rebuilt from the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from mdv.model import RDF, Statement, Term
from mdv.rdf.values import ValueKind
from mdv.rdftl.model import (
    AbortDependency,
    Always,
    AnyOf,
    Coupling,
    Delta,
    EcaRule,
    Exists,
    Negation,
)
from tests.support.rdftl_oracle import (
    RULES_DOCUMENT,
    UPDATES_DOCUMENT,
    ActionFailed,
    Limits,
    Note,
    Outcome,
    Registration,
    RuleFailed,
    RulesDoNotEnd,
    State,
    deltas,
    exec_sched,
    execute,
    rule_order,
    select,
)
from tests.support.rdftl_rules import (
    ANY,
    DELTA,
    EVERYTHING,
    SEQ_NEXT,
    V,
    delta,
    do_arcs,
    do_node,
    element,
    equal,
    iri,
    node,
    on_arc,
    on_node,
    path,
    relative,
    resource,
    schema_of_turtle,
    target,
    text,
    triple,
    turtle,
)

SCHEMA = schema_of_turtle("""
:LO a rdfs:Class . :Book rdfs:subClassOf :LO . :User a rdfs:Class . :Learner rdfs:subClassOf :User .
:Messages a rdfs:Class . :Goal a rdfs:Class . :Log a rdfs:Class .
:subject mdv:setValued true . :type rdfs:range xsd:string . :description rdfs:range rdfs:Literal ; mdv:setValued true .
:interest rdfs:range rdf:Bag . :interest_typename rdfs:range xsd:string .
:messages rdfs:range :Messages . :new_LOs rdfs:range rdf:Seq . :updated_LOs rdfs:range rdf:Seq .
:new_users rdfs:range rdf:Bag .
:size rdfs:range xsd:decimal . :pages rdfs:subPropertyOf :size ; rdfs:range xsd:integer .
:about mdv:setValued true . :mentions rdfs:subPropertyOf :about . :done mdv:setValued true .
""")
USERS = turtle("""
:u128 a :Learner ; :interest :i128 ; :messages :m128 .
:i128 a rdf:Bag ; rdf:_1 :g1 ; rdf:_2 :g2 .
:g1 a :Goal ; :interest_typename "AI" . :g2 a :Goal ; :interest_typename "Law" .
:m128 a :Messages ; :new_LOs :new ; :updated_LOs :updated ; :new_users :people .
:new a rdf:Seq ; rdf:_1 :old_book . :updated a rdf:Seq . :people a rdf:Bag .
""")
MESSAGES = path("u128", target("messages"))
INTERESTS = path("u128", target("interest"), element(), target("interest_typename"))
START = State({"http://d/users": USERS}, SCHEMA)


def member(collection: str, number: int, name: str) -> Statement:
    return Statement(V + collection, f"{RDF}_{number}", Term.uri(V + name))


def rule(event: object, *actions: object, condition: object = Always(), **more: object) -> EcaRule:
    return EcaRule(event, condition, actions, **more)  # type: ignore[arg-type]


def written(outcome: Outcome, document: str = RULES_DOCUMENT) -> frozenset[Statement]:
    return outcome.documents.get(document, frozenset())


def register(state: State, rules: Iterable[EcaRule], said: str, uri: str = "http://d/1") -> Outcome:
    return exec_sched(Registration(uri, turtle(said)), dict(enumerate(rules, 1)), state)


def ran(outcome: Outcome) -> list[int | None]:
    return [step.rule for step in outcome.trace]


def after(outcome: Outcome) -> State:
    return State(outcome.documents, SCHEMA)


# The examples of the papers

NEW_LO = rule(
    on_node("INSERT", EVERYTHING, "LO"),
    do_arcs("INSERT", triple(path(MESSAGES, target("new_LOs")), SEQ_NEXT, DELTA)),
    condition=equal(path(DELTA, target("subject")), INTERESTS),
)
CHANGED_LO = rule(
    on_arc("UPDATE", triple(EVERYTHING, "description", ANY, ANY)),
    do_arcs("INSERT", triple(path(MESSAGES, target("updated_LOs")), SEQ_NEXT, DELTA)),
    condition=equal(path(DELTA, target("subject")), INTERESTS),
)
NEW_USER = rule(
    on_node("INSERT", EVERYTHING, "Learner"),
    do_arcs("INSERT", triple(path(MESSAGES, target("new_users")), SEQ_NEXT, DELTA)),
    condition=equal(path(DELTA, target("interest"), element(), target("interest_typename")), INTERESTS),
)
LAW_BOOK = ':b a :Book ; :subject "Law" ; :description "old" .'


def test_language_example_1_links_a_new_learning_object() -> None:
    outcome = register(START, [NEW_LO], LAW_BOOK + ':c a :Book ; :subject "Music" . :d a :User ; :subject "Law" .')
    assert written(outcome) == {member("new", 2, "b")}
    assert outcome.fired == ((1, Delta(V + "b")),)


def test_language_example_2_links_a_changed_learning_object() -> None:
    first = register(START, [CHANGED_LO], LAW_BOOK)
    assert written(first) == frozenset()
    second = register(after(first), [CHANGED_LO], LAW_BOOK.replace("old", "new"))
    assert written(second) == {member("updated", 1, "b")}
    assert second.fired == ((1, Delta(V + "b", V + "description", Term.literal("old"), Term.literal("new"))),)


def test_the_same_value_gives_no_event() -> None:
    first = register(START, [CHANGED_LO, NEW_LO], LAW_BOOK)
    assert register(after(first), [CHANGED_LO, NEW_LO], LAW_BOOK).trace[0].changes == ()
    same = do_arcs("UPDATE", triple("b", "description", None, text("old")))
    outcome = exec_sched([same], {1: CHANGED_LO}, after(first))
    assert outcome.fired == () and outcome.documents == first.documents


def test_language_example_3_links_a_user_with_a_common_interest() -> None:
    said = ':u9 a :Learner ; :interest :i9 . :i9 a rdf:Bag ; rdf:_1 :g9 . :g9 a :Goal ; :interest_typename "{}" .'
    assert written(register(START, [NEW_USER], said.format("AI"))) == {member("people", 1, "u9")}
    assert written(register(START, [NEW_USER], said.format("Music"))) == frozenset()


def test_p2p_example_1_an_inserted_node_is_selected_by_the_path_of_the_event() -> None:
    insertion = rule(on_node("INSERT", "go", "Log"), do_node("INSERT", "BK187", "LO"))
    listed = path(EVERYTHING, target("messages"), target("updated_LOs"), element())
    triggered = rule(on_node("INSERT", listed, "LO"), do_arcs("INSERT", triple(DELTA, "done", text("yes"))))
    done = Statement(V + "BK187", V + "done", Term.literal("yes"))
    assert done not in written(register(START, [insertion, triggered], ":go a :Log ."))
    with_member = State({"http://d/users": USERS | turtle(":updated rdf:_1 :BK187 .")}, SCHEMA)
    outcome = register(with_member, [insertion, triggered], ":go a :Log .")
    assert done in written(outcome) and ran(outcome) == [None, 1, 2]


def test_p2p_example_2_an_inserted_arc_triggers() -> None:
    listed = path("u128", target("messages"), target("updated_LOs"))
    example = rule(
        on_arc("INSERT", triple(EVERYTHING, "type", ANY)), do_arcs("INSERT", triple(listed, SEQ_NEXT, DELTA))
    )
    outcome = exec_sched([do_arcs("INSERT", triple("BK187", "type", text("Book")))], {1: example}, START)
    assert written(outcome) == {member("updated", 1, "BK187")}
    assert written(outcome, UPDATES_DOCUMENT) == turtle(':BK187 :type "Book" .')


def test_p2p_example_3_copies_are_ordered_by_their_delta() -> None:
    """It is [L] example 1 with LET in front."""
    said = "".join(f':{name} a :LO ; :subject "AI" .' for name in "cab")
    outcome = register(START, [NEW_LO], said)
    assert written(outcome) == {member("new", number, name) for number, name in ((2, "a"), (3, "b"), (4, "c"))}


# execSched


def log(name: str) -> object:
    return do_node("INSERT", name, "Log")


def on_log(name: str) -> object:
    return on_node("INSERT", name, "Log")


def test_copies_are_prefixed() -> None:
    """e triggers f and g, and f triggers h: the order is e f h g."""
    f, g, h = (rule(on_log(a), log(b)) for a, b in (("e", "f"), ("e", "g"), ("f", "h")))
    outcome = exec_sched([log("e"), log("last")], {1: f, 2: g, 3: h}, START)
    assert ran(outcome) == [None, 1, 3, 2, None]
    assert [one.rule for one in outcome.fired] == [1, 2, 3]


def test_conditions_of_one_step_see_one_state() -> None:
    """The first rule deletes what the condition of the second needs, and the second still fires."""
    state = State({"http://d/x": turtle(":needed a :Log .")}, SCHEMA)
    first = rule(on_log("e"), do_node("DELETE", "needed"))
    second = rule(on_log("e"), log("g"), condition=Exists(resource("needed")))
    outcome = exec_sched([log("e")], {1: first, 2: second}, state)
    assert ran(outcome) == [None, 1, 2]
    assert written(outcome) == turtle(":g a :Log .") and "http://d/x" not in outcome.documents


def test_paths_of_actions_see_the_state_when_the_action_runs() -> None:
    copy = do_arcs("UPDATE", triple("a", "size", None, path("b", target("size"))))
    state = State({"http://d/x": turtle(":a :size 1 . :b :size 2 .")}, SCHEMA)
    change = do_arcs("UPDATE", triple("b", "size", None, text("3")))
    outcome = exec_sched([log("e")], {1: rule(on_log("e"), change, copy)}, state)
    assert outcome.documents["http://d/x"] == turtle(':a :size "3" . :b :size "3" .')


def test_set_oriented_rules_run_once() -> None:
    once = rule(on_arc("INSERT", triple(ANY, "about", ANY)), do_arcs("INSERT", triple("new", SEQ_NEXT, "x")))
    each = replace(once, condition=Exists(DELTA))
    said = ":p :about :q . :q :about :p ."
    assert len(written(register(START, [once], said))) == 1
    assert len(written(register(START, [each], said))) == 2


def test_rules_are_ordered_by_names_then_numbers() -> None:
    event = on_log("e")
    rules = {
        1: rule(event, log("a"), name="a", follows=("c",)),
        2: rule(event, log("b"), name="b"),
        3: rule(event, log("c"), name="c", precedes=("b", "ended")),
        4: rule(event, log("d")),
    }
    assert rule_order(rules) == [3, 1, 2, 4]
    with pytest.raises(ValueError, match="cycle"):
        rule_order({**rules, 5: rule(event, log("x"), name="x", precedes=("c",), follows=("a",))})


def test_deferred_copies_run_at_the_end_in_firing_order() -> None:
    late = {"coupling": Coupling.DEFERRED}
    rules = {
        1: rule(on_log("e"), log("f"), **late),
        2: rule(on_log("e"), log("g")),
        3: rule(on_log("f"), log("h"), **late),
        4: rule(on_log("f"), log("i")),
        5: rule(on_log("last"), log("j"), **late),
        6: rule(on_log("last"), log("k"), coupling=Coupling.DETACHED),
    }
    outcome = exec_sched([log("e"), log("last")], rules, START)
    assert ran(outcome) == [None, 2, None, 1, 4, 5, 3]
    assert outcome.detached == ((6, None),)


def test_rules_that_do_not_end_are_refused() -> None:
    flip = {
        1: rule(on_log("x"), do_node("DELETE", "x"), log("y")),
        2: rule(on_log("y"), do_node("DELETE", "y"), log("x")),
    }
    for limits, limit in ((Limits(steps=20), "steps"), (Limits(depth=5), "depth")):
        with pytest.raises(RulesDoNotEnd) as refused:
            exec_sched([log("x")], flip, START, limits)
        assert refused.value.limit == limit
    assert [step.rule for step in refused.value.trace] == [None, 1, 1, 2, 2, 1, 1, 2, 2, 1, 1]


# Events


def events_of(before: str, later: str, event: object) -> list[Delta]:
    states = [State({"http://d/1": turtle(said)} if said else {}, SCHEMA) for said in (before, later)]
    return deltas(event, *states)  # type: ignore[arg-type]


def test_updates_are_paired_by_language_then_over_the_remainder() -> None:
    update = on_arc("UPDATE", triple(ANY, "description", ANY, ANY))
    insert = on_arc("INSERT", triple(ANY, "description", ANY))

    def pairs(before: str, later: str) -> list[tuple[str, str]]:
        found = events_of(f":b :description {before} .", f":b :description {later} .", update)
        return [(one.target.value, one.new_target.value) for one in found if one.target and one.new_target]

    assert pairs('"a"@en, "x"@de', '"b"@en, "y"@de') == [("a", "b"), ("x", "y")]
    assert pairs('"a"@en', '"b"@de') == [("a", "b")]
    assert pairs('"a"@en, "c"@en', '"b"@de') == []
    assert pairs('"a"@en, "x"@fr', '"b"@en, "y"@de') == [("a", "b"), ("x", "y")]
    assert pairs('"a", "b"', '"b", "c"') == [("a", "c")]
    assert pairs('"a"', '"c", "d"@de') == [("a", "c")]
    inserted = events_of(':b :description "a" .', ':b :description "c", "d"@de .', insert)
    assert [one.target for one in inserted] == [Term.literal("d", "de")]


def test_superproperties_and_superclasses_change_too() -> None:
    before, later = ":b a :Book ; :pages 5 .", ":b a :LO ; :pages 6 ."
    assert [one.arc_name for one in events_of(before, later, on_arc("UPDATE", triple(ANY, None, ANY, ANY)))] == [
        V + "pages",
        V + "size",
    ]
    assert events_of(before, later, on_node("DELETE", EVERYTHING, "Book")) == [Delta(V + "b")]
    assert events_of(before, later, on_node("DELETE", EVERYTHING, "LO")) == []
    assert events_of("", before, on_node("INSERT", EVERYTHING, "LO")) == [Delta(V + "b")]
    # rdfs:Resource has every node, and no type arc.
    assert events_of(before, later, on_node("INSERT", EVERYTHING)) == []
    assert events_of("", ":b a :LO .", on_node("INSERT", EVERYTHING)) == [Delta(V + "b")]
    assert [one.target for one in events_of("", ":b a :Book .", on_arc("INSERT", triple(ANY, None, ANY)))] == [
        Term.uri(V + "Book"),
        Term.uri(V + "LO"),
    ]


def test_a_change_of_type_is_an_update_of_the_arc_and_an_event_of_nodes() -> None:
    action = do_arcs("UPDATE", triple("b", RDF + "type", "LO", "User"))
    rules = {
        1: rule(on_arc("UPDATE", triple(ANY, RDF + "type", ANY, ANY)), log("arc")),
        2: rule(on_node("INSERT", EVERYTHING, "User"), log("node")),
        3: rule(on_arc("INSERT", triple(ANY, RDF + "type", node("User"))), log("wrong")),
    }
    outcome = exec_sched([action], rules, State({"http://d/1": turtle(":b a :LO .")}, SCHEMA))
    assert [one.rule for one in outcome.fired] == [1, 2]


def test_an_update_to_a_value_that_was_there_is_an_update() -> None:
    state = State({"http://d/1": turtle(":b :about :x, :y .")}, SCHEMA)
    watch = rule(on_arc("UPDATE", triple(ANY, "about", ANY, ANY)), log("seen"), condition=Exists(DELTA))
    outcome = exec_sched([do_arcs("UPDATE", triple("b", "about", "x", "y"))], {1: watch}, state)
    assert outcome.fired == ((1, Delta(V + "b", V + "about", Term.uri(V + "x"), Term.uri(V + "y"))),)
    # The old arc still follows from a subproperty, so that it has not gone.
    kept = State({"http://d/1": turtle(":b :about :x, :y ; :mentions :x .")}, SCHEMA)
    assert exec_sched([do_arcs("UPDATE", triple("b", "about", "x", "y"))], {1: watch}, kept).fired == ()


def test_paths_of_deletions_see_the_state_before() -> None:
    named = node(path("x", target("about")))
    event = on_arc("DELETE", triple(named, "done", text("yes")))
    assert events_of(':x :about :b . :b :done "yes" .', ":x :about :b .", event)
    assert events_of(':x :about :b . :b :done "yes" .', "", event)
    assert not events_of(':b :done "yes" .', ":x :about :b .", event)
    update = on_arc("UPDATE", triple(ANY, "size", text("5.0"), text("6")))
    assert events_of(":b :pages 5 .", ":b :pages 6 .", update) == [
        Delta(
            V + "b",
            V + "size",
            Term.literal("5", datatype="http://www.w3.org/2001/XMLSchema#integer"),
            Term.literal("6", datatype="http://www.w3.org/2001/XMLSchema#integer"),
        )
    ]


# Actions


def executed(said: str, action: object) -> frozenset[Statement]:
    state = State({"http://d/1": turtle(said)}, SCHEMA)
    documents: Mapping[str, frozenset[Statement]] = execute(action, state).state.documents  # type: ignore[arg-type]
    return frozenset().union(*documents.values())


WORLD = ":a a :Log ; :about :b . :b :about :a ; :done 'x' ."


@pytest.mark.parametrize(
    ("action", "result"),
    [
        (do_node("INSERT", "n", "Log"), ":a a :Log ; :about :b . :b :about :a ; :done 'x' . :n a :Log ."),
        (do_node("DELETE", "a"), ":b :done 'x' ."),
        (do_node("DELETE", "a", "User"), WORLD),
        (do_arcs("INSERT", triple(None, "done", text("z"))),
         ":a a :Log ; :about :b ; :done 'z' . :b :about :a ; :done 'x', 'z' ."),
        (do_arcs("DELETE", triple("b", None, "a")), ":a a :Log ; :about :b . :b :done 'x' ."),
        (do_arcs("DELETE", triple(None, "about", None)), ":a a :Log . :b :done 'x' ."),
        (do_arcs("DELETE", triple("b", "done", text("x"))), ":a a :Log ; :about :b . :b :about :a ."),
        (do_arcs("DELETE", triple(node(None, "Log"), "about", None)), ":a a :Log . :b :about :a ; :done 'x' ."),
        (do_arcs("UPDATE", triple(None, "about", None, "c")), ":a a :Log ; :about :c . :b :about :c ; :done 'x' ."),
        (do_arcs("UPDATE", triple("a", "about", None, path("nowhere", target("about")))), WORLD),
        (do_arcs("UPDATE", triple("a", "about", "b", "a"), triple("b", "about", "a", "b")),
         ":a a :Log ; :about :a . :b :about :b ; :done 'x' ."),
    ],
)  # fmt: skip
def test_actions_change_statements(action: object, result: str) -> None:
    assert executed(WORLD, action) == turtle(result)


def test_inserts_go_to_one_document_and_deletions_to_all() -> None:
    state = State({"http://d/1": turtle(":a :about :b ."), "http://d/2": turtle(":a :about :b .")}, SCHEMA)
    assert execute(do_arcs("INSERT", triple("a", "about", "b")), state).changes == ()
    assert execute(do_arcs("DELETE", triple("a", "about", "b")), state).state.documents == {}
    moved = execute(do_arcs("UPDATE", triple("a", "about", None, "c")), state).state.documents
    assert moved == {uri: turtle(":a :about :c .") for uri in ("http://d/1", "http://d/2")}


def test_derived_arcs_are_not_deleted() -> None:
    state = State({"http://d/1": turtle(":a a :Book ; :mentions :b .")}, SCHEMA)
    for one in (triple("a", "about", "b"), triple("a", RDF + "type", "LO")):
        outcome = exec_sched([do_arcs("DELETE", one)], {}, state)
        assert outcome.documents == state.documents
        assert outcome.notes == {(None, Note.NOT_STATED)}


def test_members_of_one_action_are_numbered_in_order() -> None:
    action = do_arcs("INSERT", triple("new", SEQ_NEXT, path("i128", element())), triple("new", SEQ_NEXT, "old_book"))
    effect = execute(action, START)
    assert effect.state.documents[RULES_DOCUMENT] == {
        member("new", 2, "g1"), member("new", 3, "g2"), member("new", 4, "old_book"),
    }  # fmt: skip


@pytest.mark.parametrize(
    "action",
    [
        do_arcs("INSERT", triple("u128", SEQ_NEXT, "g1")),
        do_arcs("INSERT", triple(path("u128", element()), "about", "g1")),
        do_arcs("INSERT", triple(path("i128", element(1)), "about", "g1")),
        do_arcs("INSERT", triple("g1", "size", text("many"))),
        do_arcs("INSERT", triple("g1", "undeclared", text("x"))),
        do_arcs("INSERT", triple("g1", "interest", text("a literal"))),
        do_arcs("UPDATE", triple("u128", "messages", None, path("i128", element()))),
        do_arcs("INSERT", triple("g1", "size", text("1")), triple("g1", "size", text("2"))),
    ],
)
def test_actions_fail(action: object) -> None:
    with pytest.raises(ActionFailed):
        execute(action, START)  # type: ignore[arg-type]


def test_elements_of_other_nodes_are_not_selected_in_conditions() -> None:
    assert select(path("u128", element()), START) == frozenset()
    assert select(path("i128", element(1)), START) == frozenset()
    assert select(path("new", element(1)), START) == {Term.uri(V + "old_book")}
    ask = rule(on_log("e"), log("f"), condition=Negation(Exists(path("u128", element()))))
    outcome = exec_sched([log("e")], {1: ask}, START)
    assert outcome.notes == {(1, Note.NO_COLLECTION)} and len(outcome.fired) == 1
    with pytest.raises(RuleFailed):
        exec_sched([log("e")], {1: replace(ask, strict=True)}, START)
    alone = replace(ask, strict=True, abort=AbortDependency.INDEPENDENT)
    assert exec_sched([log("e")], {1: alone}, START).fired == ()


def test_constants_are_compared_by_kind() -> None:
    state = State({"http://d/1": turtle(":a :pages 5 ; :about 'x', :b . ")}, SCHEMA)
    number = ValueKind.NUMBER
    held = [
        equal(path("a", target("size")), text("5.0"), number),
        equal(path("a", target("size")), text("4"), number, ">"),
        equal(path("a", target("about")), text("b")),
        equal(path("a", target("about")), text(iri("b"))),
        equal(path("a", target("about")), text("x")),
        equal(path("a", target("about")), text("x"), operator="!="),
        Exists(path(EVERYTHING, target("about", equal(relative(), text("b"))))),
        AnyOf((Exists(path("nowhere")), Exists(path("a")))),
    ]
    missed = [
        equal(path("a", target("size")), text("5.0")),
        equal(path("a", target("about")), text("5"), number),
        equal(path("a", target("about")), text("y")),
        equal(path("nowhere", target("about")), text("x"), operator="!="),
    ]
    outcome = exec_sched(
        [log("e")], {n: rule(on_log("e"), log("f"), condition=one) for n, one in enumerate(held + missed)}, state
    )
    assert [one.rule for one in outcome.fired] == [*range(len(held))]


# Failures


FAIL = do_arcs("INSERT", triple("u128", SEQ_NEXT, "g1"))


@pytest.mark.parametrize("abort", [AbortDependency.MUTUAL, AbortDependency.CHILD_PARENT])
@pytest.mark.parametrize("coupling", [Coupling.IMMEDIATE, Coupling.DEFERRED])
def test_a_failure_refuses_the_transaction(abort: AbortDependency, coupling: Coupling) -> None:
    with pytest.raises(RuleFailed) as refused:
        exec_sched([log("e")], {7: rule(on_log("e"), log("f"), FAIL, abort=abort, coupling=coupling)}, START)
    assert (refused.value.rule, refused.value.delta, refused.value.action) == (7, None, 1)


@pytest.mark.parametrize("abort", [AbortDependency.PARENT_CHILD, AbortDependency.INDEPENDENT])
@pytest.mark.parametrize("coupling", [Coupling.IMMEDIATE, Coupling.DEFERRED])
def test_a_failing_rule_is_undone_alone(abort: AbortDependency, coupling: Coupling) -> None:
    failing = rule(on_log("e"), log("f"), FAIL, log("never"), abort=abort, coupling=coupling)
    outcome = exec_sched([log("e"), log("last")], {1: failing, 2: rule(on_log("e"), log("g"))}, START)
    assert written(outcome) == turtle(":g a :Log .")
    assert written(outcome, UPDATES_DOCUMENT) == turtle(":e a :Log . :last a :Log .")
    assert outcome.notes == {(1, Note.FAILED)}
    assert [(step.rule, step.undone) for step in outcome.trace if step.rule == 1] == [(1, False), (1, True)]


@pytest.mark.parametrize(
    ("abort", "kept"),
    [
        (AbortDependency.PARENT_CHILD, ""),
        (AbortDependency.MUTUAL, ""),
        (AbortDependency.CHILD_PARENT, ":h a :Log ."),
        (AbortDependency.INDEPENDENT, ":h a :Log ."),
    ],
)
@pytest.mark.parametrize("coupling", [Coupling.IMMEDIATE, Coupling.DEFERRED])
def test_a_failing_parent_takes_its_children_with_it(abort: AbortDependency, kept: str, coupling: Coupling) -> None:
    failing = rule(on_log("e"), log("f"), FAIL, abort=AbortDependency.PARENT_CHILD)
    child = rule(on_log("f"), log("h"), abort=abort, coupling=coupling)
    assert written(exec_sched([log("e")], {1: failing, 2: child}, START)) == turtle(kept)


def test_a_failure_goes_up_to_the_nearest_rule_that_fails_alone() -> None:
    rules = {
        1: rule(on_log("e"), log("f"), log("after"), abort=AbortDependency.INDEPENDENT),
        2: rule(on_log("f"), log("g")),
        3: rule(on_log("g"), FAIL),
        4: rule(on_log("e"), log("other")),
    }
    outcome = exec_sched([log("e")], rules, START)
    assert written(outcome) == turtle(":other a :Log .")
    assert [(step.rule, step.undone) for step in outcome.trace] == [
        (None, False), (1, False), (2, False), (2, True), (1, True), (4, False),
    ]  # fmt: skip


def test_a_change_is_undone_only_if_its_result_is_still_there() -> None:
    state = State({"http://d/1": turtle(":a :size 1 ; :about :x .")}, SCHEMA)
    failing = rule(
        on_log("e"),
        do_arcs("UPDATE", triple("a", "size", None, text("2"))),
        do_arcs("DELETE", triple("a", "about", None)),
        FAIL,
        abort=AbortDependency.INDEPENDENT,
    )
    child = rule(
        on_arc("UPDATE", triple("a", "size", ANY, text("2"))),
        do_arcs("UPDATE", triple("a", "size", None, text("3"))),
        abort=AbortDependency.INDEPENDENT,
    )
    outcome = exec_sched([log("e")], {1: failing, 2: child}, state)
    assert outcome.documents["http://d/1"] == turtle(':a :size "3" ; :about :x .')
    assert outcome.notes == {(1, Note.FAILED), (1, Note.NOT_UNDONE)}


def test_fields_of_delta_are_values() -> None:
    event = on_arc("UPDATE", triple(ANY, "size", ANY, ANY))
    action = do_arcs("INSERT", triple(DELTA, "done", delta("old_target")), triple(DELTA, "about", delta("arc_name")))
    bigger = equal(delta("new_target"), delta("old_target"), ValueKind.NUMBER, ">")
    state = State({"http://d/1": turtle(":a :size 9 . :b :size 9 .")}, SCHEMA)
    outcome = register(state, [rule(event, action, condition=bigger)], ":a :size 10 . :b :size 8 .")
    assert written(outcome) == turtle(":a :done 9 ; :about :size .")
