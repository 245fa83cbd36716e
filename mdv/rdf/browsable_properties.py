"""The properties that are shown for the instances of a class."""

from __future__ import annotations

from collections.abc import Iterable

from mdv.model import MDV, RDF, RDF_TYPE, RDFS, XSD
from mdv.rdf.classes import sort_name
from mdv.rdf.schema import Schema, SchemaProperty

_DESCRIPTIVE = ("label", "name", "title")
_BUILT_IN = (RDF, RDFS, XSD, MDV)


def browsable_properties(schema: Schema, class_iri: str, used: Iterable[str] = ()) -> list[SchemaProperty]:
    """Return the properties of a class's instances, the most descriptive first.

    These are the properties whose domain is the class or a superclass, and the properties in `used`.
    """
    class_ = schema.classes.get(class_iri)
    above = frozenset(class_.superclasses if class_ is not None else ())
    declared = [
        property_
        for property_ in schema.properties.values()
        if not property_.iri.startswith(_BUILT_IN) and any(domain in above for domain in property_.domains)
    ]
    others = [found for iri in used if iri != RDF_TYPE and (found := schema.property_of(iri)) is not None]
    by_iri = {property_.iri: property_ for property_ in (*others, *declared)}
    return sorted(by_iri.values(), key=lambda one: (_rank(one, schema), sort_name(one.iri), one.iri))


def _rank(property_: SchemaProperty, schema: Schema) -> int:
    refers = property_.range is not None and property_.range in schema.classes
    plainness = 0 if sort_name(property_.iri) in _DESCRIPTIVE else 1
    return plainness + 2 * property_.set_valued + 4 * refers
