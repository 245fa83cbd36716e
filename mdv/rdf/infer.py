"""Infer a draft schema from sample documents. The author reviews and corrects it.

Law: the samples are valid under the inferred schema. The one exception: RDFS declares rdfs:label and rdfs:comment as
literals, and no schema can also allow resources there.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from mdv.model import BLANK_MARK, MDV, RDF, RDF_TYPE, RDFS, RDFS_RESOURCE, XSD, XSD_STRING, Document, Term
from mdv.rdf.blank import name_blank_nodes
from mdv.rdf.gate import gate
from mdv.rdf.parse import parse
from mdv.rdf.schema import EMPTY_SCHEMA, MDV_TERMS
from mdv.rdf.syntax import Syntax
from mdv.rdf.values import ValueKind, find_flaw, is_datatype, value_kind

_PREFIXES = {"rdf": RDF, "rdfs": RDFS, "xsd": XSD, "mdv": MDV}
_GUESSES = tuple(XSD + name for name in ("integer", "decimal", "boolean", "date", "dateTime"))
_WIDEST = XSD + "double"  # accepts every number, but is not guessed for plain text: `12E4` may be a name
_PREFIX_NAME = re.compile("(?:[A-Za-z](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?)?")
_LOCAL_NAME = re.compile("[A-Za-z_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?")
_NOT_IN_IRI = re.compile(r'[\x00-\x20<>"{}|^`\\]')


@dataclass(slots=True)
class _Use:
    """Statistics of one property in the samples."""

    statements: int = 0
    subjects: set[str] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    datatypes: Counter[str | None] = field(default_factory=Counter)  # of the literals; None for language-tagged text
    guesses: list[str] = field(default_factory=list)
    max_values: int = 1  # of one subject in one document


@dataclass(frozen=True, slots=True)
class _Known:
    """The classes in the samples, and the terms that the draft declares."""

    types: Mapping[str, set[str]]  # classes of each resource
    sizes: Mapping[str, int]  # number of resources of each class
    classes: frozenset[str]
    datatypes: frozenset[str]


def read_sample(body: bytes, syntax: Syntax, uri: str, charset: str | None = None) -> Document:
    """Return the text of a sample document. It is not validated: there may be no schema yet."""
    return name_blank_nodes(parse(gate(body, syntax, charset), uri))


def infer_schema(documents: Iterable[Document]) -> str:
    """Return a schema in Turtle under which the sample documents are valid.

    >>> from mdv.model import Statement
    >>> host = Statement("http://d#host", RDF_TYPE, Term.uri("http://v/Host"))
    >>> memory = Statement("http://d#host", "http://v/memory", Term.literal("92"))
    >>> print(infer_schema([Document("http://d", (host, memory), {"v": "http://v/"})]))
    # Inferred from 1 document with 2 statements. Review and correct it, then register it.
    @prefix mdv: <urn:mdv:schema#> .
    @prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
    @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
    @prefix v: <http://v/> .
    @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
    <BLANKLINE>
    <> mdv:world mdv:closed .
    <BLANKLINE>
    # Classes
    v:Host a rdfs:Class .  # 1 resource
    <BLANKLINE>
    # Properties
    <BLANKLINE>
    # 1 statement about 1 resource
    v:memory a rdf:Property ;
        rdfs:domain v:Host ;
        rdfs:range xsd:integer .
    <BLANKLINE>
    """
    samples = list(documents)
    types = _types(samples)
    sizes = Counter(class_ for classes in types.values() for class_ in classes)
    uses = _uses(samples)
    undeclarable = _undeclarable(set(sizes), set(uses))
    datatypes = {d for use in uses.values() if (d := _range_of_literals(use)) and not is_datatype(d)}
    datatypes = {d for d in datatypes if _may_be_datatype(d) and d not in sizes and d not in uses}
    known = _Known(types, sizes, frozenset(sizes.keys() - undeclarable), frozenset(datatypes))
    names = _Names(samples)

    classes = [
        f"{names.short(iri)} a rdfs:Class .  # {_count(sizes[iri], 'resource')}"
        for iri in sorted(sizes)
        if iri not in EMPTY_SCHEMA.classes and iri not in undeclarable
    ]
    properties = [
        block
        for iri in sorted(uses)
        if (iri not in undeclarable or EMPTY_SCHEMA.property_of(iri))
        and (block := _property(iri, uses[iri], known, names))
    ]
    statements = sum(len(sample.statements) for sample in samples)
    head = f"# Inferred from {_count(len(samples), 'document')} with {_count(statements, 'statement')}."
    world = ["<> mdv:world mdv:closed ."]
    if undeclarable:
        world = ["# Open, because these terms cannot be declared:"]
        world += [f"#   {names.full(iri)}" for iri in sorted(undeclarable)]
        world += ["<> mdv:world mdv:open ."]
    body = [
        "\n".join(world),
        "\n".join(["# Classes", *classes]) if classes else "",
        "\n".join(["# Datatypes", *(f"{names.short(d)} a rdfs:Datatype ." for d in sorted(datatypes))])
        if datatypes
        else "",
        "\n\n".join(["# Properties", *properties]) if properties else "",
    ]
    prefixes = "\n".join(names.declarations())
    return f"{head} Review and correct it, then register it.\n{prefixes}\n\n" + "\n\n".join(filter(None, body)) + "\n"


def _types(samples: Iterable[Document]) -> dict[str, set[str]]:
    types: dict[str, set[str]] = defaultdict(set)
    for sample in samples:
        for subject, property_, term in sample.statements:
            if property_ == RDF_TYPE and term.is_uri:
                types[subject].add(term.value)
    return dict(types)


def _uses(samples: Iterable[Document]) -> dict[str, _Use]:
    uses: dict[str, _Use] = defaultdict(_Use)
    for sample in samples:
        values: Counter[tuple[str, str]] = Counter()
        for subject, property_, term in dict.fromkeys(sample.statements):
            if property_ == RDF_TYPE:
                continue
            use = uses[property_]
            use.statements += 1
            use.subjects.add(subject)
            values[subject, property_] += 1
            if term.is_uri:
                use.targets.add(term.value)
            else:
                _add_literal(use, term)
        for (_, property_), count in values.items():
            uses[property_].max_values = max(uses[property_].max_values, count)
    return dict(uses)


def _add_literal(use: _Use, term: Term) -> None:
    own = None if term.lang is not None else term.datatype or XSD_STRING
    use.datatypes[own] += 1
    own_guess = (own,) if own is not None and own not in _GUESSES and own != XSD_STRING else ()
    if use.datatypes.total() == 1:
        use.guesses = [*own_guess, *_GUESSES, _WIDEST]
    use.guesses = [guess for guess in use.guesses if _fits(term, guess, own)]


def _fits(term: Term, guess: str, own: str | None) -> bool:
    """True if `guess` can be the datatype of a value. Plain text such as `007` is a name, not a number."""
    if own is None or find_flaw(term.value, guess) is not None:
        return False
    return not (own == XSD_STRING and value_kind(guess) is ValueKind.NUMBER and re.match("[+-]?0[0-9]", term.value))


def _range_of_literals(use: _Use) -> str | None:
    """Return the datatype of all values; None if there are no literals, or if there are also resources."""
    if not use.datatypes or use.targets:
        return None
    own = next(iter(use.datatypes)) if len(use.datatypes) == 1 else None
    if own is not None and own != XSD_STRING and own in use.guesses:
        return own
    numbers = all(datatype is not None and value_kind(datatype) is ValueKind.NUMBER for datatype in use.datatypes)
    guesses = (guess for guess in use.guesses if guess in _GUESSES or (numbers and guess == _WIDEST))
    return next(guesses, XSD_STRING)


def _undeclarable(classes: set[str], properties: set[str]) -> set[str]:
    """Return the terms that no schema can declare: ambiguous terms, blank nodes, datatypes and MDV's own terms."""
    found = {iri for iri in classes | properties if BLANK_MARK in iri or is_datatype(iri) or iri in MDV_TERMS}
    found |= {
        iri
        for iri in classes
        if (iri in properties and iri not in EMPTY_SCHEMA.classes) or EMPTY_SCHEMA.property_of(iri)
    }
    return found | (properties & EMPTY_SCHEMA.classes.keys())


