"""Actions: from an action with `$delta` and constants to the edits of documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

from sqlalchemy import Connection

from mdv.db.eca.action_sql import ActionWriter
from mdv.db.eca.rule_sql import LIFT_LIMIT, LIMIT_TIME
from mdv.db.engine import postgres_duration
from mdv.db.pipeline import PendingResult, Pipeline, TextRow
from mdv.mdp.edit import Edit
from mdv.mdp.schemas import SchemaInForce
from mdv.model import RDF, RDF_TYPE, RDFS_RESOURCE, Statement, Term
from mdv.rdftl.model import (
    AllNodes,
    ArcAction,
    CallAction,
    ChangeKind,
    ConstantValue,
    Delta,
    DeltaField,
    DeltaValue,
    NamedNode,
    NodeAction,
    NodePath,
    SequenceNext,
    Triple,
    TripleNode,
)
from mdv.rdftl.template import slot_number

MAX_INSERTED = 100_000
"""Statements that one triple of an action may insert: every source with every target."""


NO_COLLECTION = "`element` was applied to something that is no collection"
NOT_STATED = "An arc was not changed, because it only follows from a subclass or subproperty."


class ActionFailed(Exception):
    """An action that cannot be carried out. It has changed nothing."""


@dataclass(slots=True)
class ActionEdits:
    """The edits of one action. `updates`: the pairs of an UPDATE. `note`: why it did less than its text may suggest."""

    deletions: list[Edit] = field(default_factory=list)
    additions: list[Edit] = field(default_factory=list)
    updates: set[Delta] = field(default_factory=set)
    note: str | None = None


def encode_delta(delta: Delta | None, number: int, schema: SchemaInForce) -> dict[str, object]:
    """Return an instantiation of `$delta` as a row of the queries."""
    row: dict[str, object] = {"n": number}
    if delta is None:
        return row
    row["source_uri"] = delta.source
    if delta.arc_name:
        row["arc"] = delta.arc_name
    for prefix, term in (("", delta.target), ("new_", delta.new_target)):
        if term is None:
            continue
        if term.is_uri:
            row[prefix + "target_uri"] = term.value
            continue
        number_, instant, truth = schema.typing.typed_values(delta.arc_name, term)
        row |= {
            prefix + "value": term.value, prefix + "lang": term.lang, prefix + "datatype_uri": term.datatype,
            prefix + "number": None if number_ is None else str(number_),
            prefix + "instant": None if instant is None else str(instant), prefix + "truth": truth,
        }  # fmt: skip
    return row


class ActionReader:
    """Evaluates the paths of one copy of an action on the statements of the store. `name_document`: returns the URI of
    a document that this transaction registers, by its ID. `strict`: the rule is STRICT. `seconds`: the time limit of a
    query, if there is one."""

    def __init__(
        self,
        connection: Connection,
        writer: ActionWriter,
        schema: SchemaInForce,
        delta: Delta | None,
        constants: Sequence[str],
        name_document: Callable[[int], str],
        strict: bool = False,
        seconds: float | None = None,
    ) -> None:
        self._connection = connection
        self._seconds = seconds
        self._strict = strict
        self._writer = writer
        self._delta = delta
        self._constants = constants
        self._name_document = name_document
        self._schema = schema

    @cached_property
    def _parameters(self) -> dict[str, str]:
        return {
            "deltas": json.dumps([encode_delta(self._delta, 0, self._schema)], ensure_ascii=False),
            "constants": json.dumps(list(self._constants), ensure_ascii=False),
        }

    def arguments_of(self, action: CallAction) -> list[list[Term]]:
        """Return what each argument of CALL selects, in order."""
        return [self._terms(TripleNode(one)) for one in action.arguments]

    def edits_of(self, action: NodeAction | ArcAction) -> ActionEdits:
        """Return the edits of an action. Raise `ActionFailed` if it cannot be carried out."""
        edits = ActionEdits()
        if isinstance(action, NodeAction):
            self._edit_nodes(action, edits)
        else:
            self._edit_arcs(action, edits)
        return edits

    def _edit_nodes(self, action: NodeAction, edits: ActionEdits) -> None:
        if action.kind is ChangeKind.INSERT:
            target = Term.uri(action.class_iri or RDFS_RESOURCE)
            nodes = [term for term in self._select(action.path) if term.is_uri]
            edits.additions += [Edit(Statement(term.value, RDF_TYPE, target)) for term in nodes]
            return
        self._check_elements(action.path)
        sql = self._writer.select_statements_of_nodes(action.path, action.class_iri)
        found = dict.fromkeys(statement for _, statement in self._statements(self._query(sql)))
        edits.deletions += [Edit(statement) for statement in found]

    def _edit_arcs(self, action: ArcAction, edits: ActionEdits) -> None:
        members: dict[str, int] = {}
        for triple in action.triples:
            if action.kind is ChangeKind.INSERT:
                self._insert(triple, edits, members)
                continue
            for node in (triple.source, triple.target):
                if isinstance(node.value, NodePath):
                    self._check_elements(node.value)
            found = self._statements(self._query(self._writer.select_arcs(triple)))
            self._look_for_derived_arcs(triple, edits)
            if action.kind is ChangeKind.DELETE:
                edits.deletions += [Edit(one) for one in dict.fromkeys(statement for _, statement in found)]
            else:
                self._update(triple, list(found), edits)

    def _look_for_derived_arcs(self, triple: Triple, edits: ActionEdits) -> None:
        """Note that a triple matches an arc that is not stated. Such an arc cannot be deleted or updated."""
        sql = self._writer.find_derived_arc(triple) if isinstance(triple.arc, str) else None
        if sql is not None and self._query(sql):
            edits.note = NOT_STATED

    def _insert(self, triple: Triple, edits: ActionEdits, members: dict[str, int]) -> None:
        sources, targets = (
            [term for term in self._terms(triple.source) if term.is_uri], self._terms(triple.target)
        )  # fmt: skip
        arc = triple.arc
        if (inserted := len(sources) * len(targets)) > MAX_INSERTED:
            raise ActionFailed(
                f"a triple would insert {inserted:,} statements, {len(sources):,} sources with {len(targets):,} targets"
                f" each; at most {MAX_INSERTED:,} are allowed"
            )
        if isinstance(arc, SequenceNext):
            if targets:
                self._count_members([term.value for term in sources], members)
            for source, target in product(sources, targets):
                members[source.value] += 1
                name = f"{RDF}_{members[source.value]}"
                edits.additions.append(Edit(Statement(source.value, name, target)))
            return
        assert arc is not None
        edits.additions += [Edit(Statement(s.value, arc, t)) for s, t in product(sources, targets)]

    def _count_members(self, uris: Sequence[str], members: dict[str, int]) -> None:
        """Find the highest index of each collection, unless this action has added members to it already."""
        missing = [uri for uri in uris if uri not in members]
        found = self._query(self._writer.select_collections(), uris=json.dumps(missing, ensure_ascii=False))
        members |= {uri or "": int(highest or 0) for uri, highest in found}
        for uri in missing:
            if uri not in members:
                raise ActionFailed(f"{uri} is no collection")

    def _update(self, triple: Triple, found: Sequence[tuple[str, Statement]], edits: ActionEdits) -> None:
        assert triple.new_target is not None
        new = self._terms(triple.new_target)
        if not found or not new:
            return
        if len(new) > 1:
            raise ActionFailed(f"the new target of an UPDATE is not unique: {len(new)} nodes were selected")
        for document, old in found:
            edits.deletions.append(Edit(old, document))
            edits.additions.append(Edit(old._replace(object=new[0]), document))
            edits.updates.add(Delta(*old, new[0]))

    # Nodes

    def _terms(self, node: TripleNode) -> list[Term]:
        """Return the terms that a node of a triple to insert, or a new target, denotes, in order."""
        if isinstance(node.value, ConstantValue):
            text = self._constants[slot_number(node.value.text)]
            return [Term.literal(text, node.value.lang, node.value.datatype)] if node.class_iri is None else []
        path = node.value if node.value is not None else NodePath(AllNodes())
        return self._select(path, node.class_iri)

    def _select(self, path: NodePath, class_iri: str | None = None) -> list[Term]:
        if class_iri is None and not path.steps and not path.qualifiers:
            match path.head:
                case NamedNode(name):
                    return [Term.uri(self._constants[slot_number(name)])]
                case DeltaValue(delta_field):
                    return [self._delta_term(delta_field)]
        self._check_elements(path, itself=True)
        return sorted(_term(*row) for row in self._query(self._writer.select_nodes(path, class_iri)))

    def _delta_term(self, delta_field: DeltaField) -> Term:
        delta = self._delta
        assert delta is not None
        match delta_field:
            case DeltaField.SOURCE:
                return Term.uri(delta.source)
            case DeltaField.ARC_NAME:
                return Term.uri(delta.arc_name)
            case DeltaField.NEW_TARGET:
                term = delta.new_target
            case _:
                term = delta.target
        assert term is not None
        return term

    def _check_elements(self, path: NodePath, itself: bool = False) -> None:
        """Raise `ActionFailed` if the elements of something are selected that is no collection. `itself`: the head
        `resource(u)` is u, even if there is no statement with it."""
        for sql in self._writer.find_bad_elements(path, itself, self._strict):
            for row in self._query(sql):
                raise ActionFailed(f"{_term(*row).value} is no collection")

    def _query(self, sql: str, **values: str) -> list[TextRow]:
        with Pipeline(self._connection) as pipeline:
            if self._seconds is not None:
                pipeline.queue(LIMIT_TIME, [postgres_duration(self._seconds)])
            found: PendingResult = pipeline.queue_named(sql, **self._parameters, **values)
            if self._seconds is not None:
                pipeline.queue(LIFT_LIMIT)
        return found.rows()

    def _statements(self, rows: Iterable[TextRow]) -> Iterator[tuple[str, Statement]]:
        for document, number, subject, name, *term in rows:
            uri = document if document is not None else self._name_document(int(number or 0))
            yield uri, Statement(subject or "", name or "", _term(*term))


def _term(uri: str | None, value: str | None, lang: str | None, datatype: str | None) -> Term:
    return Term.uri(uri) if uri is not None else Term.literal(value or "", lang, datatype)
