"""Normalise a parsed rule (paper, section 3.3) with the schema: resolve names, type operands, remove `not` and `or`,
split paths into references, and inline the rules that it searches.

Laws: each predicate considers the values of its property independently. Two paths of one conjunction refer to the same
resource as far as they share a prefix without `?`. An inlined rule has its own variables, because a variable over a
rule ranges over the results of that rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from difflib import get_close_matches
from itertools import count, product
from math import prod
from typing import NoReturn, TypeAlias

from mdv.errors import InvalidRule
from mdv.model import RDFS_RESOURCE, XSD
from mdv.rdf.parse import is_absolute_iri
from mdv.rdf.schema import Schema, SchemaProperty, UnknownName
from mdv.rdf.values import ValueKind, find_flaw, parse_instant, parse_number
from mdv.rules.ast import (
    And,
    Expression,
    Extension,
    Literal,
    LiteralKind,
    Name,
    Not,
    Or,
    ParsedRule,
    Path,
    Predicate,
    Span,
)
from mdv.rules.normal import (
    Access,
    Comparison,
    Conjunction,
    Constant,
    Link,
    NormalPredicate,
    NormalRule,
    Sort,
    Variable,
)
from mdv.rules.operators import Operands, Operator
from mdv.rules.pattern import pattern
from mdv.rules.text_errors import rule_error

MAX_CONJUNCTIONS = 64
MAX_VARIABLES = 2048
"""Variables in all conjunctions, including inlined rules. A rule of this size takes some seconds to process."""
MAX_RULE_CHAIN = 32
"""Length of a chain of rules that search one another."""
MAX_JOIN_DEPTH = 40
"""The longest chain of joins from the registered variable. Each join nests the SQL of the filter one level deeper, and
the SQL compiler is recursive: at about 60 levels it exceeds Python's recursion limit, and no document could be
registered."""

Value: TypeAlias = Decimal | str | bool
RuleLookup: TypeAlias = Callable[[str], ParsedRule | None]


def no_rules(name: str) -> ParsedRule | None:
    """A rule lookup that finds no rules."""
    return None


def normalise(rule: ParsedRule, schema: Schema, rules: RuleLookup = no_rules) -> NormalRule:
    """Return the normal form of a rule under a schema. `rules` looks up other rules by name.

    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> from mdv.rules.parse import parse
    >>> rule = normalise(parse("search rdfs:Resource r register r where r.rdfs:seeAlso.label = 'a'"), EMPTY_SCHEMA)
    >>> [variable.name for variable in rule.conjunctions[0].variables], len(rule.conjunctions[0].predicates)
    (['r', 'r2'], 2)
    """
    _check_cycles(rule, schema, rules)
    normal = _normalise(rule, schema, _Library(rules))
    _check_depth(rule, normal)
    return normal


def _normalise(rule: ParsedRule, schema: Schema, library: _Library) -> NormalRule:
    scope = _resolve_search(rule, schema, library)
    _check_variable(rule.register, scope)
    typed = {predicate.span: _typed(predicate, scope) for predicate in _predicates(rule.where)}
    _check_count(rule, scope)
    parts = _split_or(rule.where, typed)
    conjunctions = [_split_paths(part, rule.register.text, scope) for part in parts]
    _check_size(conjunctions, scope)
    return NormalRule(tuple(_inline_rules(conjunctions, scope.inner)), frozenset(scope.searches))


# --- classes and rules of the variables ---


@dataclass(frozen=True, slots=True)
class _Library:
    """The other rules, with a cache of their normal forms."""

    rules: RuleLookup
    known: dict[str, NormalRule] = field(default_factory=dict)


def _check_cycles(rule: ParsedRule, schema: Schema, rules: RuleLookup) -> None:
    """Refuse a rule that searches itself, directly or not, or that starts a long chain of rules.

    Rules with equal texts search the same rules, so each text is checked once.
    """
    checked: set[str] = set()

    def problem_of(found: ParsedRule, name: str, chain: dict[str, str]) -> str | None:
        if found.text in checked:
            return None
        if found.text in chain:
            through = [f"'{other}'" for other in list(chain.values())[list(chain).index(found.text) + 1 :]]
            return f"rule '{name}' searches itself" + (f" through {' and '.join(through)}" if through else "")
        if len(chain) > MAX_RULE_CHAIN:
            return f"more than {MAX_RULE_CHAIN} rules search one another in a chain"
        for _, other, below in _searched(found, schema, rules):
            if message := problem_of(below, other, {**chain, found.text: name}):
                return message
        checked.add(found.text)
        return None

    for extension, name, found in _searched(rule, schema, rules):
        if message := problem_of(found, name, {rule.text: name}):
            raise rule_error(rule.text, extension.name.span, message)


def _searched(rule: ParsedRule, schema: Schema, rules: RuleLookup) -> Iterable[tuple[Extension, str, ParsedRule]]:
    for extension in rule.search:
        name = extension.name.text
        try:
            schema.resolve_class(name)
        except UnknownName as unknown:
            found = None if unknown.ambiguous else rules(name)
            if found is not None:
                yield extension, name, found


@dataclass(frozen=True, slots=True)
class _Scope:
    """The variables of one text with their classes, and the rules that some of them search."""

    text: str
    schema: Schema
    span: Span
    classes: dict[str, str] = field(default_factory=dict)
    inner: dict[str, NormalRule] = field(default_factory=dict)
    searches: list[str] = field(default_factory=list)

    def refuse(self, span: Span, message: str, hint: str | None = None) -> NoReturn:
        raise rule_error(self.text, span, message, hint)


def _resolve_search(rule: ParsedRule, schema: Schema, library: _Library) -> _Scope:
    span = Span(rule.search[0].name.span.start, rule.search[-1].variable.span.end)
    scope = _Scope(rule.text, schema, span)
    for extension in rule.search:
        variable = extension.variable
        if variable.text in scope.classes:
            scope.refuse(variable.span, f"the variable '{variable.text}' is declared twice", "give each its own name")
        class_iri, inner = _resolve_extension(extension, scope, library)
        scope.classes[variable.text] = class_iri
        if inner is not None:
            scope.inner[variable.text] = inner
            scope.searches.append(extension.name.text)
    return scope


def _resolve_extension(extension: Extension, scope: _Scope, library: _Library) -> tuple[str, NormalRule | None]:
    """Return the class with this name, or else the class that the rule with this name registers, and that rule."""
    name = extension.name
    try:
        return scope.schema.resolve_class(name.text), None
    except UnknownName as unknown:
        found = None if unknown.ambiguous else library.rules(name.text)
        if found is None:
            no_rule = "" if unknown.ambiguous else ", and there is no rule with that name"
            _refuse_unknown(scope, name, unknown, no_rule)
    inner = _definition(name, found, scope, library)
    part = inner.conjunctions[0]
    return next(variable.class_iri for variable in part.variables if variable.name == part.register), inner


def _definition(name: Name, found: ParsedRule, scope: _Scope, library: _Library) -> NormalRule:
    if name.text in library.known:
        return library.known[name.text]
    try:
        inner = _normalise(found, scope.schema, library)
    except InvalidRule as error:
        flaw = error.flaws[0]
        message = f"rule '{name.text}', which is searched here, has an error: {flaw.message}"
        raise rule_error(scope.text, name.span, message, flaw.hint) from None
    return library.known.setdefault(name.text, inner)


def _refuse_unknown(scope: _Scope, name: Name, unknown: UnknownName, rest: str = "") -> NoReturn:
    shown = name.text if len(name.text) <= 80 else name.text[:79] + "…"
    if unknown.ambiguous:
        scope.refuse(name.span, f"ambiguous {unknown.kind} '{shown}'", f"write {' or '.join(unknown.ambiguous)}")
    hint = f"did you mean {' or '.join(unknown.nearest)}?" if unknown.nearest else None
    scope.refuse(name.span, f"unknown {unknown.kind} '{shown}'{rest}", hint)


def _check_variable(name: Name, scope: _Scope) -> None:
    if name.text in scope.classes:
        return
    near = get_close_matches(name.text[:80], scope.classes, 1, 0.6)
    known = list(scope.classes)
    if near:
        hint = f"did you mean {near[0]}?"
    elif len(known) == 1:
        hint = f"the variable is {known[0]}"
    else:
        hint = f"the variables are {', '.join(known[:5])}" + (" …" if len(known) > 5 else "")
    if not near and "-" in name.text:  # probably a text without quotes
        hint += f"; a text is written in quotes: '{name.text[:40]}…'"
    scope.refuse(name.span, f"unknown variable '{name.text[:80]}'", hint)


# --- types of predicates ---


@dataclass(frozen=True, slots=True)
class _Hop:
    """A step that is not the last: the property, whether `?` follows it, and the class of its target."""

    property: str
    any: bool
    class_iri: str


@dataclass(frozen=True, slots=True)
class _Route:
    """A path with resolved properties. `last` is None if the path is only a variable."""

    path: Path
    hops: tuple[_Hop, ...]
    last: SchemaProperty | None
    sort: Sort
    literals: bool
    """True if all values are literals, because the range is a datatype."""
    shown: str

    @property
    def free(self) -> bool:
        """True if the values can be literals and references."""
        return self.sort is Sort.TEXT and not self.literals


@dataclass(frozen=True, slots=True)
class _Typed:
    """A typed predicate with a path on the left."""

    left: _Route
    operator: Operator
    right: _Route | Constant
    sort: Sort

    @property
    def negated(self) -> _Typed:
        return replace(self, operator=self.operator.negated)


def _predicates(expression: Expression | None) -> Iterable[Predicate]:
    if isinstance(expression, Predicate):
        yield expression
    elif isinstance(expression, Not):
        yield from _predicates(expression.part)
    elif expression is not None:
        for part in expression.parts:
            yield from _predicates(part)


def _typed(predicate: Predicate, scope: _Scope) -> _Typed:
    left, operator, right = predicate.left, predicate.operator, predicate.right
    operator_span = _operator_span(predicate, scope.text)
    if isinstance(left, Path):
        route = _route(left, scope)
        if isinstance(right, Path):
            return _typed_paths(route, operator, _route(right, scope), operator_span, scope)
        return _typed_constant(route, operator, right, operator_span, scope)
    if isinstance(right, Literal):
        scope.refuse(predicate.span, "both sides are constants", "one side must be a path, such as c.serverHost")
    if operator.takes is Operands.TEXT:
        hint = f"write the path on the left: {_example(operator)}"
        scope.refuse(left.span, f"'{operator.value}' needs its constant on the right", hint)
    return _typed_constant(_route(right, scope), operator.flipped, left, operator_span, scope)


def _operator_span(predicate: Predicate, text: str) -> Span:
    """Return the position of the operator."""
    start, end = predicate.left.span.end, predicate.right.span.start
    written = text[start:end]
    return Span(start + len(written) - len(written.lstrip()), start + len(written.rstrip()))


def _route(path: Path, scope: _Scope) -> _Route:
    _check_variable(path.variable, scope)
    at, hops = scope.classes[path.variable.text], []
    shown = _truncated(scope.text[path.span.start : path.span.end])
    last: SchemaProperty | None = None
    for position, step in enumerate(path.steps):
        if last is not None:
            at = _target(last, path.steps[position - 1].name, scope)
            hops.append(_Hop(last.iri, path.steps[position - 1].any, at))
        last = _property(step.name, at, scope)
        _check_any(step.name, step.any, last, scope)
    if last is None:
        return _Route(path, (), None, Sort.REFERENCE, False, shown)
    literals = last.range is not None and last.range not in scope.schema.classes
    sort = _SORTS.get(last.kind, Sort.TEXT)
    if last.range is not None and not literals:
        sort = Sort.REFERENCE
    return _Route(path, tuple(hops), last, sort, literals, shown)


_SORTS = {ValueKind.NUMBER: Sort.NUMBER, ValueKind.INSTANT: Sort.INSTANT, ValueKind.TRUTH: Sort.TRUTH}


def _truncated(shown: str) -> str:
    shown = " ".join(shown[:100].split())
    return shown if len(shown) <= 60 else shown[:59] + "…"


def _property(name: Name, class_iri: str, scope: _Scope) -> SchemaProperty:
    try:
        found = scope.schema.property_of(scope.schema.resolve_property(name.text, class_iri))
    except UnknownName as unknown:
        _refuse_unknown(scope, name, unknown)
    assert found is not None
    return found


def _check_any(name: Name, any_: bool, found: SchemaProperty, scope: _Scope) -> None:
    if found.set_valued and not any_:
        scope.refuse(name.span, f"'{name.text}' is set-valued and needs the any operator", f"write {name.text}?")
    if any_ and not found.set_valued:
        hint = f"write {name.text}, or declare it mdv:setValued true"
        scope.refuse(name.span, f"'{name.text}' is not set-valued, so '?' is not allowed", hint)


def _target(property_: SchemaProperty, name: Name, scope: _Scope) -> str:
    """Return the class of the target of a step: the range, or rdfs:Resource if there is none."""
    if property_.range is None:
        return RDFS_RESOURCE
    if property_.range not in scope.schema.classes:
        range_ = scope.schema.shorten(property_.range)
        scope.refuse(name.span, f"'{name.text}' has no resources as values: its range is {range_}", "end the path here")
    return property_.range


def _typed_constant(route: _Route, operator: Operator, literal: Literal, operator_span: Span, scope: _Scope) -> _Typed:
    _check_operator(route, operator, operator_span, scope)
    if operator.takes is Operands.TEXT:
        if literal.written is not LiteralKind.TEXT:
            written = _truncated(scope.text[literal.span.start : literal.span.end])
            scope.refuse(literal.span, f"'{operator.value}' needs a text", f"write '{written.strip('<>')}'")
        if not literal.value:
            scope.refuse(literal.span, f"every text {operator.label} the empty text", "write the text to search for")
    written = scope.text[literal.span.start : literal.span.end]
    sort, value = _value(route, literal, written, scope)
    return _Typed(route, operator, Constant(value, written, literal.slot), sort)


def _check_operator(route: _Route, operator: Operator, operator_span: Span, scope: _Scope) -> None:
    if operator.orders and route.sort not in (Sort.NUMBER, Sort.INSTANT):
        what = (
            f"'{scope.text[operator_span.start : operator_span.end]}' needs an ordered range: numbers, dates or times"
        )
        hint = f"declare an rdfs:range for {route.path.steps[-1].name.text}" if route.free else None
        scope.refuse(operator_span, f"{what}; {route.shown} is {_described(route, scope)}", hint)
    if operator.takes is Operands.TEXT and route.sort not in (Sort.TEXT, Sort.REFERENCE):
        what = f"'{operator.value}' is for texts and URIs"
        scope.refuse(operator_span, f"{what}; {route.shown} is {_described(route, scope)}")


def _example(operator: Operator) -> str:
    """Return an example predicate of a text operator for error messages."""
    return operator.text("c.serverHost", "'text'")


def _described(route: _Route, scope: _Scope) -> str:
    """Return a description of the values of a path for error messages."""
    if route.last is None:
        return "a resource"
    if route.last.range is None:
        return "without a declared range"
    return f"of range {scope.schema.shorten(route.last.range)}"


def _value(route: _Route, literal: Literal, written: str, scope: _Scope) -> tuple[Sort, Value]:
    """Return the constant as a value of the same type as the values of the path."""
    sort, kind, value = route.sort, literal.written, literal.value
    if kind is LiteralKind.URI and not is_absolute_iri(str(value)):
        scope.refuse(literal.span, f"{_truncated(written)} is not an absolute URI", "write it in full: <http://…>")
    match sort, kind:
        case (Sort.NUMBER, LiteralKind.NUMBER) | (Sort.TRUTH, LiteralKind.TRUTH):
            return sort, value
        case Sort.INSTANT, LiteralKind.TEXT | LiteralKind.NUMBER:
            assert route.last is not None and route.last.range is not None
            lexical = str(value) if kind is LiteralKind.TEXT else written
            instant = parse_instant(lexical, route.last.range)
            if instant is None:
                flaw = find_flaw(lexical, route.last.range) or f"{written} is not a date or time"
                scope.refuse(literal.span, f"{route.shown} is {_described(route, scope)}, and {flaw}")
            return sort, instant
        case ((Sort.TEXT | Sort.REFERENCE), LiteralKind.TEXT):
            return sort, value
        case Sort.REFERENCE, LiteralKind.URI:
            return sort, value
        case Sort.TEXT, LiteralKind.URI if route.free:
            return Sort.REFERENCE, value
        case Sort.TEXT, LiteralKind.URI if route.last is not None and route.last.range == XSD + "anyURI":
            return sort, value
    what = f"{route.shown} is {_described(route, scope)}, and {_truncated(written)} is a {_LITERAL_NAMES[kind]}"
    raise rule_error(scope.text, literal.span, f"{what}: they cannot be compared", _hint(route, literal, written))


_LITERAL_NAMES = {
    LiteralKind.TEXT: "text",
    LiteralKind.NUMBER: "number",
    LiteralKind.TRUTH: "boolean",
    LiteralKind.URI: "URI",
}


def _hint(route: _Route, literal: Literal, written: str) -> str | None:
    kind, value = literal.written, str(literal.value)
    if len(written) > 60:
        return None
    if route.sort is Sort.TEXT and kind is not LiteralKind.TEXT:
        declare = "" if route.literals else f", or declare an rdfs:range for {route.path.steps[-1].name.text}"
        return f"write '{written.strip('<>')}'{declare}"
    if route.sort is Sort.NUMBER and kind is LiteralKind.TEXT:
        return f"write {value}, without quotes" if parse_number(value) is not None else "write a number, such as 64"
    if route.sort is Sort.TRUTH:
        return "write true or false, without quotes"
    if route.sort is Sort.INSTANT:
        return "write it as text, such as '2024-02-29'"
    if route.sort is Sort.REFERENCE:
        return "write a <uri>"
    return None


def _typed_paths(left: _Route, operator: Operator, right: _Route, operator_span: Span, scope: _Scope) -> _Typed:
    if operator.takes is Operands.TEXT:
        what = f"'{operator.value}' needs a constant on the right"
        scope.refuse(right.path.span, what, f"write {_example(operator)}")
    _check_operator(left, operator, operator_span, scope)
    sort = _common_sort(left, right)
    if sort is None:
        sides = f"{left.shown} is {_described(left, scope)} and {right.shown} is {_described(right, scope)}"
        hint = None
        if left.free or right.free:
            free = (left if left.free else right).path.steps[-1].name.text
            hint = f"declare an rdfs:range for {free}"
        scope.refuse(Span(left.path.span.start, right.path.span.end), f"{sides}: they cannot be compared", hint)
    if left.last is None and right.last is not None:
        left, operator, right = right, operator.flipped, left
    return _Typed(left, operator, right, sort)


def _common_sort(left: _Route, right: _Route) -> Sort | None:
    """Return the sort by which two paths are compared; None if they cannot be compared."""
    if left.sort is right.sort:
        return left.sort
    if {left.sort, right.sort} != {Sort.TEXT, Sort.REFERENCE} or left.literals or right.literals:
        return None
    # One path can have any values, the other has references. They are compared as texts, or as references if one of
    # them is a variable, which is never equal to a literal.
    return Sort.REFERENCE if left.last is None or right.last is None else Sort.TEXT


# --- removal of `not` and `or` ---


def _check_count(rule: ParsedRule, scope: _Scope) -> None:
    """Refuse too many conjunctions before the expression is expanded."""
    if rule.where is None:
        return
    if (parts := _count(rule.where, False)) > MAX_CONJUNCTIONS:
        predicates = list(_predicates(rule.where))
        span = Span(predicates[0].span.start, predicates[-1].span.end)
        message = f"'or' splits the rule into {_number(parts)} conjunctions; the limit is {MAX_CONJUNCTIONS}"
        scope.refuse(span, message)


def _number(value: int) -> str:
    return f"{value:,}" if value < 10**9 else "very many"


def _count(expression: Expression, negated: bool) -> int:
    if isinstance(expression, Predicate):
        return 1
    if isinstance(expression, Not):
        return _count(expression.part, not negated)
    counts = [_count(part, negated) for part in expression.parts]
    return prod(counts) if isinstance(expression, And) != negated else sum(counts)


def _split_or(where: Expression | None, typed: Mapping[Span, _Typed]) -> list[tuple[_Typed, ...]]:
    return [()] if where is None else _split(where, False, typed)


def _split(expression: Expression, negated: bool, typed: Mapping[Span, _Typed]) -> list[tuple[_Typed, ...]]:
    """Return the disjunctive normal form in the order of the text. `not` is applied to the operators."""
    if isinstance(expression, Predicate):
        found = typed[expression.span]
        return [(found.negated if negated else found,)]
    if isinstance(expression, Not):
        return _split(expression.part, not negated, typed)
    parts = [_split(part, negated, typed) for part in expression.parts]
    if isinstance(expression, Or) != negated:
        return [conjunction for part in parts for conjunction in part]
    return [tuple(one for part in chosen for one in part) for chosen in product(*parts)]


# --- removal of paths ---


def _split_paths(part: tuple[_Typed, ...], register: str, scope: _Scope) -> Conjunction:
    splitter = _Splitter([Variable(*named) for named in scope.classes.items()])
    for predicate in part:
        splitter.add(predicate)
    return Conjunction(tuple(splitter.variables), register, tuple(splitter.predicates))


class _Splitter:
    """Splits the paths of one conjunction into variables and references."""

    def __init__(self, variables: list[Variable]) -> None:
        self.variables = variables
        self.names = {variable.name for variable in variables}
        self.predicates: list[NormalPredicate] = []
        self.shared: dict[tuple[str, str], str] = {}

    def add(self, predicate: _Typed) -> None:
        left = self.access(predicate.left)
        if isinstance(predicate.right, Constant):
            self.predicates.append(Comparison(left, predicate.operator, predicate.sort, predicate.right))
        else:
            self.predicates.append(Link(left, predicate.operator, self.access(predicate.right), predicate.sort))

    def access(self, route: _Route) -> Access:
        at = route.path.variable.text
        for hop in route.hops:
            at = self.reached(at, hop)
        return Access(at, route.last.iri if route.last else None)

    def reached(self, at: str, hop: _Hop) -> str:
        """Return the variable for the target of a step. It is shared with other paths unless the step has a `?`."""
        if not hop.any and (at, hop.property) in self.shared:
            return self.shared[at, hop.property]
        new = _unused(_initial(hop.class_iri), self.names)
        self.variables.append(Variable(new, hop.class_iri))
        self.predicates.append(Link(Access(at, hop.property), Operator.EQ, Access(new), Sort.REFERENCE))
        if not hop.any:
            self.shared[at, hop.property] = new
        return new


def _initial(class_iri: str) -> str:
    """Return the first letter of the local name; `x` if it does not begin with a letter.

    >>> _initial("http://mdv.example/schema#ServerInformation"), _initial("http://a/1")
    ('s', 'x')
    """
    local = class_iri.replace("#", "/").replace(":", "/").rpartition("/")[2]
    letter = local[:1].lower()
    return letter if len(letter) == 1 and letter.isalpha() else "x"


def _unused(name: str, names: set[str]) -> str:
    """Return the name, with a number appended if it is in use, and mark it as used."""
    new = name if name not in names else next(n for k in count(2) if (n := f"{name}{k}") not in names)
    names.add(new)
    return new


# --- inlining of searched rules ---


def _check_size(conjunctions: list[Conjunction], scope: _Scope) -> None:
    """Refuse too many conjunctions or variables before rules are inlined."""
    inner = scope.inner.values()
    parts = len(conjunctions) * prod(len(rule.conjunctions) for rule in inner)
    if parts > MAX_CONJUNCTIONS:
        message = f"with the rules that it searches, the rule has {_number(parts)} conjunctions"
        scope.refuse(scope.span, f"{message}; the limit is {MAX_CONJUNCTIONS}")
    variables = max(len(part.variables) for part in conjunctions)
    variables += sum(max(len(part.variables) for part in rule.conjunctions) - 1 for rule in inner)
    if variables * parts > MAX_VARIABLES:
        message = f"the rule has up to {variables:,} variables in each of {parts:,} conjunctions, paths included"
        scope.refuse(scope.span, f"{message}; the limit is {MAX_VARIABLES:,} in total")


def _check_depth(rule: ParsedRule, normal: NormalRule) -> None:
    for conjunction in normal.conjunctions:
        # A chain has fewer joins than there are variables, so most rules need no further check.
        if len(conjunction.variables) > MAX_JOIN_DEPTH and (depth := pattern(conjunction)[0].depth) > MAX_JOIN_DEPTH:
            span = Span(rule.search[0].name.span.start, rule.search[-1].variable.span.end)
            message = f"from '{conjunction.register}' there is a chain of {depth} joins, including steps of paths"
            hint = "shorten the paths, or split the rule into several rules"
            raise rule_error(rule.text, span, f"{message}; the limit is {MAX_JOIN_DEPTH}", hint)


def _inline_rules(conjunctions: list[Conjunction], inner: Mapping[str, NormalRule]) -> list[Conjunction]:
    """Combine each conjunction with every choice of conjunctions of the rules that its variables search."""
    return [
        _joined(conjunction, dict(zip(inner, chosen, strict=True)))
        for conjunction in conjunctions
        for chosen in product(*(rule.conjunctions for rule in inner.values()))
    ]


def _joined(outer: Conjunction, chosen: Mapping[str, Conjunction]) -> Conjunction:
    names = {variable.name for variable in outer.variables}
    variables, predicates = list(outer.variables), list(outer.predicates)
    for variable, part in chosen.items():
        renamed = {part.register: variable}
        for other in part.variables:
            if other.name != part.register:
                renamed[other.name] = _unused(other.name, names)
                variables.append(Variable(renamed[other.name], other.class_iri))
        predicates += [_renamed(predicate, renamed) for predicate in part.predicates]
    return Conjunction(tuple(variables), outer.register, tuple(predicates))


def _renamed(predicate: NormalPredicate, names: Mapping[str, str]) -> NormalPredicate:
    def access(of: Access) -> Access:
        return Access(names[of.variable], of.property)

    if isinstance(predicate, Link):
        return replace(predicate, left=access(predicate.left), right=access(predicate.right))
    # A constant of an inlined rule has no slot in the text of this rule.
    return replace(predicate, access=access(predicate.access), constant=replace(predicate.constant, slot=None))
