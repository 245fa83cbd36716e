"""The schema: RDFS and the `mdv:` terms. Inheritance is resolved once, when the schema is read.

Law: the fields of `SchemaProperty` and `SchemaClass` are effective values. No other code follows subclasses or
subproperties.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cached_property
from typing import TypeVar

from mdv.errors import Flaw, InvalidSchema
from mdv.model import LRM, MDV, OWL, RDF, RDF_TYPE, RDFS, RDFS_RESOURCE, REAL, XSD, Statement
from mdv.rdf.values import ValueKind, is_datatype, parse_boolean, value_kind

T = TypeVar("T", str, bool)
Edges = Mapping[str, Collection[str]]

_REFERENCE, _SET_VALUED, _WORLD, _LABEL, _MEMBERS = (
    MDV + name for name in ("reference", "setValued", "world", "label", "members")
)
_CHOICES = {
    _REFERENCE: {MDV + "strong": True, MDV + "weak": False},
    _WORLD: {MDV + "open": True, MDV + "closed": False},
}
MDV_TERMS = (_REFERENCE, _SET_VALUED, _WORLD, _MEMBERS, *(term for choice in _CHOICES.values() for term in choice))
"""The terms of MDV's vocabulary that no schema can declare. `mdv:label` is not among them: it was added later, and a
stored schema may declare a property of that name. In such a schema it has no other meaning."""
DEFAULT_LABELS = (
    RDFS + "label",
    "http://www.w3.org/2004/02/skos/core#prefLabel",
    "http://purl.org/dc/terms/title",
    "http://xmlns.com/foaf/0.1/name",
    "http://schema.org/name",
    "https://schema.org/name",
)
"""The properties whose values are labels by default, in order of preference."""
_SUBCLASS, _SUBPROPERTY, _DOMAIN, _RANGE = (RDFS + n for n in ("subClassOf", "subPropertyOf", "domain", "range"))

_CLASS_TYPES = frozenset((RDFS + "Class", OWL + "Class"))
_PROPERTY_TYPES = frozenset(
    [RDF + "Property", RDFS + "ContainerMembershipProperty"]
    + [OWL + kind + "Property" for kind in ("Object", "Datatype", "Annotation", "Ontology", "Functional")]
    + [OWL + kind + "Property" for kind in ("InverseFunctional", "Transitive", "Symmetric", "Deprecated")]
)

# rdfs:Literal is treated as a datatype, because no resource is an instance of it.
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
# RDFS gives its own terms the range rdfs:Resource, which includes literals. Here these terms have no range.
# They do not inherit from each other either: rdf:_1 and rdf:_2 would be two values of rdfs:member, which is not
# set-valued.
_BUILT_IN_PROPERTIES: dict[str, str | None] = {
    RDF_TYPE: RDFS_RESOURCE,
    RDFS + "label": RDFS + "Literal",
    RDFS + "comment": RDFS + "Literal",
    **dict.fromkeys((RDFS + name for name in ("seeAlso", "isDefinedBy", "member")), None),
    **dict.fromkeys((_SUBCLASS, _SUBPROPERTY, _DOMAIN, _RANGE), None),
    **dict.fromkeys((RDF + name for name in ("value", "first", "rest", "subject", "predicate", "object")), None),
}
_BUILT_IN_PREFIXES = {"rdf": RDF, "rdfs": RDFS, "xsd": XSD, "mdv": MDV}
ACTION_NAMESPACES = (LRM, REAL)
"""The vocabularies of actions and processes. A schema needs not declare their terms, and may."""
_RDF_GRAPH = RDF + "Graph"
_MEMBERSHIP = re.compile(re.escape(RDF) + "_[1-9][0-9]*")
_SIMPLE_NAME = re.compile("[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class SchemaClass:
    """A class with its transitive superclasses and subclasses. Both begin with the class itself, nearest first."""

    iri: str
    superclasses: tuple[str, ...]
    subclasses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SchemaProperty:
    """A property with its own and inherited values. Both closures are transitive and begin with the property itself."""

    iri: str
    domains: tuple[str, ...] = ()
    range: str | None = None
    kind: ValueKind = ValueKind.TEXT
    strong: bool = False
    set_valued: bool = False
    superproperties: tuple[str, ...] = ()
    subproperties: tuple[str, ...] = ()


class UnknownName(Exception):
    """A name that is not in the schema, or that is ambiguous.

    >>> print(UnknownName("CycleProvidr", nearest=("CycleProvider",)))
    unknown class 'CycleProvidr'; did you mean CycleProvider?
    >>> print(UnknownName("name", ambiguous=("a:name", "b:name"), kind="property"))
    ambiguous property 'name'; write a:name or b:name
    """

    def __init__(
        self, name: str, nearest: tuple[str, ...] = (), ambiguous: tuple[str, ...] = (), kind: str = "class"
    ) -> None:
        super().__init__(name, nearest, ambiguous, kind)
        self.name, self.nearest, self.ambiguous, self.kind = name, nearest, ambiguous, kind

    def __str__(self) -> str:
        if self.ambiguous:
            return f"ambiguous {self.kind} {self.name!r}; write {' or '.join(self.ambiguous)}"
        hint = f"; did you mean {' or '.join(self.nearest)}?" if self.nearest else ""
        return f"unknown {self.kind} {self.name!r}{hint}"


@dataclass(frozen=True)
class Schema:
    """Classes, properties and declared datatypes by IRI, whether the world is open, and the prefixes for rules.

    `rdf:_1`, `rdf:_2` … are properties too, but not in `properties`. Use `property_of` to look up any property.
    `members`: the class or datatype of the members of a container class, own declarations only (`mdv:members`). It is a
    hint for the analysis of RDFTL rules; documents are not validated against it.
    """

    classes: Mapping[str, SchemaClass]
    properties: Mapping[str, SchemaProperty]
    datatypes: frozenset[str]
    open: bool
    prefixes: Mapping[str, str]
    members: Mapping[str, str] = field(default_factory=dict)
    label_properties: tuple[str, ...] = DEFAULT_LABELS
    """The properties whose values are labels of resources, in order of preference. Only displays use them."""

    def __hash__(self) -> int:
        return hash((frozenset(self.classes), frozenset(self.properties), self.datatypes, self.open))

    @property
    def is_empty(self) -> bool:
        """True if the schema declares no class, no property and no datatype, apart from the built-in ones."""
        nothing = (EMPTY_SCHEMA.classes, EMPTY_SCHEMA.properties, EMPTY_SCHEMA.datatypes)
        return (self.classes, self.properties, self.datatypes) == nothing

    def property_of(self, iri: str) -> SchemaProperty | None:
        """Return the property with this IRI; None if it is not declared.

        >>> EMPTY_SCHEMA.property_of(RDF_TYPE).set_valued, EMPTY_SCHEMA.property_of(RDF + "_7").set_valued
        (True, False)
        """
        found = self.properties.get(iri)
        if found is None and iri.startswith(ACTION_NAMESPACES):
            return SchemaProperty(iri, set_valued=True, superproperties=(iri,), subproperties=(iri,))
        if found is None and _MEMBERSHIP.fullmatch(iri):
            return SchemaProperty(iri, superproperties=(iri,), subproperties=(iri,))
        return found

    def may_be_type(self, iri: str) -> bool:
        """True if a resource may have this type: a class, or a term of the vocabularies of actions and processes."""
        return self.open or iri in self.classes or iri.startswith(ACTION_NAMESPACES) or iri == _RDF_GRAPH

    def is_datatype(self, iri: str) -> bool:
        """True if `iri` is a datatype of XSD or RDF, or is declared as one."""
        return is_datatype(iri) or iri in self.datatypes

    def shorten(self, iri: str) -> str:
        """Return the short name of `iri`: `prefix:local`, without prefix if the empty prefix fits, or else `<iri>`.

        >>> EMPTY_SCHEMA.shorten(RDFS_RESOURCE), EMPTY_SCHEMA.shorten("http://a/b")
        ('rdfs:Resource', '<http://a/b>')
        """
        return _shorten(iri, self.prefixes)

    def resolve_class(self, name: str) -> str:
        """Return the IRI of the class with this name. Raise `UnknownName` if there is none or several.

        >>> EMPTY_SCHEMA.resolve_class("Resource") == EMPTY_SCHEMA.resolve_class("rdfs:Resource") == RDFS_RESOURCE
        True
        """
        return self._resolve(name, "class", self._class_locals, self.classes.__contains__, None)

    def resolve_property(self, name: str, class_iri: str | None = None) -> str:
        """Return the IRI of the property with this name. Raise `UnknownName` if there is none or several.

        If several properties have this local name, those whose domain is the class or its nearest superclass win.

        >>> EMPTY_SCHEMA.resolve_property("type") == RDF_TYPE
        True
        """
        declared = self.property_of
        return self._resolve(name, "property", self._property_locals, lambda iri: declared(iri) is not None, class_iri)

    def nearest_classes(self, name: str) -> tuple[str, ...]:
        """Return the short names of up to three classes whose local names are similar to that of `name`."""
        return self._nearest(name, self._class_locals)

    def nearest_properties(self, name: str) -> tuple[str, ...]:
        """Return the short names of up to three properties whose local names are similar to that of `name`.

        >>> EMPTY_SCHEMA.nearest_properties("http://example.org/lable")
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
        for iri in self._expand(name):
            if declared(iri):
                return iri
        candidates = by_local.get(name, ())
        if class_iri is not None:
            candidates = self._with_nearest_domain(candidates, class_iri) or candidates
        # If several match, the schema's default namespace wins, then declared terms over built-in ones.
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

    def _expand(self, name: str) -> Iterator[str]:
        if name.startswith("<") and name.endswith(">"):
            yield name[1:-1]
        elif ":" in name:
            yield name
            prefix, _, local = name.partition(":")
            if prefix in self.prefixes:
                yield self.prefixes[prefix] + local

    def _with_nearest_domain(self, candidates: Iterable[str], class_iri: str) -> tuple[str, ...]:
        """Return the candidates whose domain is the class or a superclass, without those that a nearer domain hides."""
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
        near = _similar_names(_local_name(name.strip("<>")).casefold(), folded)
        found: list[str] = []
        for local in (local for match in near for local in folded[match]):
            unique = bare and len(by_local[local]) == 1
            found += [local] if unique else map(self.shorten, by_local[local])
        return tuple(found[:3])


