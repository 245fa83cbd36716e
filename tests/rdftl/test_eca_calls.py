"""CALL: rules and updates that run actions of ReAL, on a real store."""

from __future__ import annotations

import pytest

from mdv.cli.eca_tree import tree_lines
from mdv.errors import RuleFailed, UpdateFailed
from mdv.inspect.eca_runs import build_tree, list_runs, read_run, tree_json
from mdv.mdp.eca.change_rules import EcaDraft, add_rules
from mdv.mdp.eca.update import UpdateOutcome, UpdateRequest, execute_update
from mdv.mdp.real.write_locks import LockPattern, add_lock, remove_lock
from mdv.mdp.write_limits import WriteLimits
from mdv.model import RDF_TYPE
from tests.support.eca_system import RULES, SCHEMA, UPDATES, add, statements
from tests.support.mdp import Mdp
from tests.support.real_actions import DECLARED, action_turtle

ACTIONS = "http://d/actions"
LRM_TYPES = (
    "<http://xrce.xerox.com/LRM#Action> a rdfs:Class . <http://xrce.xerox.com/LRM#body> mdv:reference mdv:strong .\n"
)
HERE = "http://act/"


@pytest.fixture
def eca(mdp: Mdp) -> Mdp:
    mdp.put_schema(SCHEMA + DECLARED + LRM_TYPES)
    return mdp


def define(mdp: Mdp, **actions: tuple[str, ...]) -> None:
    """Register actions: code, inputs and outputs by name."""
    put(mdp, ACTIONS, "\n".join(action_turtle(HERE + name, *parts) for name, parts in actions.items()))


def put(mdp: Mdp, uri: str, turtle: str) -> None:
    (result,) = mdp.put({uri: turtle})
    if isinstance(result, Exception):
        raise result


def call(mdp: Mdp, text: str, **more: object) -> UpdateOutcome:
    with mdp.engine.begin() as connection:
        return execute_update(connection, UpdateRequest(text, **more), mdp.provider)  # type: ignore[arg-type]


def last_trace(mdp: Mdp) -> dict[str, object]:
    with mdp.engine.connect() as connection:
        run, *_ = list_runs(connection, 2**63 - 1, 1)
        return read_run(connection, run.id)[1]


def test_a_rule_calls_an_action_with_the_node_of_its_event(eca: Mdp) -> None:
    define(eca, mark=('+:tag(?x, "seen")', "x"))
    add(eca, f"ON INSERT resource() AS INSTANCE OF Lo IF TRUE DO CALL <{HERE}mark>($delta)")

    put(eca, "http://d/1", "<http://r/1> a :Course . <http://r/2> a :User .")

    assert statements(eca, RULES) == {("http://r/1", "tag", "seen")}


def test_an_action_sees_the_state_between_two_updates(eca: Mdp) -> None:
    define(eca, copy=("-:tag(?x, ?t) AND +:subject(?x, ?t)", "x"))
    add(
        eca,
        f"ON INSERT resource() AS INSTANCE OF Lo IF TRUE DO INSERT ($delta, tag, 'b'); CALL <{HERE}copy>($delta);"
        " INSERT ($delta, tag, 'c')",
    )

    put(eca, "http://d/1", "<http://r/1> a :Lo ; :tag 'a' . <http://r/2> a :User ; :tag 'a' .")

    assert statements(eca, RULES) == {
        ("http://r/1", "subject", "a"), ("http://r/1", "subject", "b"), ("http://r/1", "tag", "c"),
    }  # fmt: skip
    assert ("http://r/1", "tag", "a") not in statements(eca, "http://d/1")
    assert ("http://r/2", "tag", "a") in statements(eca, "http://d/1")


def test_contexts_name_a_document_that_is_registered_in_the_same_transaction(eca: Mdp) -> None:
    define(eca, mark=("IN <http://d/new> { :tag(?x, ?t) AND +:subject(?x, ?t) }", "x"))
    add(eca, f"ON INSERT resource() AS INSTANCE OF Lo IF TRUE DO CALL <{HERE}mark>($delta)")

    put(eca, "http://d/new", "<http://r/1> a :Lo ; :tag 'a' .")

    assert ("http://r/1", "subject", "a") in statements(eca, "http://d/new")


