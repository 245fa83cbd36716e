"""Propose rule texts to a user who browses (paper, 2.2), from a resource or from a class with chosen values.

    from a resource   exactly this resource; resources that share a value or a reference with it, most selective first;
                      the two most selective conditions together; values of referenced resources; the whole class
    from a class      the chosen values, and the same without one of them

Law: every proposed text can be registered as it is. A text that is proposed for a resource selects that resource now.
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
from mdv.db.rule_graph import RuleGraph
from mdv.errors import BadRequest, InvalidRule, NotFound
from mdv.inspect.match_origins import PartialMatcher
from mdv.inspect.sql.explain_resource import EvidenceReader
from mdv.inspect.sql.explain_rule import ReadOnlyVocabulary, count_statement, count_with_time_limit
from mdv.inspect.sql.propose import sample_statements
from mdv.inspect.sql.resources import read_direct_classes
from mdv.mdp.groups import read_names, statement_states
from mdv.mdp.merge import best_starting_leaf
from mdv.mdp.schemas import SchemaCache
from mdv.model import RDF_TYPE, RDFS_RESOURCE, Statement, Term, is_blank
from mdv.query.compile import StatementView, VocabularyIds, matches
from mdv.rdf.parse import is_absolute_iri
from mdv.rdf.schema import Schema, SchemaProperty, UnknownName
from mdv.rdf.values import ValueKind, parse_boolean, parse_instant, parse_number
from mdv.rules.normal import Access, Conjunction, Constant, NormalRule, Variable
from mdv.rules.normalise import normalise
from mdv.rules.operators import WRITTEN, Operands, Operator
from mdv.rules.parse import parse
from mdv.rules.pattern import Pattern, pattern
from mdv.rules.show import format_rule, path_text

MAX_PROPOSALS = 10
MAX_SINGLE_VALUE_PROPOSALS = 4
"""Proposals by one value of the resource."""
MAX_REFERENCE_PROPOSALS = 3
"""Proposals by a value of a referenced resource."""
MAX_VALUES_PER_PROPERTY = 3
"""How many values of one property are tried."""
MAX_TRIED_VALUES = 12
"""How many values are tried, of the resource and of referenced resources each."""
MAX_COUNTED_MATCHES = 1000
MAX_VALUE_CHARACTERS = 200
"""Longer texts are not proposed."""
MAX_CHOICES = 32
MAX_SECONDS = 10
MAX_TOTAL_COUNT_SECONDS = 1.5
"""The time limit for all counts together."""
MAX_SINGLE_COUNT_SECONDS = 0.5

OPERATORS = tuple(one.value for one in WRITTEN)

_TOO_COSTLY = f"Searching for rules timed out after {MAX_SECONDS} s. Write the rule yourself."


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed rule. `selects`: how many resources it matches now; None if they could not be counted in time. `more`:
    there are at least that many."""

    rule: str
    selects: int | None
    more: bool
    why: str

    def as_dict(self) -> dict[str, Any]:
        return {"rule": self.rule, "selects": self.selects, "more": self.more, "why": self.why}


def propose(
    connection: Connection,
    schemas: SchemaCache,
    resource: str | None = None,
    class_: str | None = None,
    values: Mapping[str, Any] | None = None,
) -> list[Proposal]:
    """Return proposals of rules that select a resource, or the instances of a class with chosen values.

    `values`: by property name, a value, a list of alternatives, or {"op": ">", "value": …}.
    """
    if (resource is None) == (class_ is None):
        raise BadRequest("Give either `resource`, the URI of a resource to select, or `class` with `values`.")
    if class_ is None and values is not None:
        raise BadRequest("`values` can only be given with `class`, not with `resource`.")
    if resource is not None and not is_absolute_iri(resource):
        raise BadRequest(f"{resource!r} is not an absolute URI. Write it in full: http://…")
    with db.time_limited_read(connection, MAX_SECONDS, _TOO_COSTLY):
        schema = schemas.now(connection).schema
        if resource is not None:
            return _from_resource(connection, schema, resource)
        assert class_ is not None
        return _from_class(connection, schema, class_, values or {})


# --- from a resource ---


