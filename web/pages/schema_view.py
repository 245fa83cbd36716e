"""The schema as its page shows it: classes with the properties that are theirs, and both as a drawing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from mdv.mdp.browse import Branch, class_tree
from mdv.model import MDV, RDF, RDFS, XSD
from mdv.rdf.compare import nearest
from mdv.rdf.schema import EMPTY, Schema, SchemaProperty
from web.words import cut

MOST_DRAWN = 200
"""Classes of a drawing; more are a thicket."""
MOST_ARROWS = 1000
_BUILT_IN = (RDF, RDFS, XSD, MDV)


@dataclass(frozen=True, slots=True)
class View:
    """A schema's own classes as a tree, the properties of each, and those of no class in particular."""

    schema: Schema
    classes: list[Branch]
    by_class: dict[str, list[SchemaProperty]]
    other: list[SchemaProperty]
    places: dict[str, int]
    """Where in the tree each class stands."""

    @property
    def count(self) -> int:
        """How many properties are the schema's own."""
        return sum(not iri.startswith(_BUILT_IN) for iri in self.schema.properties)

    def above(self, declared: SchemaProperty) -> tuple[str, ...]:
        """The properties directly above one."""
        return nearest(declared.iri, self.schema.properties)

    def below(self, declared: SchemaProperty) -> list[str]:
        """The properties directly below one."""
        others = (iri for iri in declared.subproperties if iri != declared.iri)
        return sorted(iri for iri in others if declared.iri in nearest(iri, self.schema.properties))

    def refers(self, declared: SchemaProperty) -> bool:
        """Whether a property is known to refer to resources."""
        return declared.strong or (declared.range is not None and not self.schema.is_datatype(declared.range))


def view(schema: Schema) -> View:
    """What there is to be shown. A built-in property is, where the schema says something of it."""
    classes = class_tree(schema)
    places = {branch.iri: place for place, branch in enumerate(classes)}
    by_class: dict[str, list[SchemaProperty]] = defaultdict(list)
    other = []
    for iri, declared in sorted(schema.properties.items()):
        if iri.startswith(_BUILT_IN) and declared == EMPTY.properties.get(iri):
            continue
        domains = [domain for domain in declared.domains if domain in places]
        for domain in domains:
            by_class[domain].append(declared)
        if not domains:
            other.append(declared)
    return View(schema, classes, dict(by_class), other, places)


def drawing(shown: View, link: Callable[[str], str]) -> dict[str, Any]:
    """Classes as nodes; arrows to the classes above them, and along references to what these refer to."""
    drawn = {branch.iri for branch in shown.classes[:MOST_DRAWN]}
    schema = shown.schema
    arrows: list[dict[str, str]] = []
    built_in: dict[str, None] = {}
    for branch in shown.classes[:MOST_DRAWN]:
        arrows += [_arrow(branch.iri, up, "", "subclass") for up in branch.above if up in drawn]
    for branch in shown.classes[:MOST_DRAWN]:
        for declared in shown.by_class.get(branch.iri, []):
            target = declared.range
            if target is None or target not in schema.classes or not (target in drawn or target.startswith(_BUILT_IN)):
                continue
            if target not in drawn:
                built_in[target] = None
            label = cut(schema.shorten(declared.iri), 40) + ("?" if declared.set_valued else "")
            arrows.append(_arrow(branch.iri, target, label, "strong" if declared.strong else "weak"))
    nodes = [_node(schema, branch.iri, "class", link(branch.iri)) for branch in shown.classes[:MOST_DRAWN]]
    nodes += [_node(schema, iri, "builtin", None) for iri in built_in]
    return {"direction": "LR", "nodes": nodes, "edges": arrows[:MOST_ARROWS], "groups": []}


def _node(schema: Schema, iri: str, kind: str, href: str | None) -> dict[str, Any]:
    label = cut(schema.shorten(iri), 40)
    return {"id": iri, "label": label, "title": cut(iri, 500), "kind": kind, "marks": [], "group": None, "href": href}


def _arrow(source: str, target: str, label: str, kind: str) -> dict[str, str]:
    return {"from": source, "to": target, "label": label, "kind": kind}


def prefixes(schema: Schema) -> Iterable[tuple[str, str]]:
    """The schema's own prefixes with their namespaces."""
    return sorted((name, space) for name, space in schema.prefixes.items() if EMPTY.prefixes.get(name) != space)
