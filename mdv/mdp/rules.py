"""The rule's way, from text to its first results.

    text → parsed → normalised → plan (atomic rules, pattern)     (once for all rules that differ in constants alone)
         → merged into the graph → groups → first results → publish

Rules are added, changed and removed in the same one order as documents, so that none misses anything.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from secrets import randbits
from typing import NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, select

from mdv.db import filter as db
from mdv.db.copy import any_field, text_field
from mdv.db.engine import in_one_message
from mdv.db.exchange import Exchange
from mdv.db.graph import Found, Graph, Step, StoredRule
from mdv.db.state import State, lock_rules, lock_state, read_state
from mdv.db.tables import resources
from mdv.db.vocabulary import Vocabulary
from mdv.errors import BadRequest, Conflict, InvalidRule, NotFound
from mdv.mdp.drivers import revise_drivers
from mdv.mdp.evaluate import evaluate_ends
from mdv.mdp.groups import (
    Groups,
    constant_parameters,
    constant_values,
    read_groups,
    read_names,
    states,
)
from mdv.mdp.merge import Merge, Merged, Parts, Planned, choose_driver, merge_rules
from mdv.mdp.plan import ConjunctionPlan, constant_of, plan
from mdv.mdp.reasons import RuleReasons
from mdv.mdp.schemas import SchemaInForce, Schemas
from mdv.query.compile import matches
from mdv.rdf.schema import Schema
from mdv.rules.ast import ParsedRule
from mdv.rules.normal import Comparison, Constant, NormalRule
from mdv.rules.normalise import normalise
from mdv.rules.parse import parse
from mdv.rules.pattern import Pattern
from mdv.rules.template import Template, Templates

OWN = 0
"""The owner of rules that belong to no local repository, but to the provider itself."""

MAX_NAME = 200

MERGED_AT_ONCE = 10_000
"""While so many rules are made ready, those before are written."""

MOST_SECONDS = 30
"""A rule that cannot be evaluated in this time on what is stored is refused: it would hold up every registration."""

_TOO_COSTLY = (
    f"The first results took longer than {MOST_SECONDS} s, and nothing was added. Compare something with a constant,"
    " join the variables by = or by references, or search a smaller class; `mdv rule explain` tells what a rule costs."
)


@dataclass(frozen=True, slots=True)
class RuleDraft:
    """A rule to be added: whose, under which name if any, and what it says."""

    owner: int
    name: str | None
    text: str


@dataclass(frozen=True, slots=True)
class AddedRule:
    """A rule as it was added or changed: its number, its end rules, and where in the history it stands."""

    id: int
    ends: tuple[int, ...]
    position: int


class Rules:
    """What one process remembers of rules: those that it has read, and the groups."""

    def __init__(self) -> None:
        self._groups: Groups | None = None
        self._schema: Schema | None = None
        self._templates: Templates | None = None
        self._plans: WeakKeyDictionary[Template, tuple[ConjunctionPlan, ...]] = WeakKeyDictionary()

    def groups(
        self, connection: Connection, state: State, schema: SchemaInForce, vocabulary: Vocabulary, fresh: bool = False
    ) -> Groups:
        """The groups of now. `fresh`: they have just changed, and the caller holds the lock."""
        if self._groups is None or self._groups.version != (state.graph_version, state.schema_version):
            last = state.last_resource if fresh else None
            self._groups = read_groups(connection, state, schema.schema, vocabulary, self._groups, last)
        return self._groups

    def read(
        self, text: str, schema: SchemaInForce, library: Library | None = None
    ) -> tuple[NormalRule, tuple[ConjunctionPlan, ...], tuple[Constant, ...]]:
        """A rule's normal form (up to its constants), its plan and its constants."""
        if self._templates is None or self._schema is not schema.schema:
            self._templates, self._schema = Templates(schema.schema), schema.schema
            self._plans.clear()
        try:
            template, constants = self._templates.match(text)
        except InvalidRule:
            if library is None:
                raise
            # It may search another rule.
            rule = normalise(parse(text), schema.schema, library.parsed)
            return rule, plan(rule, schema.schema), _constants(rule)
        known = self._plans.get(template)
        if known is None:
            known = self._plans[template] = plan(template.rule, schema.schema)
        return template.rule, known, constants


