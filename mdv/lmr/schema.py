"""The schema that holds at an LMR: as the feed told it, with what is derived from it."""

from __future__ import annotations

from dataclasses import dataclass

from mdv.feed import FeedSchema
from mdv.model import Statement, Term, is_blank
from mdv.rdf.schema import EMPTY, Schema, read_schema
from mdv.rdf.sortkey import sort_key
from mdv.rdf.validate import Typing
from mdv.rdf.values import Kind

TypedKeys = tuple[str | None, str | None, bool | None]
"""A value as a number, an instant, a truth, as the cache keeps them."""


@dataclass(frozen=True, slots=True)
class SchemaInForce:
    """The schema at some version. `edition` is the cache's own count of its changes."""

    version: int
    edition: int
    schema: Schema
    typing: Typing
    statements: tuple[Statement, ...]

    def is_strong(self, property_iri: str) -> bool:
        """Whether the targets of a property travel with its subjects. Blank nodes do so in any case."""
        declared = self.schema.property_of(property_iri)
        return declared is not None and declared.strong

    def typed_ranges(self, property_iri: str) -> tuple[str, ...]:
        """What values of a property compare as, other than text: by its own range and those above it."""
        declared = self.schema.property_of(property_iri)
        above = [self.schema.property_of(name) for name in declared.superproperties] if declared else []
        return tuple(p.range for p in above if p is not None and p.range and p.kind is not Kind.TEXT)

    def typed_keys(self, property_iri: str, term: Term) -> TypedKeys:
        """A value's number and instant, as keys that sort as they do, and its truth."""
        number, instant, truth = self.typing.typed_values(property_iri, term)
        return (
            None if number is None else sort_key(number),
            None if instant is None else sort_key(instant),
            truth,
        )


def in_force(told: FeedSchema | None, edition: int) -> SchemaInForce:
    """What a schema means; None: the empty one that every LMR begins with."""
    if told is None or not told.statements:
        return SchemaInForce(told.version if told else 0, edition, EMPTY, Typing(EMPTY), ())
    statements = told.statements
    said = [s for s in statements if not is_blank(s.subject) and not (s.object.is_uri and is_blank(s.object.value))]
    schema = read_schema(said, told.prefixes)
    return SchemaInForce(told.version, edition, schema, Typing(schema), statements)
