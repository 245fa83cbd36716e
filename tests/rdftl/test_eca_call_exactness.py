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
from mdv.rdftl.model import (
    EcaRule,
)
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
from tests.support.rdftl_calls import ACTION_STATEMENTS, ACTIONS_DOCUMENT, with_calls
from tests.support.real_actions import DECLARED


@pytest.fixture
def world(mdp: Mdp) -> Mdp:
    mdp.put_schema(worlds.SCHEMA_TEXT + DECLARED)
    mdp.provider = Provider(mdp.engine, run_limits=RunLimits(60, 40, 60))
    return mdp


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


@pytest.mark.full
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
