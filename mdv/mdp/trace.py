"""The filter as the paper runs it (section 3.4), replayed on a registered document: its table ResultObjects, iteration
by iteration, as in Figure 9.

The filter that runs here evaluates whole rules at once and gets the same results (`mdv.mdp.filter`); this one is to be
looked at. The first iteration has the triggering rules that resources of the document match. Each further one has the
join rules that use rules of the one before: their results there as input, and as the other inputs what matched before
in this run or is stored and not of this document. A row is shown once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import Connection

from mdv.db.explain import KnownNames
from mdv.db.filter import Compiled, compiled
from mdv.db.graph import Graph
from mdv.db.query import reading
from mdv.db.read import read_document
from mdv.db.trace import Walk
from mdv.errors import NotFound
from mdv.mdp.groups import TABLES, read_names, states
from mdv.mdp.schemas import Schemas
from mdv.model import RDFS_RESOURCE
from mdv.query.trace import joined, partners, triggered
from mdv.rdf.schema import Schema
from mdv.rules.atomic import Join
from mdv.rules.normal import Access, Comparison, Conjunction, Constant, Link, Variable
from mdv.rules.pattern import Leaf, Pattern, pattern, pattern_with_nodes

MAX_SECONDS = 10
MAX_ITERATIONS = 50
MAX_ROWS = 1000
"""Of an iteration; and so many join rules are evaluated in it."""
MAX_RESOURCES = 10_000
"""Of a document."""

_TOO_COSTLY = (
    f"One step of the trace took longer than {MAX_SECONDS} s, and it was given up. The filter is not concerned."
)

Found: TypeAlias = dict[int, set[int]]
"""The resources of each rule."""


class TraceRow(NamedTuple):
    """A row of ResultObjects, with the text of its rule."""

    resource: str
    rule: int
    text: str


@dataclass(frozen=True, slots=True)
class Trace:
    """A run: the rows of its iterations, what end rules found, and whether some of it was cut off."""

    document: str
    iterations: list[list[TraceRow]]
    results: list[TraceRow]
    truncated: bool

    def as_dict(self) -> dict[str, Any]:
        return {
            "document": self.document,
            "iterations": [[row._asdict() for row in rows] for rows in self.iterations],
            "results": [{"resource": row.resource, "rule": row.rule} for row in self.results],
            "truncated": self.truncated,
        }


def trace(connection: Connection, document_uri: str, schemas: Schemas) -> Trace:
    """What the paper's filter finds for a registered document, step by step. Changes nothing."""
    with reading(connection, MAX_SECONDS, _TOO_COSTLY):
        schema = schemas.now(connection).schema
        document = read_document(connection, document_uri)
        if document is None or not document.present:
            raise NotFound(f"There is no document {document_uri}.")
        return _Run(connection, schema).run(document_uri, document.id)