def _from_resource(connection: Connection, schema: Schema, uri: str) -> list[Proposal]:
    number = EvidenceReader(connection).number(uri)
    statements = sample_statements(connection, number, MAX_VALUES_PER_PROPERTY) if number is not None else []
    if number is None or not statements:
        raise NotFound(f"No registered document describes <{uri}>. Register one, or propose by `class`.")
    declared = _declared(read_direct_classes(connection, [number]).get(number, []), schema)
    writer = RuleWriter(schema, declared[0])
    trial = _Trial(connection, schema, number)
    singles = trial.fewest(islice(_by_values(writer, statements), MAX_TRIED_VALUES), MAX_TRIED_VALUES)
    exact = _exact(writer, uri)
    found = [*trial.counted([exact] if exact is not None else []), *singles[:MAX_SINGLE_VALUE_PROPOSALS]]
    # A condition that selects only this resource cannot be narrowed.
    shared = [draft for draft in singles if draft.selects != 1][:2]
    if len(shared) == 2:
        found += trial.counted([_both(*shared)])
    by_reference = islice(_over_references(connection, writer, statements, schema), MAX_TRIED_VALUES)
    found += trial.fewest(by_reference, MAX_REFERENCE_PROPOSALS)
    whole_classes = [_Draft(each, (), each.every) for each in (RuleWriter(schema, class_iri) for class_iri in declared)]
    found = found[: MAX_PROPOSALS - 1] + trial.counted(whole_classes[:1])
    found += trial.counted(whole_classes[1 : 1 + MAX_PROPOSALS - len(found)])
    return [draft.proposal() for draft in found]


def _declared(classes: Iterable[str], schema: Schema) -> list[str]:
    """Return the most specific declared classes of a resource, or rdfs:Resource if there is none."""
    known = [iri for iri in classes if iri in schema.classes]
    most_specific = [
        iri
        for iri in known
        if not any(
            iri in schema.classes[other].superclasses and other not in schema.classes[iri].superclasses
            for other in known
        )
    ]
    return most_specific or [RDFS_RESOURCE]


@dataclass(frozen=True, slots=True)
class _Draft:
    """A draft of a proposal: predicates as text, joined by `and`."""

    writer: RuleWriter
    where: tuple[str, ...]
    why: str
    selects: int | None = None

    @property
    def text(self) -> str:
        return self.writer.rule(self.where)

    def proposal(self) -> Proposal:
        more = self.selects is not None and self.selects >= MAX_COUNTED_MATCHES
        return Proposal(self.text, self.selects, more, f"{self.why[0].upper()}{self.why[1:]}.")


class RuleWriter:
    """Writes the text of a rule that registers instances of one class."""

    def __init__(self, schema: Schema, class_iri: str) -> None:
        self.schema, self.class_iri = schema, class_iri
        self.variable = _initial(schema.shorten(class_iri))
        self.every = f"every {schema.shorten(class_iri)}"

    def rule(self, where: Sequence[str]) -> str:
        alone = Conjunction((Variable(self.variable, self.class_iri),), self.variable, ())
        return format_rule(alone, self.schema) + ("\nwhere     " + "\n          and ".join(where) if where else "")

    def path(self, properties: Sequence[SchemaProperty]) -> str:
        """Return the path over some properties. Each is named relative to the class that the path has reached."""
        path, at = self.variable, self.class_iri
        for property_ in properties:
            step = path_text(Access("x", property_.iri), at, self.schema)
            path += step.removeprefix("x")
            at = _leads_to(property_, self.schema)
        return path


def _leads_to(property_: SchemaProperty, schema: Schema) -> str:
    """Return the class that a step over a property reaches."""
    return property_.range if property_.range is not None and property_.range in schema.classes else RDFS_RESOURCE


def _initial(name: str) -> str:
    """
    >>> _initial("CycleProvider"), _initial("rdfs:Resource"), _initial("<http://a/1>")
    ('c', 'r', 'x')
    """
    letter = name.rpartition(":")[2][:1].lower()
    return letter if letter.isascii() and letter.isalpha() else "x"


def _exact(writer: RuleWriter, uri: str) -> _Draft | None:
    written = _reference(uri)
    if written is None:
        return None
    if is_blank(uri):
        return _Draft(
            writer, (f"{writer.variable} = {written}",), "exactly this blank node, until its statements change"
        )
    return _Draft(writer, (f"{writer.variable} = {written}",), "exactly this resource")


