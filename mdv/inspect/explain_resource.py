"""Explain why a resource is, or is not, at an LMR.

    selected   the rules of the LMR that select it, each with the resources and values that satisfy it
    reached    the shortest chain of strong references to it from a selected resource
    neither    the rules that come nearest, each with the predicates that fail
    suspended  the rules that are not evaluated; those that selected it when they were suspended still do

The rules that select it are found by groups, as in the filter, so that their number hardly matters. To find the first
predicate that fails, the normal form is read as a list of stages: the class of the registered variable, then each
predicate with the classes of its new variables. The first failing stage follows the longest list of stages that some
choice of resources satisfies. Each later stage is then tried together with the satisfied ones.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from sqlalchemy import Connection

from mdv.db import query as db
from mdv.db.filter import compile_statement, limit_time
from mdv.db.replica.lmrs import list_lasting_ids
from mdv.db.rule_graph import RuleGraph, StoredRule
from mdv.db.state import read_state
from mdv.db.suspensions import Suspensions
from mdv.errors import BadRequest, TooCostly
from mdv.inspect.match_origins import (
    PartialMatcher,
    first_stages,
    is_instance,
    needed_variables,
    stages,
    with_stage,
)
from mdv.inspect.resource_reasons import (
    ChainStep,
    FailingRule,
    NamedRule,
    ReferenceChain,
    ResourceExplanation,
    SelectingRule,
    SuspendedRule,
    with_subscription_ids,
)
from mdv.inspect.resource_wording import FailedStage, MatchWording
from mdv.inspect.sql.explain_resource import EvidenceReader, ResourceReference, stop_when_slow
from mdv.inspect.sql.explain_rule import ReadOnlyVocabulary
from mdv.inspect.sql.resources import read_direct_classes
from mdv.inspect.suspended_matches import suspended_matches
from mdv.mdp.groups import RULE_TABLES, CompiledGroup, Groups, statement_states
from mdv.mdp.provider import Provider
from mdv.mdp.rule_cache import NamedRules
from mdv.mdp.schemas import SchemaInForce
from mdv.model import RDFS_RESOURCE, is_blank
from mdv.query.compile import StatementView, all_matches, all_value_bounds
from mdv.rdf.parse import is_absolute_iri
from mdv.rules.normal import (
    Conjunction,
    NormalRule,
)
from mdv.rules.normalise import normalise
from mdv.rules.parse import parse
from mdv.rules.pattern import Pattern, pattern_with_nodes

MAX_SHOWN_RULES = 20
"""How many of the selecting rules are shown."""
MAX_NEAREST_RULES = 5
MAX_CANDIDATE_RULES = 200
"""How many rules are tried to find the nearest ones."""
MAX_SHOWN_DOCUMENTS = 20
MAX_BINDINGS = 100
MAX_VARIABLES = 128
"""A conjunction with more variables is not explained in detail."""
MAX_REFERRERS_PER_STEP = 20_000
MAX_CHAIN_STEPS = 1000
MAX_SECONDS = 10
MAX_NEAREST_SECONDS = 4.0
MAX_SUSPENDED_SECONDS = 2.0
"""The time limit for finding which suspended rules select a resource."""

_TOO_COSTLY = (
    f"Searching for the rules that select this resource timed out after {MAX_SECONDS} s. Some rule of this LMR is very"
    " costly. `mdv rule explain` estimates the cost of a rule."
)


def explain_resource(connection: Connection, lmr: int, uri: str, provider: Provider) -> ResourceExplanation:
    """Explain why a resource is, or is not, at an LMR, as of one position. It changes nothing."""
    if not is_absolute_iri(uri):
        raise BadRequest(f"{uri!r} is not an absolute URI. Write it in full: http://…")
    with db.time_limited_read(connection, MAX_SECONDS, _TOO_COSTLY):
        answer = _Question(connection, lmr, uri, provider).answer()
        return with_subscription_ids(answer, list_lasting_ids(connection, lmr))


class _Question:
    """Explains one resource at one LMR."""

    def __init__(self, connection: Connection, lmr: int, uri: str, provider: Provider) -> None:
        self._connection, self._lmr, self._uri = connection, lmr, uri
        self._deadline = time.monotonic() + MAX_SECONDS
        state = read_state(connection)
        self._position = state.position
        self._in_force: SchemaInForce = provider.schemas.at(connection, state.schema_version)
        self._schema = self._in_force.schema
        self._evidence = EvidenceReader(connection)
        self._graph = RuleGraph(connection)
        self._groups: Groups = provider.rules.groups(connection, state, self._in_force, provider.vocabulary)
        self._matcher = PartialMatcher(connection, self._groups.names)
        self._library = NamedRules(self._graph, lmr, {})

    def answer(self) -> ResourceExplanation:
        number = self._evidence.number(self._uri)
        documents = self._evidence.documents(number, MAX_SHOWN_DOCUMENTS) if number is not None else []
        reasons = self._evidence.reasons(self._lmr, number) if number is not None else None
        self._suspended = Suspensions(self._connection).of_lmr(self._lmr, MAX_SHOWN_RULES + 1)
        chain = self._chain(number) if number is not None and reasons == 0 else None
        if number is None or not documents:
            sentence = _undescribed(self._uri, chain, by_suspended=bool(reasons))
            return self._explanation(False, False, False, sentence, chain=chain, **self._suspensions(number, reasons))
        classes = read_direct_classes(self._connection, [number]).get(number, [RDFS_RESOURCE])
        details: dict[str, Any] = {"documents": tuple(documents), "classes": tuple(classes), "chain": chain}
        groups = self._fitting(classes)
        found = self._selecting(number, groups, MAX_SHOWN_RULES + 1)
        if found:
            selecting = tuple(self._selecting_rule(rule, number) for rule in self._graph.rules(found[:MAX_SHOWN_RULES]))
            more = len(found) > MAX_SHOWN_RULES
            sentence = f"<{self._uri}> is at the LMR: {_counted(len(selecting), more)} it."
            details |= self._suspensions(number, reasons, others=True)
            return self._explanation(True, True, True, sentence, rules=selecting, more=more, **details)
        details |= self._suspensions(number, reasons)
        if reasons and self._suspended:
            added = all(suspension.pending for suspension, _, _ in self._suspended)
            which = "a rule that is being added" if added else "only a suspended rule"
            sentence = f"<{self._uri}> is at the LMR: {which} selects it."
            return self._explanation(True, True, True, sentence, **details)
        nearest = self._nearest(number, classes, groups)
        sentence = f"<{self._uri}> {self._unselected(reasons is not None, chain)}."
        return self._explanation(reasons is not None, False, True, sentence, nearest=nearest, **details)

    def _explanation(
        self, held: bool, selected: bool, described: bool, sentence: str, **rest: Any
    ) -> ResourceExplanation:
        return ResourceExplanation(self._uri, self._lmr, self._position, held, selected, described, sentence, **rest)

    def _unselected(self, held: bool, chain: ReferenceChain | None) -> str:
        if chain is not None:
            far = f"over {len(chain.steps)} strong references" if len(chain.steps) > 1 else "by a strong reference"
            return f"is at the LMR: no rule selects it, but <{chain.steps[0].resource}> leads to it {far}"
        if held:
            return "is at the LMR: no rule selects it, but strong references lead to it"
        if not self._evidence.groups(self._lmr) and not self._suspended:
            return "is not at the LMR, which has no rules"
        missing = "is not at the LMR: none of its rules selects it, and no strong reference leads to it"
        if self._suspended:
            missing += "; suspended rules may select it when they are resumed"
        return missing

    def _suspensions(self, number: int | None, reasons: int | None, others: bool = False) -> dict[str, Any]:
        """Return the suspended rules of the LMR, and whether they select the resource. `others`: active rules select
        it, too."""
        shown = self._suspended[:MAX_SHOWN_RULES]
        ids = [suspension.rule_id for suspension, _, _ in shown]
        if not reasons:
            selects: dict[int, bool | None] = dict.fromkeys(ids, False)
        elif number is None:
            selects = {}
        else:
            some = not others and len(self._suspended) <= MAX_SHOWN_RULES
            selects = suspended_matches(self._connection, number, ids, self._schema, MAX_SUSPENDED_SECONDS, some)
        rules = tuple(
            SuspendedRule(s.rule_id, name, text, s.position, s.reason, selects.get(s.rule_id), s.pending)
            for s, name, text in shown
        )
        return {"suspended": rules, "suspended_more": len(self._suspended) > MAX_SHOWN_RULES}

    # -- selecting rules

    def _fitting(self, classes: Sequence[str]) -> list[CompiledGroup]:
        """Return the groups of this LMR's rules that can register an instance of these classes."""
        own_groups = self._evidence.groups(self._lmr)
        return [
            group
            for group in self._groups.groups
            if group.group.group_id in own_groups
            and all(is_instance(classes, class_iri, self._schema) for class_iri in group.group.pattern.nodes[0])
        ]

    def _selecting(self, number: int, groups: Sequence[CompiledGroup], most: int) -> list[int]:
        """Return the first `most` rules of this LMR that select a resource."""
        now, _, _ = statement_states(self._groups.names)
        found: set[int] = set()
        for compiled_group in groups:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TooCostly(_TOO_COSTLY)
            limit_time(self._connection, ceil(left))
            found.update(self._selecting_of(now, compiled_group, number, most))
        return sorted(found)[:most]

    def _selecting_of(self, now: StatementView, compiled_group: CompiledGroup, number: int, most: int) -> list[int]:
        group = compiled_group.group
        if not group.pattern.is_range:
            return self._evidence.owned(self._lmr, all_matches(now, RULE_TABLES, group), most, roots=[number])
        for _, *ends in self._evidence.run(compile_statement(all_value_bounds(now, group.pattern)), roots=[number]):
            if ends[0] is not None:
                how = group.pattern.leaves[0].operator
                low, high = ends
                return self._evidence.owned_range(
                    self._lmr, group.group_id, group.predicates[0], how, (low, high), most
                )
        return []

    def _read(self, rule: StoredRule) -> tuple[NormalRule, frozenset[str]]:
        """Return the normal form of a rule, and the variables of its own text."""
        parsed = parse(rule.text)
        written = frozenset(extension.variable.text for extension in parsed.search)
        return normalise(parsed, self._schema, self._library.parsed), written

    def _selecting_rule(self, rule: StoredRule, number: int) -> SelectingRule:
        """Return the first conjunction that is satisfied, with a choice of resources that satisfies it."""
        normal, written = self._read(rule)
        for conjunction in normal.conjunctions:
            if len(conjunction.variables) <= MAX_VARIABLES and self._matcher.holds(conjunction, number):
                binding = self._matcher.bindings(conjunction, number, 1)[0]
                wording = MatchWording(
                    self._evidence, self._schema, self._groups.names, self._uri, conjunction, written
                )
                return SelectingRule(rule.id, rule.name, rule.text, *wording.satisfied(binding))
        return SelectingRule(rule.id, rule.name, rule.text)

    # -- nearest rules

    def _nearest(
        self, number: int, classes: Sequence[str], fitting: Sequence[CompiledGroup]
    ) -> tuple[FailingRule, ...]:
        """Return the rules that satisfy the most stages, of a limited number of candidates."""
        deadline = min(self._deadline, time.monotonic() + MAX_NEAREST_SECONDS)
        attempts: list[tuple[int, int, int, _Attempt]] = []
        alike: Counter[Pattern] = Counter()
        with stop_when_slow(self._connection, MAX_NEAREST_SECONDS):
            for rule in self._candidates([group.group.group_id for group in fitting]):
                if time.monotonic() > deadline:
                    break
                if (attempt := self._attempt(rule, number, classes)) is not None:
                    kind = pattern_with_nodes(attempt.conjunction)[0]
                    attempts.append((-attempt.satisfied, alike[kind], rule.id, attempt))
                    alike[kind] += 1
        failing: list[FailingRule] = []
        with stop_when_slow(self._connection, MAX_NEAREST_SECONDS):
            # Among equally near rules, prefer rules that differ in more than constants.
            for _, _, _, attempt in sorted(attempts, key=lambda item: item[:3])[:MAX_NEAREST_RULES]:
                failing.append(self._failing_rule(attempt, number, classes))
        return tuple(failing)

    def _candidates(self, fitting: Sequence[int]) -> list[StoredRule]:
        """Return some rules of each fitting group; of other groups only if there is none."""
        groups = fitting or sorted(self._evidence.groups(self._lmr))
        if not groups:
            return []
        groups = groups[:MAX_CANDIDATE_RULES]
        each = max(1, MAX_CANDIDATE_RULES // len(groups)) if fitting else MAX_NEAREST_RULES
        return self._graph.rules(self._evidence.rules_of_groups(self._lmr, groups, each, MAX_CANDIDATE_RULES))

    def _attempt(self, rule: StoredRule, number: int, classes: Sequence[str]) -> _Attempt | None:
        """Return the conjunction of a rule that satisfies the most stages."""
        normal, written = self._read(rule)
        best: _Attempt | None = None
        for part, conjunction in enumerate(normal.conjunctions):
            if len(conjunction.variables) > MAX_VARIABLES:
                continue
            satisfied = self._satisfied(conjunction, number, classes)
            if best is None or satisfied > best.satisfied:
                best = _Attempt(rule, conjunction, part, written, satisfied)
        return best

    def _satisfied(self, conjunction: Conjunction, number: int, classes: Sequence[str]) -> int:
        """Return how many stages some choice of resources satisfies together, by binary search: if some stages are
        satisfied, so are fewer."""
        class_iri = next(v.class_iri for v in conjunction.variables if v.name == conjunction.register)
        if not is_instance(classes, class_iri, self._schema):
            return 0
        low, high = 1, len(stages(conjunction))
        while high - low > 1:
            middle = (low + high) // 2
            if self._matcher.holds(first_stages(conjunction, middle), number):
                low = middle
            else:
                high = middle
        return low

    def _failing_rule(self, attempt: _Attempt, number: int, classes: Sequence[str]) -> FailingRule:
        """Return the predicates that fail: the first one, and of the others those that no choice of resources satisfies
        together with the satisfied ones."""
        rule, conjunction = attempt.rule, attempt.conjunction
        wording = MatchWording(
            self._evidence, self._schema, self._groups.names, self._uri, conjunction, attempt.written
        )
        base = first_stages(conjunction, attempt.satisfied)
        failures: list[FailedStage] = []
        failed, unbound = [], set[str]()
        for stage in stages(conjunction)[attempt.satisfied :]:
            further = with_stage(base, stage)
            if unbound.isdisjoint(needed_variables(stage)):
                if failures and self._matcher.holds(further, number):
                    base = further
                    continue
                bindings = self._matcher.bindings(base, number, MAX_BINDINGS) if attempt.satisfied else []
                failures.append(FailedStage(*wording.failing(stage, bindings, classes)))
            unbound.update(variable.name for variable in stage.variables)
            if stage.predicate is not None and wording.is_written(stage.predicate):
                failed.append(wording.text(stage.predicate))
            if not attempt.satisfied:  # it is no instance of the class: the predicates do not matter
                break
        of = sum(map(wording.is_written, conjunction.predicates))
        return FailingRule(
            rule.id, rule.name, rule.text, failures[0].predicate,
            tuple(dict.fromkeys(failure.sentence for failure in failures)),
            of - len(failed) if attempt.satisfied else 0, of, attempt.part,
            tuple(dict.fromkeys(value for failure in failures for value in failure.found)), tuple(failed),
            attempt.satisfied,
        )  # fmt: skip

    # -- chains of strong references

    def _chain(self, number: int) -> ReferenceChain | None:
        """Return the shortest chain of strong references from a selected resource, within the closure of the LMR."""
        names = [iri for iri, declared in self._schema.properties.items() if declared.strong]
        strong = [known for known in ReadOnlyVocabulary(self._connection).ids(names).values() if known]
        next_reference: dict[int, ResourceReference] = {}
        level, seen = [number], {number}
        for _ in range(MAX_CHAIN_STEPS):
            blank = [target for target, uri in self._evidence.uris(level).items() if is_blank(uri)]
            first = self._evidence.selected_referrer(self._lmr, level, strong, blank)
            if first is not None:
                return self._build_chain(first, next_reference)
            more = self._evidence.referrers(self._lmr, level, strong, blank, seen, MAX_REFERRERS_PER_STEP)
            if not more or time.monotonic() > self._deadline:
                return None
            next_reference |= {reference.resource: reference for reference in more}
            level = [reference.resource for reference in more]
            seen.update(level)
        return None

    def _build_chain(self, first: ResourceReference, next_reference: Mapping[int, ResourceReference]) -> ReferenceChain:
        references = [first]
        while references[-1].target in next_reference:
            references.append(next_reference[references[-1].target])
        uris = self._evidence.uris({step.resource for step in references} | {step.target for step in references})
        names = self._evidence.names({step.property for step in references})
        steps = tuple(ChainStep(uris[s.resource], names[s.property], uris[s.target]) for s in references)
        classes = read_direct_classes(self._connection, [first.resource]).get(first.resource, [RDFS_RESOURCE])
        found = self._selecting(first.resource, self._fitting(classes), MAX_NEAREST_RULES + 1)
        if not found:
            found = self._suspended_selecting(first.resource)
        named = tuple(NamedRule(rule.id, rule.name) for rule in self._graph.rules(found[:MAX_NEAREST_RULES]))
        return ReferenceChain(named, len(found) > MAX_NEAREST_RULES, steps)

    def _suspended_selecting(self, number: int) -> list[int]:
        """Return the suspended rules that still select a resource that no active rule selects."""
        ids = [suspension.rule_id for suspension, _, _ in self._suspended[:MAX_SHOWN_RULES]]
        some = len(self._suspended) <= MAX_SHOWN_RULES
        found = suspended_matches(self._connection, number, ids, self._schema, MAX_SUSPENDED_SECONDS, some)
        return [rule for rule, selects in found.items() if selects]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A conjunction of a rule, with the number of stages that are satisfied."""

    rule: StoredRule
    conjunction: Conjunction
    part: int
    written: frozenset[str]
    satisfied: int


def _counted(number: int, more: bool) -> str:
    if more:
        return f"more than {number} of its rules select"
    return "one of its rules selects" if number == 1 else f"{number} of its rules select"


def _undescribed(uri: str, chain: ReferenceChain | None, by_suspended: bool) -> str:
    if by_suspended:
        return (
            f"No registered document describes <{uri}>, so it is not at the LMR. It will be sent when a document"
            " describes it, because a suspended rule still selects it."
        )
    if chain is None:
        return f"No registered document describes <{uri}>. (Local metadata is known only to its LMR.)"
    return (
        f"No registered document describes <{uri}>, so it is not at the LMR. It will be sent when a document describes"
        f" it, because <{chain.steps[0].resource}> leads to it."
    )
