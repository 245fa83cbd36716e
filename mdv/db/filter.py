"""The filter's statements, run: what changed for rules goes to `result_objects` and `result_ranges`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import psycopg
from sqlalchemy import Connection, FromClause, Insert, Select, bindparam, select, union_all
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from mdv.db.copy import copy_rows
from mdv.db.engine import driver, together
from mdv.db.exchange import Exchange
from mdv.db.statements import numbered, statements
from mdv.db.tables import filter_data, filter_data_history, result_objects, result_ranges
from mdv.errors import TooCostly

_DIALECT = PGDialect_psycopg()  # type: ignore[no-untyped-call]

_COLUMNS = ("resource_id", "property_id", "target_id", "value", "number", "instant", "truth")


def statements_now() -> FromClause:
    """The statements of all documents, as they are."""
    return filter_data


def statements_before() -> FromClause:
    """The statements as they were before the transaction of `:position`."""
    stayed = select(*(filter_data.c[name] for name in _COLUMNS)).where(
        filter_data.c.position < bindparam("position", type_=filter_data.c.position.type)
    )
    return union_all(stayed, _gone()).subquery()


def statements_either() -> FromClause:
    """The statements as they are, and those that went with the transaction of `:position`."""
    return union_all(select(*(filter_data.c[name] for name in _COLUMNS)), _gone()).subquery()


def _gone() -> Select[Any]:
    return select(*(filter_data_history.c[name] for name in _COLUMNS)).where(
        filter_data_history.c.until_position == bindparam("position", type_=filter_data.c.position.type)
    )


@dataclass(frozen=True)
class Compiled:
    """A statement as text, with the parameters that never change."""

    sql: str
    fixed: dict[str, Any]

    @cached_property
    def numbered(self) -> tuple[str, tuple[str, ...]]:
        """The statement with numbers for its parameters, and their names in that order."""
        return numbered(self.sql)

    @cached_property
    def unlimiting(self) -> tuple[str, tuple[str, ...]]:
        """The same, and the statements after it may take any time again. A limit is for what begins after it is set, so
        that the statement itself has its own still."""
        sql, names = self.numbered
        return f"with kept as ({sql}) select set_config('statement_timeout', '0', true)", names


def compiled(statement: Select[Any] | Insert) -> Compiled:
    made = statement.compile(dialect=_DIALECT)
    return Compiled(str(made), {name: value for name, value in made.params.items() if value is not None})


def keep_results(changes: Select[Any]) -> Compiled:
    """The statement that keeps `changes`: rule, resource, and whether it matches now."""
    return compiled(result_objects.insert().from_select(["rule_id", "resource_id", "matched"], changes))


def keep_ranges(changes: Select[Any]) -> Compiled:
    """The statement that keeps `changes`: how far values reached and reach."""
    return compiled(result_ranges.insert().from_select([column.name for column in result_ranges.c], changes))


def run(exchange: Exchange, steps: Sequence[tuple[Compiled, dict[str, Any]]]) -> Callable[[], set[int]]:
    """The statements of a filter run; the resources that came to match something, to be asked for when the exchange has
    taken place."""
    sql = statements("graph")
    exchange.ask_named(sql["begin_filter"])
    for statement, values in steps:
        evaluate_into(exchange, statement, values)
    matched = exchange.ask_named(sql["matched_resources"])
    return lambda: {int(number or 0) for (number,) in matched.rows()}


def find_referring(connection: Connection, some: Collection[int], targets: Collection[int]) -> list[tuple[int, int]]:
    """Those of `some` resources that refer to one of `targets`, each with what it refers to."""
    values = {"resources": list(some), "targets": list(targets)}
    return driver(connection).execute(statements("graph")["find_referring"], values, prepare=True).fetchall()


@dataclass
class Results:
    """What rules match at one moment: pairs of end rule and resource; and by range group and resource, how far values
    reach."""

    pairs: set[tuple[int, int]] = field(default_factory=set)
    reached: dict[int, dict[int, tuple[Any, Any]]] = field(default_factory=dict)


def keep_difference(
    connection: Connection, before: Results, after: Results, new_ends: Set[int], last_rule: int
) -> None:
    """Keep what changed from one moment to another, beside what was kept already. Groups that are gone have no say, nor
    have end rules that are new (ranges: those after `last_rule`), whose first results are kept already."""
    session = driver(connection)
    pairs = {(rule, resource) for rule, resource in after.pairs if rule not in new_ends}
    gained, lost = pairs - before.pairs, before.pairs - pairs
    copy_rows(
        session, "result_objects (rule_id, resource_id, matched)",
        ((rule, resource, matched) for pairs, matched in ((gained, True), (lost, False)) for rule, resource in pairs),
    )  # fmt: skip
    rows = []
    for group, reached in after.reached.items():
        was = before.reached.get(group, {})
        for resource in {*reached, *was}:
            ends = (*was.get(resource, (None, None)), *reached.get(resource, (None, None)))
            if ends[:2] != ends[2:]:
                nothing = (None,) * 4
                is_text = any(isinstance(end, str) for end in ends)
                typed = nothing + ends if is_text else ends + nothing
                rows.append((group, resource, 0, last_rule, ends[2] is not None, *typed))
    copy_rows(session, f"result_ranges ({', '.join(column.name for column in result_ranges.c)})", rows)


@contextmanager
def refusing_slow(what: str) -> Iterator[None]:
    """What is said when a statement within takes longer than `limit_time` lets it; the transaction is over then."""
    try:
        yield
    except psycopg.errors.QueryCanceled:
        raise TooCostly(what) from None


def limit_time(connection: Connection, seconds: int) -> None:
    """From now on no statement of this transaction may take longer; 0: any may."""
    driver(connection).execute(statements("graph")["limit_time"], {"most": f"{seconds}s"}, prepare=True)


def clear(connection: Connection) -> None:
    """Forget what the last run found."""
    session, sql = driver(connection), statements("graph")
    with together(session):
        session.execute(sql["clear_results"], prepare=True)
        session.execute(sql["clear_ranges"], prepare=True)


def unlimit(exchange: Exchange) -> None:
    """Let statements take any time again."""
    exchange.ask(numbered(statements("graph")["limit_time"])[0], ["0"])


def keep(connection: Connection, statement: Compiled, values: Mapping[str, Any]) -> None:
    """Run one statement that keeps results, beside what was kept already."""
    driver(connection).execute(statement.sql, {**statement.fixed, **values}, prepare=True)


def evaluate_into(exchange: Exchange, statement: Compiled, values: Mapping[str, Any], unlimit: bool = False) -> None:
    """The same when the exchange takes place, all values being numbers or texts. `unlimit`: statements after it may
    take any time again."""
    sql, names = statement.unlimiting if unlimit else statement.numbered
    given = [values[name] if name in values else statement.fixed[name] for name in names]
    exchange.ask(sql, [None if value is None else str(value) for value in given])


@contextmanager
def pinned(connection: Connection) -> Iterator[None]:
    """Statements within go as they are written, as those of a filter run do."""
    session, sql = driver(connection), statements("graph")
    session.execute(sql["pin_filter"], prepare=True)
    yield
    session.execute(sql["unpin_filter"], prepare=True)


def evaluate(connection: Connection, statement: Compiled, values: dict[str, Any]) -> list[Any]:
    """The rows of a compiled statement."""
    return driver(connection).execute(statement.sql, statement.fixed | values, prepare=True).fetchall()


def read_changes(connection: Connection) -> list[tuple[int, str, bool]]:
    """What the last run changed: end rule, resource, and whether it matches now; ranges put as rules."""
    session = driver(connection)
    return [tuple(row) for sql in statements("results").values() for row in session.execute(sql).fetchall()]
