"""Propose: rule texts for who browses and selects (paper, 2.2), from a resource or from a class with chosen values.

    from a resource   this very one; those that share a value or a reference with it, the fewest first; both of the two
                      best; what a reference leads to; its whole class
    from a class      what was chosen, and the same with one choice less

Law: every text that is proposed can be registered as it is, and one made from a resource selects that resource now.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Numeric, Select, Text, literal, select, union

from mdv.db import query as db
from mdv.db.explain import KnownNames, count_within, counting
from mdv.db.graph import Graph
from mdv.db.propose import some_statements
from mdv.db.read import direct_classes
from mdv.db.why import Evidence
from mdv.errors import BadRequest, InvalidRule, NotFound
from mdv.mdp.beginnings import Beginnings
from mdv.mdp.groups import read_names, states
from mdv.mdp.rules import best_leaf
from mdv.mdp.schemas import Schemas
from mdv.mdp.teller import access_text
from mdv.model import RDF_TYPE, RDFS_RESOURCE, Statement, Term, is_blank
from mdv.query.compile import Names, State, matches
from mdv.rdf.parse import is_absolute_iri
from mdv.rdf.schema import Schema, SchemaProperty, UnknownName
from mdv.rdf.values import Kind, instant_of, number_of, truth_of
from mdv.rules.normal import Access, Conjunction, Constant, NormalRule, Variable
from mdv.rules.normalise import normalise
from mdv.rules.parse import parse
from mdv.rules.pattern import Pattern, pattern
from mdv.rules.show import show

MOST_PROPOSALS = 10
MOST_SINGLE = 4
"""Proposals by one value of the resource itself."""
MOST_OVER = 3
"""Proposals by a value of what it refers to."""
MOST_VALUES = 3
"""Values of one property that are tried."""
MOST_TRIED = 12
"""Values that are counted, of the resource and of what it refers to, each."""
MOST_COUNTED = 1000
MOST_CHARACTERS = 200
"""A longer text is no value to select by."""
MOST_CHOICES = 32
SECONDS = 10
COUNT_SECONDS = 1.5
"""For all that is counted."""
ONE_COUNT_SECONDS = 0.5

OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "contains")

_TOO_COSTLY = f"To look for rules took longer than {SECONDS} s, and was given up. Write the rule yourself."


@dataclass(frozen=True, slots=True)
class Proposal:
    """A rule that could be subscribed. `selects` is how many resources it matches now, None where they could not be
    counted in time; with `more` there are at least so many."""

    rule: str
    selects: int | None
    more: bool
    why: str

    def as_dict(self) -> dict[str, Any]:
        return {"rule": self.rule, "selects": self.selects, "more": self.more, "why": self.why}


def propose(
    connection: Connection,
    schemas: Schemas,
    resource: str | None = None,
    class_: str | None = None,
    values: Mapping[str, Any] | None = None,
) -> list[Proposal]:
    """Rules that select a resource, or what a class with chosen values says; nothing is changed.

    Of `values` each is a value, a list of which any will do, or {"op": ">", "value": …}, by the name of its property.
    """
    if (resource is None) == (class_ is None):
        raise BadRequest("Say either `resource`, the URI of what should be selected, or `class` with `values`.")
    if class_ is None and values is not None:
        raise BadRequest("`values` go with `class`; a `resource` has its own.")
    if resource is not None and not is_absolute_iri(resource):
        raise BadRequest(f"{resource!r} is not an absolute URI: write it in full, http://…")
    with db.reading(connection, SECONDS, _TOO_COSTLY):
        schema = schemas.now(connection).schema
        if resource is not None:
            return _from_resource(connection, schema, resource)
        assert class_ is not None
        return _from_class(connection, schema, class_, values or {})


# --- from a resource ---


def _from_resource(connection: Connection, schema: Schema, uri: str) -> list[Proposal]:
    number = Evidence(connection).number(uri)
    said = some_statements(connection, number, MOST_VALUES) if number is not None else []
    if number is None or not said:
        raise NotFound(f"Nothing is said of <{uri}>: register a document that describes it, or propose by `class`.")
    declared = _declared(direct_classes(connection, [number]).get(number, []), schema)
    writer = Writer(schema, declared[0])
    trial = _Trial(connection, schema, number)
    singles = trial.fewest(islice(_by_values(writer, said), MOST_TRIED), MOST_TRIED)
    exact = _exact(writer, uri)
    found = [*trial.counted([exact] if exact is not None else []), *singles[:MOST_SINGLE]]
    # What nothing else shares cannot be narrowed.
    shared = [draft for draft in singles if draft.selects != 1][:2]
    if len(shared) == 2:
        found += trial.counted([_both(*shared)])
    over = islice(_over_references(connection, writer, said, schema), MOST_TRIED)
    found += trial.fewest(over, MOST_OVER)
    wholes = [_Draft(each, (), each.every) for each in (Writer(schema, class_iri) for class_iri in declared)]
    found = found[: MOST_PROPOSALS - 1] + trial.counted(wholes[:1])
    found += trial.counted(wholes[1 : 1 + MOST_PROPOSALS - len(found)])
    return [draft.proposal() for draft in found]


def _declared(classes: Iterable[str], schema: Schema) -> list[str]:
    """The classes of a resource that rules can search, without those above others; of none, the class of everything."""
    known = [iri for iri in classes if iri in schema.classes]
    least = [
        iri
        for iri in known
        if not any(
            iri in schema.classes[other].superclasses and other not in schema.classes[iri].superclasses
            for other in known
        )
    ]
    return least or [RDFS_RESOURCE]


@dataclass(frozen=True, slots=True)
class _Draft:
    """A proposal on its way: predicates as text, joined by `and`."""

    writer: Writer
    where: tuple[str, ...]
    why: str
    selects: int | None = None

    @property
    def text(self) -> str:
        return self.writer.rule(self.where)

    def proposal(self) -> Proposal:
        more = self.selects is not None and self.selects >= MOST_COUNTED
        return Proposal(self.text, self.selects, more, f"{self.why[0].upper()}{self.why[1:]}.")


class Writer:
    """Writes the parts of a rule that registers instances of one class."""

    def __init__(self, schema: Schema, class_iri: str) -> None:
        self.schema, self.class_iri = schema, class_iri
        self.variable = _initial(schema.shorten(class_iri))
        self.every = f"every {schema.shorten(class_iri)}"

    def rule(self, where: Sequence[str]) -> str:
        alone = Conjunction((Variable(self.variable, self.class_iri),), self.variable, ())
        return show(alone, self.schema) + ("\nwhere     " + "\n          and ".join(where) if where else "")

    def path(self, properties: Sequence[SchemaProperty]) -> str:
        """The path over some properties, each named as it is known where the path has come to."""
        path, at = self.variable, self.class_iri
        for property_ in properties:
            step = access_text(Access("x", property_.iri), at, self.schema)
            path += step.removeprefix("x")
            at = _leads_to(property_, self.schema)
        return path


def _leads_to(property_: SchemaProperty, schema: Schema) -> str:
    """The class of what a step reaches."""
    return property_.range if property_.range is not None and property_.range in schema.classes else RDFS_RESOURCE


def _initial(name: str) -> str:
    """
    >>> _initial("CycleProvider"), _initial("rdfs:Resource"), _initial("<http://a/1>")
    ('c', 'r', 'x')
    """
    letter = name.rpartition(":")[2][:1].lower()
    return letter if letter.isascii() and letter.isalpha() else "x"


def _exact(writer: Writer, uri: str) -> _Draft | None:
    written = _reference(uri)
    if written is None:
        return None
    if is_blank(uri):
        return _Draft(
            writer, (f"{writer.variable} = {written}",), "this very blank node, until what is said of it changes"
        )
    return _Draft(writer, (f"{writer.variable} = {written}",), "exactly this resource")


def _by_values(writer: Writer, said: Sequence[Statement], above: tuple[SchemaProperty, ...] = ()) -> Iterator[_Draft]:
    """For each value that a rule can name, all that share it. References to blank nodes have no lasting name."""
    schema = writer.schema
    for _, iri, term in sorted(said):
        property_ = schema.property_of(iri)
        if property_ is None or iri == RDF_TYPE or (term.is_uri and is_blank(term.value)):
            continue
        written = _constant(term, property_, schema)
        if written is not None:
            path = writer.path((*above, property_))
            what = ".".join(schema.shorten(one.iri) for one in (*above, property_))
            yield _Draft(writer, (f"{path} = {written}",), f"{writer.every} whose {what} is {written}")


def _both(one: _Draft, other: _Draft) -> _Draft:
    whose = other.why.removeprefix(one.writer.every)
    return replace(one, where=(*one.where, *other.where), why=f"{one.why} and{whose}")


def _over_references(
    connection: Connection, writer: Writer, said: Sequence[Statement], schema: Schema
) -> Iterator[_Draft]:
    """The values of what the resource refers to, one step further."""
    for _, iri, term in sorted(said):
        property_ = schema.property_of(iri)
        leads = property_ is not None and (property_.range is None or property_.range in schema.classes)
        if property_ is not None and leads and term.is_uri and iri != RDF_TYPE:
            target = Evidence(connection).number(term.value)
            assert target is not None
            yield from _by_values(writer, some_statements(connection, target, MOST_VALUES), (property_,))


def _constant(term: Term, property_: SchemaProperty, schema: Schema) -> str | None:
    """A value as a rule writes it; None where it is too long, or no value that anything equals."""
    if term.is_uri:
        is_literal = property_.range is not None and property_.range not in schema.classes
        return None if is_literal else _reference(term.value)
    lexical = term.value
    if len(lexical) > MOST_CHARACTERS or (property_.range is not None and property_.range in schema.classes):
        return None
    match property_.kind:
        case Kind.NUMBER:
            number = number_of(lexical, property_.range)
            return _number(number) if number is not None else None
        case Kind.INSTANT:
            return _text(lexical) if instant_of(lexical, property_.range) is not None else None
        case Kind.TRUTH:
            truth = truth_of(lexical)
            return str(truth).lower() if truth is not None else None
    return _text(lexical)


def _number(number: Decimal) -> str:
    """
    >>> _number(Decimal("92.50")), _number(Decimal("1E+3")), _number(Decimal("1E+300"))
    ('92.50', '1000', '1E+300')
    """
    plain = format(number, "f")
    return plain if len(plain) <= 40 else str(number)


def _text(value: str) -> str:
    """
    >>> _text("it's")
    "'it''s'"
    """
    return "'" + value.replace("'", "''") + "'"


def _reference(uri: str) -> str | None:
    return f"<{uri}>" if is_absolute_iri(uri) and len(uri) <= 10 * MOST_CHARACTERS else None


# --- from a class with values ---


def _from_class(connection: Connection, schema: Schema, name: str, values: Mapping[str, Any]) -> list[Proposal]:
    try:
        class_iri = schema.resolve_class(name)
    except UnknownName as unknown:
        raise NotFound(_told(unknown)) from None
    if len(values) > MOST_CHOICES:
        raise BadRequest(f"A rule has at most {MOST_CHOICES} predicates: choose fewer values.")
    writer = Writer(schema, class_iri)
    chosen = [(key, chosen_predicate(writer, key, value)) for key, value in values.items()]
    trial = _Trial(connection, schema)
    drafts = [_Draft(writer, tuple(where for _, where in chosen), f"{writer.every} with all that was chosen")]
    # What cannot be read is told with its place in the rule that was meant.
    normalise(parse(drafts[0].text), schema)
    if not chosen:
        drafts = []
    if len(chosen) > 1:
        drafts += [
            _Draft(writer, tuple(where for other, where in chosen if other != key), f"the same, whatever the {key}")
            for key, _ in chosen
        ]
    whole = _Draft(writer, (), writer.every)
    return [draft.proposal() for draft in trial.counted([*drafts[: MOST_PROPOSALS - 1], whole])]


def _told(unknown: UnknownName) -> str:
    message = str(unknown)
    return message[0].upper() + message[1:] + ("" if message.endswith("?") else ".")


def chosen_predicate(writer: Writer, name: str, value: Any) -> str:
    """One choice as a predicate, or as several of which any will do."""
    properties = list(_properties(writer, name))
    path = writer.path(properties)
    options = value if isinstance(value, list) else [value]
    if not options:
        raise BadRequest(f"The list of {name} is empty: give at least one value, or leave it out.")
    parts = [_predicate(writer, name, path, properties[-1], option) for option in options]
    return parts[0] if len(parts) == 1 else f"({' or '.join(parts)})"


def _properties(writer: Writer, name: str) -> Iterator[SchemaProperty]:
    """The properties of a name: one, or a path of them, written with dots."""
    schema, at = writer.schema, writer.class_iri
    try:
        yield _property(schema, name.removesuffix("?"), at)
        return
    except UnknownName as unknown:
        if "." not in name or is_absolute_iri(name.strip("<>")):
            raise NotFound(_told(unknown)) from None
    for part in name.split("."):
        try:
            property_ = _property(schema, part.removesuffix("?"), at)
        except UnknownName as unknown:
            raise NotFound(_told(unknown)) from None
        yield property_
        at = _leads_to(property_, schema)


def _property(schema: Schema, name: str, class_iri: str) -> SchemaProperty:
    found = schema.property_of(schema.resolve_property(name, class_iri))
    assert found is not None
    return found


def _predicate(writer: Writer, name: str, path: str, property_: SchemaProperty, option: Any) -> str:
    operator = "="
    if isinstance(option, Mapping):
        if set(option) - {"op", "value"} or "value" not in option:
            raise BadRequest(f'The choice of {name} is {{"op": …, "value": …}}, a value, or a list of values.')
        operator, option = option.get("op", "="), option["value"]
        if operator not in OPERATORS:
            raise BadRequest(f"There is no operator {operator!r} for {name}: say one of {' '.join(OPERATORS)}.")
    return f"{path} {operator} {_written(writer.schema, name, property_, operator, option)}"


def _written(schema: Schema, name: str, property_: SchemaProperty, operator: str, value: Any) -> str:
    """A JSON value as the constant that a property is compared with."""
    if isinstance(value, bool):
        lexical = str(value).lower()
    elif isinstance(value, int | float | Decimal):
        lexical = str(value)
    elif isinstance(value, str):
        lexical = value
    else:
        raise BadRequest(f"The value of {name} is a text, a number, true or false; a reference is the text of its URI.")
    if operator != "contains":
        if property_.range is not None and property_.range in schema.classes:
            if (written := _reference(lexical.removeprefix("<").removesuffix(">"))) is None:
                raise BadRequest(f"{name} refers to resources: give a whole URI such as http://… for its value.")
            return written
        if property_.kind is Kind.NUMBER and (number := number_of(lexical)) is not None:
            return _number(number)
        if property_.kind is Kind.TRUTH and (truth := truth_of(lexical)) is not None:
            return str(truth).lower()
    return _text(lexical)


# --- what a proposal selects ---


class _Trial:
    """Reads proposals as the rules that they would be, and counts what they match now. What does not select the
    resource that it was made from is none."""

    def __init__(self, connection: Connection, schema: Schema, number: int | None = None) -> None:
        self._connection, self._schema, self._number = connection, schema, number
        self._deadline = time.monotonic() + COUNT_SECONDS

    def fewest(self, drafts: Iterable[_Draft], most: int) -> list[_Draft]:
        """Those that select the fewest first; what could not be counted last."""
        counted = sorted(self._counted(drafts), key=lambda item: _rank(item[0]))
        return list(islice(self._selecting(counted), most))

    def counted(self, drafts: Iterable[_Draft]) -> list[_Draft]:
        """Those that are rules, and select what they should, with how much they select in all."""
        return list(self._selecting(self._counted(drafts)))

    def _counted(self, drafts: Iterable[_Draft]) -> list[tuple[_Draft, NormalRule, Names]]:
        read = {draft.text: (draft, normal) for draft in drafts if (normal := self._normal(draft)) is not None}
        patterns = [pattern(part)[0] for _, normal in read.values() for part in normal.conjunctions]
        names = read_names(Graph(self._connection), patterns, self._schema, KnownNames(self._connection), None)
        now, _, _ = states(names)
        return [
            (replace(draft, selects=self._count([matching(now, *pattern(part)) for part in normal.conjunctions])),
             normal, names)
            for draft, normal in read.values()
        ]  # fmt: skip

    def _selecting(self, counted: Iterable[tuple[_Draft, NormalRule, Names]]) -> Iterator[_Draft]:
        number = self._number
        for draft, normal, names in counted:
            beginnings = Beginnings(self._connection, names)
            if number is None or (
                draft.selects != 0 and any(beginnings.holds(part, number) for part in normal.conjunctions)
            ):
                yield draft

    def _normal(self, draft: _Draft) -> NormalRule | None:
        try:
            return normalise(parse(draft.text), self._schema)
        except InvalidRule:
            if self._number is None:
                raise
            return None

    def _count(self, parts: Sequence[Select[Any]]) -> int | None:
        left = min(ONE_COUNT_SECONDS, self._deadline - time.monotonic())
        if left <= 0:
            return None
        found = union(*parts).subquery("found") if len(parts) > 1 else parts[0].subquery("found")
        return count_within(self._connection, counting(select(found.c.resource_id).limit(MOST_COUNTED)), left)


def _rank(draft: _Draft) -> int:
    return MOST_COUNTED + 1 if draft.selects is None else draft.selects


def matching(now: State, its_pattern: Pattern, constants: Sequence[Constant]) -> Select[Any]:
    """Select the resources that match a pattern with these constants."""
    given = [
        literal(constant.value, Text())
        if isinstance(constant.value, str)
        else literal(Decimal(constant.value), Numeric())
        for constant in constants
    ]
    return matches(now, its_pattern, given, best_leaf(its_pattern))
