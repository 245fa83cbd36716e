"""Explain: what would become of a rule, and what of it there is already. Nothing is locked and nothing is changed.

text → normal form → plan → its atomic rules and groups, looked for in the graph by the digests that `merge` writes
                          → counted: what matches now, what a change may concern at worst
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, product
from string import ascii_uppercase
from typing import Any

from sqlalchemy import Connection, Numeric, Select, Text, literal, select, union

from mdv.db import explain as db
from mdv.db.filter import compiled
from mdv.db.graph import FILTER_RULES, Graph, PredicateKey
from mdv.db.state import read_state
from mdv.mdp.explanation import (
    AtomicPart,
    ConjunctionPart,
    Cost,
    Driver,
    Explanation,
    FilterRow,
    GroupPart,
    RuleId,
    Scan,
    Sql,
    WholeGroup,
    tree,
)
from mdv.mdp.groups import CompiledGroup, read_names, states
from mdv.mdp.merge import choose_driver
from mdv.mdp.plan import ConjunctionPlan, constant_of, digests_of, written_in
from mdv.mdp.rules import Library, Rules, best_leaf
from mdv.mdp.schemas import Schemas
from mdv.query.apart import Apart, here
from mdv.query.compile import Group, matches
from mdv.rdf.schema import Schema
from mdv.rules.atomic import Triggering, text_of
from mdv.rules.normal import Constant, Sort
from mdv.rules.normalise import no_rules, normalise
from mdv.rules.parse import parse
from mdv.rules.pattern import Pattern
from mdv.rules.show import show

COUNT_SECONDS = 5.0
"""How long all counting for one explanation may take."""
MOST_INSTANCES = 1_000_000
"""More instances of a class than this are not counted."""
MOST_PARTS = 400
"""A rule with more variables and comparisons than this, over all conjunctions, is explained without its SQL and not
evaluated: the statement alone would take long to write."""


def explain(
    connection: Connection,
    text: str,
    schemas: Schemas,
    rules: Rules,
    owner: int | None = None,
    with_sql: bool = False,
    seconds: float = COUNT_SECONDS,
    apart: Apart = here,
) -> Explanation:
    """What a rule means, how it is taken apart, which parts of it exist already, and how many resources match now.

    It may search the named rules of `owner`. Statements are written `apart`.
    """
    in_force = schemas.at(connection, read_state(connection).schema_version)
    schema = in_force.schema
    library = Library(Graph(connection), owner, {}) if owner is not None else None
    _, plans, constants = rules.read(text, in_force, library)
    normal = normalise(parse(text), schema, library.parsed if library is not None else no_rules)
    found = _Finder(connection, plans, constants, schema).parts()
    evaluation = _Evaluation(connection, plans, constants, schema, seconds, apart)
    told = []
    for number, (conjunction, part) in enumerate(zip(normal.conjunctions, found, strict=True)):
        sql = evaluation.sql(number, part.whole_group) if with_sql else None
        told.append(replace(part, normal=show(conjunction, schema), sql=sql))
    return Explanation(text, show(normal, schema), tuple(told), evaluation.matches(), evaluation.cost())


@dataclass
class _Part:
    """One conjunction on its way: those of its atomic rules that exist, by place; None for the others."""

    plan: ConjunctionPlan
    digests: list[str]
    stored: list[db.StoredAtomicRule | None] = field(default_factory=list)


class _Finder:
    """Looks for the parts of a rule in the graph, as `Merge` does, and gives letters to those that are not there."""

    def __init__(
        self, connection: Connection, plans: Sequence[ConjunctionPlan], constants: Sequence[Constant], schema: Schema
    ) -> None:
        self._connection = connection
        self._constants = constants
        self._short, self._any_of = schema.shorten, written_in(schema)
        joins = [join for plan in plans for join in plan.joins]
        self._groups = db.find_groups(connection, False, {join.group_digest for join in joins})
        self._wholes = db.find_groups(connection, True, {plan.digest for plan in plans})
        self._letters = _letters()
        self._named: dict[object, str] = {}
        self._parts = [_Part(plan, digests_of(plan, constants)) for plan in plans]

    def parts(self) -> list[ConjunctionPart]:
        known = db.find_atomic_rules(self._connection, set(chain(*(part.digests for part in self._parts))))
        for part in self._parts:
            part.stored = [known.get(digest) for digest in part.digests]
        return [self._told(part) for part in self._parts]

    def _told(self, part: _Part) -> ConjunctionPart:
        plan = part.plan
        rules: list[AtomicPart] = []
        for place, triggering in enumerate(plan.triggering):
            constant = constant_of(triggering, self._constants)
            text = triggering.text if constant is None else triggering.text + constant.shown
            found = self._atomic(part, place, text, triggering.rule.class_iri, "triggering", part.digests[place])
            rules.append(replace(found, row=_row(triggering.rule, constant)))
        groups: dict[str, GroupPart] = {}
        for place, join in enumerate(plan.joins, len(rules)):
            inputs = tuple(rules[source].id for source in join.rule.inputs)
            text = text_of(join.rule, [rule.id for rule in rules], self._short, self._any_of)
            key = (join.group_digest, inputs)
            rules.append(self._atomic(part, place, text, join.rule.class_iri, "join", key, inputs))
            stored = self._groups.get(join.group_digest)
            before = groups.get(join.group_digest)
            groups[join.group_digest] = GroupPart(
                stored.id if stored is not None else None,
                join.group_text,
                stored.members if stored is not None else 0,
                (*(before.rules if before is not None else ()), rules[-1].id),
            )
        by_id = {rule.id: rule for rule in rules}
        return ConjunctionPart(
            "", tuple(rules), tree(by_id, rules[-1].id), tuple(groups.values()), self._whole(plan, rules)
        )

    def _atomic(
        self,
        part: _Part,
        place: int,
        text: str,
        class_iri: str,
        kind: str,
        key: object,
        inputs: tuple[RuleId, ...] = (),
    ) -> AtomicPart:
        stored = part.stored[place]
        if stored is not None:
            return AtomicPart(stored.id, stored.text, class_iri, kind, True, stored.uses, inputs)
        if key not in self._named:
            self._named[key] = next(self._letters)
        return AtomicPart(self._named[key], text, class_iri, kind, False, 0, inputs)

    def _whole(self, plan: ConjunctionPlan, rules: Sequence[AtomicPart]) -> WholeGroup:
        stored = self._wholes.get(plan.digest)
        driver = None
        if plan.leaves:
            leaf = _driver(plan.pattern, stored)
            rule = rules[plan.leaves[leaf]]
            driver = Driver(leaf, rule.id, rule.text, FILTER_RULES[plan.pattern.leaves[leaf].operator].name)
        if stored is None:
            return WholeGroup(None, plan.text, 0, driver)
        return WholeGroup(stored.id, plan.text, stored.members, driver)


def _driver(pattern: Pattern, stored: db.FoundGroup | None) -> int:
    if stored is not None and stored.driver is not None:
        return stored.driver
    return choose_driver(pattern.leaves, [1] * len(pattern.leaves), 1)


def _row(rule: Triggering, constant: Constant | None) -> FilterRow:
    if rule.operator is None or constant is None:
        return FilterRow("filter_rules", rule.class_iri)
    value = constant.value if isinstance(constant.value, str) else constant.shown
    return FilterRow(FILTER_RULES[rule.operator].name, rule.class_iri, rule.property, value)


def _letters() -> Iterator[str]:
    """A, B … Z, AA, AB …"""
    return ("".join(letters) for length in count(1) for letters in product(ascii_uppercase, repeat=length))


class _Evaluation:
    """A rule on the statements of now: counted within a time, and shown as SQL."""

    def __init__(
        self,
        connection: Connection,
        plans: Sequence[ConjunctionPlan],
        constants: Sequence[Constant],
        schema: Schema,
        seconds: float,
        apart: Apart,
    ) -> None:
        self._connection, self._plans, self._schema, self._apart = connection, plans, schema, apart
        self._deadline = time.monotonic() + seconds
        self._graph = Graph(connection)
        patterns = [plan.pattern for plan in plans]
        self._names = read_names(self._graph, patterns, schema, db.KnownNames(connection), None)
        self._now, _, _ = states(self._names)
        self._too_large = sum(len(pattern.nodes) + len(pattern.leaves) for pattern in patterns) > MOST_PARTS
        chosen = [] if self._too_large else plans
        self._selects = apart(lambda: [self._select(plan, constants) for plan in chosen])

    def _select(self, plan: ConjunctionPlan, constants: Sequence[Constant]) -> Select[Any]:
        given = [constant_of(plan.triggering[place], constants) for place in plan.leaves]
        values = [
            literal(int(constant.value) if isinstance(constant.value, bool) else constant.value,
                    Text() if leaf.sort in (Sort.TEXT, Sort.REFERENCE) else Numeric())
            for leaf, constant in zip(plan.pattern.leaves, given, strict=True)
            if constant is not None
        ]  # fmt: skip
        return matches(self._now, plan.pattern, values, best_leaf(plan.pattern))

    def matches(self) -> int | None:
        if self._too_large:
            return None
        return self._count(lambda: select(union(*self._selects).subquery("found").c.resource_id))

    def cost(self) -> Cost:
        """The classes that a change may concern as a whole: those above a node that no reference and no equal value
        binds to its parent."""
        asked: dict[tuple[str, str], None] = {}
        for plan in self._plans:
            for node in plan.pattern.unbounded:
                branch = plan.pattern.branches[node]
                assert branch is not None
                asked[plan.pattern.nodes[node][0], plan.pattern.nodes[branch.parent][0]] = None
        instances = {class_iri: self._instances(class_iri) for _, class_iri in asked}
        return Cost(tuple(
            Scan(self._schema.shorten(changed), self._schema.shorten(above), instances[above],
                 instances[above] == MOST_INSTANCES)
            for changed, above in asked
        ))  # fmt: skip

    def _instances(self, class_iri: str) -> int | None:
        extent = Pattern(((class_iri,),), (None,), (), ())
        return self._count(lambda: matches(self._now, extent, [], None).limit(MOST_INSTANCES))

    def _count(self, rows: Callable[[], Select[Any]]) -> int | None:
        if time.monotonic() > self._deadline:
            return None
        counted = self._apart(lambda: db.counting(rows()))
        left = self._deadline - time.monotonic()
        return db.count_within(self._connection, counted, left) if left > 0 else None

    def sql(self, number: int, whole: WholeGroup) -> Sql | None:
        if self._too_large:
            return None
        pattern = self._plans[number].pattern
        predicates = self._graph.read_predicates()
        its_predicates = [predicates.get(PredicateKey(*leaf[1:]), 0) for leaf in pattern.leaves]
        group = Group(whole.id or 0, pattern, whole.driver.leaf if whole.driver is not None else None, its_predicates)
        statement = CompiledGroup(group, self._names).statement
        return Sql(db.readable(statement), db.readable(compiled(self._selects[number])))
