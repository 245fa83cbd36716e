"""Events: the difference between the closures before and after one update.

A statement entails arcs by subclasses and subproperties. An arc comes or goes only if no other statement entails it, so
some statements must be looked up: those that could entail the same arcs, and are neither gained nor lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Set
from functools import cached_property
from typing import NamedTuple, TypeAlias

from mdv.model import RDF_TYPE, RDFS_RESOURCE, Statement, Term
from mdv.rdf.schema import Schema
from mdv.rdftl.model import ArcEvent, ChangeKind, Delta, Event


class EventKey(NamedTuple):
    """What an event watches: a kind of change of the arcs with a property, or of the instances of a class.

    `name`: None for every property, or for the class rdfs:Resource.
    """

    kind: ChangeKind
    is_node: bool
    name: str | None


def event_key(event: Event) -> EventKey:
    """Return the key of an event."""
    if isinstance(event, ArcEvent):
        assert event.triple.arc is None or isinstance(event.triple.arc, str)
        return EventKey(event.kind, False, event.triple.arc)
    return EventKey(event.kind, True, None if event.class_iri == RDFS_RESOURCE else event.class_iri)


class UpdateChange(NamedTuple):
    """The statements that became visible or invisible by one update. `updates`: the pairs of an UPDATE action; None for
    a registration, whose pairs are found by comparison."""

    gained: frozenset[Statement]
    lost: frozenset[Statement]
    updates: frozenset[Delta] | None = frozenset()


class WatchIndex:
    """The properties and classes that events watch."""

    def __init__(self, keys: Iterable[EventKey]) -> None:
        self.keys = frozenset(keys)
        self._properties = {key.name for key in self.keys if not key.is_node}
        self._classes = {key.name for key in self.keys if key.is_node}

    @property
    def every_node(self) -> bool:
        return None in self._classes

    def wants(self, arc: Statement) -> bool:
        """True if an event may watch this arc."""
        if None in self._properties or arc.property in self._properties:
            return True
        return arc.property == RDF_TYPE and arc.object.value in self._classes

    def wants_property(self, property_iri: str, schema: Schema) -> bool:
        """True if an event may watch an arc that a statement with this property entails."""
        if None in self._properties or None in self._classes:
            return True
        return any(
            above in self._properties or (above == RDF_TYPE and bool(self._classes))
            for above in superproperties(property_iri, schema)
        )


def superproperties(iri: str, schema: Schema) -> tuple[str, ...]:
    """Return a property and those that its values are also values of."""
    declared = schema.property_of(iri)
    return declared.superproperties if declared is not None else (iri,)


def entailed_arcs(statement: Statement, schema: Schema) -> Iterator[Statement]:
    """Yield what follows from a statement by subclasses and subproperties, itself first.

    Membership in rdfs:Resource is no arc.
    """
    subject, name, term = statement
    terms = [term]
    if name == RDF_TYPE and term.value in schema.classes:
        above = schema.classes[term.value].superclasses
        terms += [Term.uri(iri) for iri in above if iri not in (RDFS_RESOURCE, term.value)]
    for iri in superproperties(name, schema):
        for one in terms:
            yield Statement(subject, iri, one)


def entailing_statements(arc: Statement, schema: Schema) -> Iterator[Statement]:
    """Yield the statements that an arc follows from."""
    subject, name, term = arc
    declared = schema.property_of(name)
    for iri in declared.subproperties if declared is not None else (name,):
        yield Statement(subject, iri, term)
        if iri == RDF_TYPE and term.value != RDFS_RESOURCE and term.value in schema.classes:
            for below in schema.classes[term.value].subclasses:
                if below != term.value:
                    yield Statement(subject, iri, Term.uri(below))


def class_pairs(schema: Schema) -> list[tuple[str, str]]:
    """Return each class with each of its superclasses, itself first. Membership in rdfs:Resource is no arc."""
    return [
        (iri, above)
        for iri, declared in schema.classes.items()
        for above in declared.superclasses
        if above == iri or above != RDFS_RESOURCE
    ]


Deltas: TypeAlias = dict[EventKey, list[Delta]]


class WatchedChange:
    """The part of an update that events watch."""

    def __init__(self, change: UpdateChange, watched: WatchIndex, schema: Schema) -> None:
        self._change, self._watched, self._schema = change, watched, schema
        self._touched = change.gained | change.lost
        self.came: set[Statement] = set()
        """The watched arcs that came, after `deltas`."""
        self.went: set[Statement] = set()
        self._arcs = {arc for one in self._touched for arc in entailed_arcs(one, schema) if watched.wants(arc)}

    @property
    def is_watched(self) -> bool:
        return bool(self._arcs) or bool(self.subjects)

    @cached_property
    def others(self) -> set[Statement]:
        """The statements to be looked up: those that may entail the same arcs."""
        every = {one for arc in self._arcs for one in entailing_statements(arc, self._schema)}
        return every - self._touched

    @cached_property
    def subjects(self) -> set[str]:
        """The resources to be looked up: whether there are other statements about them."""
        return {one.subject for one in self._touched} if self._watched.every_node else set()

    def deltas(self, held: Set[Statement], described: Set[str]) -> Deltas:
        """Return the instantiations of `$delta` for each watched key, in order.

        `held`: those of `others` that documents contain. `described`: those of `subjects` with other statements.
        """
        gained, lost = self._change.gained, self._change.lost
        came: set[Statement] = set()
        went: set[Statement] = set()
        for arc in self._arcs:
            entailing = set(entailing_statements(arc, self._schema))
            if entailing & held:
                continue
            is_now, was = bool(entailing & gained), bool(entailing & lost)
            if is_now != was:
                (came if is_now else went).add(arc)
        self.came, self.went = came, went
        updated = self._updated(came, went)
        paired = {Statement(one.source, one.arc_name, term) for one in updated for term in one[2:] if term is not None}
        found: dict[EventKey, set[Delta]] = defaultdict(set)
        for kind, deltas in (
            (ChangeKind.INSERT, {Delta(*arc) for arc in came - paired}),
            (ChangeKind.DELETE, {Delta(*arc) for arc in went - paired}),
            (ChangeKind.UPDATE, updated),
        ):
            for delta in deltas:
                found[EventKey(kind, False, delta.arc_name)].add(delta)
                found[EventKey(kind, False, None)].add(delta)
        for kind, arcs in ((ChangeKind.INSERT, came), (ChangeKind.DELETE, went)):
            for arc in arcs:
                if arc.property == RDF_TYPE:
                    found[EventKey(kind, True, arc.object.value)].add(Delta(arc.subject))
        for kind, here, there in ((ChangeKind.INSERT, gained, lost), (ChangeKind.DELETE, lost, gained)):
            subjects = ({one.subject for one in here} - {one.subject for one in there} - described) & self.subjects
            found[EventKey(kind, True, None)] |= {Delta(uri) for uri in subjects}
        return {key: sorted(found[key]) for key in self._watched.keys if found.get(key)}

    def _updated(self, came: Collection[Statement], went: Collection[Statement]) -> set[Delta]:
        updates = self._change.updates
        if updates is None:
            return find_updates(went, came)
        return {
            update._replace(arc_name=name)
            for update in updates
            for name in superproperties(update.arc_name, self._schema)
            if update.target is not None and Statement(update.source, name, update.target) in went
        }


def find_updates(went: Iterable[Statement], came: Iterable[Statement]) -> set[Delta]:
    """Return the updates of a registration: where exactly one value of a source and property went and one came, first
    among those with the same language tag (or without one), then among the others."""
    old, new = _by_source_and_property(went), _by_source_and_property(came)
    updates = set()
    for key in old.keys() & new.keys():
        olds, news = old[key], new[key]
        for tag in {term.lang for term in olds}:
            pair = [term for term in olds if term.lang == tag], [term for term in news if term.lang == tag]
            if len(pair[0]) == len(pair[1]) == 1:
                updates.add(Delta(*key, pair[0][0], pair[1][0]))
                olds.remove(pair[0][0])
                news.remove(pair[1][0])
        if len(olds) == len(news) == 1:
            updates.add(Delta(*key, olds.pop(), news.pop()))
    return updates


def _by_source_and_property(arcs: Iterable[Statement]) -> dict[tuple[str, str], set[Term]]:
    found: dict[tuple[str, str], set[Term]] = defaultdict(set)
    for arc in arcs:
        found[arc.subject, arc.property].add(arc.object)
    return found
