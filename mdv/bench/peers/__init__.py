"""Alternatives to MDV that do the same work in the same run.

A peer receives the rules first. Then it receives documents as parsed statements, batch by batch, and keeps them. The
conversion of a batch to the peer's own form is not timed, as for MDV (`prepare`). The insertion of the batch and the
search for all of its matches (pairs of rule and resource) are timed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from mdv.bench.rule_types import RuleType
from mdv.model import Statement

StatementBatch = Sequence[Sequence[Statement]]
"""The statements of each document."""


class PeerResult(NamedTuple):
    """The result of a batch: the seconds, the numbers of the matching rules by resource, and the rules that were
    queried, if only a sample was and the seconds of the others were extrapolated."""

    seconds: float
    found: Mapping[str, Sequence[int]]
    asked: frozenset[int] | None = None


class Peer(Protocol):
    """A system that matches rules of one type. `rules` is the number of rules."""

    def __init__(self, rule_type: RuleType, rules: int) -> None: ...

    def prepare(self, batch: StatementBatch) -> Any:
        """Return the batch in the peer's own form; not timed."""

    def take(self, rows: Any) -> PeerResult:
        """Insert the batch and find its matches."""


class ProviderRow(NamedTuple):
    """The property values of the benchmark's documents: one provider and its computer."""

    uri: str
    serverHost: str
    serverPort: int
    synthValue: int
    serverInformation: str
    memory: int
    cpu: int


def provider_row(document: Sequence[Statement]) -> ProviderRow:
    """Return the provider of a document and its computer, for peers with columns."""
    by_name = {local_name(statement.property): statement for statement in document}
    values = {name: statement.object.value for name, statement in by_name.items()}
    integers = {name: int(values[name]) for name in ("serverPort", "synthValue", "memory", "cpu")}
    return ProviderRow(
        by_name["serverInformation"].subject,
        serverHost=values["serverHost"],
        serverInformation=values["serverInformation"],
        **integers,
    )


def local_name(uri: str) -> str:
    """
    >>> local_name("http://mdv.example/schema#memory")
    'memory'
    """
    return uri.rpartition("#")[2]


def rule_family(rule_type: RuleType) -> str:
    """Return the rule type without its percentage."""
    return "COMP" if rule_type.percent is not None else rule_type.name


def rule_constant(rule_type: RuleType, number: int) -> int | str:
    """Return the constant of a rule: a URI, a text or a number."""
    return f"host{number}.uni" if rule_type.name == "contains" else rule_type.constant(number)


def group_by_resource(pairs: Iterable[tuple[int, str]]) -> dict[str, array[int]]:
    """Group pairs of rule and resource in compact form.

    >>> group_by_resource([(1, "a"), (2, "a")])
    {'a': array('q', [1, 2])}
    """
    found: dict[str, array[int]] = {}
    for rule, uri in pairs:
        found.setdefault(uri, array("q")).append(rule)
    return found


@dataclass(frozen=True, slots=True)
class PeerKind:
    """An available peer: its name, its class, the package that it needs, and its properties."""

    title: str
    home: str
    """Module and class."""
    package: str
    durability: str
    families: frozenset[str]
    """The rule types that it supports."""
    sampled: bool = False
    """True if the cost of all rules is extrapolated from a sample."""
    install: str = "Install it with `pip install 'mdv[bench]'`."


_ALL = frozenset({"OID", "PATH", "JOIN", "COMP", "contains"})
_PACKAGE = "mdv.bench.peers."

PEER_KINDS = {
    "clips": PeerKind("CLIPS", _PACKAGE + "clips:Clips", "clips", "memory only", _ALL),
    "pathway": PeerKind("Pathway", _PACKAGE + "pathway:Pathway", "pathway", "memory only", _ALL - {"contains"},
                    install="Install it with `make peers`, in an environment of its own."),
    "oxigraph": PeerKind("Oxigraph", _PACKAGE + "oxigraph:Oxigraph", "pyoxigraph", "memory only", _ALL),
    "oxigraph-queries": PeerKind(
        "Oxigraph, one query per rule", _PACKAGE + "oxigraph:OxigraphQueries", "pyoxigraph", "memory only", _ALL, True
    ),
    "rdflib-queries": PeerKind(
        "rdflib, one query per rule", _PACKAGE + "rdflib_queries:RdflibQueries", "rdflib", "memory only", _ALL, True
    ),
    "sql-queries": PeerKind(
        "one query per rule", _PACKAGE + "sql_queries:SqlQueries", "sqlalchemy", "durable commit",
        frozenset({"OID", "PATH", "JOIN"}), True,
    ),
}  # fmt: skip
"""The peers by their names on the command line."""
