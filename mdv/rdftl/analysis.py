"""The static analysis of a set of rules: triggering graph, well-definedness, commutativity and termination.

All results are plain values, ready for JSON. Rules are named by their ids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from mdv.rdf.schema import Schema
from mdv.rdftl.commutativity import ConflictFinder
from mdv.rdftl.effects import EffectConflict
from mdv.rdftl.footprint import footprint
from mdv.rdftl.model import EcaRule
from mdv.rdftl.precedence import PrecedenceOrder
from mdv.rdftl.rule_index import RuleIndex, RuleUnit, UnitSource
from mdv.rdftl.termination import Termination, cycle_conflict
from mdv.rdftl.triggering import AnalysisMode, Cycle, TriggeringGraph

MAX_NAMED_RULES = 3
"""Rules that a warning names. Further rules are counted."""


@dataclass(frozen=True, slots=True)
class AnalysedUnit:
    """Rules that are analysed together: one rule, or rules that differ only in their constants.

    `triggers`: the numbers of the units that they may trigger. `more`: the number of rules whose ids are not listed.
    """

    number: int
    rules: tuple[str, ...]
    triggers: tuple[int, ...]
    more: int = 0


@dataclass(frozen=True, slots=True)
class AnalysisReason:
    """Two accesses whose order matters: who does what to which schema triple. `text` says it in a sentence."""

    first_rule: str
    first_does: str
    second_rule: str
    second_does: str
    triple: str
    text: str


@dataclass(frozen=True, slots=True)
class OrderFinding:
    """A test that fails. `test`: I1, I2, C1 or C2. `units`: one unit for I1 and I2, two for C1 and C2.

    Two equal numbers stand for two different rules of one unit.
    """

    test: str
    units: tuple[int, ...]
    reason: AnalysisReason


@dataclass(frozen=True, slots=True)
class CycleFinding:
    """A cycle of the triggering graph. `reason`: None if it terminates."""

    units: tuple[int, ...]
    termination: str
    reason: AnalysisReason | None = None


@dataclass(frozen=True)
class Analysis:
    """The result of an analysis. A rule is well defined, and two rules commute, if no finding says otherwise.

    Pairs are tested if they have the same coupling mode and are not ordered by PRECEDES or FOLLOWS.
    """

    mode: str
    units: tuple[AnalysedUnit, ...]
    instances: tuple[OrderFinding, ...]
    pairs: tuple[OrderFinding, ...]
    cycles: tuple[CycleFinding, ...]

    @cached_property
    def unit_of(self) -> dict[str, int]:
        """The number of the unit of each rule."""
        return {id_: unit.number for unit in self.units for id_ in unit.rules}

    def is_well_defined(self, rule: str) -> bool:
        """True if the order of the copies of the rule's actions is immaterial. Raise `KeyError` for unknown ids."""
        number = self.unit_of[rule]
        return not any(number in finding.units for finding in self.instances)

    def commute(self, one: str, other: str) -> bool:
        """True if the order of the rules is immaterial or fixed. Raise `KeyError` for unknown ids."""
        numbers = {self.unit_of[one], self.unit_of[other]}
        return not any(set(finding.units) == numbers for finding in self.pairs)


@dataclass(frozen=True, slots=True)
class AnalysisWarning:
    """A warning at the registration of a rule. `code`: not-well-defined, does-not-commute or may-not-terminate.

    `rules`: the other rules concerned, at most `MAX_NAMED_RULES`. `count`: the number of all of them.
    """

    code: str
    message: str
    rules: tuple[str, ...] = ()
    count: int = 0


class WarnedRules(NamedTuple):
    """Rules of units: the ids that are listed, and the number of all."""

    ids: tuple[str, ...]
    total: int

    def first(self) -> tuple[str, ...]:
        return self.ids[:MAX_NAMED_RULES]

    def name(self) -> str:
        """Return the first rules and the number of the others.

        >>> WarnedRules(("a",), 1).name(), WarnedRules(("a", "b"), 2).name(), WarnedRules(tuple("abcde"), 7).name()
        ('a', 'a and b', 'a, b, c and 4 more')
        """
        if self.total > MAX_NAMED_RULES:
            return f"{', '.join(self.first())} and {self.total - MAX_NAMED_RULES:,} more"
        return " and ".join(filter(None, (", ".join(self.ids[:-1]), self.ids[-1])))


RuleSet = Mapping[str, EcaRule] | UnitSource
"""Rules by id, or units. A `RuleIndex` keeps the footprints of many rules between calls."""


