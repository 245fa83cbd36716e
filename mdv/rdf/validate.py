"""Validate: is the document at odds with the schema? Every flaw is told, not the first alone.

Law: the declared (effective) range decides what a value must be. A literal's own datatype and language do not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import NamedTuple

from mdv.errors import Flaw, InvalidDocument
from mdv.model import BLANK_MARK, LANG_STRING, RDF_TYPE, Document, ParsedDocument, Statement, Term
from mdv.rdf.schema import Schema
from mdv.rdf.values import Check, Kind, check_of, instant_of, number_of, truth_of

MAX_FLAWS = 1000
MAX_URI_BYTES = 2048
MAX_SHOWN = 200
_MAX_HINTS = 50
"""Looking for the nearest name takes a millisecond: a document full of unknown names gets this many such hints."""

Typed = tuple[Decimal | None, Decimal | None, bool | None]
_UNTYPED: Typed = (None, None, None)


class _Decision(NamedTuple):
    """What one property asks of its values."""

    wants: str | None  # the type of term that it takes: uri, literal, or None for both
    check: Check | None  # of the lexical form
    needs_language: bool
    singles: tuple[str, ...]  # of the property and its superproperties, those that are not set-valued


_FREE = _Decision(None, None, False, ())


def validate(document: Document, schema: Schema) -> None:
    """Raise `InvalidDocument`, with every flaw, unless `document` is as `schema` says.

    >>> from mdv.rdf.schema import EMPTY
    >>> validate(Document("http://d", (Statement("http://d#a", "http://v/p", Term.literal("x")),)), EMPTY)
    Traceback (most recent call last):
    mdv.errors.InvalidDocument: The document http://d has a flaw: the property <http://v/p> is not declared.
    """
    if _is_sound(document.statements, schema):
        return
    _raise(document.uri, _flaws(document.statements, schema))


def refuse_reserved(parsed: ParsedDocument) -> None:
    """Raise `InvalidDocument` for what no document may hold: `#_:` in a name, a name that is too long, a NUL.

    Blank nodes must not have their lasting names yet: those contain `#_:`.

    >>> refuse_reserved(ParsedDocument("http://d", (Statement("http://d#_:a", "http://v/p", Term.literal("x")),)))
    Traceback (most recent call last):
    mdv.errors.InvalidDocument: The document http://d has a flaw: http://d#_:a contains #_:, which is kept for the names
        of blank nodes.
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


