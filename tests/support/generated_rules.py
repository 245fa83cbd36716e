"""A tiny dataset for rules: a schema with one property of every sort, documents that describe five resources,
and valid rules that often match them.

Few resources and few values, on both sides of few constants, so that rules match often.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

from hypothesis import strategies as st

from mdv.mdp.schemas import SchemaInForce, build_schema, read_schema_document
from mdv.model import MDV, RDF, RDF_TYPE, RDFS, RDFS_RESOURCE, XSD, Statement, Term
from mdv.rdf.values import parse_instant
from mdv.rules.ast import Expression, Literal, LiteralKind, Not, Predicate
from mdv.rules.operators import WORDS
from mdv.rules.parse import parse

V = "http://v/"
PREFIXES = (
    f"@prefix : <{V}> . @prefix v: <{V}> . @prefix mdv: <{MDV}> . @prefix xsd: <{XSD}> . @prefix rdf: <{RDF}> ."
    f" @prefix rdfs: <{RDFS}> .\n"
)
SCHEMA = """
@prefix v: <http://v/> .
<> mdv:world mdv:open .
:Book a rdfs:Class .
:Novel rdfs:subClassOf :Book .
:Agent a rdfs:Class .
:Place a rdfs:Class .
:pages rdfs:range xsd:integer .
:rating rdfs:range xsd:double ; mdv:setValued true .
:total rdfs:range xsd:decimal .
:sold rdfs:subPropertyOf :total ; rdfs:range xsd:integer .
:born rdfs:range xsd:date .
:open rdfs:range xsd:boolean .
:name rdfs:range xsd:string .
:tag rdfs:range rdfs:Literal ; mdv:setValued true .
:author rdfs:range :Agent ; mdv:reference mdv:strong .
:home rdfs:range :Place .
:sequel rdfs:range :Book .
:mentions rdfs:subPropertyOf :about ; rdfs:range :Book .
:about mdv:setValued true .
:source a rdf:Property .
"""
"""To be written after some prefixes. `mentions` is set-valued since `about` is; `about` and `source` have no range."""

DOCUMENTS = [f"http://d/{n}" for n in range(1, 5)]
RESOURCES = [f"http://r/{n}" for n in range(5)]
NOWHERE = "http://r/9"
"""Referenced, and described by no document."""

Said: TypeAlias = frozenset[Statement]


def schema_in_force(text: str = SCHEMA) -> SchemaInForce:
    document = read_schema_document((PREFIXES + text).encode(), "text/turtle")
    return build_schema(1, document.statements, dict(document.prefixes))


# -- documents


def _literals(*texts: str, datatype: str | None = None) -> list[Term]:
    return [Term.literal(text, datatype=datatype) for text in texts]


def _references(*numbers: int) -> list[Term]:
    return [Term.uri(f"http://r/{number}") for number in numbers]


# Some terms differ only in their language or datatype: they are equal in rules, and different statements.
VALUES: dict[str, list[Term]] = {
    "pages": [*_literals("1", "5", "9"), *_literals("5", "05", datatype=XSD + "integer")],
    "rating": [*_literals("1", "5.0", "9e0", "NaN", "INF"), *_literals("5", datatype=XSD + "double")],
    "total": [*_literals("1", "5.0", "9"), *_literals("5.0", datatype=XSD + "decimal")],
    "sold": _literals("1", "5", "9"),
    "born": _literals("1900-01-01", "1950-06-15", "1950-06-15Z", "2000-12-31"),
    "open": _literals("true", "1", "false"),
    "name": [*_literals("a", "ab", "A_%", "it's"), Term.literal("ab", lang="en"), Term.literal("ab", lang="de")],
    "tag": [*_literals("a", "ab", "5"), Term.literal("ab", lang="en"), *_literals("5", datatype=XSD + "integer")],
    "author": _references(2, 2, 3, 4, 0, 9),
    "home": _references(3, 3, 4, 1, 9),
    "sequel": _references(0, 1, 1, 4, 2),
    "mentions": _references(0, 1, 4, 3),
    "about": [*_references(0, 2, 3, 9), *_literals("ab", "http://r/2"), Term.literal("ab", lang="en")],
    "source": [*_references(0, 1, 2, 3, 9), *_literals("ab", "http://r/2"), Term.literal("ab", lang="en")],
    "undeclared": [*_literals("ab"), *_references(1)],
}
SINGLE = {
    "pages": ["pages"], "total": ["total"], "sold": ["sold", "total"], "born": ["born"], "open": ["open"],
    "name": ["name"], "author": ["author"], "home": ["home"], "sequel": ["sequel"], "source": ["source"],
}  # fmt: skip
"""For each property, itself and its superproperties that take one value per document."""

_BOOK, _NOVEL, _AGENT, _PLACE, _ODD = (V + name for name in ("Book", "Novel", "Agent", "Place", "Undeclared"))
_TYPES: dict[str, list[tuple[str, ...]]] = {
    RESOURCES[0]: [(_BOOK,), (_BOOK,), (_NOVEL,), (_BOOK, _AGENT), ()],
    RESOURCES[1]: [(_NOVEL,), (_NOVEL,), (_BOOK,), (_BOOK, _NOVEL), ()],
    RESOURCES[2]: [(_AGENT,), (_AGENT,), (_AGENT,), (_AGENT, _ODD), ()],
    RESOURCES[3]: [(_PLACE,), (_PLACE,), (_PLACE, _AGENT), (_AGENT,), (RDFS_RESOURCE,), ()],
    RESOURCES[4]: [(_BOOK,), (_AGENT,), (_PLACE,), (_NOVEL, _PLACE), (_ODD,), ()],
}
_PAIRS = [(name, term) for name, terms in VALUES.items() for term in terms]


def values_of(property_: str) -> list[Term]:
    """Statements that documents make with that property."""
    if property_ == RDF_TYPE:
        return [Term.uri(class_iri) for class_iri in (_BOOK, _NOVEL, _AGENT, _PLACE, _ODD)]
    return VALUES[property_.removeprefix(V)]


def lawful(said: Iterable[Statement]) -> Said:
    """Drop the second value, in one document, of a property that is not set-valued."""
    kept: dict[Statement, None] = {}
    first: dict[tuple[str, str], Term] = {}
    for statement in said:
        singles = SINGLE.get(statement.property.removeprefix(V), [])
        if all(first.get((statement.subject, name), statement.object) == statement.object for name in singles):
            first |= {(statement.subject, name): statement.object for name in singles}
            kept[statement] = None
    return frozenset(kept)


def _describe(subject: str, types: Iterable[str], values: Iterable[tuple[str, Term]]) -> list[Statement]:
    said = [Statement(subject, RDF_TYPE, Term.uri(class_iri)) for class_iri in types]
    return said + [Statement(subject, V + name, term) for name, term in values]


@st.composite
def _descriptions(draw: st.DrawFn) -> list[Statement]:
    subject = draw(st.sampled_from(RESOURCES))
    values = st.lists(st.sampled_from(_PAIRS), min_size=1, max_size=8)
    return _describe(subject, draw(st.sampled_from(_TYPES[subject])), draw(values))


@st.composite
def _full_descriptions(draw: st.DrawFn, subject: str) -> list[Statement]:
    values = [(name, draw(st.sampled_from([None, *terms]))) for name, terms in VALUES.items()]
    types = draw(st.sampled_from(_TYPES[subject]))
    return _describe(subject, types, [(name, term) for name, term in values if term is not None])


def contents(most: int = 4) -> st.SearchStrategy[Said]:
    """The statements of a document: valid, and never empty."""
    return st.lists(_descriptions(), min_size=1, max_size=most).map(lambda parts: lawful(chain(*parts)))


def populations() -> st.SearchStrategy[Said]:
    """A document with many statements about every resource: the start of a run, so that rules match."""
    return st.tuples(*map(_full_descriptions, RESOURCES)).map(lambda parts: lawful(chain(*parts)))


def in_order(said: Iterable[Statement]) -> list[Statement]:
    return sorted(said, key=repr)


def turtle(said: Iterable[Statement]) -> str:
    """
    >>> turtle([Statement("http://r/1", V + "name", Term.literal("it's", lang="en"))])
    '<http://r/1> <http://v/name> "it\\'s"@en .'
    """
    return "\n".join(f"<{s.subject}> <{s.property}> {_term(s.object)} ." for s in in_order(said))


def _term(term: Term) -> str:
    if term.is_uri:
        return f"<{term.value}>"
    text = term.value.replace("\\", "\\\\").replace('"', '\\"')
    suffix = f"@{term.lang}" if term.lang else f"^^<{term.datatype}>" if term.datatype else ""
    return f'"{text}"{suffix}'


# -- rules


@dataclass(frozen=True)
class RuleText:
    """A valid rule, and the names of the rules that it searches."""

    text: str
    searches: frozenset[str] = frozenset()


NUMBERS, INSTANTS, TRUTHS, TEXTS = ["pages", "rating?", "total", "sold"], ["born"], ["open"], ["name", "tag?"]
REFERENCES, ANYTHING = ["author", "home", "sequel", "mentions?"], ["source", "about?"]
_HEADS: list[list[str]] = [
    *[[]] * 20, ["author"], ["author"], ["sequel"], ["sequel"], ["home"], ["source"], ["about?"], ["mentions?"],
    ["author", "home"], ["sequel", "author"], ["sequel", "sequel"], ["mentions?", "author"], ["about?", "about?"],
    ["source", "author"],
]  # fmt: skip
"""Paths from a variable to the resource whose property is compared."""

_SAME, _ORDER, _WORD = ["=", "!="], ["<", "<=", ">", ">="], "an operator in words"
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_URIS = [f"<{uri}>" for uri in (*RESOURCES, NOWHERE)]
_URI_TEXTS = [f"'{uri}'" for uri in (RESOURCES[0], RESOURCES[2], NOWHERE)]
_WORDS = ["'a'", "'ab'", "'A_%'", "'it''s'", "'5'"]
_CONSTANTS: list[tuple[list[str], list[str], list[str]]] = [
    (NUMBERS, _SAME + _ORDER, ["1", "5", "5.0", "9", "4.5"]),
    *[(NUMBERS, _ORDER, ["1", "5", "9"])] * 3,
    (INSTANTS, _SAME + _ORDER, ["'1900-01-01'", "'1950-06-15'", "'1950-06-15Z'"]),
    (TRUTHS, _SAME, ["true", "false"]),
    (TEXTS, _SAME, _WORDS),
    (TEXTS, [_WORD], ["'a'", "'b'", "'A_'", "'%'", "''''"]),
    (ANYTHING, _SAME, ["'ab'", _URIS[0], _URIS[2], _URIS[-1], _URI_TEXTS[1]]),
    (ANYTHING, [_WORD], ["'b'", "'http://r/'", "'r/2'"]),
    (REFERENCES, _SAME, [*_URIS, *_URI_TEXTS[:2]]),
    (REFERENCES, [_WORD], ["'http://r/'", "'r/2'"]),
    ([], _SAME, [*_URIS[:3], _URI_TEXTS[0]]),
    ([], [_WORD], ["'r/1'", "'http://r/'"]),
]
"""Properties (none: the variable itself), how they are compared, and the constants."""
_VALUE_JOINS: list[tuple[list[str], list[str], list[str]]] = [
    (NUMBERS, _SAME + _ORDER, NUMBERS),
    (NUMBERS, ["=", "<"], NUMBERS),
    (INSTANTS, _SAME + _ORDER, INSTANTS),
    (TRUTHS, _SAME, TRUTHS),
    (TEXTS, _SAME, TEXTS),
    (TEXTS + ANYTHING, _SAME, ANYTHING),
    (REFERENCES, _SAME, REFERENCES),
    (REFERENCES, _SAME, ANYTHING),
]
_CLASSES = ["Book", "Book", "Book", "rdfs:Resource", "rdfs:Resource", "Agent", "Agent", "Novel", "Place", "v:Book"]
_LEADING_TO = {"Agent": ["author", "about?"], "Place": ["home", "about?"], "rdfs:Resource": REFERENCES + ANYTHING}
_TO_BOOKS = ["sequel", "sequel", "mentions?", "source"]
_VARIABLES = ["a", "b", "c"]


@st.composite
def rule_texts(draw: st.DrawFn, named: Sequence[str] = (), small: bool = False) -> RuleText:
    """A rule that may search one of the rules `named`; a `small` one splits into two conjunctions at most."""
    variables = _VARIABLES[: draw(st.sampled_from([1, 1, 2, 2, 3]))]
    extensions = [draw(st.sampled_from(_CLASSES)) for _ in variables]
    if named and draw(st.booleans()):
        extensions[draw(st.integers(0, len(variables) - 1))] = draw(st.sampled_from(list(named)))
    write = _Writer(draw, dict(zip(variables, extensions, strict=True)))
    parts = write.joins() if draw(st.integers(0, 5)) else []
    if not parts or draw(st.integers(0, 2)) == 0:
        parts.append(write.expression(2 if small else 4))
    if draw(st.integers(0, 7)) == 0:
        parts += write.shared_way()
    parts = draw(st.permutations(parts))
    where = "" if draw(st.integers(0, 9)) == 0 else f"\nwhere {' and '.join(parts)}"
    search = ", ".join(f"{extension} {variable}" for extension, variable in zip(extensions, variables, strict=True))
    registered = draw(st.sampled_from(variables))
    return RuleText(f"search {search} register {registered}{where}", frozenset(extensions) & frozenset(named))


_INSTANT_TEXTS = ["'1900-01-01'", "'1950-06-15'", "'1950-06-15Z'", "'1999-12-31'"]
_NUMBER_TEXTS = ["1", "5", "5.0", "9", "4.5", "-1", "8"]


@st.composite
def variants(draw: st.DrawFn, rule: RuleText) -> RuleText:
    """The same rule with other constants: both are in one rule group."""
    text = rule.text
    for constant in sorted(literals(parse(text).where), key=lambda literal: -literal.span.start):
        if constant.written is LiteralKind.NUMBER:
            options = _NUMBER_TEXTS
        elif constant.written is LiteralKind.TRUTH:
            options = ["true", "false"]
        elif constant.written is LiteralKind.URI:
            options = _URIS
        elif parse_instant(str(constant.value)) is not None:
            options = _INSTANT_TEXTS
        else:
            options = _URI_TEXTS if str(constant.value).startswith("http:") else [*_WORDS, "'r/'", "'b'", "'r/2'"]
        text = text[: constant.span.start] + draw(st.sampled_from(options)) + text[constant.span.end :]
    return RuleText(text, rule.searches)


def literals(where: Expression | None) -> list[Literal]:
    """The constants of an expression."""
    if where is None:
        return []
    if isinstance(where, Predicate):
        return [side for side in (where.left, where.right) if isinstance(side, Literal)]
    parts = [where.part] if isinstance(where, Not) else where.parts
    return [literal for part in parts for literal in literals(part)]


class _Writer:
    """Writes the parts of one rule."""

    def __init__(self, draw: st.DrawFn, extensions: dict[str, str]) -> None:
        self.variables = list(extensions)
        self._extensions = extensions
        self._draw = draw

    def choose(self, options: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(options))

    def path(self, variable: str, last: list[str], head: list[str] | None = None) -> str:
        """From `variable` to one of the properties `last`; with none, the variable itself."""
        if not last:
            return variable
        head = self.choose(_HEADS) if head is None else head
        return ".".join([variable, *(self.name(step) for step in [*head, self.choose(last)])])

    def name(self, step: str) -> str:
        bare = step.rstrip("?")
        return self.choose([bare] * 8 + [f"v:{bare}", f"<{V}{bare}>"]) + step[len(bare) :]

    def comparison(self, variable: str | None = None, head: list[str] | None = None) -> str:
        """A predicate with a constant, on either side."""
        last, operators, constants = self.choose(_CONSTANTS if head is None else _CONSTANTS[:-2])
        path = self.path(variable or self.choose(self.variables), last, head)
        operator, constant = self.choose(operators), self.choose(constants)
        if operator == _WORD:
            # Not drawn but derived, so that a new operator does not change what the seeds of mutants generate.
            return f"{path} {WORDS[sum(map(ord, path + constant)) % len(WORDS)]} {constant}"
        if self.choose([False] * 4 + [True]):
            return f"{constant} {_FLIPPED.get(operator, operator)} {path}"
        return f"{path} {operator} {constant}"

    def join(self, one: str, other: str) -> str:
        """A predicate between two variables: a reference in either direction, values, or the variables themselves."""
        one, other = self.choose([(one, other), (other, one)])
        heads: list[list[str]] = [*[[]] * 5, self.choose(_HEADS)]
        sort = self.choose(["reference"] * 5 + ["value"] * 4 + ["itself"])
        if sort == "value":
            left, operators, right = self.choose(_VALUE_JOINS)
            sides = self.path(one, left, self.choose(heads)), self.path(other, right, self.choose(heads))
            return f" {self.choose(operators)} ".join(sides)
        if sort == "itself":
            return f"{one} {self.choose(['!=', '!=', '='])} {other}"
        fitting = _LEADING_TO.get(self._extensions[other], _TO_BOOKS)
        last = self.choose([fitting, fitting, REFERENCES + ANYTHING])
        words = [self.path(one, last, self.choose(heads)), self.choose(["=", "=", "!="]), other]
        return " ".join(self.choose([words, words[::-1]]))

    def joins(self) -> list[str]:
        """Between the variables: a chain or a star, at times with a second predicate or with a cycle."""
        pairs = [(self.choose(self.variables[:n]), self.variables[n]) for n in range(1, len(self.variables))]
        if pairs and self.choose([False, False, True]):
            pairs.append(self.choose(pairs))
        if len(self.variables) == 3 and self.choose([False, True]):
            pairs.append(self.choose([("a", "b"), ("b", "c"), ("a", "c")]))
        return [self.negated(self.join(*pair)) if self.choose([0] * 9 + [1]) else self.join(*pair) for pair in pairs]

    def negated(self, text: str) -> str:
        return f"not ({text})"

    def shared_way(self) -> list[str]:
        """Two predicates on one resource at the end of a path, or on two where the path has a `?`."""
        variable, head = self.choose(self.variables), self.choose(_HEADS[20:])
        return [self.comparison(variable, head) for _ in range(2)]

    def leaf(self) -> str:
        if self.choose([False] * 5 + [True]):
            return self.join(self.choose(self.variables), self.choose(self.variables))
        return self.comparison()

    def expression(self, most: int) -> str:
        """At most `most` predicates, so that it splits into no more conjunctions than that."""
        if most == 1 or self.choose([False, True]):
            leaf = self.leaf()
            return self.negated(leaf) if self.choose([False] * 5 + [True]) else leaf
        word = self.choose(["and", "or", "or"])
        text = f"({self.expression(most // 2)} {word} {self.expression(most - most // 2)})"
        return f"not {text}" if self.choose([False] * 4 + [True]) else text