def analyse(rules: RuleSet, schema: Schema, mode: AnalysisMode = AnalysisMode.STRICT) -> Analysis:
    """Return the analysis of all rules.

    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> analyse({}, EMPTY_SCHEMA).pairs
    ()
    """
    return _Analyser(_index(rules, schema), mode).analysis()


@dataclass(frozen=True, slots=True)
class AddedRuleAnalysis:
    """The analysis of a rule that is added to others. The findings are those that concern it.

    `triggers`, `triggered_by`: the numbers of the units that it may trigger, and that may trigger it, directly.
    """

    number: int
    instances: tuple[OrderFinding, ...]
    pairs: tuple[OrderFinding, ...]
    cycles: tuple[CycleFinding, ...]
    triggers: tuple[int, ...]
    triggered_by: tuple[int, ...]
    warnings: tuple[AnalysisWarning, ...]


@dataclass(frozen=True, slots=True)
class AdditionAnalysis:
    """The analysis of rules that are added to others. `added`: in the order of the rules. `units`: all units."""

    mode: str
    units: tuple[AnalysedUnit, ...]
    added: tuple[AddedRuleAnalysis, ...]


def analyse_addition(
    new: Mapping[str, EcaRule],
    rules: RuleSet,
    schema: Schema,
    mode: AnalysisMode = AnalysisMode.STRICT,
    replaced: str | None = None,
) -> AdditionAnalysis:
    """Return the analysis of rules that are added to `rules`, which is not changed. `new`: by id.

    Rules of `rules` with these ids, and the rule `replaced`, are left out.
    """
    index = _index(rules, schema)
    without = frozenset(new) | {replaced}
    others = [unit for unit in (_without(unit, without) for unit in index.units()) if unit.count]
    units = [*(RuleUnit((id_,), footprint(rule, schema)) for id_, rule in new.items()), *others]
    analyser = _Analyser(index, mode, units, new)
    known = {frozenset(rules.ids) for rules in _endless(_Analyser(index, mode, others))}
    cycles = tuple(analyser.cycles())
    return AdditionAnalysis(
        mode.value,
        analyser.analysed_units(),
        tuple(analyser.added(n, len(new), cycles, known) for n in range(len(new))),
    )


def _endless(analyser: _Analyser) -> Iterator[WarnedRules]:
    """Yield the rules of the cycles that may not terminate."""
    for cycle in analyser.cycles():
        if cycle.reason is not None:
            yield analyser.rules_of(cycle.units)


def analyse_new(rule: EcaRule, rules: RuleSet, schema: Schema, id_: str | None = None) -> tuple[AnalysisWarning, ...]:
    """Return the warnings for a rule that is added to `rules`, in strict mode. `rules` is not changed.

    `id_`: the id of the rule, by default its name. A rule of `rules` with this id is left out: it is replaced.
    """
    (added,) = analyse_addition({id_ or rule.name or "this rule": rule}, rules, schema).added
    return added.warnings


def _index(rules: RuleSet, schema: Schema) -> UnitSource:
    return RuleIndex(schema, rules) if isinstance(rules, Mapping) else rules


def _without(unit: RuleUnit, ids: Collection[str | None]) -> RuleUnit:
    kept = tuple(id_ for id_ in unit.rules if id_ not in ids)
    return unit if len(kept) == len(unit.rules) else replace(unit, rules=kept)


