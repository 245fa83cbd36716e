"""Look up the ids of the classes and properties in patterns, including their subclasses and subproperties."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from mdv.model import RDF_TYPE, RDFS_RESOURCE
from mdv.query.compile import VocabularyIds
from mdv.rdf.schema import Schema
from mdv.rules.normal import Sort
from mdv.rules.normalise_query import NormalQuery
from mdv.rules.operators import Operator
from mdv.rules.pattern import Leaf, Pattern

IdLookup: TypeAlias = Callable[[set[str]], Mapping[str, int]]
"""Returns the ids of some names. Names without an id are missing."""


def read_vocabulary_ids(
    patterns: Iterable[Pattern], schema: Schema, of_classes: IdLookup, of_properties: IdLookup
) -> VocabularyIds:
    """Return the ids for the compiler. A class without an id has no instances, a property without an id no values."""
    classes: set[str] = set()
    properties: set[str] = {RDF_TYPE}
    for pattern in patterns:
        classes.update(iri for node in pattern.nodes for iri in node if iri != RDFS_RESOURCE)
        properties.update(leaf.property for leaf in pattern.leaves if leaf.property is not None)
        for tie in (*pattern.ties, *(b.tie for b in pattern.branches if b is not None and b.tie is not None)):
            properties.update(p for p in (tie.left_property, tie.right_property) if p is not None)
    below_class = {iri: _below(iri, schema.classes.get(iri), "subclasses") for iri in classes}
    below_property = {iri: _below(iri, schema.property_of(iri), "subproperties") for iri in properties}
    class_ids = of_classes({iri for all_ in below_class.values() for iri in all_})
    property_ids = of_properties({p for all_ in below_property.values() for p in all_})
    literal_only = frozenset(
        iri
        for iri, all_ in below_property.items()
        if all((declared := schema.property_of(p)) is not None and declared.range is not None
               and schema.is_datatype(declared.range) for p in all_)
    )  # fmt: skip
    property_ids_by_iri = {
        iri: sorted(property_ids[p] for p in all_ if p in property_ids) for iri, all_ in below_property.items()
    }
    return VocabularyIds(
        {iri: sorted(class_ids[c] for c in all_ if c in class_ids) for iri, all_ in below_class.items()},
        property_ids_by_iri,
        property_ids_by_iri[RDF_TYPE],
        literal_only,
    )


def _below(iri: str, declared: Any, closure: str) -> tuple[str, ...]:
    return getattr(declared, closure) if declared is not None else (iri,)


def pattern_of_returned_paths(query: NormalQuery) -> Pattern:
    """Return a pattern with the classes and properties of the paths that a query returns or is ordered by."""
    paths = [*query.returns, *(ordering.path for ordering in query.order)]
    classes = {hop.class_iri for path in paths for hop in path.hops}
    properties = {hop.property for path in paths for hop in path.hops} | {path.property for path in paths}
    leaves = tuple(Leaf(0, RDFS_RESOURCE, name, Operator.EQ, Sort.TEXT) for name in properties if name is not None)
    return Pattern((tuple(classes),), (None,), leaves, ())
