"""rdflib, a graph in memory with SPARQL. There is one query per rule.

The query of a rule is prepared in advance and contains its constant. If the constant were bound to a variable, queries
could not start from it, and JOIN would take many times as long. Each batch is a graph of its own in one dataset, and
queries see only the last one.
"""

from __future__ import annotations

import time
from random import Random
from typing import Any

from rdflib import Dataset, Graph, Literal, URIRef, Variable
from rdflib.plugins.sparql import prepareQuery
from rdflib.plugins.sparql.sparql import Query

from mdv.bench.peers import PeerResult, StatementBatch, group_by_resource, rule_constant
from mdv.bench.peers.sparql import SAMPLED_RULES, rule_query
from mdv.bench.rule_types import RuleType
from mdv.bench.workload import NAMESPACE
from mdv.model import Term

FOUND = Variable("c")

Triples = list[tuple[Any, Any, Any]]


class RdflibQueries:
    """A dataset, and the queries of a sample of the rules."""

    def __init__(self, rule_type: RuleType, rules: int) -> None:
        self._rules = rules
        self._dataset = Dataset()
        self._batches = 0
        sample = Random(rule_type.name).sample(range(rules), min(SAMPLED_RULES, rules))
        self._queries = {number: _prepared(rule_type, number) for number in sample}

    def prepare(self, batch: StatementBatch) -> Triples:
        return [
            (URIRef(subject), URIRef(predicate), _term(value))
            for document in batch
            for subject, predicate, value in document
        ]

    def take(self, rows: Triples) -> PeerResult:
        self._batches += 1
        began = time.perf_counter()
        graph: Graph = self._dataset.graph(URIRef(f"urn:bench:batch:{self._batches}"))
        graph.addN((*triple, graph) for triple in rows)
        inserted = time.perf_counter()
        found: list[tuple[int, str]] = []
        for number, query in self._queries.items():
            found += ((number, str(row[FOUND])) for row in graph.query(query).bindings)
        seconds_per_rule = (time.perf_counter() - inserted) / len(self._queries)
        return PeerResult(
            inserted - began + seconds_per_rule * self._rules, group_by_resource(found), frozenset(self._queries)
        )


def _prepared(rule_type: RuleType, number: int) -> Query:
    value = rule_constant(rule_type, number)
    term = URIRef(str(value)) if rule_type.selects_by_uri else Literal(value)
    return prepareQuery(f"SELECT ?c WHERE {{ {rule_query(rule_type, term.n3())} }}", initNs={"": NAMESPACE})


def _term(term: Term) -> URIRef | Literal:
    if term.is_uri:
        return URIRef(term.value)
    return Literal(int(term.value)) if term.value.isdecimal() else Literal(term.value)
