"""The order of rules: topological by PRECEDES and FOLLOWS; of the rules that are free, the one with the lowest ID is
next. It is expressed by a rank for each rule, so that most rules have the rank of their ID alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

Rank = tuple[int, ...]


class OrderedRule(NamedTuple):
    """A rule as far as its place in the order is concerned."""

    name: str | None
    precedes: Collection[str] = ()
    follows: Collection[str] = ()


class CyclicOrder(Exception):
    """PRECEDES and FOLLOWS form a cycle. `names`: the rules on it."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names)
        self.names = names


def rank_rules(rules: Mapping[int, OrderedRule]) -> dict[int, Rank]:
    """Return the ranks of rules by ID. Ranks are compared as tuples. Names of other rules are ignored.

    >>> rank_rules({1: OrderedRule("a"), 2: OrderedRule("b", precedes=["a"]), 3: OrderedRule("c", follows=["a"])})
    {2: (2,), 1: (2, 1), 3: (3,)}
    """
    before = _predecessors(rules)
    after: dict[int, list[int]] = {}
    for number, ones in before.items():
        for one in ones:
            after.setdefault(one, []).append(number)
    missing = {number: len(ones) for number, ones in before.items() if ones}
    free = [number for number in rules if number not in missing]
    heapify(free)
    ranks: dict[int, Rank] = {}
    while free:
        number = heappop(free)
        last = max((ranks[one] for one in before[number]), default=())
        while last and last[-1] < number:
            last = last[:-1]
        ranks[number] = (*last, number)
        for one in after.get(number, ()):
            missing[one] -= 1
            if not missing[one]:
                heappush(free, one)
    if len(ranks) < len(rules):
        left = sorted(number for number in rules if number not in ranks)
        raise CyclicOrder([rules[number].name or str(number) for number in left])
    return ranks


def _predecessors(rules: Mapping[int, OrderedRule]) -> dict[int, set[int]]:
    by_name = {rule.name: number for number, rule in rules.items() if rule.name is not None}
    before: dict[int, set[int]] = {number: set() for number in rules}
    for number, rule in rules.items():
        before[number] |= {by_name[name] for name in rule.follows if name in by_name}
        for name in rule.precedes:
            if name in by_name:
                before[by_name[name]].add(number)
    return before
