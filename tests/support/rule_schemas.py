"""The schemas for the tests of the rule language, and the golden folder."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pyoxigraph

import mdv
from mdv.model import Statement, Term
from mdv.rdf.schema import Schema, read_schema
from mdv.rules.ast import ParsedRule
from mdv.rules.parse import parse

GOLDEN = Path(__file__).parents[1] / "golden" / "rules"
DEMO = Path(mdv.__file__).parent / "demo" / "schema.ttl"


@cache
def schema_of(*paths: Path) -> Schema:
    """Read a schema in Turtle, from one file or several."""
    text = "\n".join(path.read_text("utf-8") for path in paths)
    parser = pyoxigraph.parse(text, format=pyoxigraph.RdfFormat.TURTLE, base_iri="urn:mdv:schema")
    statements = [Statement(t.subject.value, t.predicate.value, _term(t.object)) for t in parser]
    return read_schema(statements, parser.prefixes)


def _term(node: object) -> Term:
    return Term.literal(node.value) if isinstance(node, pyoxigraph.Literal) else Term.uri(node.value)


def world(name: str) -> Schema:
    """`demo` is the paper's; `gutenberg` is for the catalogue of Project Gutenberg; `kinds` has one of everything."""
    return schema_of(DEMO if name == "demo" else GOLDEN / name / "schema.ttl")


def library(name: str) -> dict[str, ParsedRule]:
    """Rules that others may search: those of the folder's `library`."""
    return {path.stem: parse(path.read_text("utf-8")) for path in sorted((GOLDEN / name / "library").glob("*.rule"))}
