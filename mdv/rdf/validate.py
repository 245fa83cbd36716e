"""Validate documents against the schema. All flaws are reported, not only the first.

Law: the declared (effective) range determines which values are valid. The datatype and language of a literal do not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import NamedTuple

from mdv.errors import Flaw, InvalidDocument
from mdv.model import BLANK_MARK, LANG_STRING, RDF_TYPE, Document, ParsedDocument, Statement, Term
from mdv.rdf.schema import Schema
from mdv.rdf.values import Check, ValueKind, checker_for, parse_boolean, parse_instant, parse_number

MAX_FLAWS = 1000
MAX_URI_BYTES = 2048
MAX_SHOWN_CHARACTERS = 200
_MAX_HINTS = 50
"""Hints with similar names for one document. Each search for similar names takes a millisecond."""

_NO_SCHEMA_HINT = (
    "Draft a schema with `mdv schema infer FILE > schema.ttl` and load it with `mdv schema put schema.ttl`, or use the"
    " page Schema."
)

TypedValues = tuple[Decimal | None, Decimal | None, bool | None]
_UNTYPED: TypedValues = (None, None, None)


class _Constraints(NamedTuple):
    """The constraints of one property on its values."""

    term_type: str | None  # the required type of term: uri, literal, or None for both
    check: Check | None  # of the lexical form
    needs_language: bool
    singles: tuple[str, ...]  # the property and its superproperties that are not set-valued


_UNCONSTRAINED = _Constraints(None, None, False, ())


def validate(document: Document, schema: Schema) -> None:
    """Raise `InvalidDocument` with all flaws if `document` does not conform to `schema`.

    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> validate(Document("http://d", (Statement("http://d#a", "http://v/p", Term.literal("x")),)), EMPTY_SCHEMA)
    Traceback (most recent call last):
    mdv.errors.InvalidDocument: There is no schema yet. The document http://d has an error: the property <http://v/p> is
        not declared. Draft a schema with `mdv schema infer FILE > schema.ttl` and load it with `mdv schema put
        schema.ttl`, or use the page Schema.
    """
    if _is_sound(document.statements, schema):
        return
    try:
        _raise(document.uri, _flaws(document.statements, schema))
    except InvalidDocument as error:
        if schema.open or not schema.is_empty:
            raise
        raise InvalidDocument(f"There is no schema yet. {error.detail} {_NO_SCHEMA_HINT}", error.flaws) from None


def refuse_reserved(parsed: ParsedDocument) -> None:
    """Raise `InvalidDocument` if a document contains `#_:` in a name, a name that is too long, or a NUL character.

    Call this before blank nodes are named: the names of blank nodes contain `#_:`.

    >>> refuse_reserved(ParsedDocument("http://d", (Statement("http://d#_:a", "http://v/p", Term.literal("x")),)))
    Traceback (most recent call last):
    mdv.errors.InvalidDocument: The document http://d has an error: http://d#_:a contains #_:, which is reserved for the
        names of blank nodes.
    """
    names: set[str] = {parsed.uri}
    bad_literals = False
    for subject, property_, term in parsed.statements:
        names.add(subject)
        names.add(property_)
        if term.type == "literal":
            bad_literals = bad_literals or _unstorable(term.value) is not None
            if term.datatype is not None:
                names.add(term.datatype)
        else:
            names.add(term.value)
    flawed = {name: why for name in names if (why := _name_flaw(name))}
    if flawed or bad_literals:
        _raise(parsed.uri, _reserved(parsed, flawed))


class ValueTyper:
    """Computes the typed values of literals by the ranges of a schema. Caches per property, so reuse the object."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._ranges: dict[str, tuple[tuple[str, ...], tuple[str, ...], bool] | None] = {}

    def typed_values(self, property_iri: str, term: Term) -> TypedValues:
        """Return number, instant and boolean of a value, each if the property or a superproperty has such a range.

        >>> from mdv.model import RDFS, XSD
        >>> from mdv.rdf.schema import read_schema
        >>> schema = read_schema([Statement("http://v/p", RDFS + "range", Term.uri(XSD + "integer"))], {})
        >>> ValueTyper(schema).typed_values("http://v/p", Term.literal("92"))
        (Decimal('92'), None, None)
        """
        try:
            ranges = self._ranges[property_iri]
        except KeyError:
            ranges = self._ranges[property_iri] = self._typed_ranges(property_iri)
        if ranges is None or term.type != "literal":
            return _UNTYPED
        numbers, instants, truths = ranges
        lexical = term.value
        number = instant = None
        for datatype in numbers:
            number = parse_number(lexical, datatype)
            if number is not None:
                break
        for datatype in instants:
            instant = parse_instant(lexical, datatype)
            if instant is not None:
                break
        return number, instant, parse_boolean(lexical) if truths else None

    def _typed_ranges(self, iri: str) -> tuple[tuple[str, ...], tuple[str, ...], bool] | None:
        declared = self._schema.property_of(iri)
        ranges: dict[ValueKind, dict[str, None]] = defaultdict(dict)
        for above in declared.superproperties if declared else ():
            known = self._schema.property_of(above)
            if known and known.range and known.kind is not ValueKind.TEXT:
                ranges[known.kind][known.range] = None
        if not ranges:
            return None
        return tuple(ranges[ValueKind.NUMBER]), tuple(ranges[ValueKind.INSTANT]), bool(ranges[ValueKind.TRUTH])