def read_schema(statements: Iterable[Statement], prefixes: Mapping[str, str]) -> Schema:
    """Return the schema that `statements` declare, with the built-in terms. Raise `InvalidSchema` with all flaws.

    >>> from mdv.model import Term
    >>> memory = "http://example.org/memory"
    >>> schema = read_schema([Statement(memory, RDFS + "range", Term.uri(XSD + "integer"))], {"": "http://example.org/"})
    >>> schema.properties[memory].kind, schema.shorten(memory), schema.open
    (<ValueKind.NUMBER: 'number'>, 'memory', False)
    """
    draft = _Draft({**_BUILT_IN_PREFIXES, **prefixes})
    for statement in dict.fromkeys(statements):
        draft.read(statement)
    schema = draft.finish()
    if draft.flaws:
        flaws = list(dict.fromkeys(draft.flaws))
        count = f"{len(flaws)} errors" if len(flaws) > 1 else "an error"
        raise InvalidSchema(f"The schema has {count}: {flaws[0].message}.", flaws)
    return schema


class _Draft:
    """A schema being read: the declarations of each term, and the flaws found so far."""

    def __init__(self, prefixes: Mapping[str, str]) -> None:
        self.prefixes = prefixes
        self.flaws: list[Flaw] = []
        self.classes: dict[str, str] = {}  # with the reason why it is a class
        self.properties: dict[str, str] = {}  # with the reason why it is a property
        self.datatypes: set[str] = set()
        self.superclasses: dict[str, dict[str, None]] = defaultdict(dict)
        self.superproperties: dict[str, dict[str, None]] = defaultdict(dict)
        self.domains: dict[str, dict[str, None]] = defaultdict(dict)
        self.ranges: dict[str, dict[str, None]] = defaultdict(dict)
        self.strong: dict[str, dict[bool, None]] = defaultdict(dict)
        self.set_valued: dict[str, dict[bool, None]] = defaultdict(dict)
        self.members: dict[str, dict[str, None]] = defaultdict(dict)
        self.labels: dict[str, dict[bool, None]] = defaultdict(dict)
        self.label_marks: list[Statement] = []
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
            # Statements with blank nodes (unions, restrictions) are beyond RDFS. They still declare the property.
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
        if property_ == _MEMBERS:
            self.read_members(statement)
            return
        if property_ == _LABEL:
            self.label_marks.append(statement)
            return
        if property_ in _CHOICES:
            choice = _CHOICES[property_].get(object_.value) if object_.type == "uri" else None
            expected = " or ".join(self.short(term) for term in _CHOICES[property_])
        elif property_ == _SET_VALUED:
            choice = parse_boolean(object_.value) if object_.type == "literal" else None
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

    def read_members(self, statement: Statement) -> None:
        subject, _, object_ = statement
        if object_.type != "uri":
            self.flaw(f"{self.short(_MEMBERS)} must be a class or datatype", subject, statement)
        else:
            self.members[subject][object_.value] = None

    def read_label_marks(self) -> None:
        """Read the statements with `mdv:label`, unless the schema declares it as a property of its own."""
        for statement in self.label_marks if _LABEL not in self.properties else ():
            subject, _, object_ = statement
            value = parse_boolean(object_.value) if object_.type == "literal" else None
            if value is None:
                self.flaw(f"{self.short(_LABEL)} must be true or false", subject, statement)
            elif not subject.startswith("_:"):
                self.properties.setdefault(subject, f"has an {self.short(_LABEL)}")
                self.labels[subject][value] = None

    def finish(self) -> Schema:
        self.read_label_marks()
        self.sort_out_datatypes()
        self.refuse_contradictions()
        self.add_built_in_terms()
        classes = self.finish_classes()
        properties = self.finish_properties()
        datatypes = frozenset(iri for iri in self.datatypes if not is_datatype(iri))
        members = self.finish_members(classes)
        labels = self.finish_labels(properties)
        return Schema(classes, properties, datatypes, True in self.worlds, self.prefixes, members, labels)

    def sort_out_datatypes(self) -> None:
        """Turn subclasses of datatypes into datatypes, and declare the classes of the other statements."""
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
            subject = MDV.removesuffix("#")
            self.flaw("the world is declared both open and closed", subject, hint="declare mdv:world once")
        for iri, statement in self.mdv_terms.items():
            # `<#note>` in a schema is an mdv: IRI too. It is allowed if the schema declares it.
            if iri not in self.properties or iri in MDV_TERMS:
                near = _nearest_term(iri)
                hint = f"did you mean {self.short(near)}?" if near else None
                self.flaw(f"there is no property {self.short(iri)}", statement.subject, statement, hint)
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
                self.flaw(f"{self.short(iri)} has several ranges: {names}", iri, hint="declare one, or none")
        for iri in [iri for iri, values in self.strong.items() if len(values) > 1]:
            self.flaw(f"the reference {self.short(iri)} is declared both strong and weak", iri)
        for iri in [iri for iri, values in self.set_valued.items() if len(values) > 1]:
            self.flaw(f"{self.short(iri)} is declared both set-valued and not set-valued", iri)
        for iri in [iri for iri, values in self.labels.items() if len(values) > 1]:
            self.flaw(f"{self.short(iri)} is declared both a label and not a label", iri)

    def is_built_in_property(self, iri: str) -> bool:
        return iri in _BUILT_IN_PROPERTIES or bool(_MEMBERSHIP.fullmatch(iri))

    def add_built_in_terms(self) -> None:
        """Add the built-in terms. Declarations of the schema have precedence."""
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
                    hint=f"declare {self.short(iri)} mdv:reference mdv:weak, or a class as its range",
                )
            if RDF_TYPE in above and iri != RDF_TYPE:
                self.flaw(f"{self.short(iri)} cannot be a subproperty of rdf:type", iri)
            domains = tuple(self.domains.get(iri, ()))
            found[iri] = SchemaProperty(
                iri, domains, range_, value_kind(range_), bool(strong), bool(many), above, below[iri]
            )
        return found

    def finish_members(self, classes: Mapping[str, SchemaClass]) -> dict[str, str]:
        for iri, found in self.members.items():
            class_ = classes.get(iri)
            if class_ is None or iri in _BUILT_IN_CLASSES or RDFS + "Container" not in class_.superclasses:
                message = (
                    f"{self.short(_MEMBERS)} is declared on {self.short(iri)}, which is not a subclass of a container"
                )
                self.flaw(message, iri, hint="declare it as a subclass of rdf:Bag, rdf:Seq or rdf:Alt")
            for member in found:
                if not (member in classes or is_datatype(member) or member in self.datatypes):
                    self.flaw(f"the members of {self.short(iri)}: there is no class {self.short(member)}", iri)
            if len(found) > 1:
                names = " and ".join(map(self.short, found))
                self.flaw(
                    f"{self.short(iri)} has members of several classes: {names}", iri, hint="declare one, or none"
                )
        return {iri: next(iter(found)) for iri, found in self.members.items()}

    def finish_labels(self, properties: Mapping[str, SchemaProperty]) -> tuple[str, ...]:
        """Return the properties whose values are labels: marked ones, then default ones, each with its subproperties.

        A subproperty inherits the mark unless it has its own. `false` also removes a default.
        """
        marks = {iri: dict.fromkeys((True,)) for iri in DEFAULT_LABELS} | self.labels
        equal = _equals(self.superproperties)
        ordered: dict[str, None] = {}
        for iri in (*sorted(iri for iri, values in self.labels.items() if True in values), *DEFAULT_LABELS):
            declared = properties.get(iri)
            ordered |= dict.fromkeys(declared.subproperties if declared is not None else (iri,))

        def is_label(iri: str) -> bool:
            levels = list(_levels(iri, self.superproperties, equal))
            return bool(self.inherited(iri, levels, marks, lambda v: str(v).lower(), "values of mdv:label"))

        return tuple(iri for iri in ordered if is_label(iri))

    def inherited(
        self,
        iri: str,
        levels: list[frozenset[str]],
        declared: Mapping[str, Mapping[T, None]],
        show: Callable[[T], str],
        what: str,
    ) -> T | None:
        """Return the value that the property declares, or else the one of its nearest superproperties with a value."""
        for distance, level in enumerate(levels):
            values = {value: source for source in sorted(level) for value in declared.get(source, ())}
            if len(values) > 1 and len(declared.get(iri, ())) < 2:
                sources = " and ".join(f"{show(value)} (of {self.short(source)})" for value, source in values.items())
                if distance == 0:
                    names = " and ".join(map(self.short, sorted(level)))
                    self.flaw(f"{names} are subproperties of each other but have two {what}: {sources}", min(level))
                else:
                    hint = f"declare the value on {self.short(iri)} itself"
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