class _Analyser:
    """An analysis in progress. `units`: those of the index unless given. `added`: rules that are not in the index."""

    def __init__(
        self,
        index: UnitSource,
        mode: AnalysisMode,
        units: list[RuleUnit] | None = None,
        added: Mapping[str, EcaRule] | None = None,
    ) -> None:
        self.schema = index.schema
        self.units = index.units() if units is None else units
        self.graph = TriggeringGraph(self.units, mode)
        self.finder = ConflictFinder(self.graph)
        self.order = PrecedenceOrder({**index.rules, **added} if added else index.rules)

    def analysis(self) -> Analysis:
        numbers = range(len(self.units))
        return Analysis(
            self.graph.mode.value,
            self.analysed_units(),
            tuple(finding for n in numbers for finding in self.instances(n)),
            tuple(finding for n in numbers for other in range(n, len(self.units)) for finding in self.pair(n, other)),
            tuple(self.cycles()),
        )

    def analysed_units(self) -> tuple[AnalysedUnit, ...]:
        return tuple(
            AnalysedUnit(number, unit.rules, tuple(sorted(self.graph.successors[number])), unit.more)
            for number, unit in enumerate(self.units)
        )

    def added(
        self, number: int, count: int, cycles: tuple[CycleFinding, ...], known: Collection[frozenset[str]]
    ) -> AddedRuleAnalysis:
        """Return the analysis of one of the new rules, which are the first `count` units. `known`: the rules of cycles
        that may not terminate without the new rules."""
        instances = tuple(self.instances(number))
        pairs = tuple(
            finding for other in range(len(self.units)) if other != number for finding in self.pair(number, other)
        )
        return AddedRuleAnalysis(
            number,
            instances,
            pairs,
            tuple(cycle for cycle in cycles if number in cycle.units),
            tuple(sorted(self.graph.successors[number])),
            tuple(other for other, triggered in enumerate(self.graph.successors) if number in triggered),
            tuple(self.warnings(instances, pairs, (one for one in cycles if self.is_news(one, number, count, known)))),
        )

    def is_news(self, cycle: CycleFinding, number: int, count: int, known: Collection[frozenset[str]]) -> bool:
        """True if a cycle may not terminate because of this new rule. It can be a cycle of old rules."""
        if cycle.reason is None:
            return False
        has_new = any(unit < count for unit in cycle.units)
        return number in cycle.units if has_new else frozenset(self.rules_of(cycle.units).ids) not in known

    def warnings(
        self, instances: Sequence[OrderFinding], pairs: Sequence[OrderFinding], endless: Iterable[CycleFinding]
    ) -> Iterator[AnalysisWarning]:
        """Yield the warnings about a new rule."""
        for finding in instances[:1]:
            yield AnalysisWarning(
                "not-well-defined",
                f"The result can depend on the order in which the rule handles several events: {finding.reason.text}.",
            )
        if pairs:
            rules = self.rules_of(dict.fromkeys(finding.units[1] for finding in pairs))
            yield AnalysisWarning(
                "does-not-commute",
                f"The result can depend on the order of this rule and {rules.name()}: {pairs[0].reason.text}. "
                "Order them with PRECEDES or FOLLOWS.",
                rules.first(),
                rules.total,
            )
        for cycle in endless:
            assert cycle.reason is not None
            yield _cycle_warning(cycle.reason, self.rules_of(cycle.units))

    def instances(self, number: int) -> Iterator[OrderFinding]:
        for test, conflict in self.finder.instances(number).items():
            yield OrderFinding(test, (number,), self.reason(conflict))

    def pair(self, one: int, other: int) -> Iterator[OrderFinding]:
        if self.can_swap(one, other):
            for test, conflict in self.finder.pair(one, other).items():
                yield OrderFinding(test, (one, other), self.reason(conflict))

    def can_swap(self, one: int, other: int) -> bool:
        """True if the units have two different rules with the same coupling mode that no precedence orders."""
        first, second = self.units[one], self.units[other]
        if first.footprint.coupling is not second.footprint.coupling or (one == other and first.count == 1):
            return False
        # The rules of a large group are not compared one by one.
        single = first.count == second.count == 1 and one != other
        return not (single and self.order.is_ordered(first.rules[0], second.rules[0]))

    def cycles(self) -> Iterator[CycleFinding]:
        for cycle in self.graph.cycles():
            yield self.cycle(cycle)

    def cycle(self, cycle: Cycle) -> CycleFinding:
        conflict = cycle_conflict(self.graph, cycle)
        if conflict is None:
            return CycleFinding(cycle.units, Termination.TERMINATES.value)
        return CycleFinding(cycle.units, Termination.MAY_NOT_TERMINATE.value, self.reason(conflict))

    def reason(self, conflict: EffectConflict) -> AnalysisReason:
        first, second = (self.units[number].rules[0] for number in (conflict.first_unit, conflict.second_unit))
        triple = conflict.show_cell(self.schema)
        does = conflict.first_does, conflict.second_does
        text = f"{first} {does[0]} {triple}"
        if conflict.first_unit != conflict.second_unit or does[0] != does[1]:
            text = f"{text}, which {second} {does[1]}" if first != second else f"{text} and {does[1]} it"
        return AnalysisReason(first, does[0], second, does[1], triple, text)

    def rules_of(self, numbers: Iterable[int]) -> WarnedRules:
        units = [self.units[number] for number in numbers]
        return WarnedRules(tuple(id_ for unit in units for id_ in unit.rules), sum(unit.count for unit in units))


def _cycle_warning(reason: AnalysisReason, rules: WarnedRules) -> AnalysisWarning:
    subject = (
        f"{rules.name()} may trigger each other" if rules.total > 1 else f"The rule {rules.ids[0]} may trigger itself"
    )
    message = f"{subject} without end: {reason.text}."
    return AnalysisWarning("may-not-terminate", message, rules.first(), rules.total)
