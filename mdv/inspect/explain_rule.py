"""Explain a rule: how it would be decomposed, and which parts of it exist already. Takes no lock and changes nothing.

text → normal form → plan → atomic rules and groups, looked up in the rule graph by the digests that `merge` writes
                          → counts: current matches, and the maximum number of resources that a change scans
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, product
from string import ascii_uppercase
from typing import Any

from sqlalchemy import Connection, Numeric, Select, Text, literal, select, union

from mdv.db.filter import compile_statement
from mdv.db.rule_graph import PredicateKey, RuleGraph
from mdv.db.state import read_state
from mdv.inspect.rule_cost import measure_cost
from mdv.inspect.rule_explanation import (
    ClassScan,
    DrivingRule,
    ExplainedAtomicRule,
    ExplainedConjunction,
    ExplainedCost,
    ExplainedJoinGroup,
    ExplainedSql,
    FilterRuleRow,
    MeasuredCost,
    RuleExplanation,
    RuleId,
    WholeGroup,
    dependency_tree,
)
from mdv.inspect.sql import explain_rule as db
from mdv.mdp.groups import CompiledGroup, read_names, statement_states
from mdv.mdp.merge import best_starting_leaf, choose_driving_leaf
from mdv.mdp.plan import ConjunctionPlan, constant_of, digests_of, property_writer
from mdv.mdp.rule_cache import NamedRules, RuleCache
from mdv.mdp.schemas import SchemaCache
from mdv.query.compile import Group, matches
from mdv.query.offload import Offload, run_inline
from mdv.rdf.schema import Schema
from mdv.rules.atomic import TriggeringRule, atomic_rule_text
from mdv.rules.normal import Constant, Sort
from mdv.rules.normalise import no_rules, normalise
from mdv.rules.parse import parse
from mdv.rules.pattern import Pattern
from mdv.rules.show import format_rule

MAX_COUNT_SECONDS = 5.0
"""The time limit for all counts of one explanation."""
MAX_COUNTED_INSTANCES = 1_000_000
"""Counting the instances of a class stops here."""
MAX_EVALUATED_PARTS = 400
"""A rule with more variables and comparisons than this, over all conjunctions, is explained without SQL and without
counts, because compiling the statement alone would take long."""


def explain_rule(
    connection: Connection,
    text: str,
    schemas: SchemaCache,
    rules: RuleCache,
    owner: int | None = None,
    with_sql: bool = False,
    seconds: float = MAX_COUNT_SECONDS,
    apart: Offload = run_inline,
) -> RuleExplanation:
    """Return the normal form of a rule, its decomposition, the parts that exist already, and its number of matches.

    It may search the named rules of `owner`. `apart` runs the compilation of statements.
    """
    state = read_state(connection)
    in_force = schemas.at(connection, state.schema_version)
    schema = in_force.schema
    named_rules = NamedRules.stored(connection, owner) if owner is not None else None
    _, plans, constants = rules.read(text, in_force, named_rules)
    normal = normalise(parse(text), schema, named_rules.parsed if named_rules is not None else no_rules)
    found = _Finder(connection, plans, constants, schema).parts()
    evaluation = _Evaluation(connection, plans, constants, schema, seconds, apart)
    measured = evaluation.measure(constants, state.position, rules.seconds)
    explained = []
    for number, (conjunction, part) in enumerate(zip(normal.conjunctions, found, strict=True)):
        sql = evaluation.sql(number, part.whole_group) if with_sql else None
        explained.append(replace(part, normal=format_rule(conjunction, schema), sql=sql))
    return RuleExplanation(
        text, format_rule(normal, schema), tuple(explained), evaluation.matches(), evaluation.cost(measured)
    )


@dataclass
class _Part:
    """One conjunction, with its existing atomic rules in order; None for those that do not exist."""

    plan: ConjunctionPlan
    digests: list[str]
    stored: list[db.ExistingAtomicRule | None] = field(default_factory=list)


class _Finder:
    """Looks up the atomic rules of a rule in the rule graph, as `RuleMerge` does, and names new ones by letters."""

    def __init__(
        self, connection: Connection, plans: Sequence[ConjunctionPlan], constants: Sequence[Constant], schema: Schema
    ) -> None:
        self._connection = connection
        self._constants = constants
        self._short, self._any_of = schema.shorten, property_writer(schema)
        joins = [join for plan in plans for join in plan.joins]
        self._groups = db.find_groups(connection, False, {join.group_digest for join in joins})
        self._wholes = db.find_groups(connection, True, {plan.digest for plan in plans})
        self._letters = _letters()
        self._named: dict[object, str] = {}
        self._parts = [_Part(plan, digests_of(plan, constants)) for plan in plans]

    def parts(self) -> list[ExplainedConjunction]:
        known = db.find_atomic_rules(self._connection, set(chain(*(part.digests for part in self._parts))))
        for part in self._parts:
            part.stored = [known.get(digest) for digest in part.digests]
        return [self._explain(part) for part in self._parts]

    def _explain(self, part: _Part) -> ExplainedConjunction:
        plan = part.plan
        rules: list[ExplainedAtomicRule] = []
        for place, triggering in enumerate(plan.triggering):
            constant = constant_of(triggering, self._constants)
            text = triggering.text if constant is None else triggering.text + constant.shown
            found = self._atomic(part, place, text, triggering.rule.class_iri, "triggering", part.digests[place])
            rules.append(replace(found, row=_row(triggering.rule, constant)))
        groups: dict[str, ExplainedJoinGroup] = {}
        for place, join in enumerate(plan.joins, len(rules)):
            inputs = tuple(rules[source].id for source in join.rule.inputs)
            text = atomic_rule_text(join.rule, [rule.id for rule in rules], self._short, self._any_of)
            key = (join.group_digest, inputs)
            rules.append(self._atomic(part, place, text, join.rule.class_iri, "join", key, inputs))
            stored = self._groups.get(join.group_digest)
            before = groups.get(join.group_digest)
            groups[join.group_digest] = ExplainedJoinGroup(
                stored.id if stored is not None else None,
                join.group_text,
                stored.members if stored is not None else 0,
                (*(before.rules if before is not None else ()), rules[-1].id),
            )
        by_id = {rule.id: rule for rule in rules}
        return ExplainedConjunction(
            "", tuple(rules), dependency_tree(by_id, rules[-1].id), tuple(groups.values()), self._whole(plan, rules)
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
    ) -> ExplainedAtomicRule:
        stored = part.stored[place]
        if stored is not None:
            return ExplainedAtomicRule(stored.id, stored.text, class_iri, kind, True, stored.uses, inputs)
        if key not in self._named:
            self._named[key] = next(self._letters)
        return ExplainedAtomicRule(self._named[key], text, class_iri, kind, False, 0, inputs)

    def _whole(self, plan: ConjunctionPlan, rules: Sequence[ExplainedAtomicRule]) -> WholeGroup:
        stored = self._wholes.get(plan.digest)
        driver = None
        if plan.leaves:
            leaf = _driving_leaf(plan.pattern, stored)
            rule = rules[plan.leaves[leaf]]
            driver = DrivingRule(leaf, rule.id, rule.text, plan.pattern.leaves[leaf].operator.constants_table)
        if stored is None:
            return WholeGroup(None, plan.text, 0, driver)
        return WholeGroup(stored.id, plan.text, stored.members, driver)


def _driving_leaf(pattern: Pattern, stored: db.ExistingGroup | None) -> int:
    if stored is not None and stored.driver is not None:
        return stored.driver
    return choose_driving_leaf(pattern.leaves, [1] * len(pattern.leaves), 1)


def _row(rule: TriggeringRule, constant: Constant | None) -> FilterRuleRow:
    if rule.operator is None or constant is None:
        return FilterRuleRow("filter_rules", rule.class_iri)
    value = constant.value if isinstance(constant.value, str) else constant.shown
    return FilterRuleRow(rule.operator.constants_table, rule.class_iri, rule.property, value)


def _letters() -> Iterator[str]:
    """Yield A, B … Z, AA, AB …"""
    return ("".join(letters) for length in count(1) for letters in product(ascii_uppercase, repeat=length))


class _Evaluation:
    """Counts the matches of a rule within a time limit, and shows its SQL."""

    def __init__(
        self,
        connection: Connection,
        plans: Sequence[ConjunctionPlan],
        constants: Sequence[Constant],
        schema: Schema,
        seconds: float,
        apart: Offload,
    ) -> None:
        self._connection, self._plans, self._schema, self._apart = connection, plans, schema, apart
        self._deadline = time.monotonic() + seconds
        self._graph = RuleGraph(connection)
        patterns = [plan.pattern for plan in plans]
        self._names = read_names(self._graph, patterns, schema, db.ReadOnlyVocabulary(connection), None)
        self._now, _, _ = statement_states(self._names)
        self._too_large = sum(len(pattern.nodes) + len(pattern.leaves) for pattern in patterns) > MAX_EVALUATED_PARTS
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
        return matches(self._now, plan.pattern, values, best_starting_leaf(plan.pattern))

    def measure(self, constants: Sequence[Constant], position: int, limit: float) -> MeasuredCost:
        """Measure the cost of a change. Half of the remaining time is left for counting."""
        if self._too_large:
            return MeasuredCost((), True, limit * 1000)
        seconds = (self._deadline - time.monotonic()) / 2
        return measure_cost(
            self._connection, self._plans, constants, self._names, position, limit, seconds, self._apart
        )

    def matches(self) -> int | None:
        if self._too_large:
            return None
        return self._count(lambda: select(union(*self._selects).subquery("found").c.resource_id))

    def cost(self, measured: MeasuredCost) -> ExplainedCost:
        """Return the classes that a change may scan.

        These are the classes of parents of nodes that are not joined to their parent by a reference or an equal value.
        """
        scans: dict[tuple[str, str], None] = {}
        for plan in self._plans:
            for node in plan.pattern.unbounded:
                branch = plan.pattern.branches[node]
                assert branch is not None
                scans[plan.pattern.nodes[node][0], plan.pattern.nodes[branch.parent][0]] = None
        instances = {class_iri: self._instances(class_iri) for _, class_iri in scans}
        return ExplainedCost(tuple(
            ClassScan(self._schema.shorten(changed), self._schema.shorten(above), instances[above],
                 instances[above] == MAX_COUNTED_INSTANCES)
            for changed, above in scans
        ), measured)  # fmt: skip

    def _instances(self, class_iri: str) -> int | None:
        extent = Pattern(((class_iri,),), (None,), (), ())
        return self._count(lambda: matches(self._now, extent, [], None).limit(MAX_COUNTED_INSTANCES))

    def _count(self, rows: Callable[[], Select[Any]]) -> int | None:
        if time.monotonic() > self._deadline:
            return None
        counted = self._apart(lambda: db.count_statement(rows()))
        left = self._deadline - time.monotonic()
        return db.count_with_time_limit(self._connection, counted, left) if left > 0 else None

    def sql(self, number: int, whole: WholeGroup) -> ExplainedSql | None:
        if self._too_large:
            return None
        pattern = self._plans[number].pattern
        predicates = self._graph.read_predicates()
        predicate_ids = [predicates.get(PredicateKey(*leaf[1:]), 0) for leaf in pattern.leaves]
        group = Group(whole.id or 0, pattern, whole.driver.leaf if whole.driver is not None else None, predicate_ids)
        statement = CompiledGroup(group, self._names).statement
        return ExplainedSql(db.format_sql(statement), db.format_sql(compile_statement(self._selects[number])))
