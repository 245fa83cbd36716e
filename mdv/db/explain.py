"""What `explain` reads: atomic rules and groups by their digests, counts within a time, statements for people."""

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
from mdv.db.filter import Compiled, compiled
from mdv.db.statements import statements
from mdv.db.tables import atomic_rules, rule_groups, vocabulary
from mdv.db.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class StoredAtomicRule:
    """An atomic rule of the graph, and how many join rules and subscription rules use it."""

    id: int
    uses: int
    text: str


@dataclass(frozen=True, slots=True)
class FoundGroup:
    """A group of the graph: how many rules it has, and, of a whole group, the leaf that finds them."""

    id: int
    members: int
    driver: int | None


class KnownNames(Vocabulary):
    """The numbers of properties, for who only reads: a name that has none gets 0, which stands in no statement."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ids(self, uris: Iterable[str]) -> dict[str, int]:
        wanted = set(uris)
        known = select(vocabulary.c.uri, vocabulary.c.id).where(vocabulary.c.uri.in_(wanted))
        return dict.fromkeys(wanted, 0) | {row.uri: row.id for row in self._connection.execute(known)}


def find_atomic_rules(connection: Connection, digests: Collection[str]) -> dict[str, StoredAtomicRule]:
    """Those of these atomic rules that there are."""
    if not digests:
        return {}
    a = atomic_rules.c
    query = select(a.digest, a.rule_id, a.uses, a.text).where(a.digest.in_(map(UUID, digests)))
    return {digest.hex: StoredAtomicRule(*rest) for digest, *rest in connection.execute(query)}


def find_groups(connection: Connection, whole: bool, digests: Collection[str]) -> dict[str, FoundGroup]:
    """Those of these groups that there are."""
    g = rule_groups.c
    query = select(g.digest, g.group_id, g.members, g.driver).where(g.whole == whole, g.digest.in_(map(UUID, digests)))
    return {digest.hex: FoundGroup(*rest) for digest, *rest in connection.execute(query)}


def counting(rows: Select[Any]) -> Compiled:
    """The statement that counts the rows of a statement."""
    return compiled(select(func.count()).select_from(rows.subquery()))


def count_within(connection: Connection, counted: Compiled, seconds: float) -> int | None:
    """How many rows a statement has; None where they cannot be counted in so many seconds."""
    session, named = driver(connection), statements("explain")
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


def readable(statement: Compiled) -> str:
    """A statement as it can be pasted into psql: constants as they are, what changes from run to run as variables.

    >>> print(readable(Compiled("SELECT a \\nFROM t \\nWHERE a %% 2 = %(x)s AND b = %(y)s", {"x": "it's"})))
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
    """Each clause on lines of its own, as deep as its parentheses; nothing within a text is touched."""
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
