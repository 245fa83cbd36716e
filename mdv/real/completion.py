"""Completions for editors of ReAL: keywords, primitives, and the names of the schema with their prefixes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mdv.model import RDF, RDFS
from mdv.rdf.schema import Schema
from mdv.real.parse import KEYWORDS
from mdv.real.vocabulary import BUILT_IN_PREFIXES, PRIMITIVES

MAX_NAMES = 2000
"""Classes, and likewise properties, in one answer."""
UNITS = ("milliseconds", "seconds", "minutes", "hours", "days")
_LOCAL = re.compile(r"\w([\w.-]*[\w-])?")


def real_words(schema: Schema, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what an editor of programs completes.

    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> words = real_words(EMPTY_SCHEMA)
    >>> words["keywords"][:2], words["primitives"][0], words["classes"]
    (['AND', 'AT'], {'name': 'primitive:add', 'detail': '(2 >> 1)'}, [])
    """
    prefixes = {**BUILT_IN_PREFIXES, **schema.prefixes}
    named = labels or {}

    def entries(iris: list[str]) -> list[dict[str, str]]:
        own = [iri for iri in iris if not iri.startswith((RDF, RDFS))][:MAX_NAMES]
        return [{"name": name_of(iri, prefixes)} | ({"label": named[iri]} if iri in named else {}) for iri in own]

    return {
        "keywords": sorted(KEYWORDS),
        "units": list(UNITS),
        "primitives": [
            {"name": f"primitive:{name}", "detail": f"({inputs}{f' >> {outputs}' if outputs else ''})"}
            for name, (inputs, outputs) in sorted(PRIMITIVES.items())
        ],
        "classes": entries(sorted(schema.classes)),
        "properties": [*entries(sorted(schema.properties)), *({"name": one} for one in _COMMON_PROPERTIES)],
        "prefixes": sorted(prefix + ":" for prefix in prefixes),
    }


_COMMON_PROPERTIES = ("rdf:type", "rdfs:label", "rdfs:comment")


def name_of(iri: str, prefixes: Mapping[str, str]) -> str:
    """Return an IRI as a program writes it.

    >>> name_of("http://a/b", {"x": "http://a/"}), name_of("http://a/b/c", {"x": "http://a/"})
    ('x:b', '<http://a/b/c>')
    """
    fitting = [(len(start), prefix) for prefix, start in prefixes.items() if iri.startswith(start)]
    for length, prefix in sorted(fitting, reverse=True):
        if _LOCAL.fullmatch(iri[length:]):
            return f"{prefix}:{iri[length:]}"
    return f"<{iri}>"