def test_an_action_of_the_document_that_triggers_the_rule_is_found_with_its_prefixes(eca: Mdp) -> None:
    add(eca, f"ON INSERT resource() AS INSTANCE OF Lo IF TRUE DO CALL <{HERE}mark>($delta)")

    put(
        eca, "http://d/1",
        "@prefix own: <http://v/> . <http://r/1> a :Lo .\n" + action_turtle(HERE + "mark", '+own:tag(?x, "seen")', "x"),
    )  # fmt: skip

    assert statements(eca, RULES) == {("http://r/1", "tag", "seen")}


def test_the_changes_of_an_action_are_one_update_that_triggers_rules(eca: Mdp) -> None:
    define(
        eca, move=("-:level(?x, ?n) AND CALL primitive:inc(?n >> ?m) AND +:level(?x, ?m) AND +:tag(?x, 'moved')", "x")
    )
    add(eca, "RULE up ON UPDATE (_, level, 1 -> _) IF TRUE DO INSERT ($delta, subject, $delta.new_target)")
    add(eca, "RULE tagged ON INSERT (_, tag, 'moved') IF $delta/target(level) = 2 DO INSERT ($delta, subject, 'both')")
    put(eca, "http://d/1", "<http://r/1> a :Lo ; :level 1 .")

    done = call(eca, f"CALL <{HERE}move>(resource(http://r/1))", graph="http://d/1")

    assert (done.inserted, done.deleted, done.fired) == (2, 1, 2)
    assert statements(eca, "http://d/1") >= {("http://r/1", "level", "2"), ("http://r/1", "tag", "moved")}
    assert statements(eca, RULES) == {("http://r/1", "subject", "2"), ("http://r/1", "subject", "both")}


def test_an_action_is_called_for_every_combination_of_what_its_arguments_select(eca: Mdp) -> None:
    define(eca, pair=("CALL primitive:concat(?a, ?b >> ?c) AND +:tag(?x, ?c)", "x, a, b"))
    put(eca, "http://d/1", "<http://r/1> a :Lo ; :subject 'p', 'q' ; :tag 'y', 'z' .")

    text = (
        "CALL <{0}pair>(resource(http://r/1), resource(http://r/1)/target(subject), resource(http://r/1)/target(tag))"
    )
    call(eca, text.format(HERE))

    assert {tag for _, _, tag in statements(eca, UPDATES)} == {"py", "pz", "qy", "qz"}


def test_a_call_whose_argument_selects_nothing_does_nothing(eca: Mdp) -> None:
    done = call(eca, f"CALL <{HERE}unknown>(resource(http://r/1)/target(subject))")

    assert (done.inserted, done.deleted) == (0, 0)


def test_numbers_and_texts_are_passed_as_a_registration_would_store_them(eca: Mdp) -> None:
    define(eca, note=("+:tag(?x, ?a) AND +:level(?x, ?b)", "x, a, b"))

    call(eca, f"CALL <{HERE}note>(<http://r/1>, 'it''s', 3)")

    assert statements(eca, UPDATES) == {("http://r/1", "tag", "it's"), ("http://r/1", "level", "3")}


def test_a_trace_shows_the_call_with_its_solutions(eca: Mdp) -> None:
    define(eca, find=(":tag(?x, ?t) AND +:subject(?x, ?t)", "x", "t"))
    put(eca, "http://d/1", "<http://r/1> a :Lo ; :tag 'a', 'b' .")

    call(eca, f"CALL <{HERE}find>(resource(http://r/1))")

    (step,) = last_trace(eca)["steps"]  # type: ignore[misc]
    called = step["called"]  # type: ignore[index]
    assert (called["action"], called["calls"], called["solutions"]) == (HERE + "find", 1, 2)
    assert called["inputs"] == [[{"type": "uri", "value": "http://r/1"}]]
    assert sorted(one["t"]["value"] for one in called["first"]) == ["a", "b"]


