"""Read runs of event-condition-action rules, and the changes that rules made."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from mdv.db.engine import driver
from mdv.db.load_sql import load_sql
from mdv.db.tables import eca_changes, eca_runs, transactions


class ListedRuleRun(NamedTuple):
    """A run without its trace. `subject`: the document that was registered or updated. `position`: None if the change
    was refused. `parent_run`, `parent_copy`: for a detached copy, the run where its rule fired and its number there.
    `compensated`: the numbers of the copies that were compensated; -1 is the transaction itself."""

    id: int
    position: int | None
    at: datetime
    cause: str
    subject: str | None
    outcome: str
    fired: int
    by: str | None
    parent_run: int | None
    parent_copy: int | None
    compensated: list[int]


class LoggedChange(NamedTuple):
    """A statement that an action added to a document or removed from it. `rule_id`: None for an update. `delta`: the
    instantiation of `$delta` as JSON."""

    id: int
    position: int
    at: datetime | None
    run: int
    step: int
    rule_id: int | None
    rule: str | None
    delta: dict[str, Any] | None
    added: bool
    document: str
    subject: str
    property: str
    object: dict[str, Any]


def count_rules(connection: Connection) -> dict[str, int]:
    """Return how many rules are in each state."""
    return dict(_query(connection, "count_rules"))


def list_sets(connection: Connection, limit: int) -> dict[str, int]:
    """Return rule sets with the number of rules of each, ordered by name."""
    return dict(_query(connection, "list_sets", limit=limit))


def list_runs(
    connection: Connection,
    before: int,
    limit: int,
    rule: int | None = None,
    outcome: str | None = None,
    position: int | None = None,
) -> list[ListedRuleRun]:
    """Return a page of runs, newest first. `rule`: those in which this rule fired or failed."""
    r = eca_runs.c
    query = (
        select(r.id, r.position, r.at, r.cause, r.subject, r.outcome, r.fired, r.changed_by, r.parent_run,
               r.parent_copy, r.compensated)
        .where(r.id < before).order_by(r.id.desc()).limit(limit)
    )  # fmt: skip
    if rule is not None:
        query = query.where(r.rules.contains([rule]))
    if outcome is not None:
        query = query.where(r.outcome == outcome)
    if position is not None:
        query = query.where(r.position == position)
    return [ListedRuleRun(*tuple(row)) for row in connection.execute(query)]


def read_stored_run(connection: Connection, number: int) -> tuple[ListedRuleRun, dict[str, Any]] | None:
    """Return a run and its trace; None if it does not exist."""
    for *row, trace in _query(connection, "read_run", id=number):
        return ListedRuleRun(*row), trace
    return None


def list_changes(
    connection: Connection,
    before: int,
    limit: int,
    resource: str | None = None,
    rule: int | None = None,
    document: str | None = None,
    run: int | None = None,
) -> list[LoggedChange]:
    """Return a page of changes that rules and updates made, newest first."""
    c = eca_changes.c
    query = (
        select(c.id, c.position, transactions.c.at, c.run_id, c.step, c.rule_id, c.rule_name, c.delta, c.is_added,
               c.document, c.subject, c.property, c.object)
        .join_from(eca_changes, transactions, transactions.c.position == c.position, isouter=True)
        .where(c.id < before).order_by(c.id.desc()).limit(limit)
    )  # fmt: skip
    for column, value in ((c.subject, resource), (c.rule_id, rule), (c.document, document), (c.run_id, run)):
        if value is not None:
            query = query.where(column == value)
    return [LoggedChange(*tuple(row)) for row in connection.execute(query)]


def list_insertions(connection: Connection, resource: str, limit: int) -> list[LoggedChange]:
    """Return the changes that inserted statements of a resource which may still be there, newest first."""
    return [LoggedChange(*row) for row in _query(connection, "list_insertions", resource=resource, limit=limit)]


def _query(connection: Connection, name: str, **values: object) -> Any:
    return driver(connection).execute(load_sql("eca", __package__)[name], values, prepare=True).fetchall()
