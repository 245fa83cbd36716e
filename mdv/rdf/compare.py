"""Compare two schemas and describe the changes for display.

Terms and their values are named as in rules (`prefix:local`). If a class has different superclasses only because one of
its superclasses changed, the change is reported for that superclass alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from mdv.model import RDFS_RESOURCE
from mdv.rdf.schema import Schema, SchemaClass, SchemaProperty, diff_schemas

MAX_LISTED_CHANGES = 500
"""Changes that are listed individually. Further changes are only counted."""


@dataclass(frozen=True, slots=True)
class Aspect:
    """An aspect of a term that changed, with its values before and after."""

    aspect: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A class, property, datatype or prefix that was added, removed or changed, or a change of the world.

    `iri` is the IRI of the term, or the namespace of a prefix.
    """

    what: str
    name: str
    iri: str | None
    change: str
    aspects: tuple[Aspect, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaComparison:
    """The first changes from one schema to another, and the number of all changes by kind of term and kind of change.

    There are no changes if only labels and comments differ.
    """

    changes: tuple[Change, ...] = ()
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def left_out(self) -> int:
        return sum(number for by_change in self.counts.values() for number in by_change.values()) - len(self.changes)


def compare_schemas(old: Schema, new: Schema, most: int = MAX_LISTED_CHANGES) -> SchemaComparison:
    """Return the effective changes from `old` to `new`: the world, then classes, properties, datatypes, prefixes.

    >>> from mdv.model import RDFS, Statement, Term
    >>> from mdv.rdf.schema import EMPTY_SCHEMA, read_schema
    >>> statements = [Statement("u:Dog", RDFS + "subClassOf", Term.uri("u:Animal"))]
    >>> found = compare_schemas(EMPTY_SCHEMA, read_schema(statements, {"u": "u:"}))
    >>> [(change.what, change.name, change.change) for change in found.changes]
    [('class', 'u:Animal', 'added'), ('class', 'u:Dog', 'added'), ('prefix', 'u:', 'added')]
    >>> found.changes[1].aspects
    (Aspect(aspect='superclasses', before=(), after=('u:Animal',)),)
    >>> found.counts, compare_schemas(EMPTY_SCHEMA, read_schema(statements, {"u": "u:"}), most=1).left_out
    ({'class': {'added': 2}, 'prefix': {'added': 1}}, 2)
    """
    found = list(_Comparer(old, new).changes())
    counted = Counter((change.what, change.change) for change in found)
    counts: dict[str, dict[str, int]] = {}
    for (what, change), number in counted.items():
        counts.setdefault(what, {})[change] = number
    return SchemaComparison(tuple(found[:most]), counts)


def direct_parents(iri: str, terms: Mapping[str, SchemaClass] | Mapping[str, SchemaProperty]) -> tuple[str, ...]:
    """Return the direct superclasses of a class, or the direct superproperties of a property.

    Indirect ones, which follow from the others, are left out. So is `rdfs:Resource`, which is above every class.

    >>> from mdv.model import RDFS, Statement, Term
    >>> from mdv.rdf.schema import read_schema
    >>> pairs = [("u:c", "u:b"), ("u:b", "u:a"), ("u:c", "u:a")]
    >>> schema = read_schema([Statement(one, RDFS + "subClassOf", Term.uri(up)) for one, up in pairs], {})
    >>> direct_parents("u:c", schema.classes), direct_parents("u:a", schema.classes)
    (('u:b',), ())
    """

    def ancestors(name: str) -> tuple[str, ...]:
        term = terms[name]
        return term.superclasses if isinstance(term, SchemaClass) else term.superproperties

    found: dict[str, frozenset[str]] = {}
    covered: set[str] = set()
    for up in ancestors(iri):
        if up not in (iri, RDFS_RESOURCE) and up not in covered:
            further = frozenset(ancestors(up))
            found[up] = further
            if iri not in further:  # an equivalent term does not make its own superterms indirect
                covered |= further
    return tuple(
        up
        for up in found
        if not any(up in found[other] and other not in found[up] and iri not in found[other] for other in found)
    )


class _Comparer:
    def __init__(self, old: Schema, new: Schema) -> None:
        self.old, self.new = old, new

    def changes(self) -> Iterator[Change]:
        old, new = self.old, self.new
        found = diff_schemas(old, new)
        if found.opened or found.closed:
            before, after = ("closed", "open") if found.opened else ("open", "closed")
            yield Change("world", "world", None, "changed", (Aspect("world", (before,), (after,)),))
        yield from self.terms(
            "class", old.classes, new.classes, found.added_classes, found.removed_classes, found.changed_classes
        )
        changed = {change.new.iri for change in found.changed_properties}
        yield from self.terms(
            "property", old.properties, new.properties, found.added_properties, found.removed_properties, changed
        )
        for iri in sorted(old.datatypes ^ new.datatypes):
            yield Change("datatype", self.name(iri), iri, "added" if iri in new.datatypes else "removed")
        yield from self.prefixes()

    def terms(
        self,
        what: str,
        old: Mapping[str, SchemaClass] | Mapping[str, SchemaProperty],
        new: Mapping[str, SchemaClass] | Mapping[str, SchemaProperty],
        added: Iterable[str],
        removed: Iterable[str],
        changed: Iterable[str],
    ) -> Iterator[Change]:
        became = dict.fromkeys(changed, "changed") | dict.fromkeys(added, "added") | dict.fromkeys(removed, "removed")
        for iri, change in sorted(became.items()):
            before = _aspects_of(iri, old, self.old.members)
            aspects = tuple(self.aspects(before, _aspects_of(iri, new, self.new.members)))
            if aspects or change != "changed":
                yield Change(what, self.name(iri), iri, change, aspects)

    def aspects(self, before: dict[str, tuple[str, ...]], after: dict[str, tuple[str, ...]]) -> Iterator[Aspect]:
        for aspect in before | after:
            was, is_now = before.get(aspect), after.get(aspect)
            if (was is None or is_now is None) and (was or is_now) in _DEFAULTS:
                continue
            if set(was or ()) != set(is_now or ()):
                yield Aspect(aspect, self.names(was or ()), self.names(is_now or ()))

    def prefixes(self) -> Iterator[Change]:
        old, new = self.old.prefixes, self.new.prefixes
        for prefix in sorted(old.keys() | new.keys()):
            was, is_now = old.get(prefix), new.get(prefix)
            if was == is_now:
                continue
            if was is not None and is_now is not None:
                aspects = (Aspect("namespace", (was,), (is_now,)),)
                yield Change("prefix", f"{prefix}:", is_now, "changed", aspects)
            else:
                yield Change("prefix", f"{prefix}:", is_now or was, "added" if was is None else "removed")

    def names(self, iris: Iterable[str]) -> tuple[str, ...]:
        return tuple(iri if iri in _WORDS else self.name(iri) for iri in iris)

    def name(self, iri: str) -> str:
        """Return the short name by the prefixes of the new schema, or else by those of the old one."""
        shown = self.new.shorten(iri)
        return self.old.shorten(iri) if shown.startswith("<") else shown


_STRONG, _WEAK, _SEVERAL, _ONE = "strong", "weak", "several", "one"
_WORDS = (_STRONG, _WEAK, _SEVERAL, _ONE)
_DEFAULTS = ((_WEAK,), (_ONE,))
"""Values that are not reported for a property that was added or removed."""


def _aspects_of(
    iri: str, terms: Mapping[str, SchemaClass] | Mapping[str, SchemaProperty], members: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """Return the values of a term by aspect."""
    term = terms.get(iri)
    if term is None:
        return {}
    if isinstance(term, SchemaClass):
        return {"superclasses": direct_parents(iri, terms), "members": (members[iri],) if iri in members else ()}
    return {
        "domain": term.domains,
        "range": () if term.range is None else (term.range,),
        "superproperties": direct_parents(iri, terms),
        "reference": (_STRONG if term.strong else _WEAK,),
        "values": (_SEVERAL if term.set_valued else _ONE,),
    }
