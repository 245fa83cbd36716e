"""Well-definedness (I1, I2) and commutativity (C1, C2) of rules, as in the paper or in strict mode.

Strict mode compares all reads and writes of the actions and of the rules that they trigger. If it finds no conflict,
the order of two copies or two rules does not change the final graph, up to the order of the members of bags.
"""

from __future__ import annotations

from functools import cache

from mdv.rdftl.effects import (
    Effect,
    EffectConflict,
    action_effect,
    cascade_effect,
    direct_effect,
    numbered_event_conflict,
    paper_access_conflict,
    paper_independence_conflict,
    strict_conflict,
)
from mdv.rdftl.footprint import Footprint
from mdv.rdftl.model import ChangeKind
from mdv.rdftl.triggering import AnalysisMode, TriggeringGraph


class ConflictFinder:
    """Finds the conflicts between copies of a unit's actions, and between two units. Effects are computed once."""

    def __init__(self, graph: TriggeringGraph) -> None:
        self.graph, self.paper = graph, graph.mode is AnalysisMode.PAPER
        self._direct = tuple(direct_effect(unit.footprint, number) for number, unit in enumerate(graph.units))
        self._cascade_of = cache(lambda units: cascade_effect(graph, units))
        self._between_cascades = cache(self._compare_cascades)

    def cascade(self, number: int) -> Effect:
        """Return the effect of all units that the unit may trigger."""
        return self._cascade_of(self.graph.cascade(number))

    def instances(self, number: int) -> dict[str, EffectConflict]:
        """Return the conflicts between copies of the actions of one rule, by test: I1, I2. Empty: well defined."""
        rule = self.graph.units[number].footprint
        if not rule.instance_oriented or rule.one_delta:
            return {}
        # Copies without `$delta` are identical, so that their order is immaterial.
        if not self.paper and not any(action.uses_delta for action in rule.actions):
            return {}
        first = self._paper_i1(rule, number) if self.paper else self._strict_i1(rule, number)
        return _named(I1=first, I2=self._independence(number, number))

    def pair(self, one: int, other: int) -> dict[str, EffectConflict]:
        """Return the conflicts between the actions of two rules, by test: C1, C2. Empty: they commute."""
        first, second = self._direct[one], self._direct[other]
        direct = paper_access_conflict(first, second) if self.paper else strict_conflict(first, second, direct=True)
        return _named(C1=direct, C2=self._independence(one, other))

    def _paper_i1(self, rule: Footprint, number: int) -> EffectConflict | None:
        for action in rule.actions:
            if action.uses_delta and action.writes and (action.kind is ChangeKind.UPDATE or action.changes_list):
                write, verb = action.writes[0].access, action.kind.value.lower() + "s"
                return EffectConflict(number, verb, write, number, verb, write)
        return None

    def _strict_i1(self, rule: Footprint, number: int) -> EffectConflict | None:
        effects = [action_effect(action, number) for action in rule.actions]
        for position, one in enumerate(effects):
            for second, other in enumerate(effects[position:], position):
                if position == second and not rule.actions[position].uses_delta:
                    continue  # identical updates
                found = strict_conflict(one, other, direct=True, distinct=rule.node_event)
                if found is not None:
                    return found
        return None

    def _independence(self, one: int, other: int) -> EffectConflict | None:
        if self.paper:
            return paper_independence_conflict(self.cascade(one), self.cascade(other))
        first, second = self.graph.cascade(one), self.graph.cascade(other)
        if not first and not second:
            return None
        found = strict_conflict(self.cascade(one), self._direct[other], direct=False)
        found = found or strict_conflict(self._direct[one], self.cascade(other), direct=False)
        found = found or self._between_cascades(first, second)
        return found or numbered_event_conflict(self._direct[one], self._direct[other], self.cascade(one))

    def _compare_cascades(self, one: frozenset[int], other: frozenset[int]) -> EffectConflict | None:
        return strict_conflict(self._cascade_of(one), self._cascade_of(other), direct=False)


def _named(**found: EffectConflict | None) -> dict[str, EffectConflict]:
    return {name: conflict for name, conflict in found.items() if conflict is not None}
