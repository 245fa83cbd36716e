"""Completions for editors of RDFTL: keywords, the fields of `$delta`, and an example rule."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

from mdv.rdf.schema import Schema
from mdv.rdftl.model import DeltaField
from mdv.rules.completion import example_class

_KEYWORD = re.compile(r"\(\?ai:(\w+)\)")
BUILT_IN_CLASSES = ("rdf:Bag", "rdf:Seq", "rdf:Alt", "rdfs:Resource")
BUILT_IN_PROPERTIES = ("rdf:type", "rdfs:label", "rdfs:comment")


def keywords() -> list[str]:
    """Return the keywords of the grammar, in capitals unless they are functions of paths.

    >>> keywords()[:3], "target" in keywords(), "INSTANCE" in keywords()
    (['ABORT', 'AND', 'AS'], True, True)
    """
    grammar = resources.files("mdv.rdftl").joinpath("grammar.lark").read_text("utf-8")
    functions = {"resource", "target", "source", "element"}
    words = set(_KEYWORD.findall(grammar)) - {"seq"}
    return [*sorted(word if word in functions else word.upper() for word in words), "seq++"]


def rdftl_words() -> dict[str, Any]:
    """Return what an editor completes besides the names of the schema."""
    return {
        "keywords": keywords(),
        "fields": [field.value for field in DeltaField],
        "more_classes": list(BUILT_IN_CLASSES),
        "more_properties": list(BUILT_IN_PROPERTIES),
    }


def example_rule(schema: Schema) -> str:
    """Return an example for a class of the schema; an empty text if the schema declares no class.

    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> example_rule(EMPTY_SCHEMA)
    ''
    """
    name = example_class(schema)
    if not name:
        return ""
    return f"RULE my-rule\nON INSERT resource() AS INSTANCE OF {name}\nIF TRUE\nDO INSERT ($delta, rdfs:comment, 'new')"