class Library:
    """The named rules of one owner, with those that are just being added or changed."""

    def __init__(self, graph: Graph, owner: int, drafts: Mapping[str, tuple[int, str]]) -> None:
        self._graph, self._owner, self._drafts = graph, owner, drafts
        self._found: dict[str, tuple[int, ParsedRule] | None] = {}

    def parsed(self, name: str) -> ParsedRule | None:
        found = self._find(name)
        return found[1] if found is not None else None

    def id(self, name: str) -> int:
        found = self._find(name)
        assert found is not None
        return found[0]

    def _find(self, name: str) -> tuple[int, ParsedRule] | None:
        if name not in self._found:
            known = self._drafts.get(name)
            if known is None:
                stored = self._graph.rules_named(self._owner, [name]).get(name)
                known = (stored.id, stored.text) if stored is not None else None
            self._found[name] = (known[0], parse(known[1])) if known is not None else None
        return self._found[name]


def add_rules(
    connection: Connection, drafts: Sequence[RuleDraft], schemas: Schemas, vocabulary: Vocabulary, rules: Rules
) -> list[AddedRule]:
    """Add rules, all or none; what they match now stands in `result_objects` when this returns."""
    with without_collecting():
        return _add_rules(connection, drafts, schemas, vocabulary, rules)


def _add_rules(
    connection: Connection, drafts: Sequence[RuleDraft], schemas: Schemas, vocabulary: Vocabulary, rules: Rules
) -> list[AddedRule]:
    graph = Graph(connection)
    state, schema, read, found = _take_turn(connection, graph, drafts, schemas, rules)
    position, last = state.position + 1, state.last_rule
    merge = Merge(graph, rules.groups(connection, state, schema, vocabulary).known, state.last_atomic_rule, after=last)
    with graph.copying:
        for parts, its_found in zip(read.parts, found, strict=True):
            merge.add(parts, its_found, _lines(drafts, parts.items, last, position))
    merged = merge.merged
    state, step = _advanced(state, merged, last + len(drafts), position)
    searches = [{"rule_id": last + place, "searched_id": searched} for place, searched in read.searches]
    numbers = range(last + 1, last + len(drafts) + 1)
    with db.refusing_slow(_TOO_COSTLY):
        exchange = Exchange(connection)
        to_revise = merge.write_step(searches, step, state.last_resource, MOST_SECONDS, exchange)
        if merged.regrouped:
            exchange.send()
        find_first_results(connection, merged, state, schema, vocabulary, rules, exchange)
        exchange.send()
    if _concerns_lmrs(state, (draft.owner for draft in drafts)):
        reasons = RuleReasons(connection, state)
        groups = rules.groups(connection, state, schema, vocabulary)
        with db.refusing_slow(_TOO_COSTLY), in_one_message(connection, True):
            reasons.grant_new(groups, numbers, merged.known_ends, merged.touched({draft.owner for draft in drafts}))
            reasons.publish(schema, vocabulary)
    if some := to_revise():
        revise_drivers(connection, state, rules.groups(connection, state, schema, vocabulary), some)
    return [AddedRule(number, merged.ends[number], position) for number in numbers]