def test_a_printed_trace_has_the_call(eca: Mdp) -> None:
    define(eca, find=(":tag(?x, ?t) AND (+:level(?x, ?t) OR TRUE)", "x", "t"))
    put(eca, "http://d/1", "<http://r/1> a :Lo ; :tag 'a' .")

    call(eca, f"CALL <{HERE}find>(resource(http://r/1))")

    lines = list(tree_lines(tree_json(build_tree(last_trace(eca)))))
    assert lines[0] == "update 0, action 1: no change"
    assert lines[1].startswith("  called <http://act/find>(<http://r/1>): 1 solution (t = 'a'); warning: ")


FAILING = {
    "wait": ("+:tag(?x, 'lost') AND WAIT :tag(?x, 'never')", "it would wait"),
    "sleep": ("+:tag(?x, 'lost') AND CALL primitive:sleep(1)", "it would wait"),
    "service": ("+:tag(?x, 'lost') AND CALL primitive:service(?x)", "it calls a service"),
    "spawn": (f"+:tag(?x, 'lost') AND SPAWN <{HERE}spawn>(?x)", "it starts or stops a process"),
    "unbound": ("+:tag(?x, 'lost') AND +:tag(?x, ?y)", "?y is not bound"),
    "endless": (f"++:tag(?x, 'lost') AND CALL <{HERE}endless>(?x)", "10,000 steps"),
    "wrong": ("AND", "cannot be run"),
}


@pytest.mark.parametrize("name", FAILING)
def test_an_action_that_fails_changes_nothing_and_aborts_as_its_rule_says(eca: Mdp, name: str) -> None:
    code, reason = FAILING[name]
    define(eca, **{name: (code, "x")})
    add(eca, f"ABORT ParentChild ON INSERT (_, tag, 'alone') IF TRUE DO INSERT ($delta, subject, 's');"
             f" CALL <{HERE}{name}>($delta)")  # fmt: skip
    add(eca, f"ON INSERT (_, tag, 'both') IF TRUE DO CALL <{HERE}{name}>($delta)")

    put(eca, "http://d/1", "<http://r/1> a :Lo ; :tag 'alone' .")
    with pytest.raises(RuleFailed) as refused:
        put(eca, "http://d/2", "<http://r/2> a :Lo ; :tag 'both' .")
    with pytest.raises(UpdateFailed, match="nothing was changed"):
        call(eca, f"INSERT (resource(http://r/3), tag, 'x'); CALL <{HERE}{name}>(<http://r/3>)")

    assert reason in refused.value.detail
    assert statements(eca, RULES) == statements(eca, UPDATES) == set()
    assert {name for _, name, _ in statements(eca, "http://d/1")} == {RDF_TYPE, "tag"}
    assert statements(eca, "http://d/2") == set()


def test_an_error_names_the_place_in_the_body(eca: Mdp) -> None:
    define(eca, wrong=("TRUE AND\n  +:tag(?x, ?y)", "x"))

    with pytest.raises(UpdateFailed, match=r"line 2, column 3 of the body of <http://act/wrong>"):
        call(eca, f"CALL <{HERE}wrong>(<http://r/1>)")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"CALL <{HERE}none>()", "there is no action <http://act/none>"),
        (f"CALL <{HERE}mark>()", "has 1 inputs, but 0 are given"),
        (f"CALL <{HERE}mark>(<http://r/1>, 2)", "has 1 inputs, but 2 are given"),
    ],
)
def test_a_call_that_does_not_fit_an_action_fails(eca: Mdp, text: str, reason: str) -> None:
    define(eca, mark=("TRUE", "x"))

    with pytest.raises(UpdateFailed, match=reason):
        call(eca, text)


