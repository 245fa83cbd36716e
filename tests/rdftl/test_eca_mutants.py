"""Errors of the engine that the comparison with the naive oracle must detect.

Each scenario is one transaction on a small world. All agree with the oracle; with a mutant of the engine, at least one
does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from mdv.db.delta import EffectiveEdits
from mdv.mdp.eca.actions import ActionReader
from mdv.mdp.eca.evaluation import Evaluation
from mdv.mdp.eca.run import RunLimits, Scheduler
from mdv.mdp.provider import Provider
from mdv.mdp.transaction import Transaction
from mdv.model import Statement, Term
from mdv.rdftl.compile import compile_rules, compile_update
from tests.support import rdftl_oracle as oracle
from tests.support.eca_comparison import RunResult, add_all, run_on_oracle, run_on_store
from tests.support.eca_system import SCHEMA
from tests.support.mdp import Mdp

V = "http://v/"


class Scenario(NamedTuple):
    """Rules, a document that is there, and the update that triggers them."""

    rules: str
    document: frozenset[Statement]
    update: str


def said(*statements: tuple[str, str, str]) -> frozenset[Statement]:
    return frozenset(Statement(f"http://r/{s}", V + p, Term.literal(o)) for s, p, o in statements)


SCENARIOS = {
    "an action makes the condition of the next rule false": Scenario(
        "ON INSERT (_, subject, _) IF TRUE DO DELETE ($delta, tag, 'open') ;;"
        "ON INSERT (_, subject, _) IF $delta/target(tag) = 'open' DO INSERT ($delta, tag, 'seen')",
        said(("1", "tag", "open")), "INSERT (resource('http://r/1'), subject, 'x')",
    ),
    "an action makes the condition of the next rule true": Scenario(
        "ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'open') ;;"
        "ON INSERT (_, subject, _) IF $delta/target(tag) = 'open' DO INSERT ($delta, tag, 'seen')",
        said(("1", "tag", "first")), "INSERT (resource('http://r/1'), subject, 'x')",
    ),
    "one of two inserted statements is there already": Scenario(
        "ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, $delta.target)",
        said(("1", "subject", "x")),
        "INSERT (resource('http://r/1'), subject, 'x'), (resource('http://r/1'), subject, 'y')",
    ),
    "the same value again": Scenario(
        "ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, $delta.target)",
        said(("1", "subject", "x")), "INSERT (resource('http://r/1'), subject, 'x')",
    ),
    "an action changes what $delta was": Scenario(
        "ON UPDATE (_, level, _ -> _) IF TRUE DO DELETE ($delta, level, _) INSERT ($delta, tag, $delta.new_target) ;;"
        "ON UPDATE (_, level, _ -> _) IF TRUE DO INSERT ($delta, subject, $delta.new_target)",
        said(("1", "level", "1")), "UPDATE (resource('http://r/1'), level, _ -> 2)",
    ),
    "a deferred rule beside an immediate one": Scenario(
        "COUPLING Deferred ON INSERT (_, subject, _) IF TRUE DO DELETE ($delta, tag, _) ;;"
        "ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'now')",
        said(("1", "tag", "before")), "INSERT (resource('http://r/1'), subject, 'x')",
    ),
    "a deferred rule runs after the rest of the update": Scenario(
        "COUPLING Deferred ON INSERT (_, subject, _) IF TRUE DO DELETE ($delta, tag, _)",
        said(("1", "tag", "before")),
        "INSERT (resource('http://r/1'), subject, 'x') INSERT (resource('http://r/1'), tag, 'late')",
    ),
    "a rule fails after its child has changed the same statement": Scenario(
        "ABORT ParentChild ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'a')"
        " INSERT ($delta, level, 1), ($delta, level, 2) ;;"
        "ABORT Independent ON INSERT (_, tag, 'a') IF TRUE DO DELETE ($delta, tag, 'a') INSERT ($delta, tag, 'b')",
        said(("1", "tag", "before")), "INSERT (resource('http://r/1'), subject, 'x')",
    ),
    "a rule fails with a child that goes with it": Scenario(
        "ABORT Independent ON INSERT (_, subject, _) IF TRUE DO INSERT ($delta, tag, 'a')"
        " INSERT ($delta, level, 1), ($delta, level, 2) ;;"
        "ABORT ParentChild ON INSERT (_, tag, 'a') IF TRUE DO INSERT ($delta, tag, 'b')",
        said(("1", "tag", "before")), "INSERT (resource('http://r/1'), subject, 'x')",
    ),
}  # fmt: skip


@pytest.fixture
def world(mdp: Mdp) -> Mdp:
    mdp.put_schema(SCHEMA)
    mdp.provider = Provider(mdp.engine, run_limits=RunLimits(60, 40, 60, 60))
    return mdp


def outcomes(world: Mdp, scenario: Scenario) -> tuple[RunResult, RunResult]:
    """Return what the engine does, and what the oracle does."""
    with world.engine.connect() as connection:
        schema = world.schemas.now(connection).schema
    with world.engine.connect() as connection:
        texts = scenario.rules.split(";;")
        rules = {number: compile_rules(text, schema)[0].rule for number, text in enumerate(texts, 1)}
        actions = compile_update(scenario.update, schema).actions
        documents = {"http://d/1": scenario.document}
        expected = run_on_oracle(actions, rules, oracle.State(documents, schema))
        transaction = connection.begin()
        try:
            run_on_store(connection, world.provider, oracle.Registration("http://d/1", scenario.document), schema)
            add_all(connection, world.provider, texts)
            return run_on_store(connection, world.provider, actions, schema), expected
        finally:
            transaction.rollback()


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_the_engine_agrees_with_the_oracle(world: Mdp, scenario: Scenario) -> None:
    found, expected = outcomes(world, scenario)

    assert found == expected


def _evaluate_conditions_between_actions(patch: pytest.MonkeyPatch) -> None:
    """A condition is evaluated again just before the first action of its copy."""
    execute = Scheduler._execute_first

    def again(scheduler: Any) -> None:
        owner, index = scheduler._schedule[0]
        if owner.rule is not None and index == 0 and owner.delta is not None:
            (template,) = (one for one in scheduler._rules.by_id.values() if one.rule == owner.template)
            deltas = {template.key: [owner.delta]}
            evaluation = Evaluation(
                scheduler._tx, scheduler._rules, deltas, scheduler._slow, 60, scheduler._check_deadline
            )
            scheduler._tx.flush()
            if owner.rule.id not in {rule.id for _, rule, _ in evaluation.evaluate(None)}:
                while scheduler._schedule and scheduler._schedule[0].owner is owner:
                    scheduler._schedule.popleft()
                return
        execute(scheduler)

    patch.setattr(Scheduler, "_execute_first", again)


def _raise_events_for_no_ops(patch: pytest.MonkeyPatch) -> None:
    """Inserting a statement that is there already is an event."""
    apply = Transaction.apply_edits

    def with_no_ops(tx: Any, cause: Any, additions: Any, *rest: Any, **options: Any) -> EffectiveEdits:
        effective = apply(tx, cause, additions, *rest, **options)
        gained = {*effective.gained, *(edit.statement for edit in additions)}
        return effective._replace(gained=list(gained))

    patch.setattr(Transaction, "apply_edits", with_no_ops)


def _bind_delta_late(patch: pytest.MonkeyPatch) -> None:
    """The targets of `$delta` are those that its arc has when an action runs."""
    bound = ActionReader._delta_term

    def late(reader: Any, field: Any) -> Term:
        term = bound(reader, field)
        delta = reader._delta
        if term.is_uri:
            return term
        row = reader._connection.exec_driver_sql(
            "select f.value from filter_data f join resources r on r.id = f.resource_id join vocabulary v"
            " on v.id = f.property_id where r.uri = %s and v.uri = %s order by f.value",
            (delta.source, delta.arc_name),
        ).first()
        return Term.literal(row[0] if row is not None else "", term.lang, term.datatype)

    patch.setattr(ActionReader, "_delta_term", late)


def _run_deferred_copies_first(patch: pytest.MonkeyPatch) -> None:
    react = Scheduler._react

    def first(scheduler: Any, *arguments: Any) -> None:
        react(scheduler, *arguments)
        while scheduler._deferred:
            rest = list(scheduler._schedule)
            scheduler._schedule.clear()
            scheduler._extend(scheduler._deferred.pop())
            scheduler._schedule.extend(rest)

    patch.setattr(Scheduler, "_react", first)


def _undo_what_has_changed_since(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("mdv.mdp.eca.undo._can_undo", lambda tx, change: True)


def _forget_children_of_failed_rules(patch: pytest.MonkeyPatch) -> None:
    from mdv.mdp.eca.run import RuleCopy

    patch.setattr(RuleCopy, "aborts_with_parent", property(lambda copy: False))


MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    _evaluate_conditions_between_actions,
    _raise_events_for_no_ops,
    _bind_delta_late,
    _run_deferred_copies_first,
    _undo_what_has_changed_since,
    _forget_children_of_failed_rules,
]


@pytest.mark.parametrize("mutate", MUTANTS, ids=lambda mutate: mutate.__name__.strip("_"))
def test_the_comparison_detects_a_mutant(
    world: Mdp, mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)

    results = [outcomes(world, scenario) for scenario in SCENARIOS.values()]

    assert any(found != expected for found, expected in results)