def change_rule(
    connection: Connection, rule_id: int, text: str, schemas: Schemas, vocabulary: Vocabulary, rules: Rules
) -> AddedRule:
    """Let a rule say something else. Rules that search it follow."""
    state = lock_state(connection)
    schema = schemas.at(connection, state.schema_version)
    graph = Graph(connection)
    changed = replace(_stored(graph, rule_id), text=text)
    following = [changed, *_following(graph, [rule_id])]
    names = {rule.name: (rule.id, rule.text) for rule in following if rule.name is not None}
    position = state.position + 1
    planned: list[Planned] = []
    searches: list[dict[str, int]] = []
    for rule in following:
        library = Library(graph, rule.owner, names)
        try:
            normal, its_plan, constants = rules.read(rule.text, schema, library)
        except InvalidRule as error:
            if rule is changed:
                raise
            raise Conflict(f"Rule {rule.name or rule.id}, which searches this one, could not follow: {error.detail}",
                           error.flaws) from None  # fmt: skip
        planned.append(Planned(rule.id, rule.owner, its_plan, constants))
        searches += [{"rule_id": rule.id, "searched_id": library.id(name)} for name in normal.searches]
    ids = [rule.id for rule in following]
    told = _concerns_lmrs(state, [changed.owner])
    reasons = RuleReasons(connection, replace(state, position=position))
    if told:
        reasons.withdraw(rules.groups(connection, state, schema, vocabulary), ids)
    graph.execute("delete_searches", ids=ids)
    graph.execute("change_rule", id=rule_id, text=text, position=position)
    # What the rules were made of goes after what they are made of has come, so that what is in both stays.
    known = rules.groups(connection, state, schema, vocabulary).known
    detached = graph.detach(ids)
    merged = merge_rules(graph, planned, known, state.last_atomic_rule, searches)
    regrouped = graph.drop(detached)
    state, step = _advanced(state, merged, state.last_rule, position, regrouped)
    graph.advance(step)
    with db.refusing_slow(_TOO_COSTLY):
        graph.forget_results(MOST_SECONDS)
        exchange = Exchange(connection)
        find_first_results(connection, merged, state, schema, vocabulary, rules, exchange)
        exchange.send()
        if told:
            groups = rules.groups(connection, state, schema, vocabulary)
            reasons.grant(groups, ids, merged.known_ends)
    if told:
        reasons.publish(schema, vocabulary)
    return AddedRule(rule_id, merged.ends[rule_id], position)


def remove_rules(
    connection: Connection,
    ids: Collection[int],
    schemas: Schemas,
    vocabulary: Vocabulary,
    rules: Rules,
    quietly: bool = False,
) -> int:
    """End rules; the position that this took. What no other rule needs leaves the graph. `quietly`: nobody is told,
    since whose rules they are goes, too."""
    state = lock_state(connection)
    schema = schemas.at(connection, state.schema_version)
    graph = Graph(connection)
    found = {rule.id: rule for rule in graph.rules(ids)}
    for missing in sorted(set(ids) - found.keys()):
        raise NotFound(f"There is no rule {missing}.")
    for searched, rule in graph.searching(ids):
        if rule.id not in found:
            raise Conflict(
                f"Rule {rule.name or rule.id} searches rule {found[searched].name}: change or end it first.",
                rule=rule.id, searched=searched,
            )  # fmt: skip
    position = state.position + 1
    told = not quietly and _concerns_lmrs(state, (rule.owner for rule in found.values()))
    reasons = RuleReasons(connection, replace(state, position=position))
    if told:
        reasons.withdraw(rules.groups(connection, state, schema, vocabulary), ids)
    graph.execute("delete_searches", ids=list(ids))
    regrouped = graph.drop(graph.detach(list(ids)))
    graph.execute("delete_rules", ids=list(ids))
    db.clear(connection)
    merged = Merged({}, [], [], False, state.last_atomic_rule, state.last_atomic_rule + 1)
    state, step = _advanced(state, merged, state.last_rule, position, regrouped)
    graph.advance(step)
    if told:
        reasons.settle(rules.groups(connection, state, schema, vocabulary))
        reasons.publish(schema, vocabulary)
        db.clear(connection)
    return position


def find_first_results(
    connection: Connection,
    merged: Merged,
    state: State,
    schema: SchemaInForce,
    vocabulary: Vocabulary,
    rules: Rules,
    exchange: Exchange,
) -> None:
    """Evaluate the end rules that are new on what is stored, a few of them in the exchange. What the last run found is
    forgotten already, or will be in it."""
    groups = rules.groups(connection, state, schema, vocabulary, fresh=True)
    evaluate_ends(connection, groups, merged.new_ends, state, merged.first_atomic_rule, exchange)


