"""The SPARQL query of one rule, for peers with one query per rule."""

from __future__ import annotations

from mdv.bench.peers import rule_family
from mdv.bench.rule_types import RuleType

SAMPLED_RULES = 100
"""Rules per batch that are queried. The cost of the others is extrapolated."""

QUERIES = {
    "OID": "VALUES ?c {{ {constant} }} ?c a :CycleProvider",
    "PATH": "?i :memory {constant} . ?c :serverInformation ?i . ?c a :CycleProvider",
    "JOIN": "?i :memory {constant} . ?i :cpu 600 . ?c :serverInformation ?i . ?c a :CycleProvider . ?c :serverHost ?h"
    " FILTER(CONTAINS(?h, 'uni-passau.de'))",
    "COMP": "?c a :CycleProvider . ?c :synthValue ?v FILTER(?v > {constant})",
    "contains": "?c a :CycleProvider . ?c :serverHost ?v FILTER(CONTAINS(?v, {constant}))",
}


def rule_query(rule_type: RuleType, constant: str) -> str:
    """Return the graph patterns of one rule. Its resource is ?c.

    >>> from mdv.bench.rule_types import RULE_TYPES
    >>> rule_query(RULE_TYPES["path"], "7")
    '?i :memory 7 . ?c :serverInformation ?i . ?c a :CycleProvider'
    """
    return QUERIES[rule_family(rule_type)].format(constant=constant)
