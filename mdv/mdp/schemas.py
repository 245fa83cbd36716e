"""The schema in force, cached by version, and reading a schema from RDF text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection

from mdv.db.schemas import (
    read_schema_version,
)
from mdv.db.state import read_state
from mdv.errors import InvalidDocument, Refused
from mdv.model import MDV, Document, Statement, is_blank
from mdv.rdf.blank import name_blank_nodes
from mdv.rdf.gate import gate
from mdv.rdf.locate import locate_flaws
from mdv.rdf.parse import parse
from mdv.rdf.schema import EMPTY_SCHEMA, Schema, read_schema
from mdv.rdf.syntax import syntax_of_media_type
from mdv.rdf.validate import ValueTyper, refuse_reserved

SCHEMA_URI = "urn:mdv:schema"


@dataclass(frozen=True, slots=True)
class SchemaInForce:
    """The schema of one version, with everything that is derived from it."""

    version: int
    schema: Schema
    typing: ValueTyper
    statements: tuple[Statement, ...]
    strong: frozenset[str]
    """The properties that are strong references."""


class SchemaCache:
    """Caches the schema in force. It is read again only when its version has changed."""

    def __init__(self) -> None:
        self._known = build_schema(0, [], {})

    @property
    def last_known(self) -> SchemaInForce:
        """The last schema that was read. It may be outdated."""
        return self._known

    def at(self, connection: Connection, version: int) -> SchemaInForce:
        known = self._known  # another thread may replace it
        if known.version != version:
            known = self._known = build_schema(version, *read_schema_version(connection, version))
        return known

    def now(self, connection: Connection) -> SchemaInForce:
        return self.at(connection, read_state(connection).schema_version)


def build_schema(version: int, statements: Iterable[Statement], prefixes: dict[str, str]) -> SchemaInForce:
    statements = tuple(statements)
    named = [s for s in statements if not is_blank(s.subject) and not (s.object.is_uri and is_blank(s.object.value))]
    schema = read_schema(named, prefixes) if statements else EMPTY_SCHEMA
    strong = frozenset(iri for iri, declared in schema.properties.items() if declared.strong)
    return SchemaInForce(version, schema, ValueTyper(schema), statements, strong)


def read_schema_document(body: bytes, media_type: str | None) -> Document:
    """Return the text of a schema as a document. Relative names are resolved against urn:mdv:schema."""
    syntax, charset = syntax_of_media_type(media_type)
    gated = gate(body, syntax, charset)
    parsed = parse(gated, SCHEMA_URI)
    try:
        refuse_reserved(parsed)
        document = name_blank_nodes(parsed)
        schema = build_schema(0, document.statements, dict(document.prefixes)).schema
        if schema.is_empty and not any(statement.property.startswith(MDV) for statement in document.statements):
            raise InvalidDocument(
                "The text declares no class and no property, so it is not a schema. Nothing was changed. To store it,"
                " register it as a document: `mdv register`, or the page Register."
            )
    except Refused as error:
        raise type(error)(error.detail, locate_flaws(error.flaws, gated), **error.extra) from None
    return document
