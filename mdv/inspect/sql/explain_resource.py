"""Queries of `explain_resource`: the rules, values and references that bring a resource to an LMR."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from math import ceil
from typing import Any

import psycopg
from sqlalchemy import ColumnElement, Connection, Select, or_, select
from sqlalchemy.exc import OperationalError

from mdv.db.filter import CompiledStatement, compile_statement, limit_time
from mdv.db.load_sql import load_sql
from mdv.db.tables import FILTER_RULES_TABLES, end_rules, rule_ends, rules, vocabulary
from mdv.rules.operators import Operator

MAX_VALUES_READ = 1000
"""Limit of values that one query reads. A resource may have very many."""


@dataclass(frozen=True, slots=True)
class ResourceValue:
    """A value of a resource: a URI or a text, and its typed values."""

    resource: int
    property: int
    uri: str | None
    text: str | None
    number: Decimal | None
    instant: Decimal | None
    truth: bool | None


@dataclass(frozen=True, slots=True)
class ResourceReference:
    """A reference from a resource to another one, with IDs."""

    resource: int
    property: int
    target: int


class EvidenceReader:
    """Runs the statements of explain_resource.sql in one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(self, statement: CompiledStatement, **values: Any) -> list[Any]:
        """Return the rows of a compiled statement."""
        return list(self._connection.exec_driver_sql(statement.sql, statement.fixed | values).all())

    def number(self, uri: str) -> int | None:
        """Return the ID of a URI; None if no statement mentions it."""
        rows = self._rows("resource", uri=uri)
        return rows[0][0] if rows else None

    def uris(self, numbers: Collection[int]) -> dict[int, str]:
        return dict(self._rows("uris", ids=list(numbers)))

    def names(self, numbers: Collection[int]) -> dict[int, str]:
        """Return the URIs of properties by ID."""
        found = select(vocabulary.c.id, vocabulary.c.uri).where(vocabulary.c.id.in_(numbers))
        return {row.id: row.uri for row in self._connection.execute(found)}

    def documents(self, resource: int, most: int) -> list[str]:
        return [uri for (uri,) in self._rows("documents", resource=resource, most=most)]

    def reasons(self, lmr: int, resource: int) -> int | None:
        """Return the number of the LMR's rules that select a resource; 0: it is only strongly referenced; None: it is
        not in the closure."""
        rows = self._rows("reasons", lmr=lmr, resource=resource)
        return rows[0][0] if rows else None

    def values(self, some: Collection[int], properties: Collection[int]) -> list[ResourceValue]:
        values = {"resources": list(some), "properties": list(properties), "most": MAX_VALUES_READ}
        return [ResourceValue(*row) for row in self._rows("values", **values)]

    # Rules.

    def groups(self, owner: int) -> set[int]:
        """Return the whole groups that contain rules of an owner."""
        return {number for (number,) in self._rows("groups", owner=owner)}

    def rules_of_groups(self, owner: int, groups: Collection[int], each: int, most: int) -> list[int]:
        rows = self._rows("rules_of_groups", owner=owner, groups=list(groups), each=each, most=most)
        return [number for (number,) in rows]

    def owned(self, owner: int, matches: Select[Any], most: int, **values: Any) -> list[int]:
        """Return the rules of an owner whose end rules are among those that `matches` selects, ordered by ID."""
        found = matches.subquery("found")
        return self._numbers(_rules(found.c.rule_id, owner, most), values)

    def owned_range(
        self, owner: int, group_id: int, predicate_id: int, operator: Operator, ends: tuple[Any, Any], most: int
    ) -> list[int]:
        """Return the rules of an owner in a range group that match a resource whose values lie between the two
        `ends`."""
        constants = FILTER_RULES_TABLES[operator]
        is_text = isinstance(ends[0], str)
        satisfied = _satisfied(operator, constants.c.value if is_text else constants.c.number, *ends)
        end = end_rules.alias("its_end")
        query = (
            _rules(end.c.rule_id, owner, most)
            .join(constants, constants.c.rule_id == end.c.driver_id)
            .where(end.c.group_id == group_id, constants.c.predicate_id == predicate_id, satisfied)
        )
        return self._numbers(query, {})

    # References.

    def selected_referrer(
        self, lmr: int, targets: Sequence[int], strong: Sequence[int], blank: Sequence[int]
    ) -> ResourceReference | None:
        rows = self._rows("selected_referrer", lmr=lmr, targets=targets, strong=strong, blank=blank)
        return ResourceReference(*rows[0]) if rows else None

    def referrers(
        self, lmr: int, targets: Sequence[int], strong: Sequence[int], blank: Sequence[int], seen: Collection[int],
        most: int,
    ) -> list[ResourceReference]:  # fmt: skip
        """Return strong references to the targets from resources in the closure of the LMR, except those in `seen`."""
        values = {"lmr": lmr, "targets": targets, "strong": strong, "blank": blank, "seen": list(seen), "most": most}
        return [ResourceReference(*row) for row in self._rows("referrers", **values)]

    def _rows(self, name: str, **values: Any) -> list[Any]:
        return list(self._connection.exec_driver_sql(load_sql("explain_resource", __package__)[name], values).all())

    def _numbers(self, query: Select[Any], values: dict[str, Any]) -> list[int]:
        return [number for (number,) in self.run(compile_statement(query), **values)]


def _satisfied(operator: Operator, constant: ColumnElement[Any], low: Any, high: Any) -> ColumnElement[bool]:
    """Return the condition for constants that values from `low` to `high` satisfy."""
    satisfied: dict[Operator, ColumnElement[bool]] = {
        Operator.LT: constant > low,
        Operator.LE: constant >= low,
        Operator.GT: constant < high,
        Operator.GE: constant <= high,
        # One different value is enough: the condition fails only if all values equal the constant.
        Operator.NE: or_(constant != low, constant != high),
    }
    return satisfied[operator]


def _rules(end: Any, owner: int, most: int) -> Select[Any]:
    """Select the rules of an owner that have one of these end rules."""
    return (
        select(rules.c.id)
        .distinct()
        .select_from(end.table)
        .join(rule_ends, rule_ends.c.end_id == end)
        .join(rules, rules.c.id == rule_ends.c.rule_id)
        .where(rules.c.owner == owner)
        .order_by(rules.c.id)
        .limit(most)
    )


@contextmanager
def stop_when_slow(connection: Connection, seconds: float) -> Iterator[None]:
    """Stop the block when a statement exceeds the time limit. The transaction continues."""
    try:
        with connection.begin_nested():
            limit_time(connection, max(1, ceil(seconds)))
            yield
    except psycopg.errors.QueryCanceled:
        return
    except OperationalError as error:
        if not isinstance(error.orig, psycopg.errors.QueryCanceled):
            raise