def _may_be_datatype(iri: str) -> bool:
    return not (BLANK_MARK in iri or iri in MDV_TERMS or iri in EMPTY_SCHEMA.classes or EMPTY_SCHEMA.property_of(iri))


def _property(iri: str, use: _Use, known: _Known, names: _Names) -> str | None:
    built_in = EMPTY_SCHEMA.property_of(iri)
    declarations = ["a rdf:Property"]
    domain = _shared_class(use.subjects, known)
    if domain is not None and not built_in:
        declarations.append(f"rdfs:domain {names.short(domain)}")
    range_ = _range_of_literals(use)
    if use.targets and not use.datatypes:
        range_ = _shared_class(use.targets, known) or RDFS_RESOURCE
    elif range_ is not None and not is_datatype(range_) and range_ not in known.datatypes:
        range_ = XSD_STRING
    # A built-in property is declared only if the samples need it.
    if range_ is not None and (not built_in or (built_in.range is not None and use.targets)):
        declarations.append(f"rdfs:range {names.short(range_)}")
    if use.max_values > 1:
        declarations.append("mdv:setValued true")
    if built_in and len(declarations) == 1:
        return None
    comment = f"# {_count(use.statements, 'statement')} about {_count(len(use.subjects), 'resource')}"
    if use.max_values > 1:
        comment += f", up to {use.max_values} values each"
    if use.targets and use.datatypes:
        comment += "; both literals and resources"
    lines = [comment, names.short(iri) + " " + " ;\n    ".join(declarations) + " ."]
    if use.targets and not use.datatypes:
        lines.append(f"# {names.short(iri)} mdv:reference mdv:strong .  # to publish its targets as well")
    return "\n".join(lines)


