"""The statement store against a naive oracle: a dictionary from document to its set of statements.

Random registrations, deletions, dry runs and schema changes over tiny domains; after each step everything that can be
read agrees with the oracle. The mutants at the end prove that the machine detects errors.

MDV_MODEL_EXAMPLES sets the number of runs, for longer searches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import rule, run_state_machine_as_test

from mdv.db.delta import DocumentDifference
from mdv.db.load_sql import load_sql
from mdv.model import Statement
from tests.support.mdp import Mdp
from tests.support.store_machine import (
    NUMBERS,
    RESOURCES,
    RULES,
    Expected,
    P,
    Rules,
    StoreMachine,
    compare,
)

pytestmark = pytest.mark.full

EXAMPLES = int(os.environ.get("MDV_MODEL_EXAMPLES", "6"))
STEPS = 25


class SchemaMachine(StoreMachine):
    """Schema changes are more frequent than at random."""

    @rule(rules=RULES)
    def change_schema_again(self, rules: Rules) -> None:
        self.change_schema(replace(rules, open=True))


def search(mdp: Mdp, machine: type[StoreMachine] = StoreMachine, examples: int = EXAMPLES, **options: Any) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    profile = settings(max_examples=examples, stateful_step_count=STEPS, deadline=None, suppress_health_check=checks,
                       **options)  # fmt: skip
    run_state_machine_as_test(lambda: machine(mdp), settings=profile)


@pytest.mark.parametrize("small", [200, 0], ids=["in one message", "by COPY, as they are compared"])
def test_store_agrees_with_the_oracle(mdp: Mdp, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.db.statement_store.MAX_PIPELINED_STATEMENTS", small)
    search(mdp, report_multiple_bugs=False, phases=[Phase.reuse, Phase.generate])


# -- mutants: each is an error that the machine must detect


def _mutate(name: str, old: str, new: str) -> Callable[[pytest.MonkeyPatch], None]:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        sql = load_sql("store")
        assert old in sql[name]
        monkeypatch.setitem(sql, name, sql[name].replace(old, new))

    return patch


def _forget_to_retype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.mdp.put_schema.update_typed_values", lambda connection, rows: None)


def _log_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.db.statement_store.cancel_moved_statements", lambda gains, losses: None)


def _forget_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_what_is_visible(differences: Sequence[DocumentDifference], kept: set[int]) -> tuple[set[int], set[int]]:
        removed, added = ({key for d in differences for key in getattr(d, name)} for name in ("removed", "added"))
        return kept | {key.resource for key in removed - added}, kept | {key.resource for key in added - removed}

    monkeypatch.setattr("mdv.db.statement_store.described_before_and_after", from_what_is_visible)


MUTANTS = {
    "every change is visible": _mutate("find_others", "limit 1", "limit 0"),
    "moved statements are logged": _log_moved,
    "a moved statement does not keep its resource": _forget_moved,
    "stored values keep their old type": _forget_to_retype,
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_machine_detects_a_mutant(mutant: str, mdp: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant](monkeypatch)
    machine = SchemaMachine if MUTANTS[mutant] is _forget_to_retype else StoreMachine
    with pytest.raises(AssertionError):
        search(mdp, machine, 200, phases=[Phase.generate], derandomize=True, database=None, report_multiple_bugs=False)


def test_the_oracle_counts_a_resource_without_statements_as_deleted() -> None:
    said = frozenset([Statement(RESOURCES[0], P, NUMBERS[0])])
    other = frozenset([Statement(RESOURCES[0], P, NUMBERS[1])])
    assert compare({"a": said}, {}).deleted == {RESOURCES[0]}
    assert compare({"a": said, "b": said}, {"b": said}) == Expected(set(), set(), set())
    assert compare({"a": said}, {"a": other}).updated == {RESOURCES[0]}
    assert replace(Rules(), p_set_valued=False).accepts(said | other) is False
