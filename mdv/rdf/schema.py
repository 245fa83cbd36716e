"""The schema: RDFS and the `mdv:` terms, with inheritance resolved once, when it is read.

Law: what a `SchemaProperty` or `SchemaClass` says is effective. Nobody else walks subclasses or subproperties.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cached_property
from typing import TypeVar

from mdv.errors import Flaw, InvalidSchema
from mdv.model import MDV, OWL, RDF, RDF_TYPE, RDFS, RDFS_RESOURCE, XSD, Statement
from mdv.rdf.values import Kind, is_datatype, kind_of, truth_of

T = TypeVar("T", str, bool)
Edges = Mapping[str, Collection[str]]

_REFERENCE, _SET_VALUED, _WORLD = MDV + "reference", MDV + "setValued", MDV + "world"
_CHOICES = {
    _REFERENCE: {MDV + "strong": True, MDV + "weak": False},
    _WORLD: {MDV + "open": True, MDV + "closed": False},
}
MDV_TERMS = (_REFERENCE, _SET_VALUED, _WORLD, *(term for choice in _CHOICES.values() for term in choice))
"""The whole vocabulary of MDV: what no schema may declare anew."""
_SUBCLASS, _SUBPROPERTY, _DOMAIN, _RANGE = (RDFS + n for n in ("subClassOf", "subPropertyOf", "domain", "range"))

_CLASS_TYPES = frozenset((RDFS + "Class", OWL + "Class"))
_PROPERTY_TYPES = frozenset(
    [RDF + "Property", RDFS + "ContainerMembershipProperty"]
    + [OWL + kind + "Property" for kind in ("Object", "Datatype", "Annotation", "Ontology", "Functional")]
    + [OWL + kind + "Property" for kind in ("InverseFunctional", "Transitive", "Symmetric", "Deprecated")]
)

# rdfs:Literal is a datatype here, since no resource is one.
_BUILT_IN_CLASSES: dict[str, tuple[str, ...]] = {
    RDFS_RESOURCE: (),
    RDFS + "Class": (),
    RDFS + "Datatype": (RDFS + "Class",),
    RDFS + "Container": (),
    RDFS + "ContainerMembershipProperty": (RDF + "Property",),
    RDF + "Property": (),
    RDF + "List": (),
    RDF + "Statement": (),
    **{RDF + name: (RDFS + "Container",) for name in ("Alt", "Bag", "Seq")},
}
# RDFS lets rdfs:Resource stand for literals too, where it is the range of its own terms: here those have no range.
# Nor do they inherit from each other: rdf:_1 and rdf:_2 would be two values of rdfs:member, which is not set-valued.
_BUILT_IN_PROPERTIES: dict[str, str | None] = {
    RDF_TYPE: RDFS_RESOURCE,
    RDFS + "label": RDFS + "Literal",
    RDFS + "comment": RDFS + "Literal",
    **dict.fromkeys((RDFS + name for name in ("seeAlso", "isDefinedBy", "member")), None),
    **dict.fromkeys((_SUBCLASS, _SUBPROPERTY, _DOMAIN, _RANGE), None),
    **dict.fromkeys((RDF + name for name in ("value", "first", "rest", "subject", "predicate", "object")), None),
}
_BUILT_IN_PREFIXES = {"rdf": RDF, "rdfs": RDFS, "xsd": XSD, "mdv": MDV}
_MEMBERSHIP = re.compile(re.escape(RDF) + "_[1-9][0-9]*")
_SIMPLE_NAME = re.compile("[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class SchemaClass:
    """A class. Both closures contain the class itself, first; nearer ones come before farther ones."""

    iri: str
    superclasses: tuple[str, ...]
    subclasses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SchemaProperty:
    """A property with what it says and inherits. Both closures contain the property itself, first."""

    iri: str
    domains: tuple[str, ...] = ()
    range: str | None = None
    kind: Kind = Kind.TEXT
    strong: bool = False
    set_valued: bool = False
    superproperties: tuple[str, ...] = ()
    subproperties: tuple[str, ...] = ()


class UnknownName(Exception):
    """A name that stands for nothing in the schema, or for several things.

    >>> print(UnknownName("CycleProvidr", nearest=("CycleProvider",)))
    unknown class 'CycleProvidr'; did you mean CycleProvider?
    >>> print(UnknownName("name", ambiguous=("a:name", "b:name"), kind="property"))
    ambiguous property 'name'; say a:name or b:name
    """

    def __init__(
        self, name: str, nearest: tuple[str, ...] = (), ambiguous: tuple[str, ...] = (), kind: str = "class"
    ) -> None:
        super().__init__(name, nearest, ambiguous, kind)
        self.name, self.nearest, self.ambiguous, self.kind = name, nearest, ambiguous, kind

    def __str__(self) -> str:
        if self.ambiguous:
            return f"ambiguous {self.kind} {self.name!r}; say {' or '.join(self.ambiguous)}"
        hint = f"; did you mean {' or '.join(self.nearest)}?" if self.nearest else ""
        return f"unknown {self.kind} {self.name!r}{hint}"


@dataclass(frozen=True)
class Schema:
    """Classes, properties and declared datatypes by IRI; whether the world is open; the prefixes of the rule language.

    `rdf:_1`, `rdf:_2` … are properties too: ask `property_of`, which knows them, where any property may come.
    """

    classes: Mapping[str, SchemaClass]
    properties: Mapping[str, SchemaProperty]
    datatypes: frozenset[str]
    open: bool
    prefixes: Mapping[str, str]

    def __hash__(self) -> int:
        return hash((frozenset(self.classes), frozenset(self.properties), self.datatypes, self.open))

    def property_of(self, iri: str) -> SchemaProperty | None:
        """The property of that IRI, None where it is not declared.

        >>> EMPTY.property_of(RDF_TYPE).set_valued, EMPTY.property_of(RDF + "_7").set_valued
        (True, False)
        """
        found = self.properties.get(iri)
        if found is None and _MEMBERSHIP.fullmatch(iri):
            return SchemaProperty(iri, superproperties=(iri,), subproperties=(iri,))
        return found

    def is_datatype(self, iri: str) -> bool:
        """Whether `iri` is a datatype: one of XSD's or RDF's, or declared here."""
        return is_datatype(iri) or iri in self.datatypes

    def shorten(self, iri: str) -> str:
        """The name that people write for `iri`: `prefix:local`, bare where the empty prefix fits, else `<iri>`.

        >>> EMPTY.shorten(RDFS_RESOURCE), EMPTY.shorten("http://a/b")
        ('rdfs:Resource', '<http://a/b>')
        """
        return _shorten(iri, self.prefixes)

    def resolve_class(self, name: str) -> str:
        """The IRI of the class that `name` stands for, or `UnknownName`.

        >>> EMPTY.resolve_class("Resource") == EMPTY.resolve_class("rdfs:Resource") == RDFS_RESOURCE
        True
        """
        return self._resolve(name, "class", self._class_locals, self.classes.__contains__, None)

    def resolve_property(self, name: str, class_iri: str | None = None) -> str:
        """The IRI of the property that `name` stands for, or `UnknownName`.

        Of several with that local name the class's own wins: one whose domain is the class or, else, a superclass.

        >>> EMPTY.resolve_property("type") == RDF_TYPE
        True
        """
        declared = self.property_of
        return self._resolve(name, "property", self._property_locals, lambda iri: declared(iri) is not None, class_iri)

    def nearest_classes(self, name: str) -> tuple[str, ...]:
        """Up to three declared classes whose local names look like that of `name`, as people write them."""
        return self._nearest(name, self._class_locals)

    def nearest_properties(self, name: str) -> tuple[str, ...]:
        """Up to three declared properties whose local names look like that of `name`, as people write them.

        >>> EMPTY.nearest_properties("http://example.org/lable")
        ('rdfs:label',)
        """
        return self._nearest(name, self._property_locals)

    @cached_property
    def _class_locals(self) -> dict[str, tuple[str, ...]]:
        return _by_local_name(self.classes)

    @cached_property
    def _property_locals(self) -> dict[str, tuple[str, ...]]:
        return _by_local_name(self.properties)

    def _resolve(
        self,
        name: str,
        kind: str,
        by_local: Mapping[str, tuple[str, ...]],
        declared: Callable[[str], bool],
        class_iri: str | None,
    ) -> str:
        for iri in self._spelled_out(name):
            if declared(iri):
                return iri
        candidates = by_local.get(name, ())
        if class_iri is not None:
            candidates = self._own(candidates, class_iri) or candidates
        # Where several fit, the schema's default namespace wins, then what the schema adds over what is built in.
        for preferred in (
            [iri for iri in candidates if iri == self.prefixes.get("", "") + name],
            [iri for iri in candidates if not iri.startswith((RDF, RDFS))],
            candidates,
        ):
            if len(preferred) == 1:
                return preferred[0]
            if preferred:
                raise UnknownName(name, ambiguous=tuple(map(self.shorten, preferred)), kind=kind)
        raise UnknownName(name, nearest=self._nearest(name, by_local), kind=kind)

    def _spelled_out(self, name: str) -> Iterator[str]:
        if name.startswith("<") and name.endswith(">"):
            yield name[1:-1]
        elif ":" in name:
            yield name
            prefix, _, local = name.partition(":")
            if prefix in self.prefixes:
                yield self.prefixes[prefix] + local

    def _own(self, candidates: Iterable[str], class_iri: str) -> tuple[str, ...]:
        """Those of `candidates` whose domain is the class or a superclass of it, none of them below another's."""
        class_ = self.classes.get(class_iri)
        above = class_.superclasses if class_ else (class_iri, RDFS_RESOURCE)
        own = [(iri, d) for iri in candidates for d in self.properties[iri].domains if d in above]

        def below(one: str, other: str) -> bool:
            one_up, other_up = self.classes[one].superclasses, self.classes[other].superclasses
            return other in one_up and one not in other_up

        return tuple({iri: None for iri, domain in own if not any(below(other, domain) for _, other in own)})

    def _nearest(self, name: str, by_local: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        bare = ":" not in name
        folded: dict[str, list[str]] = defaultdict(list)
        for local in by_local:
            folded[local.casefold()].append(local)
        # A very long name is near to nothing, and comparing it would take long.
        near = get_close_matches(_local_name(name.strip("<>")).casefold()[:80], folded, 3, 0.7)
        found: list[str] = []
        for local in (local for match in near for local in folded[match]):
            unique = bare and len(by_local[local]) == 1
            found += [local] if unique else map(self.shorten, by_local[local])
        return tuple(found[:3])


def read_schema(statements: Iterable[Statement], prefixes: Mapping[str, str]) -> Schema:
    """The schema that `statements` declare, with the built-in terms; `InvalidSchema` with every flaw they have.

    >>> from mdv.model import Term
    >>> memory = "http://example.org/memory"
    >>> schema = read_schema([Statement(memory, RDFS + "range", Term.uri(XSD + "integer"))], {"": "http://example.org/"})
    >>> schema.properties[memory].kind, schema.shorten(memory), schema.open
    (<Kind.NUMBER: 'number'>, 'memory', False)
    """
    draft = _Draft({**_BUILT_IN_PREFIXES, **prefixes})
    for statement in dict.fromkeys(statements):
        draft.read(statement)
    schema = draft.finish()
    if draft.flaws:
        flaws = list(dict.fromkeys(draft.flaws))
        count = f"{len(flaws)} flaws" if len(flaws) > 1 else "a flaw"
        raise InvalidSchema(f"The schema has {count}: {flaws[0].message}.", flaws)
    return schema


class _Draft:
    """A schema being read: what is said about each term, and what is wrong with it."""

    def __init__(self, prefixes: Mapping[str, str]) -> None:
        self.prefixes = prefixes
        self.flaws: list[Flaw] = []
        self.classes: dict[str, str] = {}  # what made it a class
        self.properties: dict[str, str] = {}  # what made it a property
        self.datatypes: set[str] = set()
        self.superclasses: dict[str, dict[str, None]] = defaultdict(dict)
        self.superproperties: dict[str, dict[str, None]] = defaultdict(dict)
        self.domains: dict[str, dict[str, None]] = defaultdict(dict)
        self.ranges: dict[str, dict[str, None]] = defaultdict(dict)
        self.strong: dict[str, dict[bool, None]] = defaultdict(dict)
        self.set_valued: dict[str, dict[bool, None]] = defaultdict(dict)
        self.worlds: dict[bool, None] = {}
        self.mdv_terms: dict[str, Statement] = {}

    def short(self, iri: str) -> str:
        return _shorten(iri, self.prefixes)

    def flaw(self, message: str, subject: str, statement: Statement | None = None, hint: str | None = None) -> None:
        property_, value = (statement.property, statement.object.value[:200]) if statement else (None, None)
        self.flaws.append(Flaw(message, subject=subject, property=property_, value=value, hint=hint))

    def read(self, statement: Statement) -> None:
        subject, property_, object_ = statement
        if property_.startswith(MDV):
            self.read_mdv(statement)
        elif subject.startswith("_:") or object_.type == "blank":
            # What is said of or through a blank node (unions, restrictions) is beyond RDFS; the property still exists.
            if property_ in (_DOMAIN, _RANGE, _SUBPROPERTY) and not subject.startswith("_:"):
                self.properties.setdefault(subject, f"has an {self.short(property_)}")
        elif property_ in (RDF_TYPE, _SUBCLASS, _SUBPROPERTY, _DOMAIN, _RANGE):
            if object_.type != "uri":
                self.flaw(f"{self.short(property_)} of {self.short(subject)} needs a URI", subject, statement)
            else:
                self.read_rdfs(subject, property_, object_.value)

    def read_rdfs(self, subject: str, property_: str, object_: str) -> None:
        if property_ == RDF_TYPE:
            reason = f"is declared {self.short(object_)}"
            if object_ in _CLASS_TYPES and not is_datatype(subject):
                self.classes.setdefault(subject, reason)
            elif object_ in _PROPERTY_TYPES:
                self.properties.setdefault(subject, reason)
            elif object_ == RDFS + "Datatype":
                self.datatypes.add(subject)
            return
        if property_ == _SUBCLASS:
            self.superclasses[subject][object_] = None
            return
        self.properties.setdefault(subject, f"has an {self.short(property_)}")
        if property_ == _SUBPROPERTY:
            self.superproperties[subject][object_] = None
            self.properties.setdefault(object_, "has a subproperty")
        elif property_ == _DOMAIN:
            self.domains[subject][object_] = None
            self.classes.setdefault(object_, "is a domain")
        else:
            self.ranges[subject][object_] = None

    def read_mdv(self, statement: Statement) -> None:
        subject, property_, object_ = statement
        if property_ in _CHOICES:
            choice = _CHOICES[property_].get(object_.value) if object_.type == "uri" else None
            expected = " or ".join(self.short(term) for term in _CHOICES[property_])
        elif property_ == _SET_VALUED:
            choice = truth_of(object_.value) if object_.type == "literal" else None
            expected = "true or false"
        else:
            self.mdv_terms.setdefault(property_, statement)
            return
        if choice is None:
            near = _nearest_term(object_.value) if object_.type == "uri" else None
            hint = f"did you mean {self.short(near)}?" if near and near in _CHOICES.get(property_, ()) else None
            self.flaw(f"{self.short(property_)} must be {expected}", subject, statement, hint)
        elif property_ == _WORLD:
            self.worlds[choice] = None
        elif not subject.startswith("_:"):
            self.properties.setdefault(subject, f"has an {self.short(property_)}")
            (self.strong if property_ == _REFERENCE else self.set_valued)[subject][choice] = None

    def finish(self) -> Schema:
        self.sort_out_datatypes()
        self.refuse_contradictions()
        self.build_in()
        classes = self.finish_classes()
        properties = self.finish_properties()
        datatypes = frozenset(iri for iri in self.datatypes if not is_datatype(iri))
        return Schema(classes, properties, datatypes, True in self.worlds, self.prefixes)

    def sort_out_datatypes(self) -> None:
        """A subclass of a datatype is a datatype, and says nothing about classes."""
        known, more = set(self.datatypes), set(self.superclasses)
        while more:
            more = {
                below
                for below, supers in self.superclasses.items()
                if below not in known and any(is_datatype(above) or above in known for above in supers)
            }
            known |= more
        self.datatypes = known
        for below in [iri for iri in self.superclasses if iri in known or is_datatype(iri)]:
            for above in self.superclasses.pop(below):
                if not (above in known or is_datatype(above) or above == RDFS_RESOURCE):
                    self.classes.setdefault(below, f"is a subclass of {self.short(above)}")
                    self.classes.setdefault(above, "has a subclass")
        for below, supers in self.superclasses.items():
            for above in supers:
                self.classes.setdefault(below, f"is a subclass of {self.short(above)}")
                self.classes.setdefault(above, "has a subclass")
        for iri, ranges in self.ranges.items():
            for range_ in ranges:
                if not (is_datatype(range_) or range_ in known):
                    self.classes.setdefault(range_, f"is the range of {self.short(iri)}")

    def refuse_contradictions(self) -> None:
        if len(self.worlds) > 1:
            self.flaw("the world is said to be both open and closed", MDV.removesuffix("#"), hint="say mdv:world once")
        for iri, statement in self.mdv_terms.items():
            # `<#note>` in a schema is an mdv: IRI too; one that the schema declares is the author's own.
            if iri not in self.properties or iri in MDV_TERMS:
                near = _nearest_term(iri)
                hint = f"did you mean {self.short(near)}?" if near else None
                self.flaw(f"there is no {self.short(iri)}", statement.subject, statement, hint)
        for iri in MDV_TERMS:
            if iri in self.classes or iri in self.properties or iri in self.datatypes:
                self.flaw(f"{self.short(iri)} belongs to MDV and cannot be declared", iri)
        for iri, why in self.classes.items():
            other = self.properties.get(iri) or (
                "is built in as a property" if self.is_built_in_property(iri) else None
            )
            if other:
                self.flaw(f"{self.short(iri)} is both a class and a property: it {why} and {other}", iri)
            if iri in self.datatypes or is_datatype(iri):
                self.flaw(f"{self.short(iri)} is both a class and a datatype: it {why}", iri)
        for iri, why in self.properties.items():
            if iri in _BUILT_IN_CLASSES:
                self.flaw(f"{self.short(iri)} is both a class and a property: it is built in and {why}", iri)
            if iri in self.datatypes or is_datatype(iri):
                self.flaw(f"{self.short(iri)} is both a datatype and a property: it {why}", iri)
        for iri in self.datatypes & _BUILT_IN_CLASSES.keys():
            self.flaw(f"{self.short(iri)} is both a class and a datatype: it is built in as a class", iri)
        for iri, ranges in self.ranges.items():
            if len(ranges) > 1:
                names = " and ".join(map(self.short, ranges))
                self.flaw(f"{self.short(iri)} has several ranges: {names}", iri, hint="leave one, or none")
        for iri in [iri for iri, said in self.strong.items() if len(said) > 1]:
            self.flaw(f"the reference {self.short(iri)} is said to be both strong and weak", iri)
        for iri in [iri for iri, said in self.set_valued.items() if len(said) > 1]:
            self.flaw(f"{self.short(iri)} is said both to be set-valued and not to be", iri)

    def is_built_in_property(self, iri: str) -> bool:
        return iri in _BUILT_IN_PROPERTIES or bool(_MEMBERSHIP.fullmatch(iri))

    def build_in(self) -> None:
        """Built-in terms say what they say unless the schema says otherwise."""
        for class_, supers in _BUILT_IN_CLASSES.items():
            self.classes.setdefault(class_, "is built in")
            self.superclasses[class_].update(dict.fromkeys(supers))
        for iri, range_ in _BUILT_IN_PROPERTIES.items():
            self.properties.setdefault(iri, "is built in")
            if range_ and not self.ranges.get(iri):
                self.ranges[iri][range_] = None
        if not self.set_valued.get(RDF_TYPE):
            self.set_valued[RDF_TYPE][True] = None

    def finish_classes(self) -> dict[str, SchemaClass]:
        equal = _equals(self.superclasses)
        closures = {iri: _closure(iri, self.superclasses, equal) for iri in sorted(self.classes)}
        everything = closures[RDFS_RESOURCE]
        closures = {iri: tuple(dict.fromkeys(above + everything)) for iri, above in closures.items()}
        below = _invert(closures)
        return {iri: SchemaClass(iri, above, below[iri]) for iri, above in closures.items()}

    def finish_properties(self) -> dict[str, SchemaProperty]:
        equal = _equals(self.superproperties)
        closures = {iri: _closure(iri, self.superproperties, equal) for iri in sorted(self.properties)}
        below = _invert(closures)
        found = {}
        for iri, above in closures.items():
            levels = list(_levels(iri, self.superproperties, equal))
            range_ = self.inherited(iri, levels, self.ranges, self.short, "ranges")
            strong = self.inherited(iri, levels, self.strong, lambda v: "strong" if v else "weak", "kinds of reference")
            many = self.inherited(iri, levels, self.set_valued, lambda v: str(v).lower(), "values of mdv:setValued")
            if strong and range_ and (is_datatype(range_) or range_ in self.datatypes):
                self.flaw(
                    f"{self.short(iri)} cannot be a strong reference: its range {self.short(range_)} is a datatype",
                    iri,
                    hint=f"say {self.short(iri)} mdv:reference mdv:weak, or give it a class as range",
                )
            if RDF_TYPE in above and iri != RDF_TYPE:
                self.flaw(f"{self.short(iri)} cannot be a subproperty of rdf:type: only rdf:type gives types", iri)
            domains = tuple(self.domains.get(iri, ()))
            found[iri] = SchemaProperty(
                iri, domains, range_, kind_of(range_), bool(strong), bool(many), above, below[iri]
            )
        return found

    def inherited(
        self,
        iri: str,
        levels: list[frozenset[str]],
        said: Mapping[str, Mapping[T, None]],
        show: Callable[[T], str],
        what: str,
    ) -> T | None:
        """What the property says or, else, the nearest of its superproperties that say anything."""
        for distance, level in enumerate(levels):
            values = {value: speaker for speaker in sorted(level) for value in said.get(speaker, ())}
            if len(values) > 1 and len(said.get(iri, ())) < 2:
                sources = " and ".join(f"{show(value)} (of {self.short(who)})" for value, who in values.items())
                if distance == 0:
                    names = " and ".join(map(self.short, sorted(level)))
                    self.flaw(f"{names} are subproperties of each other but have two {what}: {sources}", min(level))
                else:
                    hint = f"say which on {self.short(iri)} itself"
                    self.flaw(f"{self.short(iri)} inherits two {what}: {sources}", iri, hint=hint)
            if values:
                return next(iter(values))
        return None


def _shorten(iri: str, prefixes: Mapping[str, str]) -> str:
    best: str | None = None
    longest = 0
    for prefix, namespace in prefixes.items():
        if len(namespace) > longest and iri.startswith(namespace) and _SIMPLE_NAME.fullmatch(iri, len(namespace)):
            best, longest = prefix, len(namespace)
    if best is None:
        return f"<{iri}>"
    return f"{best}:{iri[longest:]}" if best else iri[longest:]


def _local_name(iri: str) -> str:
    return re.split("[#/:]", iri)[-1]


def _by_local_name(iris: Iterable[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = defaultdict(list)
    for iri in sorted(iris):
        if local := _local_name(iri):
            found[local].append(iri)
    return {local: tuple(named) for local, named in found.items()}


def _nearest_term(iri: str) -> str | None:
    return next(iter(get_close_matches(iri[:80], MDV_TERMS, 1, 0.7)), None)


MAX_ABOVE = 200_000
"""Terms above terms, counted over the whole schema: what a chain of some six hundred has."""


def _equals(above: Edges) -> dict[str, frozenset[str]]:
    """For each term on a cycle, the terms that are equivalent to it: above and below at once."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for iri in above.get(todo.pop(), ()):
                if iri not in seen:
                    seen.add(iri)
                    todo.append(iri)
        return seen

    reached: dict[str, set[str]] = {}
    total = 0
    for iri in above:
        reached[iri] = reach(iri)
        total += len(reached[iri])
        if total > MAX_ABOVE:
            raise InvalidSchema(
                f"The hierarchy is too deep: its terms have more than {MAX_ABOVE:,} others above them in all. "
                "Real ones are broad rather than deep."
            )
    return {
        iri: frozenset([iri, *(other for other in found if iri in reached.get(other, ()))])
        for iri, found in reached.items()
        if iri in found
    }


def _levels(start: str, above: Edges, equal: Mapping[str, frozenset[str]]) -> Iterator[frozenset[str]]:
    """The terms above `start` by distance, equivalent ones being at no distance from each other."""
    level = equal.get(start, frozenset((start,)))
    seen: set[str] = set()
    while level:
        yield level
        seen |= level
        step = {up for iri in level for up in above.get(iri, ())}
        level = frozenset(same for up in step for same in equal.get(up, (up,))) - seen


def _closure(start: str, above: Edges, equal: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    ordered = (iri for level in _levels(start, above, equal) for iri in sorted(level))
    return tuple(dict.fromkeys((start, *ordered)))


def _invert(closures: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    below: dict[str, dict[str, None]] = {iri: {iri: None} for iri in closures}
    for iri, above in closures.items():
        for up in above:
            below[up][iri] = None
    return {iri: tuple(found) for iri, found in below.items()}


@dataclass(frozen=True, slots=True)
class PropertyChange:
    """A property that is in both schemas and not the same; `aspects` are the names of the fields that changed."""

    old: SchemaProperty
    new: SchemaProperty
    aspects: frozenset[str]


@dataclass(frozen=True, slots=True)
class Differences:
    """What became of a schema. `changed_classes` are those whose superclasses changed."""

    added_classes: frozenset[str] = frozenset()
    removed_classes: frozenset[str] = frozenset()
    changed_classes: frozenset[str] = frozenset()
    added_properties: frozenset[str] = frozenset()
    removed_properties: frozenset[str] = frozenset()
    changed_properties: tuple[PropertyChange, ...] = ()
    closed: bool = False
    opened: bool = False

    def __bool__(self) -> bool:
        return self != Differences()


def differences(old: Schema, new: Schema) -> Differences:
    """What of `old` is effectively otherwise in `new`; false where nothing is. Prefixes and order do not count.

    >>> bool(differences(EMPTY, EMPTY))
    False
    >>> from mdv.model import Term
    >>> point = Statement("http://a/Point", RDF_TYPE, Term.uri(RDFS + "Class"))
    >>> differences(EMPTY, read_schema([point], {})).added_classes
    frozenset({'http://a/Point'})
    """
    shared = sorted(old.properties.keys() & new.properties.keys())
    changes = ((old.properties[iri], new.properties[iri]) for iri in shared)
    return Differences(
        added_classes=frozenset(new.classes.keys() - old.classes.keys()),
        removed_classes=frozenset(old.classes.keys() - new.classes.keys()),
        changed_classes=frozenset(
            iri
            for iri in old.classes.keys() & new.classes.keys()
            if set(old.classes[iri].superclasses) != set(new.classes[iri].superclasses)
        ),
        added_properties=frozenset(new.properties.keys() - old.properties.keys()),
        removed_properties=frozenset(old.properties.keys() - new.properties.keys()),
        changed_properties=tuple(PropertyChange(a, b, aspects) for a, b in changes if (aspects := _changed(a, b))),
        closed=old.open and not new.open,
        opened=new.open and not old.open,
    )


def _changed(old: SchemaProperty, new: SchemaProperty) -> frozenset[str]:
    # Subproperties are left out: the change is theirs, in their superproperties. Order in a tuple is for people.
    def value(of: SchemaProperty, name: str) -> object:
        found = getattr(of, name)
        return frozenset(found) if isinstance(found, tuple) else found

    names = (field.name for field in fields(SchemaProperty) if field.name != "subproperties")
    return frozenset(name for name in names if value(old, name) != value(new, name))


EMPTY = read_schema((), {})
"""A closed world with the built-in terms alone."""
