"""The stored graph of atomic rules. Rules are merged into it, or removed from it, in bulk.

The caller holds the lock of the MDP's state, so that no other transaction adds or removes rules.
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

from mdv.db.combined_writes import RESULT_CTE, CombinedWrites
from mdv.db.engine import driver, postgres_duration
from mdv.db.load_sql import load_sql, number_parameters
from mdv.db.pipeline import Pipeline
from mdv.db.postgres_copy import BackgroundCopy, array_literal, copy_field, parse_copy_line
from mdv.db.tables import FILTER_RULES_TABLES
from mdv.rules.normal import Sort
from mdv.rules.operators import Lookup, Operator

MAX_PIPELINED_ROWS = 200
"""Up to this many rows are sent with other statements, in one pipeline. More rows are written with COPY."""

RULES_CAUSE = "rules"
"""The cause of transactions that change rules."""


@dataclass(frozen=True, slots=True)
class StoredRule:
    """A subscription rule as written by its author."""

    id: int
    owner: int
    name: str | None
    text: str


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A stored whole group."""

    group_id: int
    pattern: dict[str, Any]
    driver: int | None
    members: int
    chosen_with: int


class GroupKey(NamedTuple):
    """The key that identifies a group."""

    whole: bool
    digest: str


class PredicateKey(NamedTuple):
    """A triggering rule without its constant."""

    class_iri: str
    property: str | None
    operator: Operator
    sort: Sort


@dataclass(frozen=True, slots=True)
class KnownGroups:
    """The existing groups, with their IDs and driving predicates, and the IDs of predicates."""

    groups: Mapping[GroupKey, tuple[int, int | None]]
    predicates: Mapping[PredicateKey, int]


class FoundAtomicRules(NamedTuple):
    """The IDs of existing atomic rules by digest, and those of them that are end rules."""

    rules: dict[str, int]
    ends: set[int]


class RulesAdvance(NamedTuple):
    """The new state of the MDP after a change of rules. `graph_version` is None if the groups have not changed."""

    position: int
    last_rule: int
    last_atomic_rule: int
    graph_version: int | None


