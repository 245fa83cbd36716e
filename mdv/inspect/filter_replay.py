"""Replay the filter as the paper describes it (section 3.4) on a registered document. The result is its table
ResultObjects, iteration by iteration, as in Figure 9.

The filter of MDV (`mdv.mdp.filter`) evaluates whole rules at once, with the same results. The replay is for display
only. The first iteration contains the triggering rules that resources of the document match. Each further iteration
contains the join rules that use rules of the previous one: one input is a result of the previous iteration, the other
inputs are earlier results of this run or stored resources outside of the document. A row is shown once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import Connection

from mdv.db.filter import CompiledStatement, compile_statement
from mdv.db.query import TimeLimit, time_limited_read
from mdv.db.rule_graph import RuleGraph
from mdv.errors import NotFound
from mdv.inspect.sql.documents import read_document
from mdv.inspect.sql.explain_rule import ReadOnlyVocabulary
from mdv.inspect.sql.filter_replay import RuleGraphReader
from mdv.mdp.groups import RULE_TABLES, read_names, statement_states
from mdv.mdp.schemas import SchemaCache
from mdv.model import RDFS_RESOURCE
from mdv.query.filter_steps import select_join_partners, select_joined, select_triggered
from mdv.rdf.schema import Schema
from mdv.rules.atomic import JoinRule
from mdv.rules.normal import Access, Comparison, Conjunction, Constant, Link, Variable
from mdv.rules.pattern import Leaf, Pattern, pattern, pattern_with_nodes

MAX_SECONDS = 10
MAX_ITERATIONS = 50
MAX_ROWS = 1000
"""The maximum number of rows in an iteration, and of join rules that are evaluated in it."""
MAX_RESOURCES = 10_000
"""The maximum number of resources of a document that are replayed."""

_TOO_COSTLY = f"A step of the replay timed out after {MAX_SECONDS} s. The filter itself is not affected."

ResourcesByRule: TypeAlias = dict[int, set[int]]
"""The resources of each rule."""


class ReplayRow(NamedTuple):
    """A row of ResultObjects, with the text of its rule."""

    resource: str
    rule: int
    text: str


@dataclass(frozen=True, slots=True)
class FilterReplay:
    """A replay: the rows of its iterations, the results of end rules, and whether it was truncated."""

    document: str
    iterations: list[list[ReplayRow]]
    results: list[ReplayRow]
    truncated: bool

    def as_dict(self) -> dict[str, Any]:
        return {
            "document": self.document,
            "iterations": [[row._asdict() for row in rows] for rows in self.iterations],
            "results": [{"resource": row.resource, "rule": row.rule} for row in self.results],
            "truncated": self.truncated,
        }


def replay_filter(connection: Connection, document_uri: str, schemas: SchemaCache) -> FilterReplay:
    """Return the steps of the paper's filter for a registered document. It changes nothing."""
    with time_limited_read(connection, MAX_SECONDS, _TOO_COSTLY) as limit:
        schema = schemas.now(connection).schema
        document = read_document(connection, document_uri)
        if document is None or not document.present:
            raise NotFound(f"There is no document {document_uri}. Check the URI: it must be exactly as registered.")
        return _Run(connection, schema).run(document_uri, document.id, limit)


