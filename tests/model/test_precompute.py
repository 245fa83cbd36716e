"""Results that are precomputed and caught up equal those of a full evaluation, also with concurrent writes."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mdv.mdp.precompute import Outdated, RuleChange, precompute
from mdv.mdp.rules.planning import RuleDraft, plan_new_rules
from tests.support.generated_rules import DOCUMENTS, SCHEMA, RuleText, Said, contents, populations, rule_texts, turtle
from tests.support.mdp import Mdp
from tests.support.two_processes import System

EXAMPLES = int(os.environ.get("MDV_MODEL_EXAMPLES", "6")) * 5

WRITES = st.lists(
    st.dictionaries(st.sampled_from(DOCUMENTS), contents() | st.none(), min_size=1, max_size=2), max_size=4
)


def write(mdp: Mdp, batch: dict[str, Said | None]) -> None:
    mdp.put({uri: None if said is None else turtle(said) for uri, said in batch.items()})


def catch_up(
    system: System, text: RuleText, population: Said, rounds: Sequence[Sequence[dict[str, Said | None]]]
) -> None:
    with system() as (mdp, other):
        mdp.put_schema(SCHEMA)
        lmr = mdp.create_lmr("north")
        write(mdp, {DOCUMENTS[0]: population})
        with mdp.engine.connect() as connection:
            schema = mdp.schemas.now(connection)
            change = RuleChange((), plan_new_rules(connection, [RuleDraft(lmr.id, None, text.text)], schema, mdp.rules))
        precomputed = precompute(mdp.engine, change, schema, mdp.vocabulary)
        for batches in rounds:
            for batch in batches:
                write(other, batch)
            precomputed.catch_up_without_lock(mdp.engine, schema, mdp.vocabulary)
            again = precompute(mdp.engine, change, schema, mdp.vocabulary)
            assert (precomputed.position, precomputed.selected, precomputed.deltas) == (
                again.position,
                again.selected,
                again.deltas,
            )


@pytest.mark.full
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=rule_texts([]), population=populations(), rounds=st.lists(WRITES, min_size=1, max_size=2))
def test_catching_up_equals_a_full_evaluation(
    system: System, text: RuleText, population: Said, rounds: list[list[dict[str, Said | None]]]
) -> None:
    catch_up(system, text, population, rounds)


def test_a_rule_that_changed_during_precomputation_is_detected(mdp: Mdp) -> None:
    mdp.put_schema(SCHEMA)
    lmr = mdp.create_lmr("north")
    (rule,) = mdp.subscribe(lmr, "search Book a register a where a.pages > 3")
    with mdp.engine.connect() as connection:
        schema = mdp.schemas.now(connection)
    change = RuleChange([rule.id], ())
    precomputed = precompute(mdp.engine, change, schema, mdp.vocabulary)
    mdp.change_subscription(lmr, rule.id, "search Book a register a where a.pages > 4")
    with mdp.engine.begin() as connection, pytest.raises(Outdated):
        from mdv.db.state import lock_state

        precomputed.changes(connection, lock_state(connection), change, schema, mdp.vocabulary)