def test_what_the_schema_refuses_has_no_solution(eca: Mdp) -> None:
    define(eca, raise_=("(+:level(?x, 'high') OR +:tag(?x, 'not high')) AND +:tag(?x, 'end')", "x"))

    call(eca, f"CALL <{HERE}raise_>(<http://r/1>)")

    assert statements(eca, UPDATES) == {("http://r/1", "tag", "not high"), ("http://r/1", "tag", "end")}


def test_an_action_runs_with_the_permissions_of_the_author_of_the_rule(eca: Mdp) -> None:
    define(eca, take=("(-:tag(?x, ?) OR +:tag(?x, 'mine')) AND (IN <http://d/1> { +:subject(?x, 's') } OR TRUE)", "x"))
    limits = WriteLimits((RULES,), ("http://r/",))
    with eca.engine.begin() as connection:
        add_rules(
            connection,
            EcaDraft(f"ON INSERT resource() AS INSTANCE OF Lo IF TRUE DO CALL <{HERE}take>($delta)", limits=limits),
            eca.provider,
        )

    put(eca, "http://d/1", "<http://r/1> a :Lo ; :tag 'a' . <http://q/1> a :Lo .")

    assert statements(eca, RULES) == {("http://r/1", "tag", "mine")}
    assert ("http://r/1", "tag", "a") in statements(eca, "http://d/1")


def test_a_list_gets_the_names_that_a_registration_would_give(eca: Mdp) -> None:
    eca.put_schema(
        SCHEMA + DECLARED + LRM_TYPES + ":members a rdf:Property . rdf:first a rdf:Property . rdf:rest a rdf:Property ."
    )
    define(eca, list=("+:members(?x, [:a :b])", "x"))

    call(eca, f"CALL <{HERE}list>(<http://r/1>)")

    assert len(statements(eca, UPDATES)) == 5


def test_rules_that_call_actions_without_end_reach_a_limit(eca: Mdp) -> None:
    define(eca, grow=("$y AND +rdf:type(?y, :Lo)", "x"))
    add(eca, f"RULE grow ON INSERT resource() AS INSTANCE OF Lo IF TRUE DO CALL <{HERE}grow>($delta)")

    with pytest.raises(Exception, match="The sequence grow ran"):
        put(eca, "http://d/1", "<http://r/1> a :Lo .")


def test_an_action_does_not_change_locked_statements_but_rules_do(eca: Mdp) -> None:
    define(eca, change=("(-:tag(?x, ?t) OR +:tag(?x, 'free')) AND (+:level(?x, 1) OR TRUE)", "x"))
    put(eca, "http://d/1", "<http://r/1> a :Lo ; :tag 'a' .")
    with eca.engine.begin() as connection:
        locks = [LockPattern(document_prefix="http://d/"), LockPattern(property="http://v/level")]
        numbers = [add_lock(connection, one, None).id for one in locks]

    call(eca, f"CALL <{HERE}change>(<http://r/1>)")
    assert statements(eca, UPDATES) == {("http://r/1", "tag", "free")}
    (step,) = last_trace(eca)["steps"]  # type: ignore[misc]
    assert step["called"]["warnings"] == [  # type: ignore[index]
        f"the lock {number} does not allow programs to change this statement" for number in numbers
    ]
    call(eca, "DELETE (<http://r/1>, tag, 'a'), (<http://r/1>, tag, 'free'); INSERT (<http://r/1>, level, 1)")
    assert statements(eca, UPDATES) == {("http://r/1", "level", "1")}

    with eca.engine.begin() as connection:
        for number in numbers:
            remove_lock(connection, number)
    call(eca, f"CALL <{HERE}change>(<http://r/1>)")
    assert statements(eca, UPDATES) == {("http://r/1", "tag", "free"), ("http://r/1", "level", "1")}


def test_only_actions_of_allowed_documents_are_called(eca: Mdp) -> None:
    define(eca, mark=("+:tag(?x, 'seen')", "x"))
    eca.provider.run_limits = eca.provider.run_limits._replace(actions=("http://trusted/",))

    with pytest.raises(UpdateFailed, match="the body of <http://act/mark> is in http://d/actions"):
        call(eca, f"CALL <{HERE}mark>(<http://r/1>)")
