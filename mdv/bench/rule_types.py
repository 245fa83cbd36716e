"""The rule types of the paper's Figure 10, with the text operators and `!=`, and their documents.

A rule base consists of rules of one type that differ in one constant: 0, 1, 2 … Each document matches exactly one rule;
for COMP a percentage of the rules; for ne all but one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from mdv.bench.workload import make_document, provider_uri, server_host


@dataclass(frozen=True, slots=True)
class RuleType:
    """A rule type. In its predicate, `{n}` is the number of the rule and `{uri}` the URI of a provider."""

    name: str
    predicate: str
    percent: float | None = None
    """For COMP, the percentage of rules that match each document."""

    def rule(self, number: int) -> str:
        """Return the text of a rule.

        >>> RULE_TYPES["path"].rule(7)
        'search CycleProvider c register c where c.serverInformation.memory = 7'
        """
        where = self.predicate.format(n=number, uri=provider_uri(number))
        return f"search CycleProvider c register c where {where}"

    def constant(self, number: int) -> int | str:
        return provider_uri(number) if self.selects_by_uri else number

    @property
    def selects_by_uri(self) -> bool:
        """True if rules select documents by URI. Then there are only as many documents as rules."""
        return self.name == "OID"

    @property
    def matches_one(self) -> bool:
        """True if each document matches exactly one rule."""
        return self.percent is None and self.name != "ne"

    def document_number(self, turn: int, rules: int) -> int:
        """Return the number of a turn's document. Turns go through the rules repeatedly."""
        return turn % rules if self.selects_by_uri else turn

    def document(self, turn: int, rules: int, moved: int = 0) -> tuple[str, bytes]:
        """Return the document of a turn. `moved` is added to its memory value."""
        place = turn % rules
        synth = place if self.percent is None else round(rules * self.percent / 100)
        return make_document(self.document_number(turn, rules), place, synth, (place + moved) % rules)

    def provider(self, turn: int, rules: int) -> str:
        """Return the resource of a turn's document that rules register."""
        return provider_uri(self.document_number(turn, rules))

    def host(self, turn: int, rules: int) -> str:
        return server_host(turn % rules)

    def matching(self, turn: int, rules: int, moved: int = 0) -> Collection[int]:
        """Return the numbers of the rules that match a turn's document.

        >>> list(comp_rules(20).matching(3, 10)), list(RULE_TYPES["oid"].matching(13, 10))
        ([0, 1], [3])
        >>> len(RULE_TYPES["ne"].matching(3, 10))
        9
        """
        if self.percent is not None:
            return range(round(rules * self.percent / 100))
        if self.name == "ne":
            return set(range(rules)) - {turn % rules}
        return [(turn + moved) % rules]


RULE_TYPES = {
    "oid": RuleType("OID", "c = <{uri}>"),
    "path": RuleType("PATH", "c.serverInformation.memory = {n}"),
    "join": RuleType(
        "JOIN",
        "c.serverHost contains 'uni-passau.de' and c.serverInformation.cpu = 600 and c.serverInformation.memory = {n}",
    ),
    "contains": RuleType("contains", "c.serverHost contains 'host{n}.uni'"),
    "startswith": RuleType("startswith", "c.serverHost startswith 'host{n}.uni'"),
    "endswith": RuleType("endswith", "c.serverHost endswith 't{n}.uni-passau.de'"),
    "ne": RuleType("ne", "c.synthValue != {n}"),
}
EQUAL_TEXTS = RuleType("equal texts", "c.serverHost = 'host{n}.uni-passau.de'")
"""The same selection as by startswith and endswith, which are compared with it."""


def comp_rules(percent: float) -> RuleType:
    """Return the type of COMP rules of which `percent` match each document."""
    return RuleType(f"COMP {percent:g} %", "c.synthValue > {n}", percent)
