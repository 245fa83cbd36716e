"""The words that a rule can be made of under a schema, for editors that complete what is typed."""

from __future__ import annotations

import re
from typing import Any

from mdv.model import RDF, RDFS, RDFS_RESOURCE
from mdv.rdf.schema import Schema, SchemaProperty, UnknownName
from mdv.rules.normal import NormalRule
from mdv.rules.parse import KEYWORDS

MOST = 2000
"""Classes, and properties, that are told at most."""


def completions(schema: Schema) -> dict[str, Any]:
    """Classes and properties as they are written, each with its place; a property of no class goes with every class.

    >>> from mdv.rdf.schema import read_schema
    >>> completions(read_schema((), {}))["keywords"][:2]
    ['and', 'asc']
    """
    classes = [iri for iri in sorted(schema.classes) if _is_own(iri)][:MOST]
    properties = [schema.properties[iri] for iri in sorted(schema.properties) if _is_own(iri)][:MOST]
    return {
        "keywords": sorted(KEYWORDS),
        "classes": [
            {"iri": iri, "name": _class_name(schema, iri), "above": list(schema.classes[iri].superclasses)}
            for iri in classes
        ],
        "properties": [_told(schema, declared) for declared in properties],
    }


def registered_class(rule: NormalRule) -> str:
    """The class of what a rule registers.

    >>> from mdv.rdf.schema import EMPTY
    >>> from mdv.rules.normalise import normalise
    >>> from mdv.rules.parse import parse
    >>> registered_class(normalise(parse("search rdfs:Resource r register r"), EMPTY)) == RDFS_RESOURCE
    True
    """
    first = rule.conjunctions[0]
    return next(variable.class_iri for variable in first.variables if variable.name == first.register)


def example(schema: Schema) -> str:
    """A rule to begin with: all of some class of the schema; empty where it declares none.

    >>> from mdv.rdf.schema import read_schema
    >>> example(read_schema((), {}))
    ''
    """
    own = [iri for iri in sorted(schema.classes) if _is_own(iri) and iri != RDFS_RESOURCE]
    return f"search {_class_name(schema, own[0])} x\nregister x" if own else ""


def _told(schema: Schema, declared: SchemaProperty) -> dict[str, Any]:
    goes_on = declared.range if declared.range in schema.classes else None
    return {
        "name": _property_name(schema, declared),
        "of": [domain for domain in declared.domains if domain != RDFS_RESOURCE],
        "any": declared.set_valued,
        "to": goes_on,
        "says": schema.shorten(declared.range) if declared.range else "",
        "strong": declared.strong and goes_on is not None,
    }


def _is_own(iri: str) -> bool:
    """Whether a schema declared it: what is built in is seldom asked for, but for the class of everything."""
    return iri == RDFS_RESOURCE or not iri.startswith((RDF, RDFS))


def _class_name(schema: Schema, iri: str) -> str:
    """As short as it still means this class: a bare name, one with a prefix, or the URI."""
    local = _local(iri)
    try:
        if local.lower() not in KEYWORDS and schema.resolve_class(local) == iri:
            return local
    except UnknownName:
        pass
    return schema.shorten(iri)


def _property_name(schema: Schema, declared: SchemaProperty) -> str:
    local = _local(declared.iri)
    try:
        if local and all(
            schema.resolve_property(local, domain) == declared.iri for domain in declared.domains or [None]
        ):
            return local
    except UnknownName:
        pass
    return schema.shorten(declared.iri)


def _local(iri: str) -> str:
    """The end of a URI, where it can be written as it is."""
    found = _BARE.search(iri)
    return found[0] if found else ""


_BARE = re.compile(r"(?<=[#/:])[^\W\d][\w-]*\Z")
