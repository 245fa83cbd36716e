"""Measure how much time a rule adds to a registration, on stored resources, before it is subscribed.

For a few stored resources, the rule is evaluated as by the filter, as if each resource had just changed. The whole
measurement has a time limit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import psycopg
from sqlalchemy import Connection

from mdv.db import filter as db
from mdv.db.postgres_copy import array_literal
from mdv.inspect.rule_explanation import MeasuredCost
from mdv.mdp.groups import constant_parameters, constant_values, read_instances, statement_states
from mdv.mdp.plan import ConjunctionPlan, constant_of
from mdv.query.compile import VocabularyIds, recheck
from mdv.query.offload import Offload
from mdv.rules.normal import Constant

SAMPLE_RESOURCES = 5
"""How many resources are measured for each variable of a rule. The newest instances of its class are used."""


def measure_cost(
    connection: Connection,
    plans: Sequence[ConjunctionPlan],
    constants: Sequence[Constant],
    names: VocabularyIds,
    position: int,
    limit: float,
    seconds: float,
    apart: Offload,
) -> MeasuredCost:
    """Measure the changes of a few stored resources.

    `limit`: the time limit of a rule in one transaction, in seconds. `seconds`: the time limit of the measurement.
    """
    return _Measurement(connection, plans, constants, names, position, limit, seconds).run(apart)


class _Check(NamedTuple):
    """The statement that evaluates a conjunction for changes, its constants, and the classes of its variables."""

    statement: db.CompiledStatement
    constants: dict[str, Any]
    nodes: Sequence[tuple[str, ...]]


class _Measurement:
    def __init__(
        self,
        connection: Connection,
        plans: Sequence[ConjunctionPlan],
        constants: Sequence[Constant],
        names: VocabularyIds,
        position: int,
        limit: float,
        seconds: float,
    ) -> None:
        self._connection, self._names, self._position = connection, names, position
        self._plans, self._constants = plans, constants
        self._limit, self._deadline = limit, time.monotonic() + seconds
        self._newest: dict[tuple[str, ...], list[int]] = {}

    def run(self, apart: Offload) -> MeasuredCost:
        durations: list[float] = []
        stopped = False
        try:
            with _limited(self._connection):
                checks = [self._check(plan, apart) for plan in self._plans]
                self._sample()
        except psycopg.errors.QueryCanceled:
            return MeasuredCost((), True, self._limit * 1000)
        for resource in dict.fromkeys(number for resources in self._newest.values() for number in resources):
            if self._left <= 0 or stopped:
                break
            spent, stopped = self._change(resource, checks)
            durations.append(spent * 1000)
        no_time = not durations and self._left <= 0
        return MeasuredCost(tuple(durations), stopped or no_time, self._limit * 1000)

    @property
    def _left(self) -> float:
        return self._deadline - time.monotonic()

    def _check(self, plan: ConjunctionPlan, apart: Offload) -> _Check:
        now, _, _ = statement_states(self._names)
        since = replace(now, make=db.statements_since)
        statement = apart(
            lambda: db.compile_statement(recheck(now, since, plan.pattern, [constant_parameters(plan.pattern)]))
        )
        found = [constant_of(plan.triggering[place], self._constants) for place in plan.leaves]
        return _Check(statement, constant_values([c for c in found if c is not None]), plan.pattern.nodes)

    def _sample(self) -> None:
        for plan in self._plans:
            for classes in plan.pattern.nodes:
                if classes not in self._newest and self._left > 0:
                    db.limit_time(self._connection, self._left)
                    self._newest[classes] = read_instances(self._connection, self._names, classes, SAMPLE_RESOURCES)

    def _change(self, resource: int, checks: Sequence[_Check]) -> tuple[float, bool]:
        """Return the seconds that a change of a resource takes, and True if it was stopped before it ended."""
        spent = 0.0
        for statement, constants, nodes in checks:
            concerned = [[resource] if resource in self._newest.get(classes, ()) else [] for classes in nodes]
            if not any(concerned):
                continue
            left = min(self._limit - spent, self._left)
            if left <= 0:
                return spent, True
            began = time.monotonic()
            try:
                with _limited(self._connection), db.pinned_plans(self._connection):
                    self._run(
                        statement, constants, [[] for _ in nodes]
                    )  # plan the statement first: planning is not measured
                    db.limit_time(self._connection, left)
                    began = time.monotonic()
                    self._run(statement, constants, concerned)
                    spent += time.monotonic() - began
            except psycopg.errors.QueryCanceled:
                return spent + max(left, time.monotonic() - began), True
        return spent, False

    def _run(self, statement: db.CompiledStatement, constants: dict[str, Any], nodes: Sequence[Sequence[int]]) -> None:
        changed = {f"node{node}": array_literal(numbers) for node, numbers in enumerate(nodes)}
        values = statement.fixed | constants | changed | {"position": self._position}
        db.evaluate(self._connection, statement, {name: values[name] for name in statement.numbered[1]})


@contextmanager
def _limited(connection: Connection) -> Iterator[None]:
    """Run in a savepoint that is rolled back, so that settings such as a time limit do not persist."""
    savepoint = connection.begin_nested()
    try:
        yield
    finally:
        savepoint.rollback()