class _Run:
    """One run of the paper's filter."""

    def __init__(self, connection: Connection, schema: Schema) -> None:
        self._walk, self._schema = Walk(connection), schema
        graph = Graph(connection)
        self._predicates = {number: Leaf(0, *key) for key, number in graph.read_predicates().items()}
        self._groups = {
            number: Join.from_json((), body) for number, body in self._walk.join_groups().items()
        }  # fmt: skip
        patterns = [pattern(_skeleton(join, 0))[0] for join in self._groups.values()]
        patterns += [Pattern(((leaf.class_iri,),), (None,), (leaf,), ()) for leaf in self._predicates.values()]
        self._names = read_names(graph, patterns, schema, KnownNames(connection), None)
        self._state = states(self._names)[0]
        self._plain = {class_iri: number for number, class_iri in self._walk.rows("plain")}
        self._statements: dict[object, Compiled] = {}
        self._known: Found = defaultdict(set)
        self._inside: list[int] = []
        self._truncated = False

    def run(self, uri: str, document: int) -> Trace:
        described = self._walk.column("described", document=document, most=MAX_RESOURCES + 1)
        self._inside = self._cut(described, MAX_RESOURCES)
        iterations: list[Found] = []
        fresh = self._keep(self._triggered(self._inside))
        while fresh:
            if len(iterations) == MAX_ITERATIONS:
                self._truncated = True
                break
            iterations.append(fresh)
            fresh = self._keep(self._joined(fresh))
        return self._told(uri, iterations)

    def _keep(self, found: Found) -> Found:
        """What is new of it, as far as an iteration goes."""
        rows = [
            (rule, resource)
            for rule in sorted(found)
            for resource in sorted(found[rule] - self._known.get(rule, set()))
        ]
        fresh: Found = defaultdict(set)
        for rule, resource in self._cut(rows, MAX_ROWS):
            fresh[rule].add(resource)
            self._known[rule].add(resource)
        return fresh

    def _cut(self, rows: list[Any], most: int) -> list[Any]:
        self._truncated |= len(rows) > most
        return rows[:most]

    # Determination of affected triggering rules

    def _triggered(self, resources: Collection[int]) -> Found:
        """The triggering rules that these resources match."""
        found: Found = defaultdict(set)
        instances = self._instances(resources)
        said = set(self._walk.column("properties", resources=list(resources)))
        for class_iri, rule in self._plain.items():
            found[rule] |= instances.get(class_iri, set())
        for number, leaf in self._predicates.items():
            roots = instances.get(leaf.class_iri)
            if not roots or (leaf.property is not None and said.isdisjoint(self._names.properties[leaf.property])):
                continue
            statement = self._compiled(number, lambda leaf=leaf, number=number: triggered(
                self._state, TABLES, leaf, number, MAX_ROWS + 1))  # fmt: skip
            for rule, resource in self._cut(self._walk.run(statement, roots=sorted(roots)), MAX_ROWS):
                found[rule].add(resource)
        return found

    def _instances(self, resources: Collection[int]) -> dict[str, set[int]]:
        """These resources by their classes and superclasses."""
        found: dict[str, set[int]] = defaultdict(set)
        found[RDFS_RESOURCE] = set(resources)
        for resource, class_iri in self._walk.rows("types", resources=list(resources), types=list(self._names.types)):
            declared = self._schema.classes.get(class_iri)
            for above in declared.superclasses if declared is not None else (class_iri,):
                found[above].add(resource)
        return found

    # Evaluation of join rules

    def _joined(self, fresh: Found) -> Found:
        """What join rules find that use these results."""
        found: Found = defaultdict(set)
        rules = self._candidates(fresh)
        tree = _Tree(self._walk, rules, self._groups, self._predicates, self._plain)
        for rule in rules:
            for place, source in enumerate(tree.inputs[rule]):
                if source in fresh:
                    found[rule] |= self._evaluated(tree, rule, place, fresh[source])
        return found

    def _candidates(self, fresh: Found) -> list[int]:
        """The join rules that may find something: their other inputs have results in this run, or may have some among
        what is stored around."""
        outside = self._outside(fresh)
        if outside is None:
            found = self._walk.column("all_uses", fresh=list(fresh), most=MAX_ROWS + 1)
        else:
            allowed = self._known.keys() | self._possible(outside)
            found = self._walk.candidates(allowed, fresh, self._groups, MAX_ROWS + 1)
        return self._cut(found, MAX_ROWS)

    def _outside(self, fresh: Found) -> set[int] | None:
        """What is stored beyond the document that join rules may combine with these results; None where it is much."""
        roots: dict[tuple[int, int], set[int]] = defaultdict(set)
        for group, param, source in self._walk.rows("uses", rules=list(fresh)):
            roots[group, param - 1] |= fresh[source]
        found: set[int] = set()
        for (group, place), resources in roots.items():
            shape = pattern(_skeleton(self._groups[group], place))[0]
            if len(shape.nodes) == 1:
                continue
            statement = self._compiled(("partners", shape), lambda shape=shape: partners(
                self._state, shape, MAX_ROWS + 1))  # fmt: skip
            rows = self._walk.run(statement, roots=sorted(resources), inside=self._inside)
            found.update(number for row in rows for number in row)
            if len(rows) > MAX_ROWS or len(found) > MAX_ROWS:
                return None
        return found - set(self._inside)

    def _possible(self, resources: set[int]) -> set[int]:
        """The rules that some of these resources may match, and a few more."""
        if not resources:
            return set()
        rules = set(self._triggered(resources))
        while more := set(self._walk.climb(rules, self._groups)) - rules:
            rules |= more
        return rules

    def _evaluated(self, tree: _Tree, rule: int, place: int, roots: set[int]) -> set[int]:
        """What a join rule registers with one of the roots as its input at a place."""
        conjunction, register = tree.conjunction(rule, place)
        shape, constants, nodes = pattern_with_nodes(conjunction)
        node = nodes[register]
        statement = self._compiled((shape, node), lambda: joined(self._state, shape, node))
        values = {f"constant{number}": constant.value for number, constant in enumerate(constants)}
        return {number for (number,) in self._walk.run(statement, roots=sorted(roots), **values)}

    def _compiled(self, key: object, make: Any) -> Compiled:
        if key not in self._statements:
            self._statements[key] = compiled(make())
        return self._statements[key]

    # The outcome

    def _told(self, uri: str, iterations: Sequence[Found]) -> Trace:
        rules = list({rule for found in iterations for rule in found})
        numbers = list({number for found in iterations for numbers in found.values() for number in numbers})
        texts = {rule: text for rule, _, text in self._walk.rows("texts", rules=rules)}
        uris = dict(map(tuple, self._walk.rows("uris", resources=numbers)))
        told = [
            [
                TraceRow(resource, rule, texts[rule])
                for rule in sorted(found)
                for resource in sorted(uris[number] for number in found[rule])
            ]
            for found in iterations
        ]
        ends = set(self._walk.column("ends", rules=rules))
        results = sorted((row for rows in told for row in rows if row.rule in ends), key=lambda r: (r.rule, r.resource))
        return Trace(uri, told, results, self._truncated)


