"""The documents of a load, their rules, and the expected state at the end.

Documents have the paper's shape, and URIs that distinguish them from all others. Rules have the paper's types, in turn.
Half of the documents match rules of the rule base, and all of them match the rule of the running LMRs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from urllib.parse import quote

from mdv.bench.rule_types import RULE_TYPES
from mdv.bench.workload import make_document

RULE_TYPE_NAMES = ("oid", "path", "join", "contains")
PROVIDERS_PER_DOCUMENT = {"paper": 1, "large": 50}
"""Shapes of documents: the number of providers (with their information) in each."""


@dataclass(frozen=True, slots=True)
class LoadWorkload:
    """The parameters of a load: a mark that distinguishes its documents, the number of rules, and providers per
    document."""

    mark: str
    rules: int
    pairs: int = 1

    @property
    def prefix(self) -> str:
        return f"http://mdv.example/load/{self.mark}/"

    def uri(self, number: int) -> str:
        return f"{self.prefix}{number}.rdf"

    def rule_base(self) -> Iterator[str]:
        """Yield the rules of an LMR that is not running."""
        for index in range(self.rules):
            rule_type, number = RULE_TYPES[RULE_TYPE_NAMES[index % len(RULE_TYPE_NAMES)]], index // len(RULE_TYPE_NAMES)
            where = rule_type.predicate.format(n=number, uri=f"{self.uri(number)}#host")
            yield f"search CycleProvider c register c where {where}"

    @property
    def rule_for_all(self) -> str:
        """Matches every provider of these documents, and no other."""
        return f"search CycleProvider c register c where c.serverHost contains '.{self.mark}'"

    def value_for(self, turn: int) -> int:
        """Return the value that rules compare. Rules exist for half of the values."""
        return turn % max(1, 2 * self._constants(1))

    def body(self, value: int) -> bytes:
        text = make_document(value)[1].replace(b"</serverHost>", f".{self.mark}</serverHost>".encode())
        if self.pairs == 1:
            return text
        begin, end = text.index(b"  <CycleProvider"), text.index(b"</rdf:RDF>")
        one = text[begin:end]
        more = (
            one.replace(b'"host"', b'"host%d"' % n).replace(b'"info"', b'"info%d"' % n) for n in range(1, self.pairs)
        )
        return text[:end] + b"".join(more) + text[end:]

    def matched(self, number: int, value: int) -> int:
        """Return how many providers of a document the rule base selects.

        >>> LoadWorkload("x", 8).matched(0, 3), LoadWorkload("x", 8).matched(9, 1), LoadWorkload("x", 8).matched(9, 2)
        (1, 1, 0)
        """
        return self.pairs if value < self._constants(1) else int(number < self._constants(0))

    def _constants(self, kind: int) -> int:
        """Return the number of rules of a type."""
        return (self.rules + len(RULE_TYPE_NAMES) - 1 - kind) // len(RULE_TYPE_NAMES)


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """A change to a document."""

    method: str
    number: int
    uri: str
    value: int
    body: bytes = b""

    @property
    def path(self) -> str:
        return f"/api/v1/documents?uri={quote(self.uri, safe='')}"


@dataclass(slots=True)
class DocumentState:
    """The known state of a document: its version, and whether it exists. A lost response leaves it in doubt."""

    value: int
    version: int = 0
    present: bool = False
    in_doubt: bool = False


@dataclass
class LoadDocuments:
    """The documents that were sent."""

    workload: LoadWorkload
    random: Random = field(default_factory=lambda: Random(2002))  # noqa: S311: the same load every time
    known: dict[int, DocumentState] = field(default_factory=dict)
    _idle: deque[int] = field(default_factory=deque)

    @property
    def idle(self) -> int:
        """The number of existing documents that have no change in progress."""
        return len(self._idle)

    def insert(self) -> DocumentChange:
        number = len(self.known)
        value = self.workload.value_for(number)
        self.known[number] = DocumentState(value)
        return self._put_change(number, value)

    def update(self) -> DocumentChange:
        """Change the value of the document that was unchanged for longest; insert a new one if there is none."""
        if not self._idle:
            return self.insert()
        number = self._idle.popleft()
        return self._put_change(number, self.workload.value_for(self.known[number].value + 1))

    def delete(self) -> DocumentChange:
        if not self._idle:
            return self.insert()
        number = self._idle.popleft()
        return DocumentChange("DELETE", number, self.workload.uri(number), self.known[number].value)

    def next(self, updates: float) -> DocumentChange:
        """Return a new document, or with the probability `updates` an update."""
        return self.update() if updates and self.random.random() < updates else self.insert()

    def _put_change(self, number: int, value: int) -> DocumentChange:
        return DocumentChange("PUT", number, self.workload.uri(number), value, self.workload.body(value))

    # Outcomes

    def done(self, change: DocumentChange) -> None:
        known = self.known[change.number]
        known.version += 1
        known.value, known.present = change.value, change.method == "PUT"
        if known.present:
            self._idle.append(change.number)

    def refused(self, change: DocumentChange) -> None:
        """The server refused the change."""
        if self.known[change.number].present:
            self._idle.append(change.number)

    def lost(self, change: DocumentChange) -> None:
        """The response was lost, so it is unknown whether the change was made."""
        self.known[change.number].in_doubt = True

    # Expected state

    @property
    def present(self) -> dict[str, int]:
        """The versions of the documents that must be stored."""
        return {self.workload.uri(n): k.version for n, k in self.known.items() if k.present and not k.in_doubt}

    @property
    def in_doubt(self) -> set[str]:
        return {self.workload.uri(n) for n, k in self.known.items() if k.in_doubt}

    @property
    def matched(self) -> int:
        """How many providers the rule base selects."""
        return sum(self.workload.matched(n, k.value) for n, k in self.known.items() if k.present and not k.in_doubt)
