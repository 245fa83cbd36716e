"""Compare two schemas for people: what came, what went, and what of a class or property is otherwise.

Terms and what is said of them are named as rules name them (`prefix:local`). A class whose superclasses changed only
because one of those has others above it now is not told of: the change is that one's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from mdv.model import RDFS_RESOURCE
from mdv.rdf.schema import Schema, SchemaClass, SchemaProperty, differences

MOST_CHANGES = 500
"""How many changes are told one by one; the others are counted."""


@dataclass(frozen=True, slots=True)
class Aspect:
    """Something of a term that changed, with what it was and what it is."""

    aspect: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A class, property, datatype or prefix that was added, removed or changed; or that the world was.

    `iri` is what its name stands for; of a prefix, its namespace.
    """

    what: str
    name: str
    iri: str | None
    change: str
    aspects: tuple[Aspect, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """The first changes from one schema to another, and how many there are in all: by what it is, by what became of
    it. None at all where only texts for people differ."""

    changes: tuple[Change, ...] = ()
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def left_out(self) -> int:
        return sum(number for by_change in self.counts.values() for number in by_change.values()) - len(self.changes)


def compare(old: Schema, new: Schema, most: int = MOST_CHANGES) -> Comparison:
    """What MDV takes differently under `new`, the world first, then classes, properties, datatypes, prefixes.

    >>> from mdv.model import RDFS, Statement, Term
    >>> from mdv.rdf.schema import EMPTY, read_schema
    >>> said = [Statement("u:Dog", RDFS + "subClassOf", Term.uri("u:Animal"))]
    >>> found = compare(EMPTY, read_schema(said, {"u": "u:"}))
    >>> [(change.what, change.name, change.change) for change in found.changes]
    [('class', 'u:Animal', 'added'), ('class', 'u:Dog', 'added'), ('prefix', 'u:', 'added')]
    >>> found.changes[1].aspects
    (Aspect(aspect='superclasses', before=(), after=('u:Animal',)),)
    >>> found.counts, compare(EMPTY, read_schema(said, {"u": "u:"}), most=1).left_out
    ({'class': {'added': 2}, 'prefix': {'added': 1}}, 2)
    """
    found = list(_Comparer(old, new).changes())
    counted = Counter((change.what, change.change) for change in found)
    counts: dict[str, dict[str, int]] = {}
    for (what, change), number in counted.items():
        counts.setdefault(what, {})[change] = number
    return Comparison(tuple(found[:most]), counts)


def nearest(iri: str, above: Mapping[str, SchemaClass] | Mapping[str, SchemaProperty]) -> tuple[str, ...]:
    """The superclasses of a class, or the superproperties of a property, that are directly above it: those that do not
    follow from others of them. `rdfs:Resource` is above everything, and not told of.

    >>> from mdv.model import RDFS, Statement, Term
    >>> from mdv.rdf.schema import read_schema
    >>> pairs = [("u:c", "u:b"), ("u:b", "u:a"), ("u:c", "u:a")]
    >>> schema = read_schema([Statement(one, RDFS + "subClassOf", Term.uri(up)) for one, up in pairs], {})
    >>> nearest("u:c", schema.classes), nearest("u:a", schema.classes)
    (('u:b',), ())
    """

    def over(name: str) -> tuple[str, ...]:
        term = above[name]
        return term.superclasses if isinstance(term, SchemaClass) else term.superproperties

    found: dict[str, frozenset[str]] = {}
    covered: set[str] = set()
    for up in over(iri):
        if up not in (iri, RDFS_RESOURCE) and up not in covered:
            further = frozenset(over(up))
            found[up] = further
            if iri not in further:  # what is equivalent covers nothing
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
        found = differences(old, new)
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
            aspects = tuple(self.aspects(_said(iri, old), _said(iri, new)))
            if aspects or change != "changed":
                yield Change(what, self.name(iri), iri, change, aspects)

    def aspects(self, before: dict[str, tuple[str, ...]], after: dict[str, tuple[str, ...]]) -> Iterator[Aspect]:
        for aspect in before | after:
            was, is_now = before.get(aspect), after.get(aspect)
            if (was is None or is_now is None) and (was or is_now) in _USUAL:
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
        """By the prefixes of the new schema or, where these have none for it, of the old."""
        shown = self.new.shorten(iri)
        return self.old.shorten(iri) if shown.startswith("<") else shown


_STRONG, _WEAK, _SEVERAL, _ONE = "strong", "weak", "several", "one"
_WORDS = (_STRONG, _WEAK, _SEVERAL, _ONE)
_USUAL = ((_WEAK,), (_ONE,))
"""What nobody has to be told of a property that came or went."""


def _said(iri: str, terms: Mapping[str, SchemaClass] | Mapping[str, SchemaProperty]) -> dict[str, tuple[str, ...]]:
    """What there is to be told of a term, by aspect."""
    term = terms.get(iri)
    if term is None:
        return {}
    if isinstance(term, SchemaClass):
        return {"superclasses": nearest(iri, terms)}
    return {
        "domain": term.domains,
        "range": () if term.range is None else (term.range,),
        "superproperties": nearest(iri, terms),
        "reference": (_STRONG if term.strong else _WEAK,),
        "values": (_SEVERAL if term.set_valued else _ONE,),
    }
