"""The rule types of the paper's Figure 10, with `contains` and `!=`, and the documents that go with each.

A rule base is made of rules of one type that differ in one constant: 0, 1, 2 … up to their number. Of OID, PATH, JOIN
and contains, each document is matched by exactly one rule; of COMP by a percentage of them; of ne by all but one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from mdv.bench.workload import provider_uri, rdf_xml, server_host


@dataclass(frozen=True, slots=True)
class RuleType:
    """A type of rules; `{n}` in its predicate is the number of the rule, `{uri}` that of a provider."""

    name: str
    predicate: str
    percent: float | None = None
    """Of COMP: how many of the rules match each document."""

    def rule(self, number: int) -> str:
        """The text of the rule of that number.

        >>> TYPES["path"].rule(7)
        'search CycleProvider c register c where c.serverInformation.memory = 7'
        """
        where = self.predicate.format(n=number, uri=provider_uri(number))
        return f"search CycleProvider c register c where {where}"

    def constant(self, number: int) -> int | str:
        return provider_uri(number) if self.recurs else number

    @property
    def recurs(self) -> bool:
        """Whether its documents are known by their URIs, of which there are only as many as rules."""
        return self.name == "OID"

    @property
    def matches_one(self) -> bool:
        """Whether each document is matched by exactly one rule."""
        return self.percent is None and self.name != "ne"

    def document_number(self, turn: int, rules: int) -> int:
        """The number of the document of that turn, rules without end taking turns."""
        return turn % rules if self.recurs else turn

    def document(self, turn: int, rules: int, moved: int = 0) -> tuple[str, bytes]:
        """The document of that turn; `moved`: with so much more memory."""
        place = turn % rules
        synth = place if self.percent is None else round(rules * self.percent / 100)
        return rdf_xml(self.document_number(turn, rules), place, synth, (place + moved) % rules)

    def provider(self, turn: int, rules: int) -> str:
        """The resource of that turn's document that rules register."""
        return provider_uri(self.document_number(turn, rules))

    def host(self, turn: int, rules: int) -> str:
        return server_host(turn % rules)

    def matching(self, turn: int, rules: int, moved: int = 0) -> Collection[int]:
        """The numbers of the rules that match that turn's document.

        >>> list(comp(20).matching(3, 10)), list(TYPES["oid"].matching(13, 10)), len(TYPES["ne"].matching(3, 10))
        ([0, 1], [3], 9)
        """
        if self.percent is not None:
            return range(round(rules * self.percent / 100))
        if self.name == "ne":
            return set(range(rules)) - {turn % rules}
        return [(turn + moved) % rules]


TYPES = {
    "oid": RuleType("OID", "c = <{uri}>"),
    "path": RuleType("PATH", "c.serverInformation.memory = {n}"),
    "join": RuleType(
        "JOIN",
        "c.serverHost contains 'uni-passau.de' and c.serverInformation.cpu = 600 and c.serverInformation.memory = {n}",
    ),
    "contains": RuleType("contains", "c.serverHost contains 'host{n}.uni'"),
    "ne": RuleType("ne", "c.synthValue != {n}"),
}


def comp(percent: float) -> RuleType:
    """COMP rules of which that many match each document."""
    return RuleType(f"COMP {percent:g} %", "c.synthValue > {n}", percent)
