"""The schema of an MDP: what holds now, and how it changes.

A schema can grow at any time, as a transaction of its own. What would break a stored document is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from sqlalchemy import Connection

from mdv.db.schemas import (
    StoredValue,
    keep_schema_version,
    read_schema_version,
    retype_values,
    stored_values,
)
from mdv.db.state import lock_state, read_state
from mdv.errors import BreakingSchema, Flaw, InvalidDocument, NotFound, PreconditionFailed, Refused
from mdv.model import RDF, RDF_TYPE, RDFS, Document, Statement, is_blank
from mdv.rdf.blank import name_blank_nodes
from mdv.rdf.gate import gate
from mdv.rdf.locate import locate
from mdv.rdf.parse import is_absolute_iri, parse
from mdv.rdf.schema import EMPTY, PropertyChange, Schema, UnknownName, differences, read_schema
from mdv.rdf.syntax import syntax_of_media_type
from mdv.rdf.validate import Typing, refuse_reserved, validate
from mdv.rdf.values import Kind

SCHEMA_URI = "urn:mdv:schema"

MAX_NAMED = 20
"""How many of the documents that a schema would break are named."""


@dataclass(frozen=True, slots=True)
class SchemaInForce:
    """The schema that holds at some version, with what was derived from it."""

    version: int
    schema: Schema
    typing: Typing
    statements: tuple[Statement, ...]


class Schemas:
    """The schema in force, read again only when its version has changed."""

    def __init__(self) -> None:
        self._known = in_force(0, [], {})

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
    return SchemaInForce(version, schema, Typing(schema), statements)


@dataclass(frozen=True, slots=True)
class SchemaOutcome:
    """The version that holds now, where in the history it stands, and whether this call changed anything."""

    version: int
    position: int
    changed: bool
    classes: int
    properties: int


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


def put_schema(
    connection: Connection, document: Document, schemas: Schemas, if_match: Collection[str] | None = None
) -> SchemaOutcome:
    """Replace the schema, if everything stored can live with the new one."""
    state = lock_state(connection)
    if if_match is not None and "*" not in if_match and str(state.schema_version) not in if_match:
        raise PreconditionFailed(f"The schema's version is {state.schema_version}, not {', '.join(if_match)}.")
    old = schemas.at(connection, state.schema_version)
    new = in_force(state.schema_version + 1, document.statements, dict(document.prefixes))
    declared = (_count_own(new.schema.classes), _count_own(new.schema.properties))
    if new.statements == old.statements and new.schema.prefixes == old.schema.prefixes:
        return SchemaOutcome(old.version, state.position, False, *declared)
    _refuse_breaking(connection, old.schema, new.schema)
    retyped = _retyped_properties(old.schema, new.schema)
    if retyped:
        retype_values(connection, _retyped(stored_values(connection, retyped), new.typing))
    keep_schema_version(connection, new.version, state.position + 1, new.statements, document.prefixes)
    return SchemaOutcome(new.version, state.position + 1, True, *declared)


def _count_own(terms: Iterable[str]) -> int:
    return sum(not term.startswith((RDF, RDFS)) for term in terms)


def _refuse_breaking(connection: Connection, old: Schema, new: Schema) -> None:
    """Validate again what the stored documents say with the properties that changed."""
    concerned = _concerned_properties(old, new)
    if concerned is not None and not concerned:
        return
    broken: list[Flaw] = []
    for uri, values in groupby(stored_values(connection, concerned), key=itemgetter(0)):
        try:
            validate(Document(uri, tuple(value.statement for value in values)), new)
        except InvalidDocument as error:
            broken.append(Flaw(f"{uri}: {error.flaws[0].message}", subject=error.flaws[0].subject,
                               property=error.flaws[0].property, value=error.flaws[0].value))  # fmt: skip
    if broken:
        named = broken[:MAX_NAMED]
        more = f", and {len(broken) - MAX_NAMED:,} more" if len(broken) > MAX_NAMED else ""
        raise BreakingSchema(
            f"{len(broken):,} stored document{'s' if len(broken) > 1 else ''} would no longer be valid{more}. "
            "Change or delete them first, or let the schema allow what they say.",
            named,
        )


def _concerned_properties(old: Schema, new: Schema) -> frozenset[str] | None:
    """The properties whose stored values the new schema might refuse; None where that is every property."""
    difference = differences(old, new)
    if difference.closed:
        return None
    names = {name for name in difference.added_properties if _may_be_stored(name, old)}
    names |= {change.new.iri for change in difference.changed_properties if _asks_more(change, new)}
    names |= {p.iri for p in new.properties.values() if p.range in old.datatypes ^ new.datatypes}
    # A value of a property is one of its superproperties: relatives count together.
    above = {up for name in names for up in new.properties[name].superproperties}
    names |= {down for name in above for down in new.properties[name].subproperties}
    if not new.open:
        names |= difference.removed_properties
        if difference.removed_classes:
            names.add(RDF_TYPE)
    return frozenset(names)


def _may_be_stored(name: str, schema: Schema) -> bool:
    return schema.open or schema.property_of(name) is not None


def _asks_more(change: PropertyChange, new: Schema) -> bool:
    """Whether a property may refuse what it accepted: by its range, or as one with a single value.

    Where both ranges are classes nothing is asked: a reference may lead to a resource of another class.
    """
    before, after = change.old.range, change.new.range
    if after is not None and after != before and (before is None or new.is_datatype(before) or new.is_datatype(after)):
        return True
    gained = set(change.new.superproperties) - set(change.old.superproperties)
    return (change.old.set_valued and not change.new.set_valued) or any(
        not new.properties[name].set_valued for name in gained
    )


def _retyped_properties(old: Schema, new: Schema) -> frozenset[str]:
    """The properties whose stored values may have another type from now on."""
    names = old.properties.keys() | new.properties.keys()
    return frozenset(n for n in names if _may_be_stored(n, old) and _typed_ranges(n, old) != _typed_ranges(n, new))


def _typed_ranges(name: str, schema: Schema) -> list[str | None]:
    """What values of a property compare as, other than text: by its own range, and as values of its superproperties."""
    declared = schema.property_of(name)
    above = [schema.property_of(up) for up in declared.superproperties] if declared else []
    return [p.range for p in above if p is not None and p.kind is not Kind.TEXT]


def _retyped(values: Iterable[StoredValue], typing: Typing) -> Iterator[tuple[str, object, object, object]]:
    for value in values:
        typed = typing.typed_values(value.statement.property, value.statement.object)
        if typed != value.typed:
            yield (value.row, *typed)
