"""Mutants of the filter: each is an error that the state machine must detect."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
from sqlalchemy import false, func, select, true

import mdv.query.compile as compile_
from mdv.db.filter import statements_now
from mdv.db.tables import filter_data, resources
from mdv.model import RDF_TYPE, Statement, Term
from mdv.rules.operators import Operator
from tests.support.filter_machine import FilterMachine, Follower
from tests.support.generated_rules import DOCUMENTS, RESOURCES, RuleText, V
from tests.support.machines import assert_mutant_is_detected
from tests.support.two_processes import System

pytestmark = pytest.mark.full


def _forget_losses(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("mdv.mdp.filter.chain", lambda gains, losses: gains)


def _skip_the_old_state(patch: pytest.MonkeyPatch) -> None:
    """3.5 without its first pass: every present match counts as new, and no match is ever lost."""
    nothing = select(filter_data).where(false())
    patch.setattr("mdv.mdp.groups.statements_before", lambda: nothing.subquery())


def _skip_the_new_state(patch: pytest.MonkeyPatch) -> None:
    """3.5 without its second pass: every candidate counts as lost, though it may still match."""
    patch.setattr(compile_, "except_rows", lambda some, others: select(some))


def _forget_referrers(patch: pytest.MonkeyPatch) -> None:
    """The changed resources are evaluated, but not their referrers."""
    nothing = select(resources.c.id).where(false())
    patch.setattr(compile_, "_upward", lambda *rest: nothing)


def _forget_what_the_value_was(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("mdv.mdp.groups.statements_before_and_after", statements_now)


def _believe_partners(patch: pytest.MonkeyPatch) -> None:
    """A partner is found by one predicate, and the others are not evaluated."""
    patch.setattr(compile_.Conditions, "tie", lambda self, tie: true())


def _believe_branches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compile_.Conditions, "branch", lambda self, child: true())


def _forget_subproperties(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("mdv.query.vocabulary_ids._below", lambda iri, declared, closure: (iri,))


def _look_up_prefixes_only(patch: pytest.MonkeyPatch) -> None:
    """Constants of `endswith` are looked up by the beginning of a value."""
    probe = compile_._probe_keys
    patch.setattr(
        compile_,
        "_probe_keys",
        lambda state, rules, mine, text, end_of, holds: probe(state, rules, mine, text, func.left, holds),
    )


def _ignore_negations(patch: pytest.MonkeyPatch) -> None:
    """`not startswith` is evaluated as `startswith`."""
    compare = compile_.compare
    written = {operator: operator if operator.is_written else operator.negated for operator in Operator}
    patch.setattr(compile_, "compare", lambda left, operator, right: compare(left, written[operator], right))


SEED = 0x7B1BCEB07E233EC581C47DB04128CF09862A29614043C898FE4D2D81046A6128C395AA77F9A31CDBBB0A43463DCA52F4

MUTANTS: list[tuple[str, Callable[[pytest.MonkeyPatch], None], int]] = [
    ("losses are ignored", _forget_losses, 1),
    ("the old state is not read", _skip_the_old_state, 1),
    ("candidates are not evaluated on the new state", _skip_the_new_state, 1),
    ("referrers of changed resources are ignored", _forget_referrers, 5),
    ("old values lead to no candidates", _forget_what_the_value_was, SEED),
    ("further predicates between two variables are ignored", _believe_partners, 1),
    ("partners are not verified", _believe_branches, 1),
    ("subclasses and subproperties are ignored", _forget_subproperties, 1),
    ("negations of text operators are ignored", _ignore_negations, 1),
]
"""The name of a mutant, how it is made, and a seed that detects it soon."""


@pytest.mark.parametrize(("mutate", "seed"), [case for _, *case in MUTANTS], ids=[name for name, *_ in MUTANTS])
def test_the_machine_detects_a_mutant(
    mutate: Callable[[pytest.MonkeyPatch], None], seed: int, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    assert_mutant_is_detected(lambda: FilterMachine(system), seed)


@pytest.mark.parametrize("is_mutant", [False, True])
def test_suffixes_that_are_looked_up_as_prefixes_are_detected(
    is_mutant: bool, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of the machine, written out: random ones seldom have a rule with `endswith` and its value at once."""
    if is_mutant:
        _look_up_prefixes_only(monkeypatch)
    resource = RESOURCES[2]
    agent, name = Statement(resource, RDF_TYPE, Term.uri(V + "Agent")), V + "name"
    with system() as processes:
        model = Follower(processes)
        model.add([(None, RuleText("search Agent a register a where a.name endswith 'b'"))])
        for text in ("a", "ab", "a"):
            model.put({DOCUMENTS[0]: frozenset({agent, Statement(resource, name, Term.literal(text))})})
            is_found = is_mutant and text == "ab"
            with pytest.raises(AssertionError) if is_found else nullcontext():
                model.check()
            if is_found:
                return
