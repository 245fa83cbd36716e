"""What tells why a resource is at an LMR: whose rules, which values, and what refers to it."""

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

from mdv.db.filter import Compiled, compiled, limit_time
from mdv.db.graph import FILTER_RULES
from mdv.db.statements import statements
from mdv.db.tables import end_rules, rule_ends, rules, vocabulary
from mdv.rules.ast import Operator

MOST_VALUES = 1000
"""Values that are read at a time: a resource may have a great many."""


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A value of a resource: a URI or a text, and what it is typed as."""

    resource: int
    property: int
    uri: str | None
    text: str | None
    number: Decimal | None
    instant: Decimal | None
    truth: bool | None


@dataclass(frozen=True, slots=True)
class Reference:
    """That a resource refers to another with a property, all by number."""

    resource: int
    property: int
    target: int


class Evidence:
    """The statements of sql/why.sql, for one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(self, statement: Compiled, **values: Any) -> list[Any]:
        """The rows of a compiled statement."""
        return list(self._connection.exec_driver_sql(statement.sql, statement.fixed | values).all())

    def number(self, uri: str) -> int | None:
        """The number of a URI; None where nobody speaks of it."""
        rows = self._rows("resource", uri=uri)
        return rows[0][0] if rows else None

    def uris(self, numbers: Collection[int]) -> dict[int, str]:
        return dict(self._rows("uris", ids=list(numbers)))

    def names(self, numbers: Collection[int]) -> dict[int, str]:
        """Properties by their numbers."""
        found = select(vocabulary.c.id, vocabulary.c.uri).where(vocabulary.c.id.in_(numbers))
        return {row.id: row.uri for row in self._connection.execute(found)}

    def documents(self, resource: int, most: int) -> list[str]:
        return [uri for (uri,) in self._rows("documents", resource=resource, most=most)]

    def reasons(self, lmr: int, resource: int) -> int | None:
        """How many rules of the LMR select it, 0 where it is only reached; None: it is not in the closure."""
        rows = self._rows("reasons", lmr=lmr, resource=resource)
        return rows[0][0] if rows else None

    def values(self, some: Collection[int], properties: Collection[int]) -> list[StoredValue]:
        values = {"resources": list(some), "properties": list(properties), "most": MOST_VALUES}
        return [StoredValue(*row) for row in self._rows("values", **values)]

    # Whose rules.

    def groups(self, owner: int) -> set[int]:
        """The whole groups that rules of an owner are in."""
        return {number for (number,) in self._rows("groups", owner=owner)}

    def rules_of_groups(self, owner: int, groups: Collection[int], each: int, most: int) -> list[int]:
        rows = self._rows("rules_of_groups", owner=owner, groups=list(groups), each=each, most=most)
        return [number for (number,) in rows]

    def owned(self, owner: int, matches: Select[Any], most: int, **values: Any) -> list[int]:
        """The rules of an owner, in their order, among the end rules that `matches` selects."""
        found = matches.subquery("found")
        return self._numbers(_rules(found.c.rule_id, owner, most), values)

    def owned_range(
        self, owner: int, group_id: int, predicate_id: int, operator: Operator, ends: tuple[Any, Any], most: int
    ) -> list[int]:
        """The rules of an owner in a group that match stretches of constants, where values reach from `low` to
        `high`."""
        constants = FILTER_RULES[operator]
        is_text = isinstance(ends[0], str)
        satisfied = _satisfied(operator, constants.c.value if is_text else constants.c.number, *ends)
        end = end_rules.alias("its_end")
        query = (
            _rules(end.c.rule_id, owner, most)
            .join(constants, constants.c.rule_id == end.c.driver_id)
            .where(end.c.group_id == group_id, constants.c.predicate_id == predicate_id, satisfied)
        )
        return self._numbers(query, {})

    # What refers to what.

    def selected_referrer(
        self, lmr: int, targets: Sequence[int], strong: Sequence[int], blank: Sequence[int]
    ) -> Reference | None:
        rows = self._rows("selected_referrer", lmr=lmr, targets=targets, strong=strong, blank=blank)
        return Reference(*rows[0]) if rows else None

    def referrers(
        self, lmr: int, targets: Sequence[int], strong: Sequence[int], blank: Sequence[int], seen: Collection[int],
        most: int,
    ) -> list[Reference]:  # fmt: skip
        """What refers strongly to the targets within the closure of the LMR, but for what was seen."""
        values = {"lmr": lmr, "targets": targets, "strong": strong, "blank": blank, "seen": list(seen), "most": most}
        return [Reference(*row) for row in self._rows("referrers", **values)]

    def _rows(self, name: str, **values: Any) -> list[Any]:
        return list(self._connection.exec_driver_sql(statements("why")[name], values).all())

    def _numbers(self, query: Select[Any], values: dict[str, Any]) -> list[int]:
        return [number for (number,) in self.run(compiled(query), **values)]


def _satisfied(operator: Operator, constant: ColumnElement[Any], low: Any, high: Any) -> ColumnElement[bool]:
    """Which constants values from `low` to `high` satisfy."""
    satisfied: dict[Operator, ColumnElement[bool]] = {
        Operator.LT: constant > low,
        Operator.LE: constant >= low,
        Operator.GT: constant < high,
        Operator.GE: constant <= high,
        # Any other value will do: it fails where all values are the constant.
        Operator.NE: or_(constant != low, constant != high),
    }
    return satisfied[operator]


def _rules(end: Any, owner: int, most: int) -> Select[Any]:
    """The rules of an owner that end there."""
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
def giving_up(connection: Connection, seconds: float) -> Iterator[None]:
    """Read within a time and leave it at that when a statement takes longer; the transaction goes on."""
    try:
        with connection.begin_nested():
            limit_time(connection, max(1, ceil(seconds)))
            yield
    except psycopg.errors.QueryCanceled:
        return
    except OperationalError as error:
        if not isinstance(error.orig, psycopg.errors.QueryCanceled):
            raise
