"""The engine does what the naive oracle does: documents, the order of firing, and every step."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, event, given, settings
from hypothesis import strategies as st

from mdv.errors import InvalidRule
from mdv.mdp.eca.run import RunLimits
from mdv.mdp.provider import Provider
from mdv.model import Statement
from tests.support import rdftl_oracle as oracle
from tests.support import rdftl_worlds as worlds
from tests.support.eca_comparison import (
    add_all,
    normal,
    read_documents,
    register_all,
    reread_update,
    run_on_oracle,
    run_on_store,
)
from tests.support.mdp import Mdp


@pytest.fixture
def world(mdp: Mdp) -> Mdp:
    mdp.put_schema(worlds.SCHEMA_TEXT)
    mdp.provider = Provider(mdp.engine, run_limits=RunLimits(60, 40, 60))
    return mdp


SETTINGS = settings(
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


@pytest.mark.full
@SETTINGS
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
    if data.draw(st.booleans()):
        documents = {uri: worlds.with_blank_node(uri, said) for uri, said in documents.items()}
        if isinstance(cause, oracle.Registration) and cause.statements is not None:
            cause = cause._replace(statements=worlds.with_blank_node(*cause))
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


DISJOINT = [f"http://d/{n}" for n in range(1, 5)]


@st.composite
def batches(draw: st.DrawFn) -> dict[str, frozenset[Statement]]:
    """Documents of a batch: about any resources, or each about one of its own."""
    if draw(st.booleans()):
        return draw(worlds.documents())
    found = {}
    for uri, subject in zip(DISJOINT, worlds.RESOURCES, strict=True):
        said = [one._replace(subject=subject) for one in draw(worlds.contents(4)) if one.property not in worlds.MEMBERS]
        if said:
            found[uri] = worlds.valid(said)
    return found


@pytest.mark.full
@SETTINGS
@given(st.data())
def test_a_batch_does_what_the_oracle_does_one_by_one(world: Mdp, data: Any) -> None:
    with world.engine.connect() as connection:
        schema = world.schemas.now(connection).schema
    documents, batch = data.draw(batches()), data.draw(batches())
    step = data.draw(worlds.transactions(strict=False))
    try:
        rules = normal(step.rules, schema)
    except InvalidRule:
        assume(False)
    assume(batch)
    numbered = {number: rule for number, (rule, _) in rules.items()}
    state, refused, fired = oracle.State(documents, schema), [], []
    for uri, said in batch.items():
        expected = run_on_oracle(oracle.Registration(uri, said), numbered, state)
        refused.append(expected.refused)
        fired.append(len(expected.fired))
        state = oracle.State(expected.documents, schema)

    with world.engine.connect() as connection:
        transaction = connection.begin()
        try:
            register_all(connection, world.provider, documents)
            if rules:
                add_all(connection, world.provider, [text for _, text in rules.values()])
            found = register_all(connection, world.provider, batch)
            stored = read_documents(connection)
        finally:
            transaction.rollback()

    event(f"{len(batch)} documents, fired: {sum(fired) > 0}")
    assert [type(one).__name__ if isinstance(one, Exception) else None for one in found] == refused
    assert [getattr(one, "fired", None) or 0 for one in found] == fired
    assert stored == {uri: said for uri, said in state.documents.items() if said}
