"""The engine does what the naive oracle does: documents, the order of firing, and every step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from mdv.errors import InvalidRule
from mdv.mdp.eca.run import RunLimits
from mdv.mdp.provider import Provider
from tests.support import rdftl_oracle as oracle
from tests.support import rdftl_worlds as worlds
from tests.support.eca_comparison import add_all, normal, reread_update, run_on_oracle, run_on_store
from tests.support.mdp import Mdp


@pytest.fixture
def world(mdp: Mdp) -> Mdp:
    mdp.put_schema(worlds.SCHEMA_TEXT)
    mdp.provider = Provider(mdp.engine, run_limits=RunLimits(60, 40, 60))
    return mdp


@settings(
    max_examples=150,
    phases=(Phase.generate,),
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.data_too_large,
    ],
)
@given(st.data())
def test_a_transaction_does_what_the_oracle_does(world: Mdp, data: Any) -> None:
    with world.engine.connect() as connection:
        schema = world.schemas.now(connection).schema
    documents = data.draw(worlds.documents())
    step = data.draw(worlds.transactions(strict=True))
    try:
        rules = normal(step.rules, schema)
        cause = step.cause
        if not isinstance(cause, oracle.Registration):
            cause = reread_update(cause, schema)
    except InvalidRule:
        assume(False)  # for example, a literal with a class
    state = oracle.State(documents, schema)
    assume(
        not (isinstance(cause, oracle.Registration) and cause.statements is None and cause.document not in documents)
    )
    expected = run_on_oracle(cause, {number: rule for number, (rule, _) in rules.items()}, state)

    with world.engine.connect() as connection:
        transaction = connection.begin()
        try:
            for uri, said in documents.items():
                run_on_store(connection, world.provider, oracle.Registration(uri, said), schema)
            if rules:
                add_all(connection, world.provider, [text for _, text in rules.values()])
            found = run_on_store(connection, world.provider, cause, schema)
        finally:
            transaction.rollback()

    assert found.refused == expected.refused
    assert found.fired == expected.fired
    assert found.trace == expected.trace
    assert found.documents == expected.documents
