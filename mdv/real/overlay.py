"""The uncommitted changes of a process: one overlay for the slice, one for each open `[ ]` and `{ }`.

An overlay holds net changes over its parent. A read sees the innermost change of a statement, or else the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mdv.model import Statement, Term
from mdv.real.store import ReadPattern


class SpawnedProcess(NamedTuple):
    """A process to be started when the surrounding transaction commits."""

    process: str
    action: str
    inputs: tuple[Term, ...]


class StopRequest(NamedTuple):
    """A process to be stopped when the surrounding transaction commits."""

    process: str
    message: Term | None = None


class Overlay:
    """Net changes over the parent. `outermost`: the outermost `[ ]` around it or itself; 0 if there is none."""

    __slots__ = (
        "_by_property",
        "_by_subject",
        "chain",
        "changes",
        "in_sandbox",
        "is_sandbox",
        "number",
        "outermost",
        "spawned",
        "stopped",
    )

    def __init__(self, number: int = 0, parent: Overlay | None = None, is_sandbox: bool = False) -> None:
        self.number = number
        self.is_sandbox = is_sandbox
        self.in_sandbox: bool = is_sandbox or (parent is not None and parent.in_sandbox)
        self.outermost: int = 0
        if parent is not None:
            self.outermost = parent.outermost or (0 if is_sandbox else number)
        self.chain: tuple[int, ...] = (*parent.chain, number) if parent is not None else (number,)
        self.changes: dict[Statement, dict[str, bool]] = {}
        self._by_property: dict[str, dict[Statement, None]] = {}
        self._by_subject: dict[str, dict[Statement, None]] = {}
        self.spawned: list[SpawnedProcess] = []
        self.stopped: list[StopRequest] = []

    @property
    def parent(self) -> int:
        return self.chain[-2]

    def apply(self, document: str, statement: Statement, is_added: bool) -> None:
        """Add or remove a statement that the view does not, or does, contain.

        A sandbox keeps a change that returns to what its parent says: the parent may change later.
        """
        documents = self.changes.get(statement)
        if documents is None:
            documents = self.changes[statement] = {}
            self._by_property.setdefault(statement.property, {})[statement] = None
            self._by_subject.setdefault(statement.subject, {})[statement] = None
        if self.is_sandbox or documents.get(document, is_added) == is_added:
            documents[document] = is_added
            return
        del documents[document]  # back to what the parent says
        if not documents:
            del self.changes[statement]
            del self._by_property[statement.property][statement]
            del self._by_subject[statement.subject][statement]

    def merge_into(self, parent: Overlay) -> None:
        """Move all changes to the parent."""
        for statement, documents in self.changes.items():
            for document, is_added in documents.items():
                parent.apply(document, statement, is_added)
        parent.spawned += self.spawned
        parent.stopped += self.stopped
        self.clear()

    def clear(self) -> None:
        self.changes, self._by_property, self._by_subject = {}, {}, {}
        self.spawned, self.stopped = [], []

    def candidates(self, pattern: ReadPattern) -> Iterable[Statement]:
        """Return the changed statements that may match a pattern."""
        if pattern.subject is not None:
            return self._by_subject.get(pattern.subject, ())
        if pattern.property is not None:
            return self._by_property.get(pattern.property, ())
        return self.changes

    def all_changes(self) -> Iterator[tuple[str, Statement, bool]]:
        for statement, documents in self.changes.items():
            for document, is_added in documents.items():
                yield document, statement, is_added

    def copy(self) -> Overlay:
        other = object.__new__(Overlay)
        other.number, other.is_sandbox, other.in_sandbox = self.number, self.is_sandbox, self.in_sandbox
        other.outermost, other.chain = self.outermost, self.chain
        other.changes = {statement: dict(documents) for statement, documents in self.changes.items()}
        other._by_property = {key: dict(found) for key, found in self._by_property.items()}
        other._by_subject = {key: dict(found) for key, found in self._by_subject.items()}
        other.spawned, other.stopped = list(self.spawned), list(self.stopped)
        return other
