"""The documents of a load, the rules that go with them, and what must be there in the end.

Documents have the paper's shape under URIs of their own, so that they can be told from all others. Rules are of the
paper's types, one after the other; half of the documents are matched by rules of the rule base, and all of them by the
rule for LMRs that run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from urllib.parse import quote

from mdv.bench.rulebase import TYPES
from mdv.bench.workload import rdf_xml

KINDS = ("oid", "path", "join", "contains")
PAIRS = {"paper": 1, "large": 50}
"""Shapes of documents: how many providers with their information each holds."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is loaded: a mark that tells its documents from others, how many rules, how many providers a document."""

    mark: str
    rules: int
    pairs: int = 1

    @property
    def prefix(self) -> str:
        return f"http://mdv.example/load/{self.mark}/"

    def uri(self, number: int) -> str:
        return f"{self.prefix}{number}.rdf"

    def rule_base(self) -> Iterator[str]:
        """The rules for an LMR that nobody runs."""
        for place in range(self.rules):
            kind, number = TYPES[KINDS[place % len(KINDS)]], place // len(KINDS)
            where = kind.predicate.format(n=number, uri=f"{self.uri(number)}#host")
            yield f"search CycleProvider c register c where {where}"

    @property
    def rule_for_all(self) -> str:
        """Matches every provider of these documents, and no other."""
        return f"search CycleProvider c register c where c.serverHost contains '.{self.mark}'"

    def place(self, turn: int) -> int:
        """The value by which rules tell documents apart: of half of all turns there are rules for it."""
        return turn % max(1, 2 * self._constants(1))

    def body(self, place: int) -> bytes:
        text = rdf_xml(place)[1].replace(b"</serverHost>", f".{self.mark}</serverHost>".encode())
        if self.pairs == 1:
            return text
        begin, end = text.index(b"  <CycleProvider"), text.index(b"</rdf:RDF>")
        one = text[begin:end]
        more = (
            one.replace(b'"host"', b'"host%d"' % n).replace(b'"info"', b'"info%d"' % n) for n in range(1, self.pairs)
        )
        return text[:end] + b"".join(more) + text[end:]

    def matched(self, number: int, place: int) -> int:
        """How many providers of a document the rule base selects.

        >>> Workload("x", 8).matched(0, 3), Workload("x", 8).matched(9, 1), Workload("x", 8).matched(9, 2)
        (1, 1, 0)
        """
        return self.pairs if place < self._constants(1) else int(number < self._constants(0))

    def _constants(self, kind: int) -> int:
        """How many rules of a kind there are."""
        return (self.rules + len(KINDS) - 1 - kind) // len(KINDS)


@dataclass(frozen=True, slots=True)
class Change:
    """Something to be done to a document."""

    method: str
    number: int
    uri: str
    place: int
    body: bytes = b""

    @property
    def path(self) -> str:
        return f"/api/v1/documents?uri={quote(self.uri, safe='')}"


@dataclass(slots=True)
class Known:
    """What answers told of a document: its version, and whether it is there. A lost answer leaves it in doubt."""

    place: int
    version: int = 0
    present: bool = False
    in_doubt: bool = False


@dataclass
class Documents:
    """The documents that were sent."""

    workload: Workload
    random: Random = field(default_factory=lambda: Random(2002))  # noqa: S311: the same load every time
    known: dict[int, Known] = field(default_factory=dict)
    _idle: deque[int] = field(default_factory=deque)

    @property
    def idle(self) -> int:
        """How many are there, and nothing is being done to them."""
        return len(self._idle)

    def insert(self) -> Change:
        number = len(self.known)
        place = self.workload.place(number)
        self.known[number] = Known(place)
        return self._put(number, place)

    def update(self) -> Change:
        """The document that was left alone longest, with another value; a new one, where none is there."""
        if not self._idle:
            return self.insert()
        number = self._idle.popleft()
        return self._put(number, self.workload.place(self.known[number].place + 1))

    def delete(self) -> Change:
        if not self._idle:
            return self.insert()
        number = self._idle.popleft()
        return Change("DELETE", number, self.workload.uri(number), self.known[number].place)

    def next(self, updates: float) -> Change:
        """A new document, or with that probability an update."""
        return self.update() if updates and self.random.random() < updates else self.insert()

    def _put(self, number: int, place: int) -> Change:
        return Change("PUT", number, self.workload.uri(number), place, self.workload.body(place))

    # What came of it

    def done(self, change: Change) -> None:
        known = self.known[change.number]
        known.version += 1
        known.place, known.present = change.place, change.method == "PUT"
        if known.present:
            self._idle.append(change.number)

    def refused(self, change: Change) -> None:
        """It was answered that nothing was done."""
        if self.known[change.number].present:
            self._idle.append(change.number)

    def lost(self, change: Change) -> None:
        """Nobody knows whether it was done."""
        self.known[change.number].in_doubt = True

    # What must be there

    @property
    def present(self) -> dict[str, int]:
        """The versions of the documents that must be there."""
        return {self.workload.uri(n): k.version for n, k in self.known.items() if k.present and not k.in_doubt}

    @property
    def in_doubt(self) -> set[str]:
        return {self.workload.uri(n) for n, k in self.known.items() if k.in_doubt}

    @property
    def matched(self) -> int:
        """How many providers the rule base selects."""
        return sum(self.workload.matched(n, k.place) for n, k in self.known.items() if k.present and not k.in_doubt)
