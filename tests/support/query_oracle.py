"""The definition of queries, evaluated naively: every choice of resources, every value of every returned path."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, TypeAlias

from mdv.model import Term
from mdv.rdf.schema import SchemaProperty
from mdv.rdf.values import ValueKind
from mdv.rules.ast import ParsedQuery, Path
from mdv.rules.normal import Sort
from tests.support.rule_oracle import Binding, Place, Walk, World, conjunctions

Row: TypeAlias = tuple[Term | None, ...]
Chosen: TypeAlias = dict[Place, tuple[str, Term | None]]
"""At each place of the returned paths, the property and the value."""


def answer(query: ParsedQuery, world: World) -> list[Row]:
    """Return all rows in their order."""
    return Answer(query, world).rows()


class Answer:
    def __init__(self, query: ParsedQuery, world: World) -> None:
        self.query, self.world = query, world
        self.classes = {s.variable.text: world.class_of(s.name.text) for s in query.search}
        self.found: dict[tuple[tuple[str, ...], Row], list[list[Any]]] = {}

    def rows(self) -> list[Row]:
        extensions = [self.world.extension(searched.name.text) for searched in self.query.search]
        for conjunction in conjunctions(self.query.where):
            walk = Walk(self.world.schema, self.classes, conjunction)
            for resources in product(*extensions):
                start: Binding = {(s.variable.text,): r for s, r in zip(self.query.search, resources, strict=True)}
                for binding in self.bindings(walk, start):
                    self.add(resources, binding)
        return self.ordered()

    def bindings(self, walk: Walk, start: Binding) -> Iterator[Binding]:
        bindings = [start]
        for place, (before, property_) in walk.steps.items():
            bindings = [b | {place: t} for b in bindings for t in self.world.targets(b[before], property_)]
        return (b for b in bindings if all(self.world.satisfied(*p, b) for p in walk.predicates))

    def add(self, resources: tuple[str, ...], binding: Binding) -> None:
        """Return the rows for one choice of everything that `where` mentions."""
        resolved = [self.resolve(path) for path in self.query.returns]
        orders = [self.resolve(ordering.path) for ordering in self.query.order]
        whole = {tuple(place) for place in (self.places(p, props, "")[-1] for p, props in
                 zip(self.query.returns, resolved, strict=True)) if len(place) > 1}  # fmt: skip
        choices: list[Chosen] = [{}]
        ends: list[Place] = []
        for number, (path, properties) in enumerate(zip(self.query.returns, resolved, strict=True)):
            places = self.places(path, properties, f"r{number}")
            ends.append(places[-1])
            choices = self.extended(choices, places, properties, binding, whole)
        keys: list[Place] = []
        for number, (ordering, properties) in enumerate(zip(self.query.order, orders, strict=True)):
            same = [n for n, (path, mine) in enumerate(zip(self.query.returns, resolved, strict=True))
                    if (path.variable.text, mine) == (ordering.path.variable.text, properties)]  # fmt: skip
            if same:
                keys.append(ends[same[0]])
                continue
            places = self.places(ordering.path, properties, f"o{number}")
            keys.append(places[-1])
            choices = self.extended(choices, places, properties, binding, whole)
        for chosen in choices:
            row = tuple(self.at(place, chosen, binding)[1] for place in ends)
            typed = [self.typed(*self.at(place, chosen, binding), properties) for place, properties in
                     zip(keys, orders, strict=True)]  # fmt: skip
            self.found.setdefault((resources, row), []).append(typed)

    def resolve(self, path: Path) -> list[SchemaProperty]:
        return list(Walk(self.world.schema, self.classes, []).resolve(path, self.classes[path.variable.text]))

    def places(self, path: Path, properties: list[SchemaProperty], own: str) -> list[Place]:
        places: list[Place] = [(path.variable.text,)]
        for property_ in properties:
            places.append((*places[-1], property_.iri, *([(own,)] if property_.set_valued else [])))
        return places

    def at(self, place: Place, chosen: Chosen, binding: Binding) -> tuple[str, Term | None]:
        return ("", Term.uri(binding[place])) if place in binding else chosen[place]

    def extended(
        self,
        choices: list[Chosen],
        places: list[Place],
        properties: list[SchemaProperty],
        binding: Binding,
        whole: set[Place],
    ) -> list[Chosen]:
        """Extend each choice with each value at each place of one more path; a place without values has None."""
        for number, property_ in enumerate(properties):
            before, place = places[number], places[number + 1]
            if place in binding or place in choices[0]:
                continue
            is_last, further = number == len(properties) - 1, []
            for chosen in choices:
                start = self.at(before, chosen, binding)[1]
                passed = properties[number - 1] if number and before not in binding else None
                values = self.values(start, passed, property_)
                if not is_last and place not in whole:
                    reached = self.world.instances(property_.range or "http://www.w3.org/2000/01/rdf-schema#Resource")
                    values = [(p, term) for p, term in values if term.is_uri and term.value in reached]
                further += [chosen | {place: value} for value in values or [("", None)]]
            choices = further
        return choices

    def values(
        self, start: Term | None, passed: SchemaProperty | None, property_: SchemaProperty
    ) -> list[tuple[str, Term]]:
        if start is None or not start.is_uri or start.value not in self.world.resources:
            return []
        if passed is not None and passed.range is not None and start.value not in self.world.instances(passed.range):
            return []
        return list({(s.property, s.object) for s in self.world.values(start.value, property_)})

    def typed(self, name: str, term: Term | None, properties: list[SchemaProperty]) -> Any:
        if term is None:
            return None
        kind = properties[-1].kind if properties else ValueKind.TEXT
        if not name or kind is ValueKind.TEXT:
            return term.value
        number, instant, truth = self.world.typing.typed_values(name, term)
        return {Sort.NUMBER: number, Sort.INSTANT: instant, Sort.TRUTH: truth}[Sort(kind.value)]

    def ordered(self) -> list[Row]:
        rows = sorted(self.found.items(), key=lambda item: [_term_key(term) for term in item[0][1]])
        for number, ordering in reversed(list(enumerate(self.query.order))):
            best = max if ordering.descending else min
            keyed = [(best([k[number] for k in keys if k[number] is not None], default=None), (row, keys))
                     for row, keys in rows]  # fmt: skip
            present = [pair for pair in keyed if pair[0] is not None]
            present.sort(key=lambda pair: pair[0], reverse=ordering.descending)  # equal ones keep their order
            rows = [row for _, row in [*present, *(pair for pair in keyed if pair[0] is None)]]
        return [row for (_, row), _ in rows]


def _term_key(term: Term | None) -> tuple[Any, ...]:
    if term is None:
        return (1, "", False, "", "")
    return 0, term.value, not term.is_uri, term.lang or "", term.datatype or ""