def _constraints_of(iri: str, schema: Schema) -> _Constraints | None:
    declared = schema.property_of(iri)
    if declared is None:
        return _UNCONSTRAINED if schema.open else None
    singles = tuple(
        above
        for above in declared.superproperties
        if (known := schema.property_of(above)) is not None and not known.set_valued
    )
    if iri == RDF_TYPE:
        return _Constraints("uri", None, False, singles)
    range_ = declared.range
    if range_ is None:
        return _Constraints(None, None, False, singles)
    if schema.is_datatype(range_):
        return _Constraints("literal", checker_for(range_), range_ == LANG_STRING, singles)
    return _Constraints("uri", None, False, singles)


def _is_sound(statements: Iterable[Statement], schema: Schema) -> bool:
    """True if the statements conform to the schema. This is the fast path for valid documents."""
    constraints_by_property: dict[str, _Constraints | None] = {}
    first: dict[tuple[str, str], Term] = {}
    classes = schema.classes
    for subject, property_, term in statements:
        try:
            constraints = constraints_by_property[property_]
        except KeyError:
            constraints = constraints_by_property[property_] = _constraints_of(property_, schema)
        if constraints is None:
            return False
        term_type, check, needs_language, singles = constraints
        if term_type is not None:
            if term_type != term.type:
                return False
            if check is not None and check(term.value) is not None:
                return False
            if needs_language and term.lang is None:
                return False
            if property_ == RDF_TYPE and term.value not in classes and not schema.may_be_type(term.value):
                return False
        for single in singles:
            if first.setdefault((subject, single), term) != term:
                return False
    return True


