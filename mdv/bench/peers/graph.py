"""rdflib: a graph in memory with SPARQL, asked by a query for each rule.

The query of a rule is prepared beforehand, with its constant in it: bound to a variable, a constant comes too late to
be where a query begins, and JOIN costs many times as much. Each batch is a graph of its own in one dataset, and queries
see the last alone.
"""

from __future__ import annotations

import time
from random import Random
from typing import Any

from rdflib import Dataset, Graph, Literal, URIRef, Variable
from rdflib.plugins.sparql import prepareQuery
from rdflib.plugins.sparql.sparql import Query

from mdv.bench.peers import Batch, Taken, by_resource, constant
from mdv.bench.peers.queries import RULES_ASKED, query
from mdv.bench.rulebase import RuleType
from mdv.bench.workload import NAMESPACE
from mdv.model import Term

FOUND = Variable("c")

Triples = list[tuple[Any, Any, Any]]


class GraphQueries:
    """A dataset, and the queries of some of the rules."""

    def __init__(self, rule_type: RuleType, rules: int) -> None:
        self._rules = rules
        self._dataset = Dataset()
        self._batches = 0
        sample = Random(rule_type.name).sample(range(rules), min(RULES_ASKED, rules))
        self._queries = {number: _prepared(rule_type, number) for number in sample}

    def prepare(self, batch: Batch) -> Triples:
        return [
            (URIRef(subject), URIRef(predicate), _term(value))
            for document in batch
            for subject, predicate, value in document
        ]

    def take(self, rows: Triples) -> Taken:
        self._batches += 1
        began = time.perf_counter()
        graph: Graph = self._dataset.graph(URIRef(f"urn:bench:batch:{self._batches}"))
        graph.addN((*triple, graph) for triple in rows)
        inserted = time.perf_counter()
        found: list[tuple[int, str]] = []
        for number, asked in self._queries.items():
            found += ((number, str(row[FOUND])) for row in graph.query(asked).bindings)
        each = (time.perf_counter() - inserted) / len(self._queries)
        return Taken(inserted - began + each * self._rules, by_resource(found), frozenset(self._queries))


def _prepared(rule_type: RuleType, number: int) -> Query:
    value = constant(rule_type, number)
    term = URIRef(str(value)) if rule_type.recurs else Literal(value)
    return prepareQuery(f"SELECT ?c WHERE {{ {query(rule_type, term.n3())} }}", initNs={"": NAMESPACE})


def _term(term: Term) -> URIRef | Literal:
    if term.is_uri:
        return URIRef(term.value)
    return Literal(int(term.value)) if term.value.isdecimal() else Literal(term.value)
