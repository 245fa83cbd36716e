"""What a machine reads and asks: the protocol that a store implements, in memory or in Postgres.

Reads are cursors: a pattern, a scope, a base position and the last statement that was read. A cursor reads the
statements as of its position, in an order that the store chooses and keeps, in chunks. A store holds nothing between
two chunks, so a cursor can be stored with a checkpoint and continued in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from mdv.model import Statement, Term
from mdv.rdf.values import ValueKind
from mdv.real.terms import typed_value


class ReadPattern(NamedTuple):
    """The statements that a read is about. None stands for any. `is_typed`: the object is a number or boolean, and
    literals of equal value match too."""

    subject: str | None = None
    property: str | None = None
    object: Term | None = None
    is_typed: bool = False


ReadScope: TypeAlias = tuple[str, ...] | None
"""The documents that are read. None: all documents."""


class ScopedRead(NamedTuple):
    """A read of a program, as it is recorded for optimistic commits and for waiting."""

    pattern: ReadPattern
    scope: ReadScope = None


class StatementChange(NamedTuple):
    """A statement that a document gained or lost."""

    document: str
    statement: Statement
    is_added: bool


class WriteRefusal(NamedTuple):
    """Why a statement cannot be written. `awaited`: reads whose results must change before it can be written; none if
    no statement can help."""

    reason: str
    awaited: tuple[ScopedRead, ...] = ()


FactReader: TypeAlias = Callable[[ReadPattern], Iterable[Statement]]
"""Returns the statements that match a pattern, in the contexts and with the uncommitted changes of a program."""


class StoreView(Protocol):
    """The committed statements as of a base position, and what else a machine asks while it runs."""

    @property
    def position(self) -> int:
        """The base position of new reads."""

    def read(
        self, pattern: ReadPattern, scope: ReadScope, position: int, after: Statement | None, limit: int
    ) -> Sequence[Statement]:
        """Return up to `limit` distinct matching statements after `after`, as of a position, in an order of the store.

        Fewer than `limit` mean that there are no more.
        """

    def prefetch(self, patterns: Sequence[ReadPattern], scope: ReadScope) -> None:
        """A hint: these patterns are about to be read as of the base position, in this order."""

    def documents_with(self, statement: Statement) -> frozenset[str]:
        """Return the documents that say a statement, as of the base position."""

    def range_kind(self, property_iri: str) -> ValueKind:
        """Return how the schema types the values of a property."""

    def refusal(self, change: StatementChange, facts: FactReader) -> WriteRefusal | None:
        """Return why a change would be refused (permissions, locks, the schema), or None. `facts`: those of its
        document, with the uncommitted changes."""

    def infer(self, engine: str, pattern: ReadPattern, facts: FactReader) -> Iterable[Statement]:
        """Return the distinct solutions of an inference engine. Raise `LookupError` if there is no such engine."""

    def schema_statements(self) -> Iterable[Statement]:
        """Return the statements of the schema, which the context `urn:mdv:schema` contains."""

    def prefixes(self, document: str) -> dict[str, str]:
        """Return the prefixes of a document; for the schema context, those of the schema."""

    def is_active(self, process: str) -> bool:
        """True if a process exists and has not ended."""

    def stop_refusal(self, process: str) -> str | None:
        """Return why this program may not stop an active process, or None."""

    def now(self) -> float:
        """Return the time, in seconds since 1970."""


def pattern_matches(pattern: ReadPattern, statement: Statement, range_kind: ValueKind) -> bool:
    """True if a statement matches a pattern. `range_kind`: how the schema types its property.

    >>> from mdv.real.terms import number_term
    >>> three = ReadPattern(object=number_term("3"), is_typed=True)
    >>> pattern_matches(three, Statement("urn:a", "urn:p", Term.literal("03")), ValueKind.NUMBER)
    True
    >>> pattern_matches(three, Statement("urn:a", "urn:p", Term.literal("03")), ValueKind.TEXT)
    False
    """
    subject, property_, object_, is_typed = pattern
    if subject is not None and statement.subject != subject:
        return False
    if property_ is not None and statement.property != property_:
        return False
    if object_ is None or statement.object == object_:
        return True
    if not is_typed:
        return False
    wanted = typed_value(object_, range_kind)
    return wanted is not None and typed_value(statement.object, range_kind) == wanted


def scope_contains(scope: ReadScope, document: str) -> bool:
    """True if a read with this scope sees the statements of a document."""
    return scope is None or document in scope
