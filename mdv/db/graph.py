"""The graph of atomic rules in the database: many rules merged into it at once, or taken out of it.

The caller holds the lock of the MDP's state, so that nobody else adds or removes rules meanwhile.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import md5
from typing import Any, NamedTuple

import psycopg
from psycopg.types.json import Jsonb
from sqlalchemy import Connection

from mdv.db.at_once import ANSWER, AtOnce
from mdv.db.copy import Copying, any_field, array_field, fields_of
from mdv.db.engine import driver
from mdv.db.exchange import Exchange
from mdv.db.statements import numbered, statements
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

CAUSE = "rules"
"""What a transaction is noted by that changes rules."""

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


@dataclass(frozen=True, slots=True)
class Known:
    """The groups that there are, with their numbers and drivers, and the numbers of predicates."""

    groups: Mapping[GroupKey, tuple[int, int | None]]
    predicates: Mapping[PredicateKey, int]


class Found(NamedTuple):
    """Atomic rules that are there already, by their digests, and which of them are the end of some rule."""

    rules: dict[str, int]
    ends: set[int]


class Step(NamedTuple):
    """How far the MDP is when rules have changed; the version is None where the groups have not."""

    position: int
    last_rule: int
    last_atomic_rule: int
    graph_version: int | None


class Graph:
    """The graph's tables, for one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session: psycopg.Connection[Any] = driver(connection)
        self._sql = statements("graph")
        self.copying = Copying(self._session)

    def execute(self, name: str, **values: object) -> psycopg.Cursor[Any]:
        self.copying.wait()
        return self._session.execute(self._sql[name], values, prepare=True)

    def look_for(self, digests: Iterable[str], exchange: Exchange | None = None) -> Callable[[], Found]:
        """Look for atomic rules, in the exchange if one is given; what was found, to be asked for when the database has
        answered."""
        mine = exchange or Exchange(self._connection)
        self.copying.wait()
        found = mine.ask(numbered(self._sql["find_atomic_rules"])[0], [array_field(digests)])
        if exchange is None:
            mine.send()

        def answer() -> Found:
            rows = [(digest or "", int(number or 0), end == "t") for digest, number, end in found.rows()]
            return Found({digest: number for digest, number, _ in rows}, {number for _, number, end in rows if end})

        return answer

    def read_known(self) -> Known:
        """All groups and predicates."""
        keys = self.execute("read_group_keys").fetchall()
        groups = {GroupKey(whole, digest): (number, its) for whole, digest, number, its in keys}
        return Known(groups, self.read_predicates())

    def read_predicates(self) -> dict[PredicateKey, int]:
        rows = self.execute("read_predicates").fetchall()
        return {PredicateKey(class_iri, name, Operator(operator), Sort(sort)): number
                for number, class_iri, name, operator, sort in rows}  # fmt: skip

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

    def groups_to_revise(self, resources: int) -> Callable[[], Collection[int]]:
        """The whole groups whose driver should be chosen again, with so many resources stored; to be asked for when
        the database has answered."""
        rows = self.execute("groups_to_revise", resources=resources)
        return lambda: [number for (number,) in rows.fetchall()]

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
        self.copying.wait()
        exchange = Exchange(self._connection)
        found = self.ask_for_names(owner, names, exchange)
        exchange.send()
        return found()

    def ask_for_names(
        self, owner: int, names: Collection[str], exchange: Exchange
    ) -> Callable[[], dict[str, StoredRule]]:
        """The rules of an owner by these names, to be asked for when the exchange has taken place."""
        found = exchange.ask(numbered(self._sql["find_rules_named"])[0], [str(owner), json.dumps(list(names))])
        return lambda: {
            str(name): StoredRule(int(number or 0), owner, name, str(text)) for name, number, text in found.rows()
        }

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
        """Take away what nobody needs of these ends and below them; whether a group went with it."""
        self.execute("drop_ends", rules=list(ends))
        suspects = list(ends)
        while suspects:
            gone, suspects = self.execute("drop_unused", rules=suspects).fetchone() or ([], [])
            for name in (*(table.name for table in FILTER_RULES.values()), "filter_rules") if gone else ():
                self._session.execute(f"delete from {name} where rule_id = any (%s)", (gone,))  # noqa: S608
        return bool(self.execute("drop_empty_groups").fetchall())

    def advance(self, step: Step) -> None:
        """Note that rules have changed."""
        self.execute("insert_rules_transaction", position=step.position, cause=CAUSE)
        self.execute("advance_rules", **step._asdict())

    def copy(self, blocks: Iterable[tuple[str, list[str]]]) -> None:
        """Write lines to tables while the caller goes on; all that is asked afterwards waits for it."""
        for target, lines in blocks:
            if lines:
                self.copying.put(target, lines)

    def write(self, news: News, small: bool) -> None:
        """Write new atomic rules with all that belongs to them; a few rows as one statement."""
        if small:
            exchange = Exchange(self._connection)
            news.at_once().ask(exchange, "select")
            exchange.send()
        else:
            self.copy(news.take_blocks())
            self.execute("count_uses", uses=_counted("rule_id", news.uses))
            self.execute("count_members", members=_counted("group_id", news.members))
        if news.searches:
            self.execute("insert_searches", searches=json.dumps(news.searches))

    def write_step(
        self, news: News, small: bool, step: Step, resources: int, seconds: int, exchange: Exchange
    ) -> Callable[[], Collection[int]]:
        """The same, a few rows in the exchange, with the step that this is, so that first results can be found: what
        the last run found is forgotten, and statements may take so many seconds from now on. The groups whose driver
        should be chosen again, with so many resources stored, to be asked for when the database has answered."""
        if not small:
            self.write(news, small)
            self.advance(step)
            self.forget_results(seconds)
            return self.groups_to_revise(resources)
        writes = news.at_once()
        writes.insert("transactions (position, cause)", [(str(step.position), CAUSE)])
        writes.set("mdp_state", {name: str(value) for name, value in step._asdict().items() if value is not None})
        writes.empty("result_objects", "result_ranges")
        found = writes.ask(exchange, _then(seconds, any(news.members.values())))
        if news.searches:
            exchange.send()
            self.execute("insert_searches", searches=json.dumps(news.searches))
        return lambda: [int(number) for number in (found.rows()[0][-1] or "{}")[1:-1].split(",") if number]

    def forget_results(self, seconds: int) -> None:
        """Forget what the last run of the filter found. Statements are planned freely, and may take so many seconds,
        from now on."""
        self.execute("clear_results")
        self.execute("clear_ranges")
        self.execute("plan_freely", most=f"{seconds}s")

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

    def take_blocks(self) -> list[tuple[str, list[str]]]:
        """The lines for each table, which are then no more to be written."""
        blocks = self._blocks()
        self.rules, self.atomic, self.dependencies, self.rule_ends, self.ends, self.plain = [], [], [], [], [], []
        self.constants = defaultdict(list)
        return blocks

    def at_once(self) -> AtOnce:
        """All as one statement, for a few rows; it answers which groups are to be revised."""
        writes = AtOnce()
        for target, lines in self._blocks():
            writes.insert(target, [fields_of(line) for line in lines])
        writes.add("atomic_rules", "rule_id", "uses", self.uses.items())
        writes.add("rule_groups", "group_id", "members", self.members.items(), _REVISED)
        return writes

    def _blocks(self) -> list[tuple[str, list[str]]]:
        """The lines for each table."""
        lists = (self.rules, self.atomic, self.dependencies, self.rule_ends, self.ends, self.plain)
        blocks = list(zip(_TARGETS, lists, strict=True))
        return blocks + [(_CONSTANTS[operator], lines) for operator, lines in self.constants.items()]