class Typing:
    """The typed values of literals, as a schema's ranges have them. Decisions are kept, so keep the object too."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._decisions: dict[str, tuple[tuple[str, ...], tuple[str, ...], bool] | None] = {}

    def typed_values(self, property_iri: str, term: Term) -> Typed:
        """Number, instant and truth of a value, each where the property or any superproperty compares so.

        >>> from mdv.model import RDFS, XSD
        >>> from mdv.rdf.schema import read_schema
        >>> schema = read_schema([Statement("http://v/p", RDFS + "range", Term.uri(XSD + "integer"))], {})
        >>> Typing(schema).typed_values("http://v/p", Term.literal("92"))
        (Decimal('92'), None, None)
        """
        try:
            decision = self._decisions[property_iri]
        except KeyError:
            decision = self._decisions[property_iri] = self._decide(property_iri)
        if decision is None or term.type != "literal":
            return _UNTYPED
        numbers, instants, truths = decision
        lexical = term.value
        number = instant = None
        for datatype in numbers:
            number = number_of(lexical, datatype)
            if number is not None:
                break
        for datatype in instants:
            instant = instant_of(lexical, datatype)
            if instant is not None:
                break
        return number, instant, truth_of(lexical) if truths else None

    def _decide(self, iri: str) -> tuple[tuple[str, ...], tuple[str, ...], bool] | None:
        declared = self._schema.property_of(iri)
        ranges: dict[Kind, dict[str, None]] = defaultdict(dict)
        for above in declared.superproperties if declared else ():
            known = self._schema.property_of(above)
            if known and known.range and known.kind is not Kind.TEXT:
                ranges[known.kind][known.range] = None
        if not ranges:
            return None
        return tuple(ranges[Kind.NUMBER]), tuple(ranges[Kind.INSTANT]), bool(ranges[Kind.TRUTH])


def _decide(iri: str, schema: Schema) -> _Decision | None:
    declared = schema.property_of(iri)
    if declared is None:
        return _FREE if schema.open else None
    singles = tuple(
        above
        for above in declared.superproperties
        if (known := schema.property_of(above)) is not None and not known.set_valued
    )
    if iri == RDF_TYPE:
        return _Decision("uri", None, False, singles)
    range_ = declared.range
    if range_ is None:
        return _Decision(None, None, False, singles)
    if schema.is_datatype(range_):
        return _Decision("literal", check_of(range_), range_ == LANG_STRING, singles)
    return _Decision("uri", None, False, singles)


def _is_sound(statements: Iterable[Statement], schema: Schema) -> bool:
    """The fast path, which every document takes: yes or no."""
    decisions: dict[str, _Decision | None] = {}
    first: dict[tuple[str, str], Term] = {}
    classes, is_open = schema.classes, schema.open
    for subject, property_, term in statements:
        try:
            decision = decisions[property_]
        except KeyError:
            decision = decisions[property_] = _decide(property_, schema)
        if decision is None:
            return False
        wants, check, needs_language, singles = decision
        if wants is not None:
            if wants != term.type:
                return False
            if check is not None and check(term.value) is not None:
                return False
            if needs_language and term.lang is None:
                return False
            if property_ == RDF_TYPE and not is_open and term.value not in classes:
                return False
        for single in singles:
            if first.setdefault((subject, single), term) != term:
                return False
    return True


def _flaws(statements: Iterable[Statement], schema: Schema) -> Iterator[Flaw]:
    """The slow path, which only a refused document takes: everything that is wrong, in the document's order."""
    hints = _Hints(schema)
    decisions: dict[str, _Decision | None] = {}
    values: dict[tuple[str, str], dict[Term, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
    for statement in statements:
        property_, term = statement.property, statement.object
        if property_ not in decisions:
            decisions[property_] = _decide(property_, schema)
        decision = decisions[property_]
        if decision is None:
            yield _flaw(
                f"the property {schema.shorten(property_)} is not declared", statement, hints.property(property_)
            )
            continue
        yield from _value_flaws(statement, decision, schema, hints)
        for single in decision.singles:
            values[statement.subject, single][term][property_] = None
    yield from _multiples(values, schema)


def _value_flaws(statement: Statement, decision: _Decision, schema: Schema, hints: _Hints) -> Iterator[Flaw]:
    _, property_, term = statement
    name = schema.shorten(property_)
    declared = schema.property_of(property_)
    range_ = schema.shorten(declared.range) if declared and declared.range else ""
    if decision.wants is not None and decision.wants != term.type:
        if property_ == RDF_TYPE:
            yield _flaw("rdf:type takes the URI of a class, not a literal", statement)
        elif term.type == "literal":
            message = f"{name} takes a resource, not a literal: its range is the class {range_}"
            yield _flaw(message, statement, "refer to it with rdf:resource or a URI in angle brackets")
        else:
            message = f"{name} takes a literal, not a resource: its range is the datatype {range_}"
            yield _flaw(message, statement, "write the value as text")
    elif property_ == RDF_TYPE:
        if not schema.open and term.value not in schema.classes:
            problem = "is a datatype, not a class" if schema.is_datatype(term.value) else "is not declared"
            yield _flaw(f"the class {schema.shorten(term.value)} {problem}", statement, hints.class_(term.value))
    elif decision.check is not None and (why := decision.check(term.value)) is not None:
        yield _flaw(f"{name}: {why}", statement)
    elif decision.needs_language and term.lang is None:
        yield _flaw(f"{name} takes text with a language", statement, "add xml:lang, or @en in Turtle")


def _multiples(values: dict[tuple[str, str], dict[Term, dict[str, None]]], schema: Schema) -> Iterator[Flaw]:
    """Two values of a subproperty are two of its superproperty: told once, for the lowest that has them all."""
    told: set[tuple[str, frozenset[Term]]] = set()
    several = [(key, found) for key, found in values.items() if len(found) > 1]

    def height(iri: str) -> int:
        declared = schema.property_of(iri)
        return -len(declared.superproperties) if declared else 0

    for (subject, single), found in sorted(several, key=lambda item: height(item[0][1])):
        if (subject, frozenset(found)) in told:
            continue
        told.add((subject, frozenset(found)))
        name = schema.shorten(single)
        used = dict.fromkeys(p for properties in found.values() for p in properties)
        through = "" if list(used) == [single] else f", given with {' and '.join(map(schema.shorten, used))}"
        yield Flaw(
            f"{name} has {len(found)} values in one document and is not set-valued{through}",
            subject=subject,
            property=single if single in used else next(iter(used)),
            value=_shown(", ".join(repr(term.value[:MAX_SHOWN]) for term in list(found)[:10])),
            hint=f"give one value, or declare {name} mdv:setValued true",
        )


class _Hints:
    """What to try instead of an unknown name."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._known: dict[tuple[str, str], str] = {}

    def property(self, iri: str) -> str:
        return self._hint("property", iri)

    def class_(self, iri: str) -> str:
        return self._hint("class", iri)

    def _hint(self, kind: str, iri: str) -> str:
        declare = f"declare the {kind} in the schema, or make the world mdv:open"
        if (kind, iri) not in self._known:
            near: tuple[str, ...] = ()
            if len(self._known) < _MAX_HINTS:
                schema = self._schema
                near = schema.nearest_classes(iri) if kind == "class" else schema.nearest_properties(iri)
            self._known[kind, iri] = f"did you mean {' or '.join(near)}? Else {declare}" if near else declare
        return self._known[kind, iri]


def _unstorable(text: str) -> str | None:
    if "\0" in text:
        return "contains the character NUL"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "contains half a surrogate pair, which is no character"
    return None


def _name_flaw(name: str) -> str | None:
    why = _unstorable(name)
    if why is None and BLANK_MARK in name:
        why = f"contains {BLANK_MARK}, which is kept for the names of blank nodes"
    # A character takes at most four bytes.
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


def _shown(text: str, most: int = MAX_SHOWN) -> str:
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{SYMBOL FOR NULL}")


def _raise(uri: str, flaws: Iterator[Flaw]) -> None:
    told: list[Flaw] = []
    more = 0
    for flaw in flaws:
        if len(told) < MAX_FLAWS:
            told.append(flaw)
        else:
            more += 1
    if not told:
        return
    total = len(told) + more
    if more:
        told.append(Flaw(f"and {more:,} more"))
    what = f"a flaw: {told[0].message}" if total == 1 else f"{total:,} flaws"
    raise InvalidDocument(f"The document {_shown(uri)} has {what}.", told)
