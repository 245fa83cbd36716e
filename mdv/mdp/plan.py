"""The plan of a rule: its decomposition into atomic rules, with slots for its constants.

Rules that differ only in their constants share a plan, so that 100,000 such rules are decomposed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from functools import cached_property
from typing import Any

from mdv.db.rule_graph import GroupKey, PredicateKey, compute_digest
from mdv.rdf.schema import Schema
from mdv.rdf.values import MAX_DIGITS
from mdv.rules.atomic import JoinRule, TriggeringRule, atomic_rule_text, decompose, group_text
from mdv.rules.normal import Comparison, Conjunction, Constant, NormalRule
from mdv.rules.pattern import Pattern, pattern
from mdv.rules.show import format_rule


@dataclass(frozen=True, slots=True)
class TriggeringPlan:
    """A triggering rule without its constant. The constant is in a slot of the rule's text, or fixed, or absent."""

    rule: TriggeringRule
    slot: int | None
    text: str
    """The text up to the constant."""
    digest: str
    """The digest of everything but the constant."""


@dataclass(frozen=True, slots=True)
class JoinPlan:
    rule: JoinRule
    text: str
    """The text, with %d for the ids of its inputs."""
    group_text: str
    group_digest: str
    group_body: dict[str, Any]
    """The common part of the group's rules, as JSON."""


@dataclass(frozen=True)
class ConjunctionPlan:
    triggering: tuple[TriggeringPlan, ...]
    joins: tuple[JoinPlan, ...]
    pattern: Pattern
    leaves: tuple[int, ...]
    """For each leaf of the pattern, the index of its triggering rule."""
    text: str
    digest: str

    @cached_property
    def group_keys(self) -> tuple[GroupKey, ...]:
        """The groups of its rules: those of its join rules, in order, then the whole group."""
        return (*(GroupKey(False, join.group_digest) for join in self.joins), GroupKey(True, self.digest))

    @cached_property
    def predicate_keys(self) -> tuple[PredicateKey | None, ...]:
        """The predicate of each triggering rule; None if it has no constant."""
        return tuple(_predicate(one.rule) for one in self.triggering)


def plan_rule(rule: NormalRule, schema: Schema) -> tuple[ConjunctionPlan, ...]:
    """Return the decomposition of each conjunction of `rule`."""
    return tuple(_plan(_with_distinct_constants(conjunction), schema) for conjunction in rule.conjunctions)


def _with_distinct_constants(conjunction: Conjunction) -> Conjunction:
    """Make the constants of the text distinct, as they can be in another rule with the same plan."""
    predicates = tuple(
        replace(p, constant=Constant(f"\0{p.constant.slot}", "?", p.constant.slot))
        if isinstance(p, Comparison) and p.constant.slot is not None
        else p
        for p in conjunction.predicates
    )
    return replace(conjunction, predicates=predicates)


def _plan(conjunction: Conjunction, schema: Schema) -> ConjunctionPlan:
    short, any_of = schema.shorten, property_writer(schema)
    atomic = decompose(conjunction)
    triggering = [rule for rule in atomic if isinstance(rule, TriggeringRule)]
    joins = []
    for rule in atomic:
        if isinstance(rule, JoinRule):
            text = atomic_rule_text(rule, "\1" * len(atomic), short, any_of).replace("%", "%%").replace("\1", "%d")
            # The text does not show by which type values are compared, and a schema change can change it.
            digest = compute_digest(group_text(rule, str, str), *(p.sort.value for p in rule.predicates))
            joins.append(JoinPlan(rule, text, group_text(rule, short, any_of), digest, rule.as_json()))
    found, constants = pattern(conjunction)
    indexes = {(rule.class_iri, rule.property, rule.operator, rule.sort, rule.constant): index
              for index, rule in enumerate(triggering)}  # fmt: skip
    leaves = tuple(
        indexes[leaf.class_iri, leaf.property, leaf.operator, leaf.sort, constant]
        for leaf, constant in zip(found.leaves, constants, strict=True)
    )
    shown = found.as_conjunction(replace(constant, shown="?") for constant in constants)
    return ConjunctionPlan(
        tuple(_triggering_plan(rule, short, any_of) for rule in triggering),
        tuple(joins),
        found,
        leaves,
        format_rule(shown, schema),
        compute_digest(found.as_json()),
    )


def _triggering_plan(rule: TriggeringRule, short: object, any_of: object) -> TriggeringPlan:
    constant = rule.constant
    without_constant = replace(rule, constant=replace(constant, shown="")) if constant is not None else rule
    return TriggeringPlan(
        rule,
        constant.slot if constant is not None else None,
        atomic_rule_text(without_constant, (), short, any_of),  # type: ignore[arg-type]
        compute_digest("triggering", rule.class_iri, rule.property or "", rule.operator and rule.operator.value,
                  rule.sort and rule.sort.value),
    )  # fmt: skip


def _predicate(rule: TriggeringRule) -> PredicateKey | None:
    if rule.operator is None or rule.sort is None:
        return None
    return PredicateKey(rule.class_iri, rule.property, rule.operator, rule.sort)


def property_writer(schema: Schema) -> Callable[[str], str]:
    """Return a function that writes a property as in a rule: shortened, with `?` if it is set-valued."""

    def any_of(iri: str) -> str:
        declared = schema.property_of(iri)
        return schema.shorten(iri) + ("?" if declared is not None and declared.set_valued else "")

    return any_of


def constant_of(plan: TriggeringPlan, constants: Sequence[Constant]) -> Constant | None:
    return plan.rule.constant if plan.slot is None else constants[plan.slot]


_EXACT = Context(prec=2 * MAX_DIGITS)
"""The default context rounds to 28 digits, so that two different numbers could get the same key."""


def constant_key(constant: Constant) -> str:
    """Return a key that is the same for equal constants, such as 92 and 92.0.

    >>> constant_key(Constant(Decimal("92.0"), "92.0")) == constant_key(Constant(Decimal("92"), "92"))
    True
    """
    value = constant.value
    return str(value.normalize(_EXACT)) if isinstance(value, Decimal) else str(value)


def digests_of(plan: ConjunctionPlan, constants: Sequence[Constant]) -> list[str]:
    """Return the digests by which the atomic rules of a conjunction are found in the rule graph, in order."""
    return [digest for (digest,) in digest_columns(plan, [constants])]


def digest_columns(plan: ConjunctionPlan, constants: Sequence[Sequence[Constant]]) -> list[list[str]]:
    """Return the digests for several rules that differ in their constants: a column for each atomic rule."""
    columns = [_triggering_digests(triggering, constants) for triggering in plan.triggering]
    for join in plan.joins:
        inputs = zip(*[columns[index] for index in join.rule.inputs], strict=True)
        columns.append([compute_digest(join.group_digest, *digests) for digests in inputs])
    return columns


def _triggering_digests(plan: TriggeringPlan, constants: Sequence[Sequence[Constant]]) -> list[str]:
    if plan.slot is None:
        fixed = plan.rule.constant
        return [compute_digest(plan.digest, "" if fixed is None else constant_key(fixed))] * len(constants)
    digests, last, digest = [], None, ""
    for rule_constants in constants:
        constant = rule_constants[plan.slot]
        if constant is not last:
            last, digest = constant, compute_digest(plan.digest, constant_key(constant))
        digests.append(digest)
    return digests
