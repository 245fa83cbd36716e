"""Queries of `explain_rule`: atomic rules and groups by digest, counts with a time limit, and readable SQL."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from textwrap import wrap
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from sqlalchemy import Connection, Select, func, select

from mdv.db.engine import driver
from mdv.db.filter import CompiledStatement, compile_statement
from mdv.db.load_sql import load_sql
from mdv.db.tables import atomic_rules, rule_groups, vocabulary
from mdv.db.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class ExistingAtomicRule:
    """An atomic rule of the graph, and the number of join rules and subscription rules that use it."""

    id: int
    uses: int
    text: str


@dataclass(frozen=True, slots=True)
class ExistingGroup:
    """A group of the graph: its number of rules and, for a whole group, the leaf of its driving predicate."""

    id: int
    members: int
    driver: int | None


class ReadOnlyVocabulary(Vocabulary):
    """The IDs of properties, for read-only use. A name without an ID gets 0, which no statement has."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ids(self, uris: Iterable[str]) -> dict[str, int]:
        wanted = set(uris)
        known = select(vocabulary.c.uri, vocabulary.c.id).where(vocabulary.c.uri.in_(wanted))
        return dict.fromkeys(wanted, 0) | {row.uri: row.id for row in self._connection.execute(known)}


def find_atomic_rules(connection: Connection, digests: Collection[str]) -> dict[str, ExistingAtomicRule]:
    """Return those of these atomic rules that exist, by digest."""
    if not digests:
        return {}
    a = atomic_rules.c
    query = select(a.digest, a.rule_id, a.uses, a.text).where(a.digest.in_(map(UUID, digests)))
    return {digest.hex: ExistingAtomicRule(*rest) for digest, *rest in connection.execute(query)}


def find_groups(connection: Connection, whole: bool, digests: Collection[str]) -> dict[str, ExistingGroup]:
    """Return those of these groups that exist, by digest."""
    g = rule_groups.c
    query = select(g.digest, g.group_id, g.members, g.driver).where(g.whole == whole, g.digest.in_(map(UUID, digests)))
    return {digest.hex: ExistingGroup(*rest) for digest, *rest in connection.execute(query)}


def count_statement(rows: Select[Any]) -> CompiledStatement:
    """Return the statement that counts the rows of a statement."""
    return compile_statement(select(func.count()).select_from(rows.subquery()))


def count_with_time_limit(connection: Connection, counted: CompiledStatement, seconds: float) -> int | None:
    """Return the number of rows of a statement; None if counting exceeds the time limit."""
    session, named = driver(connection), load_sql("explain_rule", __package__)
    try:
        with connection.begin_nested():
            (before,) = session.execute(named["read_limit"]).fetchone() or ("0",)
            session.execute(named["limit_time"], {"most": f"{max(1, int(seconds * 1000))}ms"})
            (found,) = session.execute(counted.sql, counted.fixed).fetchone() or (0,)
            session.execute(named["limit_time"], {"most": before})
            return int(found)
    except psycopg.errors.QueryCanceled:
        return None


_PARAMETER = re.compile(r"%\((\w+)\)s|%%")


def format_sql(statement: CompiledStatement) -> str:
    """Return a statement that can be pasted into psql, with constants inserted and other parameters as variables.

    >>> print(format_sql(CompiledStatement("SELECT a \\nFROM t \\nWHERE a %% 2 = %(x)s AND b = %(y)s", {"x": "it's"})))
    SELECT a
    FROM t
    WHERE a % 2 = 'it''s'
    AND b = :y
    """

    def written(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return "%"
        return sql.Literal(statement.fixed[name]).as_string(None) if name in statement.fixed else f":{name}"

    return _indented(_PARAMETER.sub(written, statement.sql))


_QUOTED = re.compile(r"('(?:[^']|'')*')")
_ALIAS = re.compile(r"\b(\w+\.(\w+)) AS \2\b")
_CLAUSE = re.compile(r" (?=(?:LEFT OUTER )?JOIN |AND |UNION |EXCEPT |ON CONFLICT )")
_WIDTH = 110


def _indented(statement: str) -> str:
    """Put each clause on its own lines, indented by the depth of its parentheses. String literals are not changed."""
    parts = _QUOTED.split(statement)
    texts = parts[1::2]
    parts[1::2] = ["'\0'"] * len(texts)
    lines: list[str] = []
    depth = 0
    for line in _CLAUSE.sub("\n", _ALIAS.sub(r"\1", "".join(parts))).splitlines():
        if line.strip():
            pad = "  " * depth
            lines += wrap(line.strip(), _WIDTH, initial_indent=pad, subsequent_indent=pad + "    ",
                          break_long_words=False, break_on_hyphens=False)  # fmt: skip
        depth = max(0, depth + line.count("(") - line.count(")"))
    left = iter(texts)
    return re.sub("'\0'", lambda _: next(left), "\n".join(lines))
