"""The graph of atomic rules in the database: many rules merged into it at once, or taken out of it.

The caller holds the lock of the MDP's state, so that nobody else adds or removes rules meanwhile.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from hashlib import md5
from typing import Any, NamedTuple

import psycopg
from psycopg.types.json import Jsonb
from sqlalchemy import Connection

from mdv.db.copy import any_field, copy_lines, insert_lines
from mdv.db.engine import driver, together
from mdv.db.statements import statements
from mdv.db.tables import (
    filter_rules_con,
    filter_rules_eq,
    filter_rules_ge,
    filter_rules_gt,
    filter_rules_le,
    filter_rules_lt,
    filter_rules_ncon,
    filter_rules_ne,
)
from mdv.rules.ast import Operator
from mdv.rules.normal import Sort

SMALL = 200
"""Up to so many rows are sent with other statements, in one message; more go by COPY."""

FILTER_RULES = {
    Operator.EQ: filter_rules_eq,
    Operator.NE: filter_rules_ne,
    Operator.LT: filter_rules_lt,
    Operator.LE: filter_rules_le,
    Operator.GT: filter_rules_gt,
    Operator.GE: filter_rules_ge,
    Operator.CONTAINS: filter_rules_con,
    Operator.NOT_CONTAINS: filter_rules_ncon,
}
"""Triggering rules by their operator: the paper's FilterRulesOP."""


