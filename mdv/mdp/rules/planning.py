"""Plan rules: from their texts to decomposed rules, before they are merged into the rule graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sqlalchemy import Connection

from mdv.db.rule_graph import RuleGraph, StoredRule
from mdv.db.state import State, read_state
from mdv.errors import BadRequest, Conflict, InvalidRule, NotFound
from mdv.mdp.merge import DecomposedRules, PlannedRule
from mdv.mdp.rule_cache import NamedRules, RuleCache
from mdv.mdp.schemas import SchemaInForce

PROVIDER_OWNER = 0
"""The owner of rules that belong to the MDP itself and to no LMR."""

MAX_RULE_NAME_CHARACTERS = 200

RULES_PER_MERGE = 10_000
"""How many rules are prepared and written at a time."""


@dataclass(frozen=True, slots=True)
class RuleDraft:
    """A rule to be added: its owner, its name, if any, its text, and the caller."""

    owner: int
    name: str | None
    text: str
    by: str | None = None


@dataclass(frozen=True, slots=True)
class AddedRule:
    """A rule that was added or changed: its id, its end rules, and the position of the change."""

    id: int
    ends: tuple[int, ...]
    position: int


class PlannedBatch(NamedTuple):
    """Decomposed rules under a schema, and which of them (by number, from 1) search which rules."""

    schema: SchemaInForce
    parts: list[DecomposedRules]
    searches: list[tuple[int, int]]

    @property
    def planned(self) -> list[PlannedRule]:
        """All rules, in order."""
        return [item for parts in self.parts for item in parts.items]


class PlannedChange(NamedTuple):
    """The changed rule, then the rules that search it, with their new plans; and which rules each of them searches."""

    rules: list[PlannedRule]
    searches: list[dict[str, int]]


def plan_change(graph: RuleGraph, rule_id: int, text: str, schema: SchemaInForce, rules: RuleCache) -> PlannedChange:
    """Plan a rule with its new text, and the rules that search it."""
    changed = replace(get_rule(graph, rule_id), text=text)
    following = [changed, *searching_rules(graph, [rule_id])]
    names = {rule.name: (rule.id, rule.text) for rule in following if rule.name is not None}
    planned = PlannedChange([], [])
    for rule in following:
        library = NamedRules(graph, rule.owner, names)
        try:
            normal, rule_plan, constants = rules.read(rule.text, schema, library)
        except InvalidRule as error:
            if rule is changed:
                raise
            raise Conflict(f"Rule {rule.name or rule.id} searches this rule and would become invalid: {error.detail}",
                           error.flaws) from None  # fmt: skip
        planned.rules.append(PlannedRule(rule.id, rule.owner, rule_plan, constants))
        planned.searches.extend({"rule_id": rule.id, "searched_id": library.id(name)} for name in normal.searches)
    return planned


def plan_new_rules(
    connection: Connection, drafts: Sequence[RuleDraft], schema: SchemaInForce, rules: RuleCache
) -> list[PlannedRule]:
    """Plan rules that are to be added, without the lock. The id of each is its number in the list, from 1."""
    libraries = libraries_of(RuleGraph(connection), drafts, read_state(connection).last_rule)
    return plan_batch(drafts, schema, rules, libraries).planned


def rule_names(drafts: Sequence[RuleDraft]) -> dict[int, set[str]]:
    """Return the names of rules by owner. Raise an error if a name is invalid or occurs twice."""
    names: dict[int, set[str]] = {}
    for draft in drafts:
        if draft.name is not None:
            if len(draft.name) > MAX_RULE_NAME_CHARACTERS or not draft.name.isprintable():
                raise BadRequest(
                    f"A rule's name must have at most {MAX_RULE_NAME_CHARACTERS} characters, all printable."
                )
            owner_names = names.setdefault(draft.owner, set())
            if draft.name in owner_names:
                raise Conflict(
                    f"Two of these rules have the name {draft.name}. Rule names must be unique; rename one of them."
                )
            owner_names.add(draft.name)
    return names


def check_names(graph: RuleGraph, drafts: Sequence[RuleDraft]) -> None:
    """Raise `Conflict` if a rule with one of these names exists. The caller must hold the lock."""
    for owner, owner_names in rule_names(drafts).items():
        for name in graph.rules_named(owner, owner_names):
            raise Conflict(f"A rule named {name} already exists. Choose another name, or change that rule.")


def plan_ahead(drafts: Sequence[RuleDraft], schema: SchemaInForce, rules: RuleCache) -> PlannedBatch | None:
    """Plan rules with the cached schema before the lock is taken.

    Return None if this needs the lock: for rules that search other rules, for invalid rules, and without a cached
    schema.
    """
    if not schema.version:
        return None
    try:
        return plan_batch(drafts, schema, rules, {})
    except InvalidRule:
        return None


def plan_batch(
    drafts: Sequence[RuleDraft], schema: SchemaInForce, rules: RuleCache, libraries: Mapping[int, NamedRules]
) -> PlannedBatch:
    planned: list[PlannedRule] = []
    searches: list[tuple[int, int]] = []
    for place, draft in enumerate(drafts, 1):
        library = libraries.get(draft.owner)
        try:
            normal, rule_plan, constants = rules.read(draft.text, schema, library)
        except InvalidRule as error:
            if len(drafts) == 1:
                raise
            named = f", {draft.name}," if draft.name else ""
            raise InvalidRule(f"Rule {place} of {len(drafts):,}{named} is invalid, so none was added. "
                              f"{error.detail}", error.flaws, number=place) from None  # fmt: skip
        planned.append(PlannedRule(place, draft.owner, rule_plan, constants))
        if library is not None:
            searches += [(place, library.id(name)) for name in normal.searches]
    parts = [
        DecomposedRules(planned[first : first + RULES_PER_MERGE]) for first in range(0, len(planned), RULES_PER_MERGE)
    ]
    return PlannedBatch(schema, parts, searches)


def libraries_of(graph: RuleGraph, drafts: Sequence[RuleDraft], last_rule: int) -> dict[int, NamedRules]:
    names: dict[int, dict[str, tuple[int, str]]] = {draft.owner: {} for draft in drafts}
    for number, draft in enumerate(drafts, last_rule + 1):
        if draft.name is not None:
            names[draft.owner][draft.name] = (number, draft.text)
    return {owner: NamedRules(graph, owner, owner_names) for owner, owner_names in names.items()}


def get_rule(graph: RuleGraph, rule_id: int) -> StoredRule:
    for rule in graph.rules([rule_id]):
        return rule
    raise NotFound(f"There is no rule {rule_id}.")


def searching_rules(graph: RuleGraph, ids: Sequence[int]) -> list[StoredRule]:
    """Return the rules that search these rules, directly or indirectly."""
    found: dict[int, StoredRule] = {}
    todo = list(ids)
    while todo:
        fresh = {rule.id: rule for _, rule in graph.searching(todo) if rule.id not in found}
        found |= fresh
        todo = list(fresh)
    return list(found.values())


def concerns_lmrs(state: State, owners: Iterable[int]) -> bool:
    return state.lmrs > 0 and any(owner != PROVIDER_OWNER for owner in owners)
