"""Why: the reasons that a resource is, or is not, at an LMR.

    selected   the rules of the LMR that select it, each with the resources and values that satisfy it
    reached    the shortest chain of strong references to it, from something that is selected
    neither    the rules that come nearest, each with the first predicate that fails

Which rules select it is asked of the groups, as the filter does, however many rules there are. The first predicate that
fails is the one after the longest beginning of the normal form that some choice of resources satisfies: the class of
what is registered, then predicate after predicate, each with the classes of the variables that come with it.
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
from mdv.db.explain import KnownNames
from mdv.db.filter import compiled, limit_time
from mdv.db.graph import Graph, StoredRule
from mdv.db.read import direct_classes
from mdv.db.state import read_state
from mdv.db.vocabulary import Vocabulary
from mdv.db.why import Evidence, Reference, giving_up
from mdv.errors import BadRequest, TooCostly
from mdv.mdp.because import Chain, ChainStep, Failing, NamedRule, Selecting, Why
from mdv.mdp.beginnings import Beginnings, beginning, is_instance, stages
from mdv.mdp.groups import TABLES, CompiledGroup, Groups, states
from mdv.mdp.rules import Library, Rules
from mdv.mdp.schemas import SchemaInForce, Schemas
from mdv.mdp.teller import Teller
from mdv.model import RDFS_RESOURCE, is_blank
from mdv.query.compile import State, all_matches, all_reached
from mdv.rdf.parse import is_absolute_iri
from mdv.rules.normal import (
    Conjunction,
    NormalRule,
)
from mdv.rules.normalise import normalise
from mdv.rules.parse import parse
from mdv.rules.pattern import Pattern, pattern_with_nodes

MOST_RULES = 20
"""Rules that are shown of those that select a resource."""
MOST_NEAREST = 5
MOST_CANDIDATES = 200
"""Rules that are tried for the nearest."""
MOST_DOCUMENTS = 20
MOST_BINDINGS = 100
MOST_NODES = 128
"""A rule with more variables than this, in one conjunction, is named and not gone into."""
MOST_REFERRERS = 20_000
"""On one step of a chain."""
MOST_STEPS = 1000
SECONDS = 10
NEAREST_SECONDS = 4.0

_TOO_COSTLY = (
    f"To find the rules that select this resource took longer than {SECONDS} s, and was given up. Some rule of this LMR"
    " is very costly: `mdv rule explain` tells what a rule costs."
)


def explain_resource(
    connection: Connection, lmr: int, uri: str, schemas: Schemas, vocabulary: Vocabulary, rules: Rules
) -> Why:
    """Why the resource of that URI is, or is not, at an LMR: all of it from one moment, and nothing is changed."""
    if not is_absolute_iri(uri):
        raise BadRequest(f"{uri!r} is not an absolute URI: write it in full, http://…")
    with db.reading(connection, SECONDS, _TOO_COSTLY):
        return _Question(connection, lmr, uri, schemas, vocabulary, rules).answer()


class _Question:
    """One resource and one LMR."""

    def __init__(
        self, connection: Connection, lmr: int, uri: str, schemas: Schemas, vocabulary: Vocabulary, rules: Rules
    ) -> None:
        self._connection, self._lmr, self._uri = connection, lmr, uri
        self._deadline = time.monotonic() + SECONDS
        state = read_state(connection)
        self._position = state.position
        self._in_force: SchemaInForce = schemas.at(connection, state.schema_version)
        self._schema = self._in_force.schema
        self._evidence = Evidence(connection)
        self._graph = Graph(connection)
        self._groups: Groups = rules.groups(connection, state, self._in_force, vocabulary)
        self._beginnings = Beginnings(connection, self._groups.names)
        self._library = Library(self._graph, lmr, {})

    def answer(self) -> Why:
        number = self._evidence.number(self._uri)
        documents = self._evidence.documents(number, MOST_DOCUMENTS) if number is not None else []
        reasons = self._evidence.reasons(self._lmr, number) if number is not None else None
        chain = self._chain(number) if number is not None and reasons == 0 else None
        if number is None or not documents:
            return self._told(False, False, False, _unsaid(self._uri, chain), chain=chain)
        classes = direct_classes(self._connection, [number]).get(number, [RDFS_RESOURCE])
        about: dict[str, Any] = {"documents": tuple(documents), "classes": tuple(classes), "chain": chain}
        groups = self._fitting(classes)
        found = self._selecting(number, groups, MOST_RULES + 1)
        if found:
            selecting = tuple(self._selects(rule, number) for rule in self._graph.rules(found[:MOST_RULES]))
            more = len(found) > MOST_RULES
            sentence = f"<{self._uri}> is at the LMR: {_counted(len(selecting), more)} it."
            return self._told(True, True, True, sentence, rules=selecting, more=more, **about)
        nearest = self._nearest(number, classes, groups)
        sentence = f"<{self._uri}> {self._unselected(reasons is not None, chain)}."
        return self._told(reasons is not None, False, True, sentence, nearest=nearest, **about)

    def _told(self, held: bool, selected: bool, described: bool, sentence: str, **rest: Any) -> Why:
        return Why(self._uri, self._lmr, self._position, held, selected, described, sentence, **rest)

    def _unselected(self, held: bool, chain: Chain | None) -> str:
        if chain is not None:
            far = f"over {len(chain.steps)} strong references" if len(chain.steps) > 1 else "by a strong reference"
            return f"is at the LMR: no rule selects it, but <{chain.steps[0].resource}> leads to it {far}"
        if held:
            return "is at the LMR: no rule selects it, but strong references lead to it"
        if not self._evidence.groups(self._lmr):
            return "is not at the LMR, which has no rules"
        return "is not at the LMR: none of its rules selects it, and no strong reference leads to it"

    # -- which rules select it

    def _fitting(self, classes: Sequence[str]) -> list[CompiledGroup]:
        """The groups of this LMR's rules that could register an instance of these classes."""
        mine = self._evidence.groups(self._lmr)
        return [
            group
            for group in self._groups.groups
            if group.group.group_id in mine
            and all(is_instance(classes, class_iri, self._schema) for class_iri in group.group.pattern.nodes[0])
        ]

    def _selecting(self, number: int, groups: Sequence[CompiledGroup], most: int) -> list[int]:
        """The first rules of this LMR that select a resource."""
        now, _, _ = states(self._groups.names)
        found: set[int] = set()
        for compiled_group in groups:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TooCostly(_TOO_COSTLY)
            limit_time(self._connection, ceil(left))
            found.update(self._selecting_of(now, compiled_group, number, most))
        return sorted(found)[:most]

    def _selecting_of(self, now: State, compiled_group: CompiledGroup, number: int, most: int) -> list[int]:
        group = compiled_group.group
        if not group.pattern.is_range:
            return self._evidence.owned(self._lmr, all_matches(now, TABLES, group), most, roots=[number])
        for _, *ends in self._evidence.run(compiled(all_reached(now, group.pattern)), roots=[number]):
            if ends[0] is not None:
                how = group.pattern.leaves[0].operator
                low, high = ends
                return self._evidence.owned_range(
                    self._lmr, group.group_id, group.predicates[0], how, (low, high), most
                )
        return []

    def _read(self, rule: StoredRule) -> tuple[NormalRule, frozenset[str]]:
        """What a rule means, and the variables that it writes itself."""
        parsed = parse(rule.text)
        written = frozenset(extension.variable.text for extension in parsed.search)
        return normalise(parsed, self._schema, self._library.parsed), written

    def _selects(self, rule: StoredRule, number: int) -> Selecting:
        """The first conjunction that holds, with a choice of resources that satisfies it."""
        normal, written = self._read(rule)
        for conjunction in normal.conjunctions:
            if len(conjunction.variables) <= MOST_NODES and self._beginnings.holds(conjunction, number):
                binding = self._beginnings.bindings(conjunction, number, 1)[0]
                teller = Teller(self._evidence, self._schema, self._groups.names, self._uri, conjunction, written)
                return Selecting(rule.id, rule.name, rule.text, *teller.satisfied(binding))
        return Selecting(rule.id, rule.name, rule.text)

    # -- which come nearest

    def _nearest(self, number: int, classes: Sequence[str], fitting: Sequence[CompiledGroup]) -> tuple[Failing, ...]:
        """Of some rules, those that get furthest."""
        deadline = min(self._deadline, time.monotonic() + NEAREST_SECONDS)
        tries: list[tuple[int, int, int, _Try]] = []
        alike: Counter[Pattern] = Counter()
        with giving_up(self._connection, NEAREST_SECONDS):
            for rule in self._candidates([group.group.group_id for group in fitting]):
                if time.monotonic() > deadline:
                    break
                if (tried := self._try(rule, number, classes)) is not None:
                    kind = pattern_with_nodes(tried.conjunction)[0]
                    tries.append((-tried.satisfied, alike[kind], rule.id, tried))
                    alike[kind] += 1
        failing: list[Failing] = []
        with giving_up(self._connection, NEAREST_SECONDS):
            # Of rules that get as far, those come first that differ in more than constants.
            for _, _, _, tried in sorted(tries, key=lambda item: item[:3])[:MOST_NEAREST]:
                failing.append(self._fails(tried, number, classes))
        return tuple(failing)

    def _candidates(self, fitting: Sequence[int]) -> list[StoredRule]:
        """Some rules of each kind whose class fits; others only where there are none."""
        groups = fitting or sorted(self._evidence.groups(self._lmr))
        if not groups:
            return []
        groups = groups[:MOST_CANDIDATES]
        each = max(1, MOST_CANDIDATES // len(groups)) if fitting else MOST_NEAREST
        return self._graph.rules(self._evidence.rules_of_groups(self._lmr, groups, each, MOST_CANDIDATES))

    def _try(self, rule: StoredRule, number: int, classes: Sequence[str]) -> _Try | None:
        """How far a rule gets, by the conjunction that gets furthest."""
        normal, written = self._read(rule)
        best: _Try | None = None
        for part, conjunction in enumerate(normal.conjunctions):
            if len(conjunction.variables) > MOST_NODES:
                continue
            satisfied = self._satisfied(conjunction, number, classes)
            if best is None or satisfied > best.satisfied:
                best = _Try(rule, conjunction, part, written, satisfied, len(stages(conjunction)))
        return best

    def _satisfied(self, conjunction: Conjunction, number: int, classes: Sequence[str]) -> int:
        """How many stages hold, all together, for some choice of resources. What begins a beginning that holds, holds
        too: so it is found by halving."""
        class_iri = next(v.class_iri for v in conjunction.variables if v.name == conjunction.register)
        if not is_instance(classes, class_iri, self._schema):
            return 0
        low, high = 1, len(stages(conjunction))
        while high - low > 1:
            middle = (low + high) // 2
            if self._beginnings.holds(beginning(conjunction, middle), number):
                low = middle
            else:
                high = middle
        return low

    def _fails(self, tried: _Try, number: int, classes: Sequence[str]) -> Failing:
        rule, conjunction, satisfied = tried.rule, tried.conjunction, tried.satisfied
        bindings: list[dict[str, int]] = []
        if satisfied:
            bindings = self._beginnings.bindings(beginning(conjunction, satisfied), number, MOST_BINDINGS)
        teller = Teller(self._evidence, self._schema, self._groups.names, self._uri, conjunction, tried.written)
        predicate, sentence, found = teller.failing(stages(conjunction)[satisfied], bindings, classes)
        return Failing(
            rule.id, rule.name, rule.text, predicate, sentence, satisfied, tried.of, tried.part, tuple(found)
        )

    # -- what leads to it

    def _chain(self, number: int) -> Chain | None:
        """The shortest way back over strong references, within what the LMR holds, to something that is selected."""
        names = [iri for iri, declared in self._schema.properties.items() if declared.strong]
        strong = [known for known in KnownNames(self._connection).ids(names).values() if known]
        onward: dict[int, Reference] = {}
        level, seen = [number], {number}
        for _ in range(MOST_STEPS):
            blank = [target for target, uri in self._evidence.uris(level).items() if is_blank(uri)]
            first = self._evidence.selected_referrer(self._lmr, level, strong, blank)
            if first is not None:
                return self._chained(first, onward)
            more = self._evidence.referrers(self._lmr, level, strong, blank, seen, MOST_REFERRERS)
            if not more or time.monotonic() > self._deadline:
                return None
            onward |= {reference.resource: reference for reference in more}
            level = [reference.resource for reference in more]
            seen.update(level)
        return None

    def _chained(self, first: Reference, onward: Mapping[int, Reference]) -> Chain:
        way = [first]
        while way[-1].target in onward:
            way.append(onward[way[-1].target])
        uris = self._evidence.uris({step.resource for step in way} | {step.target for step in way})
        names = self._evidence.names({step.property for step in way})
        steps = tuple(ChainStep(uris[s.resource], names[s.property], uris[s.target]) for s in way)
        classes = direct_classes(self._connection, [first.resource]).get(first.resource, [RDFS_RESOURCE])
        found = self._selecting(first.resource, self._fitting(classes), MOST_NEAREST + 1)
        named = tuple(NamedRule(rule.id, rule.name) for rule in self._graph.rules(found[:MOST_NEAREST]))
        return Chain(named, len(found) > MOST_NEAREST, steps)


@dataclass(frozen=True, slots=True)
class _Try:
    """How far a rule gets."""

    rule: StoredRule
    conjunction: Conjunction
    part: int
    written: frozenset[str]
    satisfied: int
    of: int


def _counted(number: int, more: bool) -> str:
    if more:
        return f"more than {number} of its rules select"
    return "one of its rules selects" if number == 1 else f"{number} of its rules select"


def _unsaid(uri: str, chain: Chain | None) -> str:
    if chain is None:
        return (
            f"Nothing is said of <{uri}>: no document that is registered here describes it."
            " (Local metadata of an LMR is known to nobody else.)"
        )
    return (
        f"Nothing is said of <{uri}>: it is not at the LMR, and comes as soon as some document describes it, since"
        f" <{chain.steps[0].resource}> leads to it."
    )