@dataclass(frozen=True, slots=True)
class StoredRule:
    """A subscription rule as it was written."""

    id: int
    owner: int
    name: str | None
    text: str


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A whole group as it is stored."""

    group_id: int
    pattern: dict[str, Any]
    driver: int | None
    members: int
    chosen_with: int


class GroupKey(NamedTuple):
    """What tells one group from another."""

    whole: bool
    digest: str


class PredicateKey(NamedTuple):
    """What triggering rules have in common but the constant."""

    class_iri: str
    property: str | None
    operator: Operator
    sort: Sort


class Graph:
    """The graph's tables, for one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._session: psycopg.Connection[Any] = driver(connection)
        self._sql = statements("graph")

    def execute(self, name: str, **values: object) -> psycopg.Cursor[Any]:
        return self._session.execute(self._sql[name], values, prepare=True)

    def look_around(
        self, groups: Collection[GroupKey], predicates: Collection[PredicateKey], digests: Collection[str]
    ) -> tuple[dict[GroupKey, tuple[int, int | None]], dict[PredicateKey, int], dict[str, int], set[int]]:
        """Of these groups (with their drivers), predicates and atomic rules those that are there already; and which of
        these atomic rules are the end of some rule."""
        asked = json.dumps([key.digest for key in groups])
        classes = json.dumps(sorted({key.class_iri for key in predicates}))
        with self._session.pipeline():
            found_groups = self.execute("find_groups", digests=asked) if groups else None
            found_predicates = self.execute("find_predicates", classes=classes) if predicates else None
            found = self.execute("find_atomic_rules", digests=json.dumps(list(digests)))
        known, ends = {}, set()
        for digest, number, is_end in found.fetchall():
            known[digest.hex] = number
            if is_end:
                ends.add(number)
        return (
            {GroupKey(whole, digest.hex): (number, its) for whole, digest, number, its in found_groups or ()},
            {PredicateKey(c, p, Operator(o), Sort(s)): number for c, p, o, s, number in found_predicates or ()},
            known,
            ends,
        )

    def add_group(self, key: GroupKey, text: str, pattern: dict[str, Any]) -> int:
        """A new group's number."""
        row = self.execute(
            "add_group", whole=key.whole, text=text, digest=key.digest, pattern=Jsonb(pattern)
        ).fetchone()
        assert row is not None
        return int(row[0])

    def add_predicate(self, key: PredicateKey) -> int:
        """A new predicate's number."""
        row = self.execute(
            "add_predicate", **{"class": key.class_iri}, property=key.property, operator=key.operator.value,
            sort=key.sort.value,
        ).fetchone()  # fmt: skip
        assert row is not None
        return int(row[0])

    def read_groups(self) -> list[StoredGroup]:
        return [StoredGroup(*row) for row in self.execute("read_groups").fetchall()]

    def members(self, group_id: int) -> int:
        row = self.execute("count_members_of", group=group_id).fetchone()
        return int(row[0]) if row is not None else 0

    def groups_to_revise(self, resources: int) -> Callable[[], list[int]]:
        """The whole groups whose driver should be chosen again, with so many resources stored; to be asked for when
        the database has answered."""
        rows = self.execute("groups_to_revise", resources=resources)
        return lambda: [number for (number,) in rows.fetchall()]

    def read_predicates(self) -> dict[tuple[str, str | None, Operator, Sort], int]:
        rows = self.execute("read_predicates").fetchall()
        return {(class_iri, name, Operator(operator), Sort(sort)): number
                for number, class_iri, name, operator, sort in rows}  # fmt: skip

    def read_constants(self, operator: Operator, predicates: Collection[int], most: int) -> list[tuple[int, Any, str]]:
        """The constants of some predicates, no more than that: the predicate, a number or a text, and its gram."""
        table = FILTER_RULES[operator]
        gram = "gram" if operator is Operator.CONTAINS else "''"
        sql = f"select predicate_id, number, value, {gram} from {table.name} where predicate_id = any (%s) limit %s"  # noqa: S608
        rows = self._session.execute(sql, (list(predicates), most))
        return [(predicate, number if value is None else value, gram) for predicate, number, value, gram in rows]

    def read_ends(self, operator: Operator, predicates: Collection[int]) -> list[tuple[int, Any, Any]]:
        """The least and the greatest constant of some predicates."""
        ends = "min(number), max(number), min(value), max(value)"
        sql = f"select predicate_id, {ends} from {FILTER_RULES[operator].name} where predicate_id = any (%s) group by 1"  # noqa: S608
        rows = self._session.execute(sql, (list(predicates),))
        return [(predicate, *((low, high) if first is None else (first, last)))
                for predicate, first, last, low, high in rows]  # fmt: skip

    # Rules as they were written.

    def rules_named(self, owner: int, names: Collection[str]) -> dict[str, StoredRule]:
        rows = self.execute("find_rules_named", owner=owner, names=list(names)).fetchall()
        return {name: StoredRule(number, owner, name, text) for name, number, text in rows}

    def rules(self, ids: Collection[int]) -> list[StoredRule]:
        return [StoredRule(*row) for row in self.execute("find_rules", ids=list(ids)).fetchall()]

    def rules_of(self, owner: int) -> list[StoredRule]:
        """The rules of an owner, in the order of their numbers."""
        return [StoredRule(*row) for row in self.execute("find_rules_of", owner=owner).fetchall()]

    def all_rules(self) -> Iterator[StoredRule]:
        """Every rule, in the order of their numbers."""
        with self._session.cursor("all_rules") as cursor:
            cursor.itersize = 10_000
            cursor.execute(self._sql["all_rules"])
            for row in cursor:
                yield StoredRule(*row)

    def searching(self, ids: Collection[int]) -> list[tuple[int, StoredRule]]:
        """The rules that search these: each with the one that it searches."""
        return [(row[0], StoredRule(*row[1:])) for row in self.execute("find_searching", ids=list(ids)).fetchall()]

    def ends(self, ids: Collection[int]) -> dict[int, tuple[int, ...]]:
        found: dict[int, list[int]] = defaultdict(list)
        for rule, end in self.execute("find_rule_ends", ids=list(ids)).fetchall():
            found[rule].append(end)
        return {rule: tuple(ends) for rule, ends in found.items()}

    def detach(self, ids: Sequence[int]) -> list[int]:
        """Let rules end nowhere any more; where they did, which is not taken away yet."""
        return [number for (number,) in self.execute("release_ends", ids=list(ids)).fetchall()]

    def drop(self, ends: Sequence[int]) -> bool:
        """Take away what nobody needs of these ends and below them; whether a whole group went with it."""
        self.execute("drop_ends", rules=list(ends))
        suspects = list(ends)
        while suspects:
            gone, suspects = self.execute("drop_unused", rules=suspects).fetchone() or ([], [])
            for name in (*(table.name for table in FILTER_RULES.values()), "filter_rules") if gone else ():
                self._session.execute(f"delete from {name} where rule_id = any (%s)", (gone,))  # noqa: S608
        return any(whole for (whole,) in self.execute("drop_empty_groups").fetchall())

    def write(self, news: News, small: bool) -> None:
        """Write new atomic rules with all that belongs to them; a few rows as statements like any other."""
        news.write(self, self._session, small)

    def numbers(self, uris: Collection[str]) -> dict[str, int]:
        """The numbers of those of these URIs that have one."""
        return dict(self.execute("find_numbers", uris=json.dumps(sorted(uris))).fetchall())

    def number_resources(self, uris: Collection[str], last: int) -> dict[str, int]:
        """The numbers of these URIs, given out after `last` where they have none."""
        rows = self.execute("number_resources", uris=json.dumps(sorted(uris)), last=last).fetchall()
        fresh = sum(made for _, _, made in rows)
        if fresh:
            self.execute("set_last_resource", last=last + fresh)
        return {uri: number for uri, number, _ in rows}


