"""Run the filter's statements. Changes of matches are stored in `result_objects` and `result_ranges`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import psycopg
from sqlalchemy import Connection, FromClause, Insert, Select, bindparam, select, union_all
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from mdv.db.engine import driver, pipelined, postgres_duration
from mdv.db.load_sql import load_sql, number_parameters
from mdv.db.pipeline import PendingResult, Pipeline
from mdv.db.postgres_copy import copy_rows
from mdv.db.tables import filter_data, filter_data_history, result_objects, result_ranges
from mdv.errors import TooCostly

_DIALECT = PGDialect_psycopg()  # type: ignore[no-untyped-call]

_COLUMNS = ("resource_id", "property_id", "target_id", "value", "number", "instant", "truth")


def statements_now() -> FromClause:
    """The current statements of all documents."""
    return filter_data


def statements_before() -> FromClause:
    """The statements before the transaction of `:position`."""
    stayed = select(*(filter_data.c[name] for name in _COLUMNS)).where(
        filter_data.c.position < bindparam("position", type_=filter_data.c.position.type)
    )
    return union_all(stayed, _removed()).subquery()


def statements_before_and_after() -> FromClause:
    """The current statements, and those that the transaction of `:position` removed."""
    return union_all(select(*(filter_data.c[name] for name in _COLUMNS)), _removed()).subquery()


def _removed() -> Select[Any]:
    return select(*(filter_data_history.c[name] for name in _COLUMNS)).where(
        filter_data_history.c.until_position == bindparam("position", type_=filter_data.c.position.type)
    )


def statements_since() -> FromClause:
    """The current statements, and those that were removed after the transaction of `:position`."""
    removed = select(*(filter_data_history.c[name] for name in _COLUMNS)).where(
        filter_data_history.c.until_position > bindparam("position", type_=filter_data.c.position.type)
    )
    return union_all(select(*(filter_data.c[name] for name in _COLUMNS)), removed).subquery()


def statements_as_of() -> FromClause:
    """The statements after the transaction of `:position`."""
    position = bindparam("position", type_=filter_data.c.position.type)
    history = filter_data_history.c
    present = select(*(filter_data.c[name] for name in _COLUMNS)).where(filter_data.c.position <= position)
    removed = select(*(history[name] for name in _COLUMNS)).where(
        history.position <= position, history.until_position > position
    )
    return union_all(present, removed).subquery()


@dataclass(frozen=True)
class CompiledStatement:
    """The SQL text of a statement, with the parameters that have fixed values."""

    sql: str
    fixed: dict[str, Any]

    @cached_property
    def numbered(self) -> tuple[str, tuple[str, ...]]:
        """The statement with numbered parameters, and their names in that order."""
        return number_parameters(self.sql)


def compile_statement(statement: Select[Any] | Insert) -> CompiledStatement:
    made = statement.compile(dialect=_DIALECT)
    return CompiledStatement(str(made), {name: value for name, value in made.params.items() if value is not None})


def insert_results(changes: Select[Any]) -> CompiledStatement:
    """Return the statement that stores `changes`: rule, resource, and whether it matches now."""
    return compile_statement(result_objects.insert().from_select(["rule_id", "resource_id", "matched"], changes))


def insert_ranges(changes: Select[Any]) -> CompiledStatement:
    """Return the statement that stores `changes`: the ranges of values before and after."""
    return compile_statement(result_ranges.insert().from_select([column.name for column in result_ranges.c], changes))


class FilterRun(NamedTuple):
    """The queued statements of a filter run: one for each group, and one that reads the matched resources."""

    groups: Sequence[PendingResult]
    matched: PendingResult

    def matched_resources(self) -> set[int]:
        """Return the resources that match a rule now and did not before. Call it after the pipeline was sent."""
        return {int(number) for (number,) in self.matched.rows() if number is not None}

    def failed_group_index(self, failed: PendingResult | None) -> int | None:
        """Return the index of the group whose statement failed; None if another statement failed."""
        return next((index for index, answer in enumerate(self.groups) if answer is failed), None)


class GroupStatement(NamedTuple):
    """The statement of a group, with its parameters and, optionally, its own time limit in seconds."""

    statement: CompiledStatement
    values: Mapping[str, Any]
    limit: float | None = None


def queue_filter_run(pipeline: Pipeline, steps: Sequence[GroupStatement], limit: float) -> FilterRun:
    """Queue a filter run, in which each statement has a time limit of `limit` seconds."""
    sql = load_sql("rule_graph")
    pipeline.queue_named(sql["begin_filter"], limit=postgres_duration(limit))
    queued = []
    for step in steps:
        if step.limit is not None:
            pipeline.queue_named(sql["limit_time"], most=postgres_duration(step.limit))
        queued.append(queue_statement(pipeline, step.statement, step.values))
        if step.limit is not None:
            pipeline.queue_named(sql["limit_time"], most=postgres_duration(limit))
    return FilterRun(queued, pipeline.queue_named(sql["matched_resources"]))


def changed_since(connection: Connection, position: int) -> list[tuple[int, int, int | None]]:
    """Return the statements that were added or removed after a position: resource, property and target of each."""
    values = {"since": position}
    return driver(connection).execute(load_sql("rule_graph")["changed_since"], values, prepare=True).fetchall()


def find_references_between(
    connection: Connection, some: Collection[int], targets: Collection[int]
) -> list[tuple[int, int]]:
    """Return the references from `some` resources to `targets`, as pairs."""
    values = {"resources": list(some), "targets": list(targets)}
    return driver(connection).execute(load_sql("rule_graph")["find_referring"], values, prepare=True).fetchall()


@dataclass
class MatchResults:
    """The matches of rules at one position: pairs of end rule and resource; and the ranges of values, by range group
    and resource."""

    pairs: set[tuple[int, int]] = field(default_factory=set)
    reached: dict[int, dict[int, tuple[Any, Any]]] = field(default_factory=dict)


def store_difference(
    connection: Connection, before: MatchResults, after: MatchResults, new_ends: Set[int], last_rule: int
) -> None:
    """Store the changes between two results, in addition to those that are already stored. Removed groups are ignored,
    and so are new end rules (in ranges: those after `last_rule`), whose first results are already stored."""
    session = driver(connection)
    pairs = {(rule, resource) for rule, resource in after.pairs if rule not in new_ends}
    gained, lost = pairs - before.pairs, before.pairs - pairs
    copy_rows(
        session, "result_objects (rule_id, resource_id, matched)",
        ((rule, resource, matched) for pairs, matched in ((gained, True), (lost, False)) for rule, resource in pairs),
    )  # fmt: skip
    rows = []
    for group, reached in after.reached.items():
        previous = before.reached.get(group, {})
        for resource in {*reached, *previous}:
            ends = (*previous.get(resource, (None, None)), *reached.get(resource, (None, None)))
            if ends[:2] != ends[2:]:
                nothing = (None,) * 4
                is_text = any(isinstance(end, str) for end in ends)
                typed = nothing + ends if is_text else ends + nothing
                rows.append((group, resource, 0, last_rule, ends[2] is not None, *typed))
    copy_rows(session, f"result_ranges ({', '.join(column.name for column in result_ranges.c)})", rows)


@contextmanager
def reject_slow_statements(what: str) -> Iterator[None]:
    """Raise `TooCostly` if a statement of the block exceeds the limit of `limit_time`. The transaction is aborted."""
    try:
        yield
    except psycopg.errors.QueryCanceled:
        raise TooCostly(what) from None


class SlowUnderLock(Exception):
    """A statement took too long for a transaction that holds the lock. Evaluate it without the lock, then retry."""


@contextmanager
def limit_time_under_lock() -> Iterator[None]:
    """Raise `SlowUnderLock` if a statement of the block exceeds the limit of `limit_time`."""
    try:
        yield
    except psycopg.errors.QueryCanceled:
        raise SlowUnderLock from None


def limit_time(connection: Connection, seconds: float) -> None:
    """Set the time limit for each following statement of this transaction; 0: no limit."""
    driver(connection).execute(load_sql("rule_graph")["limit_time"], {"most": postgres_duration(seconds)}, prepare=True)


def clear_results(connection: Connection) -> None:
    """Delete the results of the last run."""
    session, sql = driver(connection), load_sql("rule_graph")
    with pipelined(session):
        session.execute(sql["clear_results"], prepare=True)
        session.execute(sql["clear_ranges"], prepare=True)


def execute_statement(connection: Connection, statement: CompiledStatement, values: Mapping[str, Any]) -> None:
    """Run one statement that stores results, in addition to those that are already stored."""
    driver(connection).execute(statement.sql, {**statement.fixed, **values}, prepare=True)


def queue_statement(pipeline: Pipeline, statement: CompiledStatement, values: Mapping[str, Any]) -> PendingResult:
    """Queue one statement that stores results. All values are numbers or texts."""
    sql, names = statement.numbered
    given = [values[name] if name in values else statement.fixed[name] for name in names]
    return pipeline.queue(sql, [None if value is None else str(value) for value in given])


@contextmanager
def pinned_plans(connection: Connection) -> Iterator[None]:
    """Run the statements of the block with the join order as written, like those of a filter run."""
    session, sql = driver(connection), load_sql("rule_graph")
    session.execute(sql["pin_filter"], prepare=True)
    yield
    session.execute(sql["unpin_filter"], prepare=True)


def evaluate(connection: Connection, statement: CompiledStatement, values: dict[str, Any]) -> list[Any]:
    """Return the rows of a compiled statement."""
    return driver(connection).execute(statement.sql, statement.fixed | values, prepare=True).fetchall()


def read_changes(connection: Connection) -> list[tuple[int, str, bool]]:
    """Return the changes of the last run: end rule, resource, and whether it matches now. Ranges are expanded to
    rules."""
    session = driver(connection)
    return [tuple(row) for sql in load_sql("filter_results").values() for row in session.execute(sql).fetchall()]
