"""The schema as shown on its page: classes with their properties, and a diagram."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mdv.model import MDV, RDF, RDFS, XSD
from mdv.rdf.classes import ClassTreeNode, class_tree
from mdv.rdf.compare import direct_parents
from mdv.rdf.schema import EMPTY_SCHEMA, Schema, SchemaProperty
from web.template_filters import cut

MAX_CLASSES_DRAWN = 200
"""Maximum number of classes in the diagram; more would be unreadable."""
MAX_ARROWS = 1000
_BUILT_IN = (RDF, RDFS, XSD, MDV)


@dataclass(frozen=True, slots=True)
class SchemaView:
    """The classes of a schema as a tree, the properties of each class, and properties without a domain."""

    schema: Schema
    classes: list[ClassTreeNode]
    by_class: dict[str, list[SchemaProperty]]
    other: list[SchemaProperty]
    places: dict[str, int]
    """The index of each class in the tree."""

    @property
    def count(self) -> int:
        """The number of properties without the built-in ones."""
        return sum(not iri.startswith(_BUILT_IN) for iri in self.schema.properties)

    def above(self, declared: SchemaProperty) -> tuple[str, ...]:
        """Return the direct superproperties."""
        return direct_parents(declared.iri, self.schema.properties)

    def below(self, declared: SchemaProperty) -> list[str]:
        """Return the direct subproperties."""
        others = (iri for iri in declared.subproperties if iri != declared.iri)
        return sorted(iri for iri in others if declared.iri in direct_parents(iri, self.schema.properties))

    def refers(self, declared: SchemaProperty) -> bool:
        """True if the property is known to refer to resources."""
        return declared.strong or (declared.range is not None and not self.schema.is_datatype(declared.range))


def make_schema_view(schema: Schema) -> SchemaView:
    """Return the view of a schema. Built-in properties are included only if the schema redeclares them."""
    classes = class_tree(schema)
    places = {branch.iri: place for place, branch in enumerate(classes)}
    by_class: dict[str, list[SchemaProperty]] = defaultdict(list)
    other = []
    for iri, declared in sorted(schema.properties.items()):
        if iri.startswith(_BUILT_IN) and declared == EMPTY_SCHEMA.properties.get(iri):
            continue
        domains = [domain for domain in declared.domains if domain in places]
        for domain in domains:
            by_class[domain].append(declared)
        if not domains:
            other.append(declared)
    return SchemaView(schema, classes, dict(by_class), other, places)


def schema_diagram(shown: SchemaView, link: Callable[[str], str]) -> dict[str, Any]:
    """Return the diagram: classes as nodes, with arrows to superclasses and along references."""
    drawn = {branch.iri for branch in shown.classes[:MAX_CLASSES_DRAWN]}
    schema = shown.schema
    arrows: list[dict[str, str]] = []
    built_in: dict[str, None] = {}
    for branch in shown.classes[:MAX_CLASSES_DRAWN]:
        arrows += [_arrow(branch.iri, up, "", "subclass") for up in branch.above if up in drawn]
    for branch in shown.classes[:MAX_CLASSES_DRAWN]:
        for declared in shown.by_class.get(branch.iri, []):
            target = declared.range
            if target is None or target not in schema.classes or not (target in drawn or target.startswith(_BUILT_IN)):
                continue
            if target not in drawn:
                built_in[target] = None
            label = cut(schema.shorten(declared.iri), 40) + ("?" if declared.set_valued else "")
            arrows.append(_arrow(branch.iri, target, label, "strong" if declared.strong else "weak"))
    nodes = [_node(schema, branch.iri, "class", link(branch.iri)) for branch in shown.classes[:MAX_CLASSES_DRAWN]]
    nodes += [_node(schema, iri, "builtin", None) for iri in built_in]
    return {"direction": "LR", "nodes": nodes, "edges": arrows[:MAX_ARROWS], "groups": []}


def _node(schema: Schema, iri: str, kind: str, href: str | None) -> dict[str, Any]:
    label = cut(schema.shorten(iri), 40)
    return {"id": iri, "label": label, "title": cut(iri, 500), "kind": kind, "marks": [], "group": None, "href": href}


def _arrow(source: str, target: str, label: str, kind: str) -> dict[str, str]:
    return {"from": source, "to": target, "label": label, "kind": kind}


def prefixes(schema: Schema) -> Iterable[tuple[str, str]]:
    """Return the prefixes of the schema with their namespaces, without the built-in ones."""
    return sorted((name, space) for name, space in schema.prefixes.items() if EMPTY_SCHEMA.prefixes.get(name) != space)