class RuleGraph:
    """Reads and changes the rule graph in one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session: psycopg.Connection[Any] = driver(connection)
        self._sql = load_sql("rule_graph")
        self.copying = BackgroundCopy(self._session)

    def execute(self, name: str, **values: object) -> psycopg.Cursor[Any]:
        self.copying.wait()
        return self._session.execute(self._sql[name], values, prepare=True)

    def look_for(self, digests: Iterable[str], pipeline: Pipeline | None = None) -> Callable[[], FoundAtomicRules]:
        """Find atomic rules by digest. The returned function gives the result; if a pipeline is given, call it after
        the pipeline was sent."""
        own = pipeline or Pipeline(self._connection)
        self.copying.wait()
        found = own.queue(number_parameters(self._sql["find_atomic_rules"])[0], [array_literal(digests)])
        if pipeline is None:
            own.send()

        def answer() -> FoundAtomicRules:
            rows = [(digest or "", int(number or 0), end == "t") for digest, number, end in found.rows()]
            return FoundAtomicRules(
                {digest: number for digest, number, _ in rows}, {number for _, number, end in rows if end}
            )

        return answer

    def read_known(self) -> KnownGroups:
        """Return all groups and predicates."""
        keys = self.execute("read_group_keys").fetchall()
        groups = {GroupKey(whole, digest): (number, its) for whole, digest, number, its in keys}
        return KnownGroups(groups, self.read_predicates())

    def read_predicates(self) -> dict[PredicateKey, int]:
        rows = self.execute("read_predicates").fetchall()
        return {PredicateKey(class_iri, name, Operator(operator), Sort(sort)): number
                for number, class_iri, name, operator, sort in rows}  # fmt: skip

    def add_group(self, key: GroupKey, text: str, pattern: dict[str, Any]) -> int:
        """Insert a group and return its ID."""
        row = self.execute(
            "add_group", whole=key.whole, text=text, digest=key.digest, pattern=Jsonb(pattern)
        ).fetchone()
        assert row is not None
        return int(row[0])

    def add_predicate(self, key: PredicateKey) -> int:
        """Insert a predicate and return its ID."""
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
        """Find whole groups whose driving predicate should be chosen again, given the number of stored resources. The
        returned function gives their IDs."""
        rows = self.execute("groups_to_revise", resources=resources)
        return lambda: [number for (number,) in rows.fetchall()]

    def read_constants(self, operator: Operator, predicates: Collection[int], most: int) -> list[tuple[int, Any, str]]:
        """Return up to `most` constants of some predicates: the predicate, a number or a text, and its gram."""
        table = FILTER_RULES_TABLES[operator]
        gram = "gram" if operator.lookup is Lookup.GRAM else "''"
        sql = f"select predicate_id, number, value, {gram} from {table.name} where predicate_id = any (%s) limit %s"  # noqa: S608
        rows = self._session.execute(sql, (list(predicates), most))
        return [(predicate, number if value is None else value, gram) for predicate, number, value, gram in rows]

    def read_ends(self, operator: Operator, predicates: Collection[int]) -> list[tuple[int, Any, Any]]:
        """Return the least and the greatest constant of some predicates."""
        ends, table = "min(number), max(number), min(value), max(value)", FILTER_RULES_TABLES[operator].name
        sql = f"select predicate_id, {ends} from {table} where predicate_id = any (%s) group by 1"  # noqa: S608
        rows = self._session.execute(sql, (list(predicates),))
        return [(predicate, *((low, high) if first is None else (first, last)))
                for predicate, first, last, low, high in rows]  # fmt: skip

    # Rules as written by their authors.

    def rules_named(self, owner: int, names: Collection[str]) -> dict[str, StoredRule]:
        self.copying.wait()
        pipeline = Pipeline(self._connection)
        found = self.ask_for_names(owner, names, pipeline)
        pipeline.send()
        return found()

    def ask_for_names(
        self, owner: int, names: Collection[str], pipeline: Pipeline
    ) -> Callable[[], dict[str, StoredRule]]:
        """Queue a search for rules of an owner by name. The returned function gives them after the pipeline was
        sent."""
        found = pipeline.queue(
            number_parameters(self._sql["find_rules_named"])[0], [str(owner), json.dumps(list(names))]
        )
        return lambda: {
            str(name): StoredRule(int(number or 0), owner, name, str(text)) for name, number, text in found.rows()
        }

    def rules(self, ids: Collection[int]) -> list[StoredRule]:
        return [StoredRule(*row) for row in self.execute("find_rules", ids=list(ids)).fetchall()]

    def all_rules(self) -> Iterator[StoredRule]:
        """Yield all rules, ordered by ID."""
        with self._session.cursor("all_rules") as cursor:
            cursor.itersize = 10_000
            cursor.execute(self._sql["all_rules"])
            for row in cursor:
                yield StoredRule(*row)

    def searching(self, ids: Collection[int]) -> list[tuple[int, StoredRule]]:
        """Return the rules that search these rules, each with the ID of the rule that it searches."""
        return [(row[0], StoredRule(*row[1:])) for row in self.execute("find_searching", ids=list(ids)).fetchall()]

    def ends(self, ids: Collection[int]) -> dict[int, tuple[int, ...]]:
        found: dict[int, list[int]] = defaultdict(list)
        for rule, end in self.execute("find_rule_ends", ids=list(ids)).fetchall():
            found[rule].append(end)
        return {rule: tuple(ends) for rule, ends in found.items()}

    def detach(self, ids: Sequence[int]) -> list[int]:
        """Detach rules from their end rules. Return the end rules, which are not deleted yet."""
        return [number for (number,) in self.execute("release_ends", ids=list(ids)).fetchall()]

    def drop(self, ends: Sequence[int]) -> bool:
        """Delete those of these end rules, and of the atomic rules below them, that are not used. Return True if a
        group was deleted."""
        self.execute("drop_ends", rules=list(ends))
        suspects = list(ends)
        while suspects:
            deleted, suspects = self.execute("drop_unused", rules=suspects).fetchone() or ([], [])
            if deleted:
                self._session.execute(_DELETE_TRIGGERING, {"rules": deleted}, prepare=True)
        return bool(self.execute("drop_empty_groups").fetchall())

    def advance(self, step: RulesAdvance) -> None:
        """Advance the state of the MDP after a change of rules."""
        self.execute("insert_rules_transaction", position=step.position, cause=RULES_CAUSE)
        self.execute("advance_rules", **step._asdict())

    def copy(self, blocks: Iterable[tuple[str, list[str]]]) -> None:
        """COPY lines to tables in the background. Later statements wait for it."""
        for target, lines in blocks:
            if lines:
                self.copying.put(target, lines)

    def write(self, additions: GraphAdditions, small: bool) -> None:
        """Write additions to the graph; if they are `small`, as one statement."""
        if small:
            pipeline = Pipeline(self._connection)
            additions.combined_writes().queue(pipeline, "select")
            pipeline.send()
        else:
            self.copy(additions.pop_blocks())
            self.execute("count_uses", uses=_counted("rule_id", additions.uses))
            self.execute("count_members", members=_counted("group_id", additions.members))
        if additions.searches:
            self.execute("insert_searches", searches=json.dumps(additions.searches))

    def write_step(
        self,
        additions: GraphAdditions,
        small: bool,
        step: RulesAdvance,
        resources: int,
        seconds: float,
        pipeline: Pipeline,
    ) -> Callable[[], Collection[int]]:
        """Write additions and advance the state, so that the first results can be computed; if `small`, in the
        pipeline.

        The results of the last filter run are deleted, and later statements have a time limit of `seconds`. The
        returned function gives the groups whose driving predicate should be chosen again, given the number of stored
        resources. Call it after the pipeline was sent.
        """
        if not small:
            self.write(additions, small)
            self.advance(step)
            self.forget_results(seconds)
            return self.groups_to_revise(resources)
        writes = additions.combined_writes()
        writes.insert("transactions (position, cause)", [(str(step.position), RULES_CAUSE)])
        writes.set("mdp_state", {name: str(value) for name, value in step._asdict().items() if value is not None})
        writes.empty("result_objects", "result_ranges")
        found = writes.queue(pipeline, _then(seconds, any(additions.members.values())))
        if additions.searches:
            pipeline.send()
            self.execute("insert_searches", searches=json.dumps(additions.searches))
        return lambda: [int(number) for number in (found.rows()[0][-1] or "{}")[1:-1].split(",") if number]

    def forget_results(self, seconds: float) -> None:
        """Delete the results of the last filter run. From now on, statements are planned without restrictions and have
        a time limit of `seconds`."""
        self.execute("clear_results")
        self.execute("clear_ranges")
        self.execute("plan_freely", most=postgres_duration(seconds))

    def numbers(self, uris: Collection[str]) -> dict[str, int]:
        """Return the IDs of those of these URIs that have one."""
        return dict(self.execute("find_numbers", uris=json.dumps(sorted(uris))).fetchall())

    def number_resources(self, uris: Collection[str], last: int) -> dict[str, int]:
        """Return the IDs of these URIs. New URIs get IDs after `last`."""
        rows = self.execute("number_resources", uris=json.dumps(sorted(uris)), last=last).fetchall()
        fresh = sum(made for _, _, made in rows)
        if fresh:
            self.execute("set_last_resource", last=last + fresh)
        return {uri: number for uri, number, _ in rows}


@dataclass
class GraphAdditions:
    """Additions to the graph: rows for each table, and additional uses of existing atomic rules."""

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
        """The number of rows to write."""
        lists = (self.rules, self.atomic, self.dependencies, self.rule_ends, self.ends, self.plain)
        return sum(map(len, (*lists, *self.constants.values())))

    def pop_blocks(self) -> list[tuple[str, list[str]]]:
        """Return the lines for each table, and clear them here."""
        blocks = self._blocks()
        self.rules, self.atomic, self.dependencies, self.rule_ends, self.ends, self.plain = [], [], [], [], [], []
        self.constants = defaultdict(list)
        return blocks

    def combined_writes(self) -> CombinedWrites:
        """Return all additions as one statement, which also returns the groups to be revised."""
        writes = CombinedWrites()
        for target, lines in self._blocks():
            writes.insert(target, [parse_copy_line(line) for line in lines])
        writes.add("atomic_rules", "rule_id", "uses", self.uses.items())
        writes.add("rule_groups", "group_id", "members", self.members.items(), _REVISED)
        return writes

    def _blocks(self) -> list[tuple[str, list[str]]]:
        """Return the lines for each table."""
        lists = (self.rules, self.atomic, self.dependencies, self.rule_ends, self.ends, self.plain)
        blocks = list(zip(_TARGETS, lists, strict=True))
        return blocks + [(_CONSTANTS[operator], lines) for operator, lines in self.constants.items()]


_TARGETS = (
    "rules (id, owner, name, text, position, changed_by)",
    "atomic_rules (rule_id, uses, group_id, digest, class, text)",
    "rule_dependencies (source, target, param, group_id)",
    "rule_ends (rule_id, end_id, owner)",
    "end_rules (rule_id, driver_id, group_id, leaves)",
    "filter_rules (rule_id, class)",
)
_CONSTANTS = {
    operator: f"{table.name} (rule_id, predicate_id, number, value{', gram' if operator.lookup is Lookup.GRAM else ''})"
    for operator, table in FILTER_RULES_TABLES.items()
}


_DELETIONS = ", ".join(
    f"from_{name} as (delete from {name} where rule_id = any (%(rules)s))"  # noqa: S608
    for name in ("filter_rules", *(table.name for table in FILTER_RULES_TABLES.values()))
)
_DELETE_TRIGGERING = f"with {_DELETIONS} select"
"""Delete triggering rules from the tables of all operators."""

_REVISED = """t.group_id as number,
    t.whole and jsonb_array_length(t.pattern -> 'leaves') > 1 and (t.members >= 2 * t.chosen_at + 8
        or (t.members > 1 and (select last_resource from mdp_state) >= 2 * t.chosen_with + 1000)) as is_due"""
"""Whether a group that has more members now is to be revised: the same condition as in the statement groups_to_revise.
`mdp_state` is read as of before the statement, which is correct since it adds no resources."""


@cache
def _then(seconds: float, counted: bool) -> str:
    """Return the select that follows the combined writes of `RuleGraph.write_step`."""
    freely = load_sql("rule_graph")["plan_freely"].rstrip(";").replace("%(most)s", f"'{postgres_duration(seconds)}'")
    due = f"(select number from {RESULT_CTE} where is_due)" if counted else "[]::int[]"  # noqa: S608
    return f"{freely}, array{due}"


def copy_line(*fields: object) -> str:
    """Return a line in COPY's text format.

    >>> copy_line(1, None, "a")
    '1\\t\\\\N\\ta\\n'
    """
    return "\t".join(map(copy_field, fields)) + "\n"


def compute_digest(*parts: object) -> str:
    """Return a digest of these parts that is the same in all processes."""
    return md5("\0".join(map(str, parts)).encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


def _counted(name: str, counts: Mapping[int, int]) -> str:
    return json.dumps([{name: number, "more": more} for number, more in counts.items() if more])
