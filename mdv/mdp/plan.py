"""The plan of a rule: how it is taken apart, with places for its constants.

Rules that differ in their constants alone share a plan, so that a hundred thousand of them are taken apart once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from functools import cached_property
from typing import Any

from mdv.db.graph import GroupKey, PredicateKey, digest_of
from mdv.rdf.schema import Schema
from mdv.rdf.values import DIGIT_LIMIT
from mdv.rules.atomic import Join, Triggering, decompose, group_text, text_of
from mdv.rules.normal import Comparison, Conjunction, Constant, NormalRule
from mdv.rules.pattern import Pattern, pattern
from mdv.rules.show import show


@dataclass(frozen=True, slots=True)
class TriggeringPlan:
    """A triggering rule without its constant: that comes from a slot of the rule's text, or is fixed, or is none."""

    rule: Triggering
    slot: int | None
    text: str
    """Up to the constant."""
    digest: str
    """Of everything but the constant."""


@dataclass(frozen=True, slots=True)
class JoinPlan:
    rule: Join
    text: str
    """With %d for the numbers of its inputs."""
    group_text: str
    group_digest: str
    group_body: dict[str, Any]
    """What the rules of the group have in common, as JSON."""


@dataclass(frozen=True)
class ConjunctionPlan:
    triggering: tuple[TriggeringPlan, ...]
    joins: tuple[JoinPlan, ...]
    pattern: Pattern
    leaves: tuple[int, ...]
    """The triggering rule of each leaf of the pattern, by its place."""
    text: str
    digest: str

    @cached_property
    def group_keys(self) -> tuple[GroupKey, ...]:
        """The groups that its rules belong to: those of its joins, in their order, and the whole one."""
        return (*(GroupKey(False, join.group_digest) for join in self.joins), GroupKey(True, self.digest))

    @cached_property
    def predicate_keys(self) -> tuple[PredicateKey | None, ...]:
        """The predicate of each triggering rule, None where it has no constant."""
        return tuple(_predicate(one.rule) for one in self.triggering)


def plan(rule: NormalRule, schema: Schema) -> tuple[ConjunctionPlan, ...]:
    """How each conjunction of `rule` is taken apart."""
    return tuple(_plan(_with_places(conjunction), schema) for conjunction in rule.conjunctions)


def _with_places(conjunction: Conjunction) -> Conjunction:
    """Constants of the text made different from each other, as they may be in another rule of the same plan."""
    predicates = tuple(
        replace(p, constant=Constant(f"\0{p.constant.slot}", "?", p.constant.slot))
        if isinstance(p, Comparison) and p.constant.slot is not None
        else p
        for p in conjunction.predicates
    )
    return replace(conjunction, predicates=predicates)


def _plan(conjunction: Conjunction, schema: Schema) -> ConjunctionPlan:
    short, any_of = schema.shorten, written_in(schema)
    atomic = decompose(conjunction)
    triggering = [rule for rule in atomic if isinstance(rule, Triggering)]
    joins = []
    for rule in atomic:
        if isinstance(rule, Join):
            text = text_of(rule, "\1" * len(atomic), short, any_of).replace("%", "%%").replace("\1", "%d")
            # What is compared as what is not in the text: a change of the schema may change it.
            digest = digest_of(group_text(rule, str, str), *(p.sort.value for p in rule.predicates))
            joins.append(JoinPlan(rule, text, group_text(rule, short, any_of), digest, rule.as_json()))
    found, constants = pattern(conjunction)
    places = {(rule.class_iri, rule.property, rule.operator, rule.sort, rule.constant): place
              for place, rule in enumerate(triggering)}  # fmt: skip
    leaves = tuple(
        places[leaf.class_iri, leaf.property, leaf.operator, leaf.sort, constant]
        for leaf, constant in zip(found.leaves, constants, strict=True)
    )
    shown = found.as_conjunction(replace(constant, shown="?") for constant in constants)
    return ConjunctionPlan(
        tuple(_triggering_plan(rule, short, any_of) for rule in triggering),
        tuple(joins),
        found,
        leaves,
        show(shown, schema),
        digest_of(found.as_json()),
    )


def _triggering_plan(rule: Triggering, short: object, any_of: object) -> TriggeringPlan:
    constant = rule.constant
    asked = replace(rule, constant=replace(constant, shown="")) if constant is not None else rule
    return TriggeringPlan(
        rule,
        constant.slot if constant is not None else None,
        text_of(asked, (), short, any_of),  # type: ignore[arg-type]
        digest_of("triggering", rule.class_iri, rule.property or "", rule.operator and rule.operator.value,
                  rule.sort and rule.sort.value),
    )  # fmt: skip


def _predicate(rule: Triggering) -> PredicateKey | None:
    if rule.operator is None or rule.sort is None:
        return None
    return PredicateKey(rule.class_iri, rule.property, rule.operator, rule.sort)


def written_in(schema: Schema) -> Callable[[str], str]:
    """How properties are written in rules of this schema: short, with `?` where they are set-valued."""

    def any_of(iri: str) -> str:
        declared = schema.property_of(iri)
        return schema.shorten(iri) + ("?" if declared is not None and declared.set_valued else "")

    return any_of


def constant_of(plan: TriggeringPlan, constants: Sequence[Constant]) -> Constant | None:
    return plan.rule.constant if plan.slot is None else constants[plan.slot]


_EXACT = Context(prec=2 * DIGIT_LIMIT)
"""Python's own would round to 28 digits, and let two numbers pass for one."""


def key_of(constant: Constant) -> str:
    """What two constants have in common that are the same: 92 and 92.0.

    >>> key_of(Constant(Decimal("92.0"), "92.0")) == key_of(Constant(Decimal("92"), "92"))
    True
    """
    value = constant.value
    return str(value.normalize(_EXACT)) if isinstance(value, Decimal) else str(value)


def digests_of(plan: ConjunctionPlan, constants: Sequence[Constant]) -> list[str]:
    """By what the atomic rules of a conjunction are found in the graph, by place: each named by all that it says."""
    return [digest for (digest,) in digest_columns(plan, [constants])]


def digest_columns(plan: ConjunctionPlan, constants: Sequence[Sequence[Constant]]) -> list[list[str]]:
    """The same for any number of rules that differ in their constants: a column for each place."""
    columns = [_triggering_digests(triggering, constants) for triggering in plan.triggering]
    for join in plan.joins:
        inputs = zip(*[columns[place] for place in join.rule.inputs], strict=True)
        columns.append([digest_of(join.group_digest, *mine) for mine in inputs])
    return columns


def _triggering_digests(plan: TriggeringPlan, constants: Sequence[Sequence[Constant]]) -> list[str]:
    if plan.slot is None:
        fixed = plan.rule.constant
        return [digest_of(plan.digest, "" if fixed is None else key_of(fixed))] * len(constants)
    digests, last, digest = [], None, ""
    for mine in constants:
        constant = mine[plan.slot]
        if constant is not last:
            last, digest = constant, digest_of(plan.digest, key_of(constant))
        digests.append(digest)
    return digests