@dataclass
class News:
    """What is to be added to the graph: rows for each table, and how often known atomic rules are used once more."""

    rules: list[str] = field(default_factory=list)
    atomic: list[str] = field(default_factory=list)
    dependencies: list[str] = field(default_factory=list)
    rule_ends: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    constants: dict[Operator, list[str]] = field(default_factory=lambda: defaultdict(list))
    uses: Counter[int] = field(default_factory=Counter)
    members: Counter[int] = field(default_factory=Counter)
    searches: list[dict[str, int]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """How many rows there are to write."""
        lists = (self.rules, self.atomic, self.dependencies, self.rule_ends, self.ends, self.plain)
        return sum(map(len, (*lists, *self.constants.values())))

    def write(self, graph: Graph, session: psycopg.Connection[Any], small: bool) -> None:
        blocks = [
            ("rules", "id, owner, name, text, position", self.rules),
            ("atomic_rules", "rule_id, uses, group_id, digest, class, text", self.atomic),
            ("rule_dependencies", "source, target, param, group_id", self.dependencies),
            ("rule_ends", "rule_id, end_id, owner", self.rule_ends),
            ("end_rules", "rule_id, driver_id, group_id, leaves", self.ends),
            ("filter_rules", "rule_id, class", self.plain),
        ]
        for operator, lines in self.constants.items():
            gram = ", gram" if operator is Operator.CONTAINS else ""
            blocks.append((FILTER_RULES[operator].name, f"rule_id, predicate_id, number, value{gram}", lines))
        put = insert_lines if small else copy_lines
        with together(session) if small else nullcontext():
            for table, columns, lines in blocks:
                put(session, f"{table} ({columns})", lines)
            if self.uses:
                graph.execute("count_uses", uses=_counted("rule_id", self.uses))
            if self.members:
                graph.execute("count_members", members=_counted("group_id", self.members))
            if self.searches:
                graph.execute("insert_searches", searches=json.dumps(self.searches))


def line(*fields: object) -> str:
    """A line of COPY.

    >>> line(1, None, "a")
    '1\\t\\\\N\\ta\\n'
    """
    return "\t".join(map(any_field, fields)) + "\n"


def array_field(numbers: Iterable[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def digest_of(*parts: object) -> str:
    """A name for what is made of these parts, the same wherever it is made."""
    return md5("\0".join(map(str, parts)).encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


def _counted(name: str, counts: Mapping[int, int]) -> str:
    return json.dumps([{name: number, "more": more} for number, more in counts.items() if more])
