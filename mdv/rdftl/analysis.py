"""The static analysis of a set of rules: triggering graph, well-definedness, commutativity and termination.

All results are plain values, ready for JSON. Rules are named by their ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from mdv.rdf.schema import Schema
from mdv.rdftl.commutativity import ConflictFinder
from mdv.rdftl.effects import EffectConflict
from mdv.rdftl.footprint import footprint
from mdv.rdftl.model import EcaRule
from mdv.rdftl.precedence import PrecedenceOrder
from mdv.rdftl.rule_index import RuleIndex, RuleUnit
from mdv.rdftl.termination import Termination, cycle_conflict
from mdv.rdftl.triggering import AnalysisMode, Cycle, TriggeringGraph

MAX_NAMED_RULES = 3
"""Rules that a warning names. Further rules are counted."""


@dataclass(frozen=True, slots=True)
class AnalysedUnit:
    """Rules that are analysed together: one rule, or rules that differ only in their constants.

    `triggers`: the numbers of the units that they may trigger.
    """

    number: int
    rules: tuple[str, ...]
    triggers: tuple[int, ...]


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


RuleSet = Mapping[str, EcaRule] | RuleIndex
"""Rules by id. A `RuleIndex` keeps the footprints of many rules between calls."""


def analyse(rules: RuleSet, schema: Schema, mode: AnalysisMode = AnalysisMode.STRICT) -> Analysis:
    """Return the analysis of all rules.

    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> analyse({}, EMPTY_SCHEMA).pairs
    ()
    """
    return _Analyser(_index(rules, schema), mode).analysis()


def analyse_new(rule: EcaRule, rules: RuleSet, schema: Schema, id_: str | None = None) -> tuple[AnalysisWarning, ...]:
    """Return the warnings for a rule that is added to `rules`, in strict mode. `rules` is not changed.

    `id_`: the id of the rule, by default its name. A rule of `rules` with this id is left out: it is replaced.
    """
    index = _index(rules, schema)
    id_ = id_ or rule.name or "this rule"
    others = [unit for unit in (_without(unit, id_) for unit in index.units()) if unit.rules]
    units = [RuleUnit((id_,), footprint(rule, schema)), *others]
    analyser = _Analyser(index, AnalysisMode.STRICT, units, {id_: rule})
    return tuple(_warnings(analyser, _Analyser(index, AnalysisMode.STRICT, others)))


def _index(rules: RuleSet, schema: Schema) -> RuleIndex:
    return rules if isinstance(rules, RuleIndex) else RuleIndex(schema, rules)


def _without(unit: RuleUnit, id_: str) -> RuleUnit:
    return RuleUnit(tuple(other for other in unit.rules if other != id_), unit.footprint) if id_ in unit.rules else unit


class _Analyser:
    """An analysis in progress. `units`: those of the index unless given. `added`: rules that are not in the index."""

    def __init__(
        self,
        index: RuleIndex,
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
            tuple(AnalysedUnit(n, self.units[n].rules, tuple(sorted(self.graph.successors[n]))) for n in numbers),
            tuple(finding for n in numbers for finding in self.instances(n)),
            tuple(finding for n in numbers for other in range(n, len(self.units)) for finding in self.pair(n, other)),
            tuple(self.cycles()),
        )

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
        if first.footprint.coupling is not second.footprint.coupling or (one == other and len(first.rules) == 1):
            return False
        # The rules of a large group are not compared one by one.
        single = len(first.rules) == len(second.rules) == 1 and one != other
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

    def rules_of(self, numbers: Iterable[int]) -> list[str]:
        return [id_ for number in numbers for id_ in self.units[number].rules]


def _warnings(analyser: _Analyser, before: _Analyser) -> Iterator[AnalysisWarning]:
    """Yield the warnings about unit 0, which is the new rule. `before`: the analysis of the other rules alone."""
    for finding in list(analyser.instances(0))[:1]:
        yield AnalysisWarning(
            "not-well-defined",
            f"The result can depend on the order in which the rule handles several events: {finding.reason.text}.",
        )
    yield from _pair_warnings(analyser)
    known = {frozenset(before.rules_of(cycle.units)) for cycle in before.cycles() if cycle.reason is not None}
    for cycle in analyser.cycles():
        rules = analyser.rules_of(cycle.units)
        if cycle.reason is not None and frozenset(rules) not in known:
            yield _cycle_warning(cycle.reason, rules)


def _pair_warnings(analyser: _Analyser) -> Iterator[AnalysisWarning]:
    found = [finding for other in range(1, len(analyser.units)) for finding in list(analyser.pair(0, other))[:1]]
    if found:
        rules = analyser.rules_of(finding.units[1] for finding in found)
        yield AnalysisWarning(
            "does-not-commute",
            f"The result can depend on the order of this rule and {_name(rules)}: {found[0].reason.text}. "
            "Order them with PRECEDES or FOLLOWS.",
            tuple(rules[:MAX_NAMED_RULES]),
            len(rules),
        )


def _cycle_warning(reason: AnalysisReason, rules: list[str]) -> AnalysisWarning:
    subject = f"The rule {rules[0]} may trigger itself" if len(rules) == 1 else f"{_name(rules)} may trigger each other"
    message = f"{subject} without end: {reason.text}."
    return AnalysisWarning("may-not-terminate", message, tuple(rules[:MAX_NAMED_RULES]), len(rules))


def _name(rules: list[str]) -> str:
    """Return the first rules and the number of the others.

    >>> _name(["a"]), _name(["a", "b"]), _name(list("abcde"))
    ('a', 'a and b', 'a, b, c and 2 more')
    """
    if len(rules) > MAX_NAMED_RULES:
        return f"{', '.join(rules[:MAX_NAMED_RULES])} and {len(rules) - MAX_NAMED_RULES:,} more"
    return " and ".join(filter(None, (", ".join(rules[:-1]), rules[-1])))
