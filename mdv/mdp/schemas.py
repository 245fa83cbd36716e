"""The schema of an MDP: what holds now, and what a text says that could hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection

from mdv.db.schemas import (
    read_schema_version,
)
from mdv.db.state import read_state
from mdv.errors import NotFound, Refused
from mdv.model import Document, Statement, is_blank
from mdv.rdf.blank import name_blank_nodes
from mdv.rdf.gate import gate
from mdv.rdf.locate import locate
from mdv.rdf.parse import is_absolute_iri, parse
from mdv.rdf.schema import EMPTY, Schema, UnknownName, read_schema
from mdv.rdf.syntax import syntax_of_media_type
from mdv.rdf.validate import Typing, refuse_reserved

SCHEMA_URI = "urn:mdv:schema"


@dataclass(frozen=True, slots=True)
class SchemaInForce:
    """The schema that holds at some version, with what was derived from it."""

    version: int
    schema: Schema
    typing: Typing
    statements: tuple[Statement, ...]
    strong: frozenset[str]
    """The properties whose targets travel with their subjects."""


class Schemas:
    """The schema in force, read again only when its version has changed."""

    def __init__(self) -> None:
        self._known = in_force(0, [], {})

    @property
    def remembered(self) -> SchemaInForce:
        """The schema that was in force when somebody last looked."""
        return self._known

    def at(self, connection: Connection, version: int) -> SchemaInForce:
        known = self._known  # other threads may replace it meanwhile
        if known.version != version:
            known = self._known = in_force(version, *read_schema_version(connection, version))
        return known

    def now(self, connection: Connection) -> SchemaInForce:
        return self.at(connection, read_state(connection).schema_version)


def in_force(version: int, statements: Iterable[Statement], prefixes: dict[str, str]) -> SchemaInForce:
    statements = tuple(statements)
    said = [s for s in statements if not is_blank(s.subject) and not (s.object.is_uri and is_blank(s.object.value))]
    schema = read_schema(said, prefixes) if statements else EMPTY
    strong = frozenset(iri for iri, declared in schema.properties.items() if declared.strong)
    return SchemaInForce(version, schema, Typing(schema), statements, strong)


def read_schema_document(body: bytes, media_type: str | None) -> Document:
    """A schema's text as a document; relative names resolve against urn:mdv:schema."""
    syntax, charset = syntax_of_media_type(media_type)
    gated = gate(body, syntax, charset)
    parsed = parse(gated, SCHEMA_URI)
    try:
        refuse_reserved(parsed)
        document = name_blank_nodes(parsed)
        in_force(0, document.statements, dict(document.prefixes))
    except Refused as error:
        raise type(error)(error.detail, locate(error.flaws, gated), **error.extra) from None
    return document


def classes_named(name: str, schema: Schema) -> list[str]:
    """The class that `name` stands for and its subclasses; a full URI may also be a class the schema does not know."""
    try:
        found = schema.resolve_class(name)
    except UnknownName as error:
        prefix = name.partition(":")[0]
        if is_absolute_iri(name.strip("<>")) and prefix not in schema.prefixes and not error.ambiguous:
            return [name.strip("<>")]
        raise NotFound(f"{str(error)[0].upper()}{str(error)[1:]}{'' if str(error).endswith('?') else '.'}") from None
    return list(schema.classes[found].subclasses)