def results_of(
    connection: Connection, rule_id: int, rules: Rules, schemas: Schemas, vocabulary: Vocabulary
) -> set[str]:
    """The URIs of all resources that a rule registers now, by full evaluation."""
    graph = Graph(connection)
    stored = _stored(graph, rule_id)
    schema = schemas.at(connection, read_state(connection).schema_version)
    _, its_plan, constants = rules.read(stored.text, schema, Library(graph, stored.owner, {}))
    return evaluate_plan(connection, its_plan, constants, schema, vocabulary)


def evaluate_plan(
    connection: Connection,
    its_plan: Sequence[ConjunctionPlan],
    constants: Sequence[Constant],
    schema: SchemaInForce,
    vocabulary: Vocabulary,
) -> set[str]:
    """The URIs of all resources that a rule of this plan registers now."""
    patterns = [part.pattern for part in its_plan]
    names = read_names(Graph(connection), patterns, schema.schema, vocabulary, None)
    now, _, _ = states(names)
    found: set[str] = set()
    for part in its_plan:
        mine = [constant_of(part.triggering[place], constants) for place in part.leaves]
        numbers = matches(now, part.pattern, constant_parameters(part.pattern), best_leaf(part.pattern)).subquery(
            "found"
        )
        uris = select(resources.c.uri).join(numbers, numbers.c.resource_id == resources.c.id)
        rows = db.evaluate(connection, db.compiled(uris), constant_values([c for c in mine if c is not None]))
        found.update(uri for (uri,) in rows)
    return found


@contextmanager
def without_collecting() -> Iterator[None]:
    """A hundred thousand rules make millions of small objects that all stay: looking for garbage among them is vain."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def best_leaf(pattern: Pattern) -> int | None:
    """The leaf that a full evaluation should begin with."""
    if not pattern.leaves:
        return None
    return choose_driver(pattern.leaves, [2] * len(pattern.leaves), 2)


def _constants(rule: NormalRule) -> tuple[Constant, ...]:
    """The constants of a rule's own text, by slot."""
    found = {
        p.constant.slot: p.constant
        for conjunction in rule.conjunctions
        for p in conjunction.predicates
        if isinstance(p, Comparison) and p.constant.slot is not None
    }
    return tuple(found[slot] for slot in sorted(found))


def _concerns_lmrs(state: State, owners: Iterable[int]) -> bool:
    return state.lmrs > 0 and any(owner != OWN for owner in owners)


def _names(drafts: Sequence[RuleDraft]) -> dict[int, set[str]]:
    """The names of rules by their owners: a name stands for one rule of its owner."""
    names: dict[int, set[str]] = {}
    for draft in drafts:
        if draft.name is not None:
            if len(draft.name) > MAX_NAME or not draft.name.isprintable():
                raise BadRequest(f"A rule's name is at most {MAX_NAME} characters that can be printed.")
            mine = names.setdefault(draft.owner, set())
            if draft.name in mine:
                raise Conflict(f"Two of these rules have the name {draft.name}.")
            mine.add(draft.name)
    return names


class _Read(NamedTuple):
    """Rules as they were read by a schema: taken apart, and which of them (by place, from 1) search which rules."""

    schema: SchemaInForce
    parts: list[Parts]
    searches: list[tuple[int, int]]


class _Turn(NamedTuple):
    """What is to be known of rules when it is their turn: also which of their parts are there already."""

    state: State
    schema: SchemaInForce
    read: _Read
    found: list[Found]


def _take_turn(
    connection: Connection, graph: Graph, drafts: Sequence[RuleDraft], schemas: Schemas, rules: Rules
) -> _Turn:
    """Read rules, and wait for their turn. What is likely to be asked then goes with the one message that asks for it:
    it is looked up only when the lock is there."""
    names = _names(drafts)
    read = _foresee(drafts, schemas.remembered, rules)
    exchange = Exchange(connection)
    lock = lock_rules(exchange)
    taken = [graph.ask_for_names(owner, mine, exchange) for owner, mine in names.items()]
    found = [parts.look(graph, exchange) for parts in read.parts] if read is not None else []
    exchange.send()
    state = lock()
    schema = schemas.at(connection, state.schema_version)
    for name in chain.from_iterable(ask() for ask in taken):
        raise Conflict(f"There is a rule of the name {name} already.")
    if read is None or read.schema is not schema:
        read = _read(drafts, schema, rules, _libraries(graph, drafts, state.last_rule))
        found = [parts.look(graph) for parts in read.parts]
    return _Turn(state, schema, read, [ask() for ask in found])