def _shared_class(resources: Iterable[str], known: _Known) -> str | None:
    """Return the class that all resources have in common; of several, the one with the fewest resources."""
    shared: set[str] | None = None
    for resource in resources:
        classes = known.types.get(resource, set())
        shared = set(classes) if shared is None else shared & classes
        if not shared:
            return None
    return min((shared or set()) & known.classes, key=lambda iri: (known.sizes[iri], iri), default=None)


class _Names:
    """Writes IRIs as Turtle with the prefixes of the samples, and records the used prefixes."""

    def __init__(self, samples: Iterable[Document]) -> None:
        self._prefixes = dict(_PREFIXES)
        for sample in samples:
            for prefix, namespace in sample.prefixes.items():
                if namespace and _PREFIX_NAME.fullmatch(prefix) and not _NOT_IN_IRI.search(namespace):
                    self._prefixes.setdefault(prefix, namespace)
        self._used = {"rdf", "rdfs", "mdv"}

    def short(self, iri: str) -> str:
        fitting = [
            (len(namespace), prefix)
            for prefix, namespace in self._prefixes.items()
            if iri.startswith(namespace) and _LOCAL_NAME.fullmatch(iri, len(namespace))
        ]
        if not fitting:
            return self.full(iri)
        length, prefix = max(fitting)
        self._used.add(prefix)
        return f"{prefix}:{iri[length:]}"

    def full(self, iri: str) -> str:
        return "<" + _NOT_IN_IRI.sub(lambda found: f"\\u{ord(found[0]):04X}", iri) + ">"

    def declarations(self) -> Iterator[str]:
        for prefix in sorted(self._used):
            yield f"@prefix {prefix}: {self.full(self._prefixes[prefix])} ."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