_TARGETS = (
    "rules (id, owner, name, text, position)",
    "atomic_rules (rule_id, uses, group_id, digest, class, text)",
    "rule_dependencies (source, target, param, group_id)",
    "rule_ends (rule_id, end_id, owner)",
    "end_rules (rule_id, driver_id, group_id, leaves)",
    "filter_rules (rule_id, class)",
)
_CONSTANTS = {
    operator: f"{table.name} (rule_id, predicate_id, number, value{', gram' if operator is Operator.CONTAINS else ''})"
    for operator, table in FILTER_RULES.items()
}


_REVISED = """t.group_id as number,
    t.whole and jsonb_array_length(t.pattern -> 'leaves') > 1 and (t.members >= 2 * t.chosen_at + 8
        or (t.members > 1 and (select last_resource from mdp_state) >= 2 * t.chosen_with + 1000)) as is_due"""
"""Of groups that have more members now, which are to be revised: by the rule that the statement groups_to_revise has.
The state is that before, but of resources nothing has changed."""


@cache
def _then(seconds: int, counted: bool) -> str:
    """What follows after a few rules have been written: see `Graph.write_step`."""
    freely = statements("graph")["plan_freely"].rstrip(";").replace("%(most)s", f"'{seconds}s'")
    due = f"(select number from {ANSWER} where is_due)" if counted else "[]::int[]"  # noqa: S608
    return f"{freely}, array{due}"


def line(*fields: object) -> str:
    """A line of COPY.

    >>> line(1, None, "a")
    '1\\t\\\\N\\ta\\n'
    """
    return "\t".join(map(any_field, fields)) + "\n"


def digest_of(*parts: object) -> str:
    """A name for what is made of these parts, the same wherever it is made."""
    return md5("\0".join(map(str, parts)).encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


def _counted(name: str, counts: Mapping[int, int]) -> str:
    return json.dumps([{name: number, "more": more} for number, more in counts.items() if more])
