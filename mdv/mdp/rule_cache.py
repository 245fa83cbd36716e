"""The rules that one process has cached: their plans, and the groups of the rule graph."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from sqlalchemy import Connection

from mdv.db.rule_graph import RuleGraph
from mdv.db.state import State
from mdv.db.vocabulary import Vocabulary
from mdv.errors import InvalidRule
from mdv.mdp.groups import Groups, read_groups
from mdv.mdp.plan import ConjunctionPlan, plan_rule
from mdv.mdp.schemas import SchemaInForce
from mdv.rdf.schema import Schema
from mdv.rules.ast import ParsedRule
from mdv.rules.normal import Comparison, Constant, NormalRule
from mdv.rules.normalise import normalise
from mdv.rules.parse import parse
from mdv.rules.template import Template, Templates

DEFAULT_RULE_SECONDS = 2.0
"""The default time limit for a rule in one transaction."""


class RuleCache:
    """The rules and groups that one process has cached. `seconds`: the time limit for a rule in one transaction."""

    def __init__(self, seconds: float = DEFAULT_RULE_SECONDS) -> None:
        self.seconds = seconds
        self.limits: dict[int, float] = {}
        """The time limits of groups that may take longer because they have many rules."""
        self._groups: Groups | None = None
        self._schema: Schema | None = None
        self._templates: Templates | None = None
        self._plans: WeakKeyDictionary[Template, tuple[ConjunctionPlan, ...]] = WeakKeyDictionary()

    def groups(
        self, connection: Connection, state: State, schema: SchemaInForce, vocabulary: Vocabulary, fresh: bool = False
    ) -> Groups:
        """Return the current groups. `fresh`: they have just changed, and the caller holds the lock."""
        if self._groups is None or self._groups.version != (state.graph_version, state.schema_version):
            last = state.last_resource if fresh else None
            self._groups = read_groups(connection, state, schema.schema, vocabulary, self._groups, last)
        return self._groups

    def read(
        self, text: str, schema: SchemaInForce, library: NamedRules | None = None
    ) -> tuple[NormalRule, tuple[ConjunctionPlan, ...], tuple[Constant, ...]]:
        """Return a rule's normal form (up to its constants), its plan and its constants."""
        if self._templates is None or self._schema is not schema.schema:
            self._templates, self._schema = Templates(schema.schema), schema.schema
            self._plans.clear()
        try:
            template, constants = self._templates.match(text)
        except InvalidRule:
            if library is None:
                raise
            # The rule may search another rule.
            rule = normalise(parse(text), schema.schema, library.parsed)
            return rule, plan_rule(rule, schema.schema), _constants(rule)
        known = self._plans.get(template)
        if known is None:
            known = self._plans[template] = plan_rule(template.rule, schema.schema)
        return template.rule, known, constants


class RuleOverBudget(Exception):
    """The rules of a group exceeded their time limit. The transaction has failed. Suspend the rules, and try again."""

    def __init__(self, group_id: int, seconds: float) -> None:
        super().__init__(f"Group {group_id} took longer than {seconds:g} s.")
        self.group_id, self.seconds = group_id, seconds


class NamedRules:
    """The named rules of one owner, including those that are being added or changed."""

    def __init__(self, graph: RuleGraph, owner: int, drafts: Mapping[str, tuple[int, str]]) -> None:
        self._graph, self._owner, self._drafts = graph, owner, drafts
        self._found: dict[str, tuple[int, ParsedRule] | None] = {}

    @classmethod
    def stored(cls, connection: Connection, owner: int) -> NamedRules:
        """Return the stored named rules of an owner."""
        return cls(RuleGraph(connection), owner, {})

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


def _constants(rule: NormalRule) -> tuple[Constant, ...]:
    """Return the constants of a rule's own text, by slot."""
    found = {
        p.constant.slot: p.constant
        for conjunction in rule.conjunctions
        for p in conjunction.predicates
        if isinstance(p, Comparison) and p.constant.slot is not None
    }
    return tuple(found[slot] for slot in sorted(found))
