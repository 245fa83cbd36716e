"""The queries of actions: the nodes that a path selects, and the stored arcs that a triple matches.

Parameters: `deltas`, a list with the instantiation of `$delta` (or an empty one), and `constants`, the texts of slots
as a JSON list.
"""

# ruff: noqa: S608 (the parts are SQL written here, numbers, and quoted names of the schema)

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from mdv.db.eca.path_sql import FromWhere, PathWriter, ValueSql, compare_identity, object_of, quote_text
from mdv.db.eca.rule_sql import DELTAS, delta_value
from mdv.model import RDF, RDF_TYPE
from mdv.rdf.schema import Schema
from mdv.rdf.values import ValueKind
from mdv.rdftl.model import Axis, ConstantValue, NodePath, Triple, TripleNode
from mdv.rdftl.template import arc_kind
from mdv.rules.operators import Operator

_STATEMENT = ValueSql("f.target_id", "f.value", "f.lang", "f.datatype_id", "f.number", "f.instant", "f.truth", None)


class ActionWriter:
    """Writes the queries of actions."""

    def __init__(self, schema: Schema, property_id: Callable[[str], int]) -> None:
        self._schema = schema
        self._property_id = property_id
        self._paths = PathWriter(
            schema, property_id, lambda number: f"(%(constants)s::jsonb ->> {number})", delta_value
        )

    def select_nodes(self, path: NodePath, class_iri: str | None) -> str:
        """Return the query of the nodes and literals that a path selects: URI, value, language tag and datatype.
        `resource(u)` is u, even if there is no statement with it."""
        body = FromWhere([DELTAS])
        value = self._paths.path(path, body, itself=True)
        if class_iri is not None:
            body.conditions.append(self._paths.is_instance(value, [class_iri]))
        return f"select distinct {_term(value)} {_from(body)}"

    def find_bad_elements(self, path: NodePath, itself: bool, strict: bool) -> Iterator[str]:
        """Yield queries that have a row if an `element` step of a path is applied to a value that is no collection.
        `strict`: also in its qualifiers."""
        if strict:
            for body in self._paths.bad_elements(path, FromWhere([DELTAS]), itself):
                yield f"select null, 'a node of a qualifier', null, null {_from(body)} limit 1"
        for number, step in enumerate(path.steps):
            if step.axis is Axis.ELEMENT:
                body = FromWhere([DELTAS])
                value = self._paths.path(replace(path, steps=path.steps[:number]), body, itself)
                body.conditions.append(f"not {self._paths.is_collection(value, step.index)}")
                yield f"select {_term(value)} {_from(body)} limit 1"

    def select_arcs(self, triple: Triple) -> str:
        """Return the query of the stored arcs that a triple matches: document, ID of the document, subject,
        property, and object. A document that this transaction registers has no URI yet."""
        body = FromWhere([DELTAS, "filter_data f"])
        if isinstance(triple.arc, str):
            body.conditions.append(f"f.property_id = {self._property_id(triple.arc)}")
        self._match(ValueSql("f.resource_id"), triple.source, ValueKind.TEXT, body)
        self._match(_STATEMENT, triple.target, arc_kind(triple, self._schema), body)
        return _select_statements(body)

    def find_derived_arc(self, triple: Triple) -> str | None:
        """Return a query that has a row if a triple matches an arc that only follows from the statement of a
        subproperty, or from that of a subclass. None if there can be none, as far as the schema tells."""
        assert isinstance(triple.arc, str)
        body = FromWhere([DELTAS, "filter_data f"])
        self._match(ValueSql("f.resource_id"), triple.source, ValueKind.TEXT, body)
        own = self._property_id(triple.arc)
        if triple.arc == RDF_TYPE:
            if not isinstance(triple.target.value, NodePath):
                return None
            above = self._paths.path(triple.target.value, body)
            body.tables.append("eca_classes c")
            body.conditions += [f"f.property_id = {own}", f"c.superclass_id = {above.id}", "f.target_id = c.class_id",
                                "c.class_id <> c.superclass_id"]  # fmt: skip
            stated = f"x.target_id = {above.id}"
        else:
            below = [number for number in self._paths.property_ids(triple.arc) if number != own]
            if not below:
                return None
            body.conditions.append(f"f.property_id = any ('{{{','.join(map(str, below))}}}'::int[])")
            self._match(_STATEMENT, triple.target, arc_kind(triple, self._schema), body)
            stated = compare_identity(_STATEMENT, object_of("x", None))
        body.conditions.append(
            "not exists (select from filter_data x where x.resource_id = f.resource_id"
            f" and x.property_id = {own} and {stated})"
        )
        return f"select 1 {_from(body)} limit 1"

    def _match(self, value: ValueSql, node: TripleNode, kind: ValueKind, body: FromWhere) -> None:
        if node.class_iri is not None:
            body.conditions.append(self._paths.is_instance(value, [node.class_iri]))
        if isinstance(node.value, ConstantValue):
            body.conditions.append(self._paths.compare_constant(value, Operator.EQ, node.value, kind))
        elif node.value is not None:
            found = self._paths.path(node.value, body)
            body.conditions.append(compare_identity(found, value))

    def select_statements_of_nodes(self, path: NodePath, class_iri: str | None) -> str:
        """Return the query of the stored statements with a node that a path selects as subject or object."""
        body = FromWhere([DELTAS])
        value = self._paths.path(path, body)
        if class_iri is not None:
            body.conditions.append(self._paths.is_instance(value, [class_iri]))
        body.tables.append("filter_data f")
        body.conditions.append(f"(f.resource_id = {value.id} or f.target_id = {value.id})")
        return _select_statements(body)

    def select_collections(self) -> str:
        """Return the query of the collections among the URIs `uris`, with their highest index."""
        value = ValueSql("u.id")
        members = quote_text(f"^{RDF}_[1-9][0-9]*$")
        return (
            "select u.uri, (select max(substring(m.uri from " + str(len(RDF) + 2) + ")::numeric)"
            " from filter_data f join vocabulary m on m.id = f.property_id"
            f" where f.resource_id = u.id and m.uri ~ {members})"
            " from resources u where u.uri = any (array(select jsonb_array_elements_text(%(uris)s::jsonb)))"
            f" and {self._paths.is_collection(value, None)}"
        )


def _term(value: ValueSql) -> str:
    uri = value.uri or f"(select u.uri from resources u where u.id = {value.id})"
    return f"{uri}, {value.value}, {value.lang}, (select t.uri from vocabulary t where t.id = {value.datatype})"


def _from(body: FromWhere) -> str:
    return f"from {', '.join(body.tables)} where {' and '.join(body.conditions) or 'true'}"


def _select_statements(body: FromWhere) -> str:
    return (
        "select distinct (select o.uri from documents o where o.id = f.document_id), f.document_id,"
        " (select u.uri from resources u where u.id = f.resource_id),"
        f" (select m.uri from vocabulary m where m.id = f.property_id), {_term(_STATEMENT)} {_from(body)}"
    )
