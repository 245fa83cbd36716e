"""The order of the rules that fire together: levels that wait for each other. Within a level nothing waits."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum

from mdv.federation.messages import FederatedRule
from mdv.rdftl.model import ConstantValue, NamedNode, NodeStep
from mdv.rdftl.template import find_parts


class ForeignOrder(Enum):
    """The order of rules of other superpeers, after the own ones."""

    ORIGIN = "origin"
    """By superpeer and number."""
    TIMESTAMP = "timestamp"
    """By the time of registration."""
    SPECIFIC_FIRST = "specific-first"
    """By the constants and steps of the event, most first."""


def levels_of(
    rules: Collection[FederatedRule], own: str, order: ForeignOrder = ForeignOrder.ORIGIN
) -> list[list[FederatedRule]]:
    """Return the levels of rules: own rules by PRECEDES and FOLLOWS, then each rule of another superpeer.

    The rules of one origin never run against their PRECEDES and FOLLOWS.
    """
    mine = [rule for rule in rules if rule.origin == own]
    found = _layers(mine)
    foreign: list[FederatedRule] = []
    for origin in sorted({rule.origin for rule in rules} - {own}):
        for layer in _layers([rule for rule in rules if rule.origin == origin]):
            foreign += sorted(layer, key=lambda rule: rule.number)
    if order is ForeignOrder.TIMESTAMP:
        foreign = _respecting(foreign, sorted(foreign, key=lambda rule: (rule.registered_at, rule.id)))
    elif order is ForeignOrder.SPECIFIC_FIRST:
        foreign = _respecting(foreign, sorted(foreign, key=lambda rule: (-specificity(rule), rule.id)))
    return found + [[rule] for rule in foreign]


def specificity(rule: FederatedRule) -> int:
    """Return how many constants and steps the event of a rule has."""
    event = rule.rule.event
    return sum(1 for kind in (NamedNode, ConstantValue, NodeStep) for _ in find_parts(event, kind))


def _follows(later: FederatedRule, earlier: FederatedRule) -> bool:
    one, other = earlier.rule, later.rule
    if earlier.origin != later.origin:
        return False
    return (other.name is not None and other.name in one.precedes) or (
        one.name is not None and one.name in other.follows
    )


def _layers(rules: Iterable[FederatedRule]) -> list[list[FederatedRule]]:
    left = sorted(rules, key=lambda rule: rule.number)
    found: list[list[FederatedRule]] = []
    while left:
        free = [rule for rule in left if not any(_follows(rule, other) for other in left if other is not rule)]
        free = free or left  # a cycle is refused at registration
        found.append(free)
        left = [rule for rule in left if rule not in free]
    return found


def _respecting(every: Iterable[FederatedRule], wanted: list[FederatedRule]) -> list[FederatedRule]:
    """Return the rules in the wanted order, except that none comes before one that it follows."""
    left, found = list(wanted), list[FederatedRule]()
    while left:
        first = next((rule for rule in left if not any(_follows(rule, other) for other in left)), left[0])
        left.remove(first)
        found.append(first)
    return found
