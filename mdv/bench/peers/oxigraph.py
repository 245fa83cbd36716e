"""Oxigraph, a graph store with SPARQL, in memory. Rules are data, or there is one query per rule.

Each batch is a named graph of its own, so that a query finds only new resources. `extend` and `bulk_extend` cost the
same in memory; `extend` is one transaction. Filters are outside of GRAPH: inside, they would prevent index lookups from
the batch to the rules, and JOIN would take thousands of times as long. Queries cannot be prepared, so the text of a
rule's query contains its constant.
"""

from __future__ import annotations

import itertools
import time
from random import Random

from pyoxigraph import DefaultGraph, Literal, NamedNode, Quad, QuerySolutions, Store

from mdv.bench.peers import PeerResult, StatementBatch, group_by_resource, rule_constant, rule_family
from mdv.bench.peers.sparql import SAMPLED_RULES, rule_query
from mdv.bench.rule_types import RuleType
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
"""For each rule type, the query that joins a batch with all rules."""

Rows = tuple[NamedNode, list[Quad]]


class _BatchGraphs:
    """A store with one graph per batch."""

    def __init__(self) -> None:
        self.store = Store()
        self._numbers = itertools.count()

    def prepare(self, batch: StatementBatch) -> Rows:
        graph = NamedNode(f"urn:bench:batch:{next(self._numbers)}")
        return graph, [
            Quad(NamedNode(subject), NamedNode(predicate), _term(value), graph)
            for document in batch
            for subject, predicate, value in document
        ]


class Oxigraph(_BatchGraphs):
    """Rules as data: each is a statement with its constant, next to the documents."""

    def __init__(self, rule_type: RuleType, rules: int) -> None:
        super().__init__()
        self._join = JOINS[rule_family(rule_type)]
        predicate = NamedNode(CONSTANT)
        self.store.bulk_extend(
            Quad(NamedNode(f"{RULE}{number}"), predicate, _constant_term(rule_type, number), DefaultGraph())
            for number in range(rules)
        )

    def take(self, rows: Rows) -> PeerResult:
        graph, quads = rows
        query = f"SELECT ?r ?c WHERE {{ {self._join.format(batch=graph.value, constant=CONSTANT)} }}"
        began = time.perf_counter()
        self.store.extend(quads)
        found = list(_solutions(self.store, query))
        seconds = time.perf_counter() - began
        return PeerResult(seconds, group_by_resource((int(rule[len(RULE) :]), uri) for rule, uri in found))


class OxigraphQueries(_BatchGraphs):
    """One query per rule, on the batch alone."""

    def __init__(self, rule_type: RuleType, rules: int) -> None:
        super().__init__()
        self._rule_type, self._rules = rule_type, rules
        self._random = Random(rule_type.name)

    def take(self, rows: Rows) -> PeerResult:
        graph, quads = rows
        sample = self._random.sample(range(self._rules), min(SAMPLED_RULES, self._rules))
        began = time.perf_counter()
        self.store.extend(quads)
        inserted = time.perf_counter()
        found: list[tuple[int, str]] = []
        for number in sample:
            query = f"SELECT ?c WHERE {{ {rule_query(self._rule_type, str(_constant_term(self._rule_type, number)))} }}"
            found += ((number, uri) for (uri,) in _solutions(self.store, query, graph))
        seconds_per_rule = (time.perf_counter() - inserted) / len(sample)
        return PeerResult(
            inserted - began + seconds_per_rule * self._rules, group_by_resource(found), frozenset(sample)
        )


def _solutions(store: Store, query: str, graph: NamedNode | None = None) -> list[tuple[str, ...]]:
    found = store.query(query, prefixes={"": NAMESPACE}, default_graph=graph)
    if not isinstance(found, QuerySolutions):
        raise TypeError("Oxigraph returned no solutions for a SELECT query.")
    return [tuple(term.value for term in solution) for solution in found]


def _constant_term(rule_type: RuleType, number: int) -> NamedNode | Literal:
    value = rule_constant(rule_type, number)
    if rule_type.selects_by_uri:
        return NamedNode(str(value))
    return _number(str(value)) if isinstance(value, int) else Literal(value)


def _term(term: Term) -> NamedNode | Literal:
    if term.is_uri:
        return NamedNode(term.value)
    return _number(term.value) if term.value.isdecimal() else Literal(term.value)


def _number(digits: str) -> Literal:
    return Literal(digits, datatype=NamedNode(XSD + "integer"))
