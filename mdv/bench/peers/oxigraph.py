"""Oxigraph: a graph store with SPARQL, in memory; rules as data, and a query for each rule.

Each batch is a named graph of its own, so that a query finds what is new and nothing else. `extend` and `bulk_extend`
cost the same in memory; the first is one transaction. Filters stand outside of GRAPH: within it they keep the store
from going from the batch to the rules by index, and JOIN costs thousands of times as much. Queries cannot be prepared:
the text of a rule's query has its constant in it.
"""

from __future__ import annotations

import itertools
import time
from random import Random

from pyoxigraph import DefaultGraph, Literal, NamedNode, Quad, QuerySolutions, Store

from mdv.bench.peers import Batch, Taken, by_resource, constant, family
from mdv.bench.peers.queries import RULES_ASKED, query
from mdv.bench.rulebase import RuleType
from mdv.bench.workload import NAMESPACE
from mdv.model import XSD, Term

CONSTANT = "urn:bench:constant"
RULE = "urn:bench:rule:"

JOINS = {
    "OID": "GRAPH <{batch}> {{ ?c a :CycleProvider }} ?r <{constant}> ?c",
    "PATH": "GRAPH <{batch}> {{ ?i :memory ?m . ?c :serverInformation ?i . ?c a :CycleProvider }} ?r <{constant}> ?m",
    "JOIN": "GRAPH <{batch}> {{ ?i :memory ?m . ?i :cpu 600 . ?c :serverInformation ?i . ?c a :CycleProvider ."
    " ?c :serverHost ?h }} ?r <{constant}> ?m FILTER(CONTAINS(?h, 'uni-passau.de'))",
    "COMP": "GRAPH <{batch}> {{ ?c a :CycleProvider . ?c :synthValue ?v }} ?r <{constant}> ?t FILTER(?v > ?t)",
    "contains": "GRAPH <{batch}> {{ ?c a :CycleProvider . ?c :serverHost ?v }} ?r <{constant}> ?t"
    " FILTER(CONTAINS(?v, ?t))",
}
"""By type of rule, the one query that joins a batch with all rules."""

Rows = tuple[NamedNode, list[Quad]]


class _Graphs:
    """A store to which batches come, each a graph."""

    def __init__(self) -> None:
        self.store = Store()
        self._numbers = itertools.count()

    def prepare(self, batch: Batch) -> Rows:
        graph = NamedNode(f"urn:bench:batch:{next(self._numbers)}")
        return graph, [
            Quad(NamedNode(subject), NamedNode(predicate), _term(value), graph)
            for document in batch
            for subject, predicate, value in document
        ]


class Oxigraph(_Graphs):
    """Rules as data: each a statement with its constant, beside the documents."""

    def __init__(self, rule_type: RuleType, rules: int) -> None:
        super().__init__()
        self._join = JOINS[family(rule_type)]
        predicate = NamedNode(CONSTANT)
        self.store.bulk_extend(
            Quad(NamedNode(f"{RULE}{number}"), predicate, _of_rule(rule_type, number), DefaultGraph())
            for number in range(rules)
        )

    def take(self, rows: Rows) -> Taken:
        graph, quads = rows
        asked = f"SELECT ?r ?c WHERE {{ {self._join.format(batch=graph.value, constant=CONSTANT)} }}"
        began = time.perf_counter()
        self.store.extend(quads)
        found = list(_solutions(self.store, asked))
        seconds = time.perf_counter() - began
        return Taken(seconds, by_resource((int(rule[len(RULE) :]), uri) for rule, uri in found))


class OxigraphQueries(_Graphs):
    """A query for each rule, which sees the batch alone."""

    def __init__(self, rule_type: RuleType, rules: int) -> None:
        super().__init__()
        self._rule_type, self._rules = rule_type, rules
        self._random = Random(rule_type.name)

    def take(self, rows: Rows) -> Taken:
        graph, quads = rows
        sample = self._random.sample(range(self._rules), min(RULES_ASKED, self._rules))
        began = time.perf_counter()
        self.store.extend(quads)
        inserted = time.perf_counter()
        found: list[tuple[int, str]] = []
        for number in sample:
            asked = f"SELECT ?c WHERE {{ {query(self._rule_type, str(_of_rule(self._rule_type, number)))} }}"
            found += ((number, uri) for (uri,) in _solutions(self.store, asked, graph))
        each = (time.perf_counter() - inserted) / len(sample)
        return Taken(inserted - began + each * self._rules, by_resource(found), frozenset(sample))


def _solutions(store: Store, asked: str, graph: NamedNode | None = None) -> list[tuple[str, ...]]:
    found = store.query(asked, prefixes={"": NAMESPACE}, default_graph=graph)
    if not isinstance(found, QuerySolutions):
        raise TypeError("A SELECT has solutions.")
    return [tuple(term.value for term in solution) for solution in found]


def _of_rule(rule_type: RuleType, number: int) -> NamedNode | Literal:
    value = constant(rule_type, number)
    if rule_type.recurs:
        return NamedNode(str(value))
    return _number(str(value)) if isinstance(value, int) else Literal(value)


def _term(term: Term) -> NamedNode | Literal:
    if term.is_uri:
        return NamedNode(term.value)
    return _number(term.value) if term.value.isdecimal() else Literal(term.value)


def _number(digits: str) -> Literal:
    return Literal(digits, datatype=NamedNode(XSD + "integer"))