class _Run:
    """One run of the paper's filter."""

    def __init__(self, connection: Connection, schema: Schema) -> None:
        self._walk, self._schema = RuleGraphReader(connection), schema
        graph = RuleGraph(connection)
        self._predicates = {number: Leaf(0, *key) for key, number in graph.read_predicates().items()}
        self._groups = {
            number: JoinRule.from_json((), body) for number, body in self._walk.join_groups().items()
        }  # fmt: skip
        patterns = [pattern(_common_predicates(join, 0))[0] for join in self._groups.values()]
        patterns += [Pattern(((leaf.class_iri,),), (None,), (leaf,), ()) for leaf in self._predicates.values()]
        self._names = read_names(graph, patterns, schema, ReadOnlyVocabulary(connection), None)
        self._state = statement_states(self._names)[0]
        self._plain = {class_iri: number for number, class_iri in self._walk.rows("plain")}
        self._statements: dict[object, CompiledStatement] = {}
        self._known: ResourcesByRule = defaultdict(set)
        self._document_resources: list[int] = []
        self._truncated = False

    def run(self, uri: str, document: int, limit: TimeLimit) -> FilterReplay:
        described = self._walk.column("described", document=document, most=MAX_RESOURCES + 1)
        self._document_resources = self._cut(described, MAX_RESOURCES)
        iterations: list[ResourcesByRule] = []
        fresh = self._keep(self._triggered(self._document_resources))
        while fresh:
            if len(iterations) == MAX_ITERATIONS:
                self._truncated = True
                break
            iterations.append(fresh)
            limit.renew()
            fresh = self._keep(self._joined(fresh))
        return self._result(uri, iterations)

    def _keep(self, found: ResourcesByRule) -> ResourcesByRule:
        """Return the new rows, up to the limit of an iteration, and record them as known."""
        rows = [
            (rule, resource)
            for rule in sorted(found)
            for resource in sorted(found[rule] - self._known.get(rule, set()))
        ]
        fresh: ResourcesByRule = defaultdict(set)
        for rule, resource in self._cut(rows, MAX_ROWS):
            fresh[rule].add(resource)
            self._known[rule].add(resource)
        return fresh

    def _cut(self, rows: list[Any], most: int) -> list[Any]:
        self._truncated |= len(rows) > most
        return rows[:most]

    # Determination of affected triggering rules

    def _triggered(self, resources: Collection[int]) -> ResourcesByRule:
        """Return the triggering rules that these resources match."""
        found: ResourcesByRule = defaultdict(set)
        instances = self._instances(resources)
        properties = set(self._walk.column("properties", resources=list(resources)))
        for class_iri, rule in self._plain.items():
            found[rule] |= instances.get(class_iri, set())
        for number, leaf in self._predicates.items():
            roots = instances.get(leaf.class_iri)
            if not roots or (
                leaf.property is not None and properties.isdisjoint(self._names.properties[leaf.property])
            ):
                continue
            statement = self._compiled(number, lambda leaf=leaf, number=number: select_triggered(
                self._state, RULE_TABLES, leaf, number, MAX_ROWS + 1))  # fmt: skip
            for rule, resource in self._cut(self._walk.run(statement, roots=sorted(roots)), MAX_ROWS):
                found[rule].add(resource)
        return found

    def _instances(self, resources: Collection[int]) -> dict[str, set[int]]:
        """Return these resources by their classes and superclasses."""
        found: dict[str, set[int]] = defaultdict(set)
        found[RDFS_RESOURCE] = set(resources)
        for resource, class_iri in self._walk.rows("types", resources=list(resources), types=list(self._names.types)):
            declared = self._schema.classes.get(class_iri)
            for above in declared.superclasses if declared is not None else (class_iri,):
                found[above].add(resource)
        return found

    # Evaluation of join rules

    def _joined(self, fresh: ResourcesByRule) -> ResourcesByRule:
        """Return the results of join rules that use these results."""
        found: ResourcesByRule = defaultdict(set)
        rules = self._candidates(fresh)
        tree = _Tree(self._walk, rules, self._groups, self._predicates, self._plain)
        for rule in rules:
            for place, source in enumerate(tree.inputs[rule]):
                if source in fresh:
                    found[rule] |= self._evaluated(tree, rule, place, fresh[source])
        return found

    def _candidates(self, fresh: ResourcesByRule) -> list[int]:
        """Return the join rules that may have results: their other inputs have results in this run, or may match stored
        resources outside of the document."""
        outside = self._outside(fresh)
        if outside is None:
            found = self._walk.column("all_uses", fresh=list(fresh), most=MAX_ROWS + 1)
        else:
            allowed = self._known.keys() | self._possible(outside)
            found = self._walk.candidates(allowed, fresh, self._groups, MAX_ROWS + 1)
        return self._cut(found, MAX_ROWS)

    def _outside(self, fresh: ResourcesByRule) -> set[int] | None:
        """Return the stored resources outside of the document that join rules may combine with these results.

        Return None if there are too many.
        """
        roots: dict[tuple[int, int], set[int]] = defaultdict(set)
        for group, param, source in self._walk.rows("uses", rules=list(fresh)):
            roots[group, param - 1] |= fresh[source]
        found: set[int] = set()
        for (group, place), resources in roots.items():
            pattern_ = pattern(_common_predicates(self._groups[group], place))[0]
            if len(pattern_.nodes) == 1:
                continue
            statement = self._compiled(("partners", pattern_), lambda pattern_=pattern_: select_join_partners(
                self._state, pattern_, MAX_ROWS + 1))  # fmt: skip
            rows = self._walk.run(statement, roots=sorted(resources), inside=self._document_resources)
            found.update(number for row in rows for number in row)
            if len(rows) > MAX_ROWS or len(found) > MAX_ROWS:
                return None
        return found - set(self._document_resources)

    def _possible(self, resources: set[int]) -> set[int]:
        """Return a superset of the rules that these resources may match."""
        if not resources:
            return set()
        rules = set(self._triggered(resources))
        while more := set(self._walk.climb(rules, self._groups)) - rules:
            rules |= more
        return rules

    def _evaluated(self, tree: _Tree, rule: int, place: int, roots: set[int]) -> set[int]:
        """Return what a join rule registers if one of `roots` is its input number `place`."""
        conjunction, register = tree.conjunction(rule, place)
        pattern_, constants, nodes = pattern_with_nodes(conjunction)
        node = nodes[register]
        statement = self._compiled((pattern_, node), lambda: select_joined(self._state, pattern_, node))
        values = {f"constant{number}": constant.value for number, constant in enumerate(constants)}
        return {number for (number,) in self._walk.run(statement, roots=sorted(roots), **values)}

    def _compiled(self, key: object, make: Any) -> CompiledStatement:
        if key not in self._statements:
            self._statements[key] = compile_statement(make())
        return self._statements[key]

    # The result

    def _result(self, uri: str, iterations: Sequence[ResourcesByRule]) -> FilterReplay:
        rules = list({rule for found in iterations for rule in found})
        numbers = list({number for found in iterations for numbers in found.values() for number in numbers})
        texts = {rule: text for rule, _, text in self._walk.rows("texts", rules=rules)}
        uris = dict(map(tuple, self._walk.rows("uris", resources=numbers)))
        rows_by_iteration = [
            [
                ReplayRow(resource, rule, texts[rule])
                for rule in sorted(found)
                for resource in sorted(uris[number] for number in found[rule])
            ]
            for found in iterations
        ]
        ends = set(self._walk.column("ends", rules=rules))
        results = sorted(
            (row for rows in rows_by_iteration for row in rows if row.rule in ends), key=lambda r: (r.rule, r.resource)
        )
        return FilterReplay(uri, rows_by_iteration, results, self._truncated)


