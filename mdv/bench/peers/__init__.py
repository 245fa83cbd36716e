"""What a user might pick instead of MDV, doing the same work in the same run.

A peer has the rules beforehand. It is given documents as parsed statements, batch after batch, and keeps them. What it
makes of a batch before anything is stored is not timed, as with ours (`prepare`); what is timed is inserting the batch
and finding all pairs of a rule and a resource that it brings.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from mdv.bench.rulebase import RuleType
from mdv.model import Statement

Batch = Sequence[Sequence[Statement]]
"""The statements of each document."""


class Taken(NamedTuple):
    """What a peer did with a batch: its seconds, by resource the numbers of the rules that match it, and the rules that
    were asked, where only a sample was and the seconds of the others are taken to be the same."""

    seconds: float
    found: Mapping[str, Sequence[int]]
    asked: frozenset[int] | None = None


class Peer(Protocol):
    """Something that matches rules of one type, `rules` in number."""

    def __init__(self, rule_type: RuleType, rules: int) -> None: ...

    def prepare(self, batch: Batch) -> Any:
        """The batch in the peer's own form; not timed."""

    def take(self, rows: Any) -> Taken:
        """Insert the batch and find its matches."""


class Parted(NamedTuple):
    """What the benchmark's documents say, by the names of their properties: one provider and its computer."""

    uri: str
    serverHost: str
    serverPort: int
    synthValue: int
    serverInformation: str
    memory: int
    cpu: int


def parted(document: Sequence[Statement]) -> Parted:
    """The provider of a document and its computer, for peers whose rows have columns."""
    said = {name_of(statement.property): statement for statement in document}
    values = {name: statement.object.value for name, statement in said.items()}
    whole = {name: int(values[name]) for name in ("serverPort", "synthValue", "memory", "cpu")}
    return Parted(
        said["serverInformation"].subject,
        serverHost=values["serverHost"],
        serverInformation=values["serverInformation"],
        **whole,
    )


def name_of(uri: str) -> str:
    """
    >>> name_of("http://mdv.example/schema#memory")
    'memory'
    """
    return uri.rpartition("#")[2]


def family(rule_type: RuleType) -> str:
    """The type without its percentage, as peers know it."""
    return "COMP" if rule_type.percent is not None else rule_type.name


def constant(rule_type: RuleType, number: int) -> int | str:
    """What a rule compares with: a URI, a text or a number."""
    return f"host{number}.uni" if rule_type.name == "contains" else rule_type.constant(number)


def by_resource(pairs: Iterable[tuple[int, str]]) -> dict[str, array[int]]:
    """Pairs of rule and resource, in little space.

    >>> by_resource([(1, "a"), (2, "a")])
    {'a': array('q', [1, 2])}
    """
    found: dict[str, array[int]] = {}
    for rule, uri in pairs:
        found.setdefault(uri, array("q")).append(rule)
    return found


@dataclass(frozen=True, slots=True)
class Kind:
    """A peer that can be asked for: its name, where it is written, the package it needs, and what it does with what it
    is given."""

    title: str
    home: str
    """Module and class."""
    package: str
    durability: str
    families: frozenset[str]
    """The types of rules that it can be asked to match."""
    sampled: bool = False
    """Whether the cost of all rules is taken from that of some."""
    install: str = "`pip install 'mdv[bench]'` installs it."


_ALL = frozenset({"OID", "PATH", "JOIN", "COMP", "contains"})
_HERE = "mdv.bench.peers."

KINDS = {
    "clips": Kind("CLIPS", _HERE + "clips:Clips", "clips", "memory only", _ALL),
    "pathway": Kind("Pathway", _HERE + "pathway:Pathway", "pathway", "memory only", _ALL - {"contains"},
                    install="`make peers` installs it, in an environment of its own."),
    "oxigraph": Kind("Oxigraph", _HERE + "oxigraph:Oxigraph", "pyoxigraph", "memory only", _ALL),
    "oxigraph-queries": Kind(
        "Oxigraph, one query per rule", _HERE + "oxigraph:OxigraphQueries", "pyoxigraph", "memory only", _ALL, True
    ),
    "rdflib-queries": Kind(
        "rdflib, one query per rule", _HERE + "graph:GraphQueries", "rdflib", "memory only", _ALL, True
    ),
    "sql-queries": Kind(
        "one query per rule", _HERE + "sql:SqlQueries", "sqlalchemy", "durable commit",
        frozenset({"OID", "PATH", "JOIN"}), True,
    ),
}  # fmt: skip
"""The peers by the names of the command line."""
