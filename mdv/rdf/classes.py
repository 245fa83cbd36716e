"""The class tree of a schema, and the resolution of a class name to the class and its subclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from mdv.errors import NotFound
from mdv.model import MDV, RDF, RDFS, XSD
from mdv.rdf.parse import is_absolute_iri
from mdv.rdf.schema import Schema, UnknownName

_BUILT_IN = (RDF, RDFS, XSD, MDV)


@dataclass(frozen=True, slots=True)
class ClassTreeNode:
    """A class in the class tree, with its depth and its direct superclasses."""

    iri: str
    depth: int
    above: tuple[str, ...]


def class_tree(schema: Schema) -> list[ClassTreeNode]:
    """Return the declared classes in tree order, sorted by name, each below its nearest superclass. Cached per schema.

    >>> from mdv.model import Statement, Term
    >>> from mdv.rdf.schema import read_schema
    >>> pairs = [("u:c", "u:b"), ("u:b", "u:a"), ("u:d", "u:a")]
    >>> statements = [Statement(one, RDFS + "subClassOf", Term.uri(other)) for one, other in pairs]
    >>> [(node.iri, node.depth) for node in class_tree(read_schema(statements, {}))]
    [('u:a', 0), ('u:b', 1), ('u:c', 2), ('u:d', 1)]
    """
    if schema not in _trees:
        _trees[schema] = _tree(schema)
    return list(_trees[schema])


_trees: WeakKeyDictionary[Schema, list[ClassTreeNode]] = WeakKeyDictionary()


def _tree(schema: Schema) -> list[ClassTreeNode]:
    own = sorted(
        (iri for iri in schema.classes if not iri.startswith(_BUILT_IN)), key=lambda iri: (sort_name(iri), iri)
    )
    all_above = {iri: frozenset(schema.classes[iri].superclasses) for iri in schema.classes}
    above = {iri: _directly_above(iri, schema, all_above) for iri in own}
    below: dict[str, list[str]] = {}
    for iri in own:
        for parent in above[iri][:1]:
            below.setdefault(parent, []).append(iri)
    seen: dict[str, ClassTreeNode] = {}

    def visit(first: str) -> None:
        pending = [(first, 0)]
        while pending:
            iri, depth = pending.pop()
            if iri not in seen:
                seen[iri] = ClassTreeNode(iri, depth, above[iri])
                pending += [(child, depth + 1) for child in reversed(below.get(iri, []))]

    for iri in own:
        if not above[iri]:
            visit(iri)
    for iri in own:  # of equivalent classes, the first by name is on top
        visit(iri)
    return list(seen.values())


def _directly_above(iri: str, schema: Schema, above: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    others = [up for up in schema.classes[iri].superclasses if up != iri and not up.startswith(_BUILT_IN)]
    return tuple(
        up
        for up in others
        if not any(up in above[between] and between not in above[up] for between in others if between != up)
    )


def sort_name(iri: str) -> str:
    """Return the local name of an IRI in lower case, for sorting."""
    return iri.rstrip("/#").replace("#", "/").rpartition("/")[2].casefold()


def resolve_classes(name: str, schema: Schema) -> list[str]:
    """Return the class with this name and its subclasses. A full URI can also be a class that is not declared."""
    try:
        found = schema.resolve_class(name)
    except UnknownName as error:
        prefix = name.partition(":")[0]
        if is_absolute_iri(name.strip("<>")) and prefix not in schema.prefixes and not error.ambiguous:
            return [name.strip("<>")]
        raise NotFound(f"{str(error)[0].upper()}{str(error)[1:]}{'' if str(error).endswith('?') else '.'}") from None
    return list(schema.classes[found].subclasses)