def _skeleton(join: Join, register: int) -> Conjunction:
    """What the join rules of a group ask beside their inputs, told from one of these."""
    variables = tuple(Variable(f"i{place}", class_iri) for place, class_iri in enumerate(join.classes))
    return Conjunction(variables, f"i{register}", tuple(_links(join, [v.name for v in variables])))


def _links(join: Join, names: Sequence[str]) -> list[Link]:
    return [
        Link(Access(names[p.left], p.left_property), p.operator, Access(names[p.right], p.right_property), p.sort)
        for p in join.predicates
    ]


class _Tree:
    """Some join rules with all that they are made of, as the graph has it."""

    def __init__(
        self,
        walk: Walk,
        rules: Sequence[int],
        groups: Mapping[int, Join],
        predicates: Mapping[int, Leaf],
        plain: Mapping[str, int],
    ) -> None:
        self.inputs: dict[int, list[int]] = defaultdict(list)
        self._joins: dict[int, Join] = {}
        for target, _, source, group in walk.rows("below", rules=list(rules)) if rules else ():
            self.inputs[target].append(source)
            self._joins[target] = groups[group]
        leaves = list({source for sources in self.inputs.values() for source in sources} - self.inputs.keys())
        self._plain = {number: class_iri for class_iri, number in plain.items()}
        self._compared: dict[int, tuple[Leaf, Constant]] = {}
        for number, predicate, exact, text in walk.rows("constants", rules=leaves):
            self._compared[number] = (predicates[predicate], Constant(text if exact is None else Decimal(exact), ""))

    def conjunction(self, rule: int, given: int) -> tuple[Conjunction, str]:
        """What a join rule says, told from one of its inputs, which is given; and the variable that it registers."""
        variables: list[Variable] = []
        predicates: list[Comparison | Link] = []

        def new(class_iri: str) -> str:
            variables.append(Variable(f"v{len(variables)}", class_iri))
            return variables[-1].name

        def expand(at: int) -> str:
            if at in self._joins:
                join = self._joins[at]
                names = [expand(source) for source in self.inputs[at]]
                predicates.extend(_links(join, names))
                return names[join.register]
            if at in self._plain:
                return new(self._plain[at])
            leaf, constant = self._compared[at]
            name = new(leaf.class_iri)
            predicates.append(Comparison(Access(name, leaf.property), leaf.operator, leaf.sort, constant))
            return name

        join = self._joins[rule]
        names = [
            new(join.classes[place]) if place == given else expand(source)
            for place, source in enumerate(self.inputs[rule])
        ]
        predicates.extend(_links(join, names))
        return Conjunction(tuple(variables), names[given], tuple(predicates)), names[join.register]