def _by_values(
    writer: RuleWriter, statements: Sequence[Statement], above: tuple[SchemaProperty, ...] = ()
) -> Iterator[_Draft]:
    """Yield a draft for each value that a rule can name. Blank nodes are skipped, because their names can change."""
    schema = writer.schema
    for _, iri, term in sorted(statements):
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
    connection: Connection, writer: RuleWriter, statements: Sequence[Statement], schema: Schema
) -> Iterator[_Draft]:
    """Yield drafts for the values of resources that the resource refers to."""
    for _, iri, term in sorted(statements):
        property_ = schema.property_of(iri)
        leads = property_ is not None and (property_.range is None or property_.range in schema.classes)
        if property_ is not None and leads and term.is_uri and iri != RDF_TYPE:
            target = EvidenceReader(connection).number(term.value)
            assert target is not None
            yield from _by_values(writer, sample_statements(connection, target, MAX_VALUES_PER_PROPERTY), (property_,))


def _constant(term: Term, property_: SchemaProperty, schema: Schema) -> str | None:
    """Return a value as it is written in a rule; None if it is too long or invalid for its property."""
    if term.is_uri:
        is_literal = property_.range is not None and property_.range not in schema.classes
        return None if is_literal else _reference(term.value)
    lexical = term.value
    if len(lexical) > MAX_VALUE_CHARACTERS or (property_.range is not None and property_.range in schema.classes):
        return None
    match property_.kind:
        case ValueKind.NUMBER:
            number = parse_number(lexical, property_.range)
            return _number(number) if number is not None else None
        case ValueKind.INSTANT:
            return _text(lexical) if parse_instant(lexical, property_.range) is not None else None
        case ValueKind.TRUTH:
            truth = parse_boolean(lexical)
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
    return f"<{uri}>" if is_absolute_iri(uri) and len(uri) <= 10 * MAX_VALUE_CHARACTERS else None


# --- from a class with values ---


def _from_class(connection: Connection, schema: Schema, name: str, values: Mapping[str, Any]) -> list[Proposal]:
    try:
        class_iri = schema.resolve_class(name)
    except UnknownName as unknown:
        raise NotFound(_sentence(unknown)) from None
    if len(values) > MAX_CHOICES:
        raise BadRequest(f"A rule can have at most {MAX_CHOICES} predicates. Choose fewer values.")
    writer = RuleWriter(schema, class_iri)
    chosen = [(key, chosen_predicate(writer, key, value)) for key, value in values.items()]
    trial = _Trial(connection, schema)
    drafts = [_Draft(writer, tuple(where for _, where in chosen), f"{writer.every} with all chosen values")]
    # An invalid choice is reported with its place in the rule.
    normalise(parse(drafts[0].text), schema)
    if not chosen:
        drafts = []
    if len(chosen) > 1:
        drafts += [
            _Draft(writer, tuple(where for other, where in chosen if other != key), f"the same, with any {key}")
            for key, _ in chosen
        ]
    whole_class = _Draft(writer, (), writer.every)
    return [draft.proposal() for draft in trial.counted([*drafts[: MAX_PROPOSALS - 1], whole_class])]


def _sentence(unknown: UnknownName) -> str:
    message = str(unknown)
    return message[0].upper() + message[1:] + ("" if message.endswith("?") else ".")


def chosen_predicate(writer: RuleWriter, name: str, value: Any) -> str:
    """Return a choice as a predicate, or several alternatives joined by `or`."""
    properties = list(_properties(writer, name))
    path = writer.path(properties)
    options = value if isinstance(value, list) else [value]
    if not options:
        raise BadRequest(f"The list of values of {name} is empty. Give at least one value, or leave it out.")
    parts = [_predicate(writer, name, path, properties[-1], option) for option in options]
    return parts[0] if len(parts) == 1 else f"({' or '.join(parts)})"


def _properties(writer: RuleWriter, name: str) -> Iterator[SchemaProperty]:
    """Yield the properties of a name: one property, or a path with dots."""
    schema, at = writer.schema, writer.class_iri
    try:
        yield _property(schema, name.removesuffix("?"), at)
        return
    except UnknownName as unknown:
        if "." not in name or is_absolute_iri(name.strip("<>")):
            raise NotFound(_sentence(unknown)) from None
    for part in name.split("."):
        try:
            property_ = _property(schema, part.removesuffix("?"), at)
        except UnknownName as unknown:
            raise NotFound(_sentence(unknown)) from None
        yield property_
        at = _leads_to(property_, schema)


def _property(schema: Schema, name: str, class_iri: str) -> SchemaProperty:
    found = schema.property_of(schema.resolve_property(name, class_iri))
    assert found is not None
    return found


