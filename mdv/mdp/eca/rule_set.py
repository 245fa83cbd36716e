"""The rules of an MDP as a process has loaded them: templates, found by what their events watch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from sqlalchemy import Connection

from mdv.db.eca.action_sql import ActionWriter
from mdv.db.eca.comparison_sql import write_values_query
from mdv.db.eca.rule_sql import TemplateQueries, write_template
from mdv.db.eca.rules import read_templates
from mdv.db.vocabulary import Vocabulary
from mdv.mdp.schemas import SchemaInForce
from mdv.model import RDF_TYPE, Statement
from mdv.rdf.schema import Schema
from mdv.rdftl.compile import compile_rules
from mdv.rdftl.events import EventKey, WatchIndex, entailed_arcs, event_key
from mdv.rdftl.locality import shared_reads
from mdv.rdftl.model import (
    Action,
    AllNodes,
    ArcAction,
    Axis,
    ChangeKind,
    ConstantValue,
    DeltaValue,
    EcaRule,
    NamedNode,
    NodePath,
    TripleNode,
)  # fmt: skip
from mdv.rdftl.template import abstract_rule, find_parts, mentions

MAX_KNOWN_ACTIONS = 10_000
"""Actions that are remembered. Those of updates and detached copies are new in each transaction."""


@dataclass(frozen=True)
class LoadedTemplate:
    """A template with its queries. `values`: the query of the values of its condition, if it needs one."""

    id: int
    rule: EcaRule
    queries: TemplateQueries
    values: str | None
    write_one_rule: Callable[[], TemplateQueries]

    @cached_property
    def one_rule_queries(self) -> TemplateQueries:
        """The queries for one of its rules alone."""
        return self.write_one_rule()

    @cached_property
    def key(self) -> EventKey:
        return event_key(self.rule.event)

    @cached_property
    def shared_reads(self) -> frozenset[str] | None:
        return shared_reads(self.rule)

    @cached_property
    def is_set_oriented(self) -> bool:
        """True if `$delta` occurs in neither condition nor action. Such a rule fires once for all instantiations."""
        return not mentions((self.rule.condition, self.rule.actions), DeltaValue)


def inserts_without_reading(action: Action) -> bool:
    """True if an action inserts arcs between terms that it names, or that `$delta` has."""
    return (
        isinstance(action, ArcAction)
        and action.kind is ChangeKind.INSERT
        and all(
            isinstance(triple.arc, str) and all(map(_is_named, (triple.source, triple.target)))
            for triple in action.triples
        )
    )


def is_unbounded(action: Action) -> bool:
    """True if the queries of an action may take long: it reads all nodes, sources, or the targets of targets."""
    triples = action.triples if isinstance(action, ArcAction) else ()
    if mentions(action, AllNodes) or any(triple.source.value is None for triple in triples):
        return True
    return any(
        len(path.steps) > 1 or any(step.axis is Axis.SOURCE for step in path.steps)
        for path in find_parts(action, NodePath)
    )


def _is_named(node: TripleNode) -> bool:
    match node:
        case TripleNode(NodePath(NamedNode() | DeltaValue(), (), ()) | ConstantValue(), None):
            return True
    return False


class ActionMemo:
    """Remembers what a function says about actions. The actions of a template are the same objects in every run."""

    def __init__(self, decide: Callable[[Action], bool]) -> None:
        self._decide = decide
        self._known: dict[int, tuple[Action, bool]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __call__(self, action: Action) -> bool:
        known = self._known.get(id(action))
        if known is None or known[0] is not action:
            if len(self._known) >= MAX_KNOWN_ACTIONS:
                self._known.clear()
            known = self._known[id(action)] = action, self._decide(action)
        return known[1]


class RuleSet:
    """The templates of the active rules, for one version of the rules and of the schema."""

    def __init__(self, templates: Sequence[LoadedTemplate], actions: ActionWriter, schema: Schema) -> None:
        self.actions = actions
        self._schema = schema
        self._wanted: dict[str, bool] = {}
        self._wanted_classes: dict[str, bool] = {}
        self.is_unwatched_insert = ActionMemo(self._is_unwatched_insert)
        self.inserts_without_reading = ActionMemo(inserts_without_reading)
        self.is_unbounded = ActionMemo(is_unbounded)
        self.by_id = {template.id: template for template in templates}
        self.by_key: dict[EventKey, list[LoadedTemplate]] = defaultdict(list)
        for template in templates:
            self.by_key[template.key].append(template)
        self.watched = WatchIndex(self.by_key)

    def _is_unwatched_insert(self, action: Action) -> bool:
        """True if an action only inserts, reads nothing, and no event watches what it inserts."""
        arcs = [triple.arc for triple in action.triples] if isinstance(action, ArcAction) else []
        return not any(isinstance(arc, str) and self.wants(arc) for arc in arcs) and inserts_without_reading(action)

    def wants_statement(self, statement: Statement) -> bool:
        """True if an event may watch a statement."""
        if statement.property != RDF_TYPE:
            return self.wants(statement.property)
        class_iri = statement.object.value
        if class_iri not in self._wanted_classes:
            arcs = entailed_arcs(statement, self._schema)
            self._wanted_classes[class_iri] = self.watched.every_node or any(map(self.watched.wants, arcs))
        return self._wanted_classes[class_iri]

    def wants(self, property_iri: str) -> bool:
        """True if an event may watch a statement with this property."""
        if property_iri not in self._wanted:
            self._wanted[property_iri] = self.watched.wants_property(property_iri, self._schema)
        return self._wanted[property_iri]


class RuleSetCache:
    """Caches the rules of an MDP. They are loaded again if their version or the schema has changed."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._known: tuple[tuple[int, int], RuleSet] | None = None

    def at(self, connection: Connection, version: int, schema: SchemaInForce) -> RuleSet:
        """Return the rules of a version. Version 0 has no rules."""
        known = self._known  # another thread may replace it
        if known is None or known[0] != (version, schema.version):
            old = known[1].by_id if known is not None and known[0][1] == schema.version else {}
            texts = read_templates(connection) if version else {}
            templates = [old.get(number) or self._load(number, text, schema) for number, text in texts.items()]
            known = (
                (version, schema.version),
                RuleSet(templates, ActionWriter(schema.schema, self.property_id), schema.schema),
            )
            self._known = known
        return known[1]

    def property_id(self, iri: str) -> int:
        return self._vocabulary.ids([iri])[iri]

    def _load(self, number: int, text: str, schema: SchemaInForce) -> LoadedTemplate:
        (compiled,) = compile_rules(text, schema.schema)
        template, _ = abstract_rule(compiled.rule, schema.schema)
        write = partial(write_template, template, number, schema.schema, self.property_id)
        values = write_values_query(template.condition, schema.schema, self.property_id)
        return LoadedTemplate(number, template, write(), values, partial(write, one_rule=True))
