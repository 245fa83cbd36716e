"""CLIPS, a production system. Subscriptions are facts, and one rule per type joins them with the resources.

Its Rete network keeps all joins, with hash tables for equal variables; asserting a fact costs as much as its matches.
The resource is first in a rule and the subscription second, so that a hundred thousand subscriptions do not each start
a join.

Measured with 100,000 rules: facts by `assert_fact` take a tenth of the time of `load_facts` and `assert_string`, which
parse text. One fact per resource, with a slot for each property, takes less than half of the time of one fact per
statement. Reporting matches by a function takes as long as asserting them or printing them to a file; only for COMP,
with ten thousand matches per document, printing was about a sixth faster.
"""

from __future__ import annotations

import time
from typing import Any

import clips

from mdv.bench.peers import PeerResult, StatementBatch, group_by_resource, provider_row, rule_constant, rule_family
from mdv.bench.rule_types import RuleType

TEMPLATES = (
    "(deftemplate CycleProvider"
    " (slot uri) (slot serverHost) (slot serverPort) (slot synthValue) (slot serverInformation))",
    "(deftemplate ServerInformation (slot uri) (slot memory) (slot cpu))",
    "(deftemplate subscription (slot rule) (slot constant))",
)
CONDITIONS = {
    "OID": "(CycleProvider (uri ?c)) (subscription (rule ?r) (constant ?c))",
    "PATH": "(ServerInformation (uri ?i) (memory ?m)) (subscription (rule ?r) (constant ?m))"
    " (CycleProvider (uri ?c) (serverInformation ?i))",
    "JOIN": "(ServerInformation (uri ?i) (memory ?m) (cpu 600)) (subscription (rule ?r) (constant ?m))"
    ' (CycleProvider (uri ?c) (serverInformation ?i) (serverHost ?h&:(str-index "uni-passau.de" ?h)))',
    "COMP": "(CycleProvider (uri ?c) (synthValue ?v)) (subscription (rule ?r) (constant ?t&:(> ?v ?t)))",
    "contains": "(CycleProvider (uri ?c) (serverHost ?h)) (subscription (rule ?r) (constant ?t&:(str-index ?t ?h)))",
}

Slots = dict[str, Any]


class Clips:
    """An environment with the subscriptions as facts."""

    def __init__(self, rule_type: RuleType, rules: int) -> None:
        self._environment = clips.Environment()
        self._found: list[tuple[int, str]] = []
        for template in TEMPLATES:
            self._environment.build(template)
        self._environment.define_function(self._match, "match")
        self._environment.build(f"(defrule matching {CONDITIONS[rule_family(rule_type)]} => (match ?r ?c))")
        subscription = self._environment.find_template("subscription")
        for number in range(rules):
            subscription.assert_fact(rule=number, constant=rule_constant(rule_type, number))
        self._provider = self._environment.find_template("CycleProvider")
        self._computer = self._environment.find_template("ServerInformation")

    def prepare(self, batch: StatementBatch) -> list[tuple[Slots, Slots]]:
        return [_slots(provider_row(document)._asdict()) for document in batch]

    def take(self, rows: list[tuple[Slots, Slots]]) -> PeerResult:
        self._found.clear()
        provider, computer = self._provider.assert_fact, self._computer.assert_fact
        began = time.perf_counter()
        for one, other in rows:
            provider(**one)
            computer(**other)
        self._environment.run()
        seconds = time.perf_counter() - began
        return PeerResult(seconds, group_by_resource(self._found))

    def _match(self, rule: int, uri: str) -> None:
        self._found.append((rule, uri))


def _slots(row: Slots) -> tuple[Slots, Slots]:
    computer = {"uri": row["serverInformation"], "memory": row.pop("memory"), "cpu": row.pop("cpu")}
    return row, computer
