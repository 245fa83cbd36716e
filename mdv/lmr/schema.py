"""The schema of a cache, as received with the feed, and values derived from it."""

from __future__ import annotations

from dataclasses import dataclass

from mdv.feed import FeedSchema
from mdv.model import Statement, Term, is_blank
from mdv.rdf.schema import EMPTY_SCHEMA, Schema, read_schema
from mdv.rdf.sortkey import sort_key
from mdv.rdf.validate import ValueTyper
from mdv.rdf.values import ValueKind

TypedKeys = tuple[str | None, str | None, bool | None]
"""A value as a number, an instant and a boolean, as the cache stores them."""


@dataclass(frozen=True, slots=True)
class CacheSchema:
    """The schema at some version. `edition` is the cache's own counter of schema changes."""

    version: int
    edition: int
    schema: Schema
    typing: ValueTyper
    statements: tuple[Statement, ...]

    def is_strong(self, property_iri: str) -> bool:
        """True if the property is a strong reference. References to blank nodes are always strong."""
        declared = self.schema.property_of(property_iri)
        return declared is not None and declared.strong

    def typed_ranges(self, property_iri: str) -> tuple[str, ...]:
        """Return the ranges of a property and its superproperties whose values are not compared as text."""
        declared = self.schema.property_of(property_iri)
        above = [self.schema.property_of(name) for name in declared.superproperties] if declared else []
        return tuple(p.range for p in above if p is not None and p.range and p.kind is not ValueKind.TEXT)

    def typed_keys(self, property_iri: str, term: Term) -> TypedKeys:
        """Return the number and the instant of a value as sort keys, and its boolean."""
        number, instant, truth = self.typing.typed_values(property_iri, term)
        return (
            None if number is None else sort_key(number),
            None if instant is None else sort_key(instant),
            truth,
        )


def make_cache_schema(received: FeedSchema | None, edition: int) -> CacheSchema:
    """Return the schema of a cache; None stands for the empty schema that every LMR starts with."""
    if received is None or not received.statements:
        return CacheSchema(received.version if received else 0, edition, EMPTY_SCHEMA, ValueTyper(EMPTY_SCHEMA), ())
    statements = received.statements
    usable = [s for s in statements if not is_blank(s.subject) and not (s.object.is_uri and is_blank(s.object.value))]
    schema = read_schema(usable, received.prefixes)
    return CacheSchema(received.version, edition, schema, ValueTyper(schema), statements)
