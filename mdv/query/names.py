"""The numbers of all classes and properties that some patterns speak of, with those below them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from mdv.model import RDF_TYPE, RDFS_RESOURCE
from mdv.query.compile import Names
from mdv.rdf.schema import Schema
from mdv.rules.ast import Operator
from mdv.rules.normal import Sort
from mdv.rules.pattern import Leaf, Pattern
from mdv.rules.returns import NormalQuery

Numbers: TypeAlias = Callable[[set[str]], Mapping[str, int]]
"""Finds the numbers of some names; those that have none are missing."""


def read_names(patterns: Iterable[Pattern], schema: Schema, of_classes: Numbers, of_properties: Numbers) -> Names:
    """What the compiler has to know. A class without a number has no instances, a property without one no values."""
    classes: set[str] = set()
    properties: set[str] = {RDF_TYPE}
    for pattern in patterns:
        classes.update(iri for node in pattern.nodes for iri in node if iri != RDFS_RESOURCE)
        properties.update(leaf.property for leaf in pattern.leaves if leaf.property is not None)
        for tie in (*pattern.ties, *(b.tie for b in pattern.branches if b is not None and b.tie is not None)):
            properties.update(p for p in (tie.left_property, tie.right_property) if p is not None)
    below_class = {iri: _below(iri, schema.classes.get(iri), "subclasses") for iri in classes}
    below_property = {iri: _below(iri, schema.property_of(iri), "subproperties") for iri in properties}
    numbers = of_classes({iri for all_ in below_class.values() for iri in all_})
    ids = of_properties({p for all_ in below_property.values() for p in all_})
    literal_only = frozenset(
        iri
        for iri, all_ in below_property.items()
        if all((declared := schema.property_of(p)) is not None and declared.range is not None
               and schema.is_datatype(declared.range) for p in all_)
    )  # fmt: skip
    properties_by_number = {iri: sorted(ids[p] for p in all_ if p in ids) for iri, all_ in below_property.items()}
    return Names(
        {iri: sorted(numbers[c] for c in all_ if c in numbers) for iri, all_ in below_class.items()},
        properties_by_number,
        properties_by_number[RDF_TYPE],
        literal_only,
    )


def _below(iri: str, declared: Any, closure: str) -> tuple[str, ...]:
    return getattr(declared, closure) if declared is not None else (iri,)


def named_in_paths(query: NormalQuery) -> Pattern:
    """The classes and properties of the paths that a query returns or is ordered by, as a pattern has them."""
    paths = [*query.returns, *(ordering.path for ordering in query.order)]
    classes = {hop.class_iri for path in paths for hop in path.hops}
    properties = {hop.property for path in paths for hop in path.hops} | {path.property for path in paths}
    leaves = tuple(Leaf(0, RDFS_RESOURCE, name, Operator.EQ, Sort.TEXT) for name in properties if name is not None)
    return Pattern((tuple(classes),), (None,), leaves, ())