def _foresee(drafts: Sequence[RuleDraft], schema: SchemaInForce, rules: Rules) -> _Read | None:
    """Rules as they will be read unless the schema has changed, so that nobody waits meanwhile; None where only who
    holds the lock can tell: for rules that search others, for flaws, and where no schema is remembered."""
    if not schema.version:
        return None
    try:
        return _read(drafts, schema, rules, {})
    except InvalidRule:
        return None


def _read(drafts: Sequence[RuleDraft], schema: SchemaInForce, rules: Rules, libraries: Mapping[int, Library]) -> _Read:
    planned: list[Planned] = []
    searches: list[tuple[int, int]] = []
    for place, draft in enumerate(drafts, 1):
        library = libraries.get(draft.owner)
        try:
            normal, its_plan, constants = rules.read(draft.text, schema, library)
        except InvalidRule as error:
            if len(drafts) == 1:
                raise
            named = f", {draft.name}," if draft.name else ""
            raise InvalidRule(f"Of {len(drafts):,} rules number {place}{named} has a flaw, and none was added. "
                              f"{error.detail}", error.flaws, number=place) from None  # fmt: skip
        planned.append(Planned(place, draft.owner, its_plan, constants))
        if library is not None:
            searches += [(place, library.id(name)) for name in normal.searches]
    some = [Parts(planned[first : first + MERGED_AT_ONCE]) for first in range(0, len(planned), MERGED_AT_ONCE)]
    return _Read(schema, some, searches)


def _lines(drafts: Sequence[RuleDraft], items: Iterable[Planned], last_rule: int, position: int) -> list[str]:
    """Rules as they are kept."""
    lines = []
    for place, owner, _, _ in items:
        draft = drafts[place - 1]
        name = any_field(draft.name)
        lines.append(f"{last_rule + place}\t{owner}\t{name}\t{text_field(draft.text)}\t{position}\n")
    return lines


def _libraries(graph: Graph, drafts: Sequence[RuleDraft], last_rule: int) -> dict[int, Library]:
    names: dict[int, dict[str, tuple[int, str]]] = {draft.owner: {} for draft in drafts}
    for number, draft in enumerate(drafts, last_rule + 1):
        if draft.name is not None:
            names[draft.owner][draft.name] = (number, draft.text)
    return {owner: Library(graph, owner, mine) for owner, mine in names.items()}


def _stored(graph: Graph, rule_id: int) -> StoredRule:
    for rule in graph.rules([rule_id]):
        return rule
    raise NotFound(f"There is no rule {rule_id}.")


def _following(graph: Graph, ids: Sequence[int]) -> list[StoredRule]:
    """The rules that search these, those that search them, and so on."""
    found: dict[int, StoredRule] = {}
    todo = list(ids)
    while todo:
        fresh = {rule.id: rule for _, rule in graph.searching(todo) if rule.id not in found}
        found |= fresh
        todo = list(fresh)
    return list(found.values())


def _advanced(
    state: State, merged: Merged, last_rule: int, position: int, regrouped: bool = False
) -> tuple[State, Step]:
    """The state after rules have changed, and the step that leads there."""
    # A number that no other change of the groups has: were this transaction rolled back, nobody would take what was
    # remembered of it for what came instead.
    version = randbits(62) if regrouped or merged.regrouped else None
    after = replace(
        state, position=position, last_rule=last_rule, last_atomic_rule=merged.last_atomic_rule,
        graph_version=version or state.graph_version,
    )  # fmt: skip
    return after, Step(position, last_rule, merged.last_atomic_rule, version)
