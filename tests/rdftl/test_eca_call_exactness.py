"""CALL does what the naive oracle does, which runs the bodies of actions with the reference interpreter of ReAL."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, event, given, settings
from hypothesis import strategies as st

from mdv.errors import InvalidRule
from mdv.mdp.eca.run import RunLimits
from mdv.mdp.provider import Provider
from mdv.model import Statement, Term
from mdv.rdftl.model import (
    Action,
    AllNodes,
    CallAction,
    ConstantValue,
    DeltaValue,
    EcaRule,
    NamedNode,
    NodePath,
    Operand,
)
from mdv.real.vocabulary import INPUT_SIGNATURE, LRM_BODY, REAL_CODE
from tests.support import rdftl_oracle as oracle
from tests.support import rdftl_worlds as worlds
from tests.support.eca_comparison import (
    add_all,
    normal,
    reread_update,
    run_on_oracle,
    run_on_store,
)
from tests.support.mdp import Mdp
from tests.support.real_actions import DECLARED

ACTIONS_DOCUMENT = "http://d/actions"
BODIES = {
    "mark": ("x", "rdf:type(?x, ?) AND ++:label(?x, 'a')"),
    "move": ("x", "-:about(?x, ?y) AND +:mentions(?x, ?y)"),
    "rate": ("x", "[-:size(?x, ?n)] AND ++:rating(?x, ?n)"),
    "author": ("x, y", "(+:author(?x, ?y) OR -:author(?x, ?z)) AND ++:mentions(?x, ?y)"),
    "inside": ("x", "IN <http://d/1> { :name(?x, ?n) AND -:about(?x, ?y) AND ++:about(?y, ?x) }"),
    "fails": ("x", "++:name(?x, 'a') AND :label(?x, ?l) AND +:mentions(?x, ?unbound)"),
    "none": ("x", "NO :about(?x, ?) AND +:rating(?x, '3')"),
    "sandbox": ("x", "{-:about(?x, ?y)} AND ++:mentions(?x, ?y)"),
    "undone": ("x", "[-:about(?x, ?y) AND :label(?y, ?)] OR -:label(?x, ?)"),
    "retype": ("x, c", "-rdf:type(?x, ?) AND ++rdf:type(?x, ?c)"),
}
"""Their results do not depend on the order of streams."""


def _action_statements() -> frozenset[Statement]:
    found = set()
    for name, (inputs, code) in BODIES.items():
        iri, body = f"http://act/{name}", f"http://act/{name}/body"
        found |= {
            Statement(iri, INPUT_SIGNATURE, Term.literal(inputs)),
            Statement(iri, LRM_BODY, Term.uri(body)),
            Statement(body, REAL_CODE, Term.literal(code)),
        }
    return frozenset(found)


ACTION_STATEMENTS = _action_statements()


@pytest.fixture
def world(mdp: Mdp) -> Mdp:
    mdp.put_schema(worlds.SCHEMA_TEXT + DECLARED)
    mdp.provider = Provider(mdp.engine, run_limits=RunLimits(60, 40, 60))
    return mdp


@st.composite
def calls(draw: st.DrawFn, delta: bool) -> CallAction:
    """A call with nodes, classes, paths and texts as arguments, now and then too many or of no action."""
    name = draw(st.sampled_from([*BODIES, *BODIES, "unknown"]))
    count = len(BODIES.get(name, ("x", ""))[0].split(",")) + draw(st.sampled_from([0] * 9 + [1]))
    heads = worlds.heads(delta)
    nodes = [head for head in heads if isinstance(head, NamedNode | DeltaValue)]
    argument: st.SearchStrategy[Operand] = st.one_of(
        st.sampled_from(nodes).map(NodePath),
        st.sampled_from([NodePath(NamedNode(uri)) for uri in worlds.CLASSES]),
        worlds.paths(heads, 0),
        st.just(NodePath(AllNodes())),
        st.just(ConstantValue("text", "text")),
    )
    return CallAction(f"http://act/{name}", tuple(draw(argument) for _ in range(count)))


@st.composite
def with_calls(draw: st.DrawFn, actions: tuple[Action, ...], delta: bool) -> tuple[Action, ...]:
    place = draw(st.integers(0, len(actions)))
    return (*actions[:place], draw(calls(delta)), *actions[place:])


SETTINGS = settings(
    max_examples=40,
    phases=(Phase.generate,),
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.data_too_large,
    ],
)


@SETTINGS
@given(st.data())
def test_a_transaction_with_calls_does_what_the_oracle_does(world: Mdp, data: Any) -> None:
    with world.engine.connect() as connection:
        schema = world.schemas.now(connection).schema
    documents = {**data.draw(worlds.documents()), ACTIONS_DOCUMENT: ACTION_STATEMENTS}
    step = data.draw(worlds.transactions(strict=True))
    drawn: dict[int, EcaRule] = {
        number: replace(rule, actions=data.draw(with_calls(rule.actions, delta=True)))
        for number, rule in step.rules.items()
    }
    cause: Any = step.cause
    if not isinstance(cause, oracle.Registration):
        cause = data.draw(with_calls(cause, delta=False))
    try:
        rules = normal(drawn, schema)
        if not isinstance(cause, oracle.Registration):
            cause = reread_update(cause, schema)
    except InvalidRule:
        assume(False)
    assume(
        not (isinstance(cause, oracle.Registration) and cause.statements is None and cause.document not in documents)
    )
    state = oracle.State(documents, schema)
    expected = run_on_oracle(cause, {number: rule for number, (rule, _) in rules.items()}, state)
    changed = [len(changes) for _, _, _, changes, _ in expected.trace]
    event(f"refused: {expected.refused}, steps that change: {min(3, sum(map(bool, changed)))}")

    with world.engine.connect() as connection:
        transaction = connection.begin()
        try:
            for uri, said in documents.items():
                run_on_store(connection, world.provider, oracle.Registration(uri, said), schema)
            add_all(connection, world.provider, [text for _, text in rules.values()])
            found = run_on_store(connection, world.provider, cause, schema)
        finally:
            transaction.rollback()

    assert found.refused == expected.refused
    assert found.fired == expected.fired
    assert found.trace == expected.trace
    assert found.documents == expected.documents