def _predicate(writer: RuleWriter, name: str, path: str, property_: SchemaProperty, option: Any) -> str:
    operator = "="
    if isinstance(option, Mapping):
        if set(option) - {"op", "value"} or "value" not in option:
            raise BadRequest(f'The choice of {name} must be {{"op": …, "value": …}}, a value, or a list of values.')
        operator, option = option.get("op", "="), option["value"]
        if operator not in OPERATORS:
            raise BadRequest(f"There is no operator {operator!r} for {name}. Use one of {' '.join(OPERATORS)}.")
    return f"{path} {operator} {_written(writer.schema, name, property_, operator, option)}"


def _written(schema: Schema, name: str, property_: SchemaProperty, operator: str, value: Any) -> str:
    """Return a JSON value as the constant that a property is compared with."""
    if isinstance(value, bool):
        lexical = str(value).lower()
    elif isinstance(value, int | float | Decimal):
        lexical = str(value)
    elif isinstance(value, str):
        lexical = value
    else:
        raise BadRequest(
            f"The value of {name} must be a string, a number, true or false. A reference is a string with the URI."
        )
    if Operator(operator).takes is not Operands.TEXT:
        if property_.range is not None and property_.range in schema.classes:
            if (written := _reference(lexical.removeprefix("<").removesuffix(">"))) is None:
                raise BadRequest(f"{name} refers to resources. Give an absolute URI such as http://… as its value.")
            return written
        if property_.kind is ValueKind.NUMBER and (number := parse_number(lexical)) is not None:
            return _number(number)
        if property_.kind is ValueKind.TRUTH and (truth := parse_boolean(lexical)) is not None:
            return str(truth).lower()
    return _text(lexical)


# --- counting matches ---


class _Trial:
    """Parses drafts as rules and counts their current matches. Drafts that do not select the given resource are
    dropped."""

    def __init__(self, connection: Connection, schema: Schema, number: int | None = None) -> None:
        self._connection, self._schema, self._number = connection, schema, number
        self._deadline = time.monotonic() + MAX_TOTAL_COUNT_SECONDS

    def fewest(self, drafts: Iterable[_Draft], most: int) -> list[_Draft]:
        """Return up to `most` valid drafts, ordered by their number of matches, those without a count last."""
        counted = sorted(self._counted(drafts), key=lambda item: _rank(item[0]))
        return list(islice(self._selecting(counted), most))

    def counted(self, drafts: Iterable[_Draft]) -> list[_Draft]:
        """Return the valid drafts with their numbers of matches."""
        return list(self._selecting(self._counted(drafts)))

    def _counted(self, drafts: Iterable[_Draft]) -> list[tuple[_Draft, NormalRule, VocabularyIds]]:
        read = {draft.text: (draft, normal) for draft in drafts if (normal := self._normal(draft)) is not None}
        patterns = [pattern(part)[0] for _, normal in read.values() for part in normal.conjunctions]
        names = read_names(
            RuleGraph(self._connection), patterns, self._schema, ReadOnlyVocabulary(self._connection), None
        )
        now, _, _ = statement_states(names)
        counted = []
        for draft, normal in read.values():
            selects = self._count([select_matching(now, *pattern(part)) for part in normal.conjunctions])
            counted.append((replace(draft, selects=selects), normal, names))
        return counted

    def _selecting(self, counted: Iterable[tuple[_Draft, NormalRule, VocabularyIds]]) -> Iterator[_Draft]:
        number = self._number
        for draft, normal, names in counted:
            beginnings = PartialMatcher(self._connection, names)
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
        left = min(MAX_SINGLE_COUNT_SECONDS, self._deadline - time.monotonic())
        if left <= 0:
            return None
        found = union(*parts).subquery("found") if len(parts) > 1 else parts[0].subquery("found")
        return count_with_time_limit(
            self._connection, count_statement(select(found.c.resource_id).limit(MAX_COUNTED_MATCHES)), left
        )


def _rank(draft: _Draft) -> int:
    return MAX_COUNTED_MATCHES + 1 if draft.selects is None else draft.selects


def select_matching(now: StatementView, its_pattern: Pattern, constants: Sequence[Constant]) -> Select[Any]:
    """Return a query for the resources that match a pattern with these constants."""
    given = [
        literal(constant.value, Text())
        if isinstance(constant.value, str)
        else literal(Decimal(constant.value), Numeric())
        for constant in constants
    ]
    return matches(now, its_pattern, given, best_starting_leaf(its_pattern))
