"""The SPARQL query of one rule, for the peers that ask one for each."""

from __future__ import annotations

from mdv.bench.peers import family
from mdv.bench.rulebase import RuleType

RULES_ASKED = 100
"""Rules of a batch that are asked one by one; the cost of the others is taken to be the same."""

QUERIES = {
    "OID": "VALUES ?c {{ {constant} }} ?c a :CycleProvider",
    "PATH": "?i :memory {constant} . ?c :serverInformation ?i . ?c a :CycleProvider",
    "JOIN": "?i :memory {constant} . ?i :cpu 600 . ?c :serverInformation ?i . ?c a :CycleProvider . ?c :serverHost ?h"
    " FILTER(CONTAINS(?h, 'uni-passau.de'))",
    "COMP": "?c a :CycleProvider . ?c :synthValue ?v FILTER(?v > {constant})",
    "contains": "?c a :CycleProvider . ?c :serverHost ?v FILTER(CONTAINS(?v, {constant}))",
}


def query(rule_type: RuleType, constant: str) -> str:
    """The patterns that one rule asks for; its resource is ?c.

    >>> from mdv.bench.rulebase import TYPES
    >>> query(TYPES["path"], "7")
    '?i :memory 7 . ?c :serverInformation ?i . ?c a :CycleProvider'
    """
    return QUERIES[family(rule_type)].format(constant=constant)