def _common_predicates(join: JoinRule, register: int) -> Conjunction:
    """Return the conjunction of the common predicates of a group of join rules, rooted at one of the inputs."""
    variables = tuple(Variable(f"i{place}", class_iri) for place, class_iri in enumerate(join.classes))
    return Conjunction(variables, f"i{register}", tuple(_links(join, [v.name for v in variables])))


def _links(join: JoinRule, names: Sequence[str]) -> list[Link]:
    return [
        Link(Access(names[p.left], p.left_property), p.operator, Access(names[p.right], p.right_property), p.sort)
        for p in join.predicates
    ]


class _Tree:
    """Some join rules with all rules that they depend on, as stored in the rule graph."""

    def __init__(
        self,
        walk: RuleGraphReader,
        rules: Sequence[int],
        groups: Mapping[int, JoinRule],
        predicates: Mapping[int, Leaf],
        plain: Mapping[str, int],
    ) -> None:
        self.inputs: dict[int, list[int]] = defaultdict(list)
        self._joins: dict[int, JoinRule] = {}
        for target, _, source, group in walk.rows("below", rules=list(rules)) if rules else ():
            self.inputs[target].append(source)
            self._joins[target] = groups[group]
        leaves = list({source for sources in self.inputs.values() for source in sources} - self.inputs.keys())
        self._plain = {number: class_iri for class_iri, number in plain.items()}
        self._compared: dict[int, tuple[Leaf, Constant]] = {}
        for number, predicate, exact, text in walk.rows("constants", rules=leaves):
            self._compared[number] = (predicates[predicate], Constant(text if exact is None else Decimal(exact), ""))

    def conjunction(self, rule: int, given: int) -> tuple[Conjunction, str]:
        """Return a join rule as a conjunction rooted at input number `given`, and the variable that it registers."""
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
