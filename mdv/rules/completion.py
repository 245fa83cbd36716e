"""Completions for rule editors: keywords, and the classes and properties of a schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mdv.model import RDF, RDFS, RDFS_RESOURCE
from mdv.rdf.schema import Schema, SchemaProperty, UnknownName
from mdv.rules.normal import NormalRule
from mdv.rules.parse import KEYWORDS

MAX_NAMES_PER_LIST = 2000
"""Classes, and likewise properties, in one response."""


def completions(schema: Schema, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the keywords, the classes, and the properties with their domains. No domain means every class. Terms that
    have a label are listed with it.

    >>> from mdv.rdf.schema import read_schema
    >>> completions(read_schema((), {}))["keywords"][:2]
    ['and', 'asc']
    """
    classes = [iri for iri in sorted(schema.classes) if _is_offered(iri)][:MAX_NAMES_PER_LIST]
    properties = [schema.properties[iri] for iri in sorted(schema.properties) if _is_offered(iri)][:MAX_NAMES_PER_LIST]
    return {
        "keywords": sorted(KEYWORDS),
        "classes": [
            {"iri": iri, "name": _class_name(schema, iri), "above": list(schema.classes[iri].superclasses)}
            | _label_entry(iri, labels)
            for iri in classes
        ],
        "properties": [
            _property_entry(schema, declared) | _label_entry(declared.iri, labels) for declared in properties
        ],
    }


def registered_class(rule: NormalRule) -> str:
    """Return the class of the resources that a rule registers.

    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> from mdv.rules.normalise import normalise
    >>> from mdv.rules.parse import parse
    >>> registered_class(normalise(parse("search rdfs:Resource r register r"), EMPTY_SCHEMA)) == RDFS_RESOURCE
    True
    """
    first = rule.conjunctions[0]
    return next(variable.class_iri for variable in first.variables if variable.name == first.register)


def example(schema: Schema) -> str:
    """Return an example rule for a class of the schema; an empty text if the schema declares no class.

    >>> from mdv.rdf.schema import read_schema
    >>> example(read_schema((), {}))
    ''
    """
    name = example_class(schema)
    return f"search {name} x\nregister x" if name else ""


def example_class(schema: Schema) -> str:
    """Return the name of a class of the schema; an empty text if the schema declares none."""
    own = [iri for iri in sorted(schema.classes) if _is_offered(iri) and iri != RDFS_RESOURCE]
    return _class_name(schema, own[0]) if own else ""


def _property_entry(schema: Schema, declared: SchemaProperty) -> dict[str, Any]:
    target_class = declared.range if declared.range in schema.classes else None
    return {
        "name": _property_name(schema, declared),
        "of": [domain for domain in declared.domains if domain != RDFS_RESOURCE],
        "any": declared.set_valued,
        "to": target_class,
        "says": schema.shorten(declared.range) if declared.range else "",
        "strong": declared.strong and target_class is not None,
    }


def _label_entry(iri: str, labels: Mapping[str, str] | None) -> dict[str, str]:
    return {"label": labels[iri]} if labels and iri in labels else {}


def _is_offered(iri: str) -> bool:
    """True if a term is declared by the schema, or is rdfs:Resource. Other built-in terms are rarely used in rules."""
    return iri == RDFS_RESOURCE or not iri.startswith((RDF, RDFS))


def _class_name(schema: Schema, iri: str) -> str:
    """Return the shortest name of a class: without prefix, with prefix, or the URI."""
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
    """Return the local name of a URI if rules can use it without a prefix; otherwise an empty text."""
    found = _BARE.search(iri)
    return found[0] if found else ""


_BARE = re.compile(r"(?<=[#/:])[^\W\d][\w-]*\Z")