def _similar_names(name: str, known: Collection[str]) -> list[str]:
    """Return up to three known names that are similar to `name`; else the shortest ones that begin with it.

    >>> _similar_names("cycelprovider", ["cycleprovider", "server"]), _similar_names("cta", ["cat", "server"])
    (['cycleprovider'], ['cat'])
    >>> _similar_names("cycle", ["cycleprovider", "server"]), _similar_names("xyz", ["cycleprovider", "server"])
    (['cycleprovider'], [])
    """
    name = name[:80]  # very long names match nothing and are slow to compare
    near = get_close_matches(name, known, 3, 0.7 if len(name) > 4 else 0.6)
    if near or len(name) < 3:
        return near
    return sorted((other for other in known if other.startswith(name)), key=lambda other: (len(other), other))[:3]


def _nearest_term(iri: str) -> str | None:
    return next(iter(get_close_matches(iri[:80], (*MDV_TERMS, _LABEL), 1, 0.7)), None)


MAX_ANCESTORS = 200_000
"""Superterms of all terms together, as in a chain of about 600 terms."""


def _equals(above: Edges) -> dict[str, frozenset[str]]:
    """Return for each term on a cycle its equivalent terms: those that are both above and below it."""

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
        if total > MAX_ANCESTORS:
            raise InvalidSchema(
                f"The hierarchy is too deep: its terms have more than {MAX_ANCESTORS:,} superclasses and "
                "superproperties in total. Remove levels from the hierarchy."
            )
    return {
        iri: frozenset([iri, *(other for other in found if iri in reached.get(other, ()))])
        for iri, found in reached.items()
        if iri in found
    }


