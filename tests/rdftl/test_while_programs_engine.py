"""While programs on the engine: it computes what the interpreter does ([L] Appendix B)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from mdv.mdp.eca.run import RunLimits
from mdv.mdp.provider import Provider
from mdv.rdftl.write import write_rule
from tests.support import rdftl_oracle as oracle
from tests.support.eca_comparison import add_all, run_on_store
from tests.support.machines import model_examples
from tests.support.mdp import Mdp
from tests.support.while_programs import (
    DOCUMENT,
    SCHEMA_TEXT,
    VARIABLES,
    Compiler,
    TooLong,
    interpret,
    numbers,
    programs,
    start,
    variables,
)

FUEL = 30


@pytest.fixture
def counting(mdp: Mdp) -> Mdp:
    """A provider that has the numbers, with all variables 0."""
    mdp.put_schema(SCHEMA_TEXT)
    mdp.provider = Provider(mdp.engine, run_limits=RunLimits(seconds=60, query_seconds=60))
    return mdp


EXAMPLES = settings(
    max_examples=model_examples(25), phases=(Phase.generate,), suppress_health_check=[*HealthCheck], deadline=None
)


@pytest.mark.full
@EXAMPLES
@given(st.data())
def test_the_engine_computes_what_the_interpreter_does(counting: Mdp, data: Any) -> None:
    program = data.draw(programs())
    values = {name: data.draw(st.integers(0, 3)) for name in VARIABLES}
    before = numbers(values).documents[DOCUMENT]
    try:
        interpret(program, values, FUEL)
    except TooLong:
        assume(False)
    with counting.engine.connect() as connection:
        transaction = connection.begin()
        schema = counting.schemas.now(connection).schema
        try:
            run_on_store(connection, counting.provider, oracle.Registration(DOCUMENT, before), schema)
            rules = Compiler().compile(program)
            add_all(connection, counting.provider, [write_rule(rule, schema) for rule in rules.values()])
            done = run_on_store(connection, counting.provider, [start()], schema)
        finally:
            transaction.rollback()
    assert variables(done.documents[DOCUMENT]) == values
    assert done.documents.keys() == {DOCUMENT}, "all flags are deleted"