def _flaws(statements: Iterable[Statement], schema: Schema) -> Iterator[Flaw]:
    """Yield all flaws in the order of the statements. This is the slow path for invalid documents."""
    hints = _Hints(schema)
    constraints_by_property: dict[str, _Constraints | None] = {}
    values: dict[tuple[str, str], dict[Term, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
    for statement in statements:
        property_, term = statement.property, statement.object
        if property_ not in constraints_by_property:
            constraints_by_property[property_] = _constraints_of(property_, schema)
        constraints = constraints_by_property[property_]
        if constraints is None:
            yield _flaw(
                f"the property {schema.shorten(property_)} is not declared", statement, hints.property(property_)
            )
            continue
        yield from _value_flaws(statement, constraints, schema, hints)
        for single in constraints.singles:
            values[statement.subject, single][term][property_] = None
    yield from _multiples(values, schema)


def _value_flaws(statement: Statement, constraints: _Constraints, schema: Schema, hints: _Hints) -> Iterator[Flaw]:
    _, property_, term = statement
    name = schema.shorten(property_)
    declared = schema.property_of(property_)
    range_ = schema.shorten(declared.range) if declared and declared.range else ""
    if constraints.term_type is not None and constraints.term_type != term.type:
        if property_ == RDF_TYPE:
            yield _flaw("the value of rdf:type must be the URI of a class, not a literal", statement)
        elif term.type == "literal":
            message = f"the value of {name} must be a resource, not a literal: its range is the class {range_}"
            yield _flaw(message, statement, "refer to it with rdf:resource or a URI in angle brackets")
        else:
            message = f"the value of {name} must be a literal, not a resource: its range is the datatype {range_}"
            yield _flaw(message, statement, "write the value as text")
    elif property_ == RDF_TYPE:
        if not schema.may_be_type(term.value):
            problem = "is a datatype, not a class" if schema.is_datatype(term.value) else "is not declared"
            yield _flaw(f"the class {schema.shorten(term.value)} {problem}", statement, hints.class_(term.value))
    elif constraints.check is not None and (why := constraints.check(term.value)) is not None:
        yield _flaw(f"{name}: {why}", statement)
    elif constraints.needs_language and term.lang is None:
        yield _flaw(f"the value of {name} must have a language", statement, "add xml:lang, or @en in Turtle")


def _multiples(values: dict[tuple[str, str], dict[Term, dict[str, None]]], schema: Schema) -> Iterator[Flaw]:
    """Yield a flaw for each property with several values that is not set-valued.

    Values of a subproperty are also values of its superproperty. They are reported once, for the lowest property that
    has all of them.
    """
    reported: set[tuple[str, frozenset[Term]]] = set()
    several = [(key, found) for key, found in values.items() if len(found) > 1]

    def height(iri: str) -> int:
        declared = schema.property_of(iri)
        return -len(declared.superproperties) if declared else 0

    for (subject, single), found in sorted(several, key=lambda item: height(item[0][1])):
        if (subject, frozenset(found)) in reported:
            continue
        reported.add((subject, frozenset(found)))
        name = schema.shorten(single)
        used = dict.fromkeys(p for properties in found.values() for p in properties)
        through = "" if list(used) == [single] else f", given with {' and '.join(map(schema.shorten, used))}"
        yield Flaw(
            f"{name} has {len(found)} values in one document but is not set-valued{through}",
            subject=subject,
            property=single if single in used else next(iter(used)),
            value=_shown(", ".join(repr(term.value[:MAX_SHOWN_CHARACTERS]) for term in list(found)[:10])),
            hint=f"give one value, or declare {name} mdv:setValued true",
        )


class _Hints:
    """Suggestions for unknown names."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._known: dict[tuple[str, str], str] = {}

    def property(self, iri: str) -> str:
        return self._hint("property", iri)

    def class_(self, iri: str) -> str:
        return self._hint("class", iri)

    def _hint(self, kind: str, iri: str) -> str:
        declare = f"declare the {kind} in the schema, or set mdv:world to mdv:open"
        if (kind, iri) not in self._known:
            near: tuple[str, ...] = ()
            if len(self._known) < _MAX_HINTS:
                schema = self._schema
                near = schema.nearest_classes(iri) if kind == "class" else schema.nearest_properties(iri)
            self._known[kind, iri] = f"did you mean {' or '.join(near)}? Otherwise {declare}" if near else declare
        return self._known[kind, iri]


def _unstorable(text: str) -> str | None:
    if "\0" in text:
        return "contains the character NUL"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "contains an unpaired surrogate, which is not a character"
    return None


def _name_flaw(name: str) -> str | None:
    why = _unstorable(name)
    if why is None and BLANK_MARK in name:
        why = f"contains {BLANK_MARK}, which is reserved for the names of blank nodes"
    # A character has at most four bytes, so most names need not be encoded.
    if why is None and len(name) * 4 > MAX_URI_BYTES and len(name.encode()) > MAX_URI_BYTES:
        why = f"is longer than {MAX_URI_BYTES:,} bytes"
    return why


def _reserved(parsed: ParsedDocument, flawed: dict[str, str]) -> Iterator[Flaw]:
    if parsed.uri in flawed:
        yield Flaw(f"the document's URI {flawed[parsed.uri]}", value=_shown(parsed.uri))
    for statement in parsed.statements:
        subject, property_, term = statement
        names = (subject, property_, term.datatype if term.type == "literal" else term.value)
        for name in dict.fromkeys(names):
            if name in flawed:
                yield _flaw(f"{_shown(name, 80)} {flawed[name]}", statement)
        if term.type == "literal" and (why := _unstorable(term.value)):
            yield _flaw(f"the text {why}", statement)


def _flaw(message: str, statement: Statement, hint: str | None = None) -> Flaw:
    subject, property_, term = statement
    return Flaw(message, subject=_shown(subject), property=_shown(property_), value=_shown(term.value), hint=hint)


def _shown(text: str, most: int = MAX_SHOWN_CHARACTERS) -> str:
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{SYMBOL FOR NULL}")


def _raise(uri: str, flaws: Iterator[Flaw]) -> None:
    reported: list[Flaw] = []
    more = 0
    for flaw in flaws:
        if len(reported) < MAX_FLAWS:
            reported.append(flaw)
        else:
            more += 1
    if not reported:
        return
    total = len(reported) + more
    if more:
        reported.append(Flaw(f"and {more:,} more"))
    what = f"an error: {reported[0].message}" if total == 1 else f"{total:,} errors"
    raise InvalidDocument(f"The document {_shown(uri)} has {what}.", reported)