def _levels(start: str, above: Edges, equal: Mapping[str, frozenset[str]]) -> Iterator[frozenset[str]]:
    """Yield the terms above `start` by distance. Equivalent terms have distance 0 to each other."""
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
    """A property that differs between two schemas. `aspects` are the names of the fields that changed."""

    old: SchemaProperty
    new: SchemaProperty
    aspects: frozenset[str]


@dataclass(frozen=True, slots=True)
class SchemaDifferences:
    """The effective differences between two schemas. `changed_classes` have different superclasses or
    members."""

    added_classes: frozenset[str] = frozenset()
    removed_classes: frozenset[str] = frozenset()
    changed_classes: frozenset[str] = frozenset()
    added_properties: frozenset[str] = frozenset()
    removed_properties: frozenset[str] = frozenset()
    changed_properties: tuple[PropertyChange, ...] = ()
    closed: bool = False
    opened: bool = False

    def __bool__(self) -> bool:
        return self != SchemaDifferences()


def diff_schemas(old: Schema, new: Schema) -> SchemaDifferences:
    """Return the effective differences between `old` and `new`. They are false if there are none. Prefixes and the
    order of statements do not count.

    >>> bool(diff_schemas(EMPTY_SCHEMA, EMPTY_SCHEMA))
    False
    >>> from mdv.model import Term
    >>> point = Statement("http://a/Point", RDF_TYPE, Term.uri(RDFS + "Class"))
    >>> diff_schemas(EMPTY_SCHEMA, read_schema([point], {})).added_classes
    frozenset({'http://a/Point'})
    """
    shared = sorted(old.properties.keys() & new.properties.keys())
    changes = ((old.properties[iri], new.properties[iri]) for iri in shared)
    return SchemaDifferences(
        added_classes=frozenset(new.classes.keys() - old.classes.keys()),
        removed_classes=frozenset(old.classes.keys() - new.classes.keys()),
        changed_classes=frozenset(
            iri
            for iri in old.classes.keys() & new.classes.keys()
            if set(old.classes[iri].superclasses) != set(new.classes[iri].superclasses)
            or old.members.get(iri) != new.members.get(iri)
        ),
        added_properties=frozenset(new.properties.keys() - old.properties.keys()),
        removed_properties=frozenset(old.properties.keys() - new.properties.keys()),
        changed_properties=tuple(PropertyChange(a, b, aspects) for a, b in changes if (aspects := _changed(a, b))),
        closed=old.open and not new.open,
        opened=new.open and not old.open,
    )


def _changed(old: SchemaProperty, new: SchemaProperty) -> frozenset[str]:
    # Subproperties are left out: a change of them is a change of their superproperties. Tuples are compared unordered.
    def value(of: SchemaProperty, name: str) -> object:
        found = getattr(of, name)
        return frozenset(found) if isinstance(found, tuple) else found

    names = (field.name for field in fields(SchemaProperty) if field.name != "subproperties")
    return frozenset(name for name in names if value(old, name) != value(new, name))


EMPTY_SCHEMA = read_schema((), {})
"""A closed world with only the built-in terms."""
