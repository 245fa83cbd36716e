"""CLIPS: a production system. Subscriptions are facts, and one rule for each type joins them with the resources.

Its Rete network keeps all joins, hashed where variables must be equal, and a fact that is asserted costs what it
matches. The resource stands first in a rule and the subscription second, so that none of a hundred thousand begins a
join of its own. Tried and measured at 100,000 rules: facts by `assert_fact` cost a tenth of `load_facts` and
`assert_string`, which read text; a fact for each resource, with a slot for each property, less than half of one for
each statement. Matches told by a function cost what matches asserted or printed to a file do; only of COMP, with its
ten thousand a document, printing was about a sixth cheaper.
"""

from __future__ import annotations

import time
from typing import Any

import clips

from mdv.bench.peers import Batch, Taken, by_resource, constant, family, parted
from mdv.bench.rulebase import RuleType

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
    """An environment with the subscriptions asserted."""

    def __init__(self, rule_type: RuleType, rules: int) -> None:
        self._environment = clips.Environment()
        self._found: list[tuple[int, str]] = []
        for template in TEMPLATES:
            self._environment.build(template)
        self._environment.define_function(self._match, "match")
        self._environment.build(f"(defrule matching {CONDITIONS[family(rule_type)]} => (match ?r ?c))")
        subscription = self._environment.find_template("subscription")
        for number in range(rules):
            subscription.assert_fact(rule=number, constant=constant(rule_type, number))
        self._provider = self._environment.find_template("CycleProvider")
        self._computer = self._environment.find_template("ServerInformation")

    def prepare(self, batch: Batch) -> list[tuple[Slots, Slots]]:
        return [_slots(parted(document)._asdict()) for document in batch]

    def take(self, rows: list[tuple[Slots, Slots]]) -> Taken:
        self._found.clear()
        provider, computer = self._provider.assert_fact, self._computer.assert_fact
        began = time.perf_counter()
        for one, other in rows:
            provider(**one)
            computer(**other)
        self._environment.run()
        seconds = time.perf_counter() - began
        return Taken(seconds, by_resource(self._found))

    def _match(self, rule: int, uri: str) -> None:
        self._found.append((rule, uri))


def _slots(said: Slots) -> tuple[Slots, Slots]:
    computer = {"uri": said["serverInformation"], "memory": said.pop("memory"), "cpu": said.pop("cpu")}
    return said, computer
