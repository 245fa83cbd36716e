"""A store in memory with the history of its statements: for simulations, and as a model of the store in Postgres."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence

from mdv.model import Statement
from mdv.rdf.schema import EMPTY_SCHEMA, Schema
from mdv.rdf.values import ValueKind
from mdv.real.engines import infer_by_schema
from mdv.real.store import (
    FactReader,
    ReadPattern,
    ReadScope,
    StatementChange,
    WriteRefusal,
    pattern_matches,
    scope_contains,
)
from mdv.real.vocabulary import BUILT_IN_PREFIXES, ENGINE, SCHEMA_CONTEXT

Check = Callable[[StatementChange, FactReader], WriteRefusal | None]


class MemoryStore:
    """Documents with the positions from and until which they say a statement."""

    def __init__(self, statements: Iterable[tuple[str, Statement]] = (), schema: Schema = EMPTY_SCHEMA) -> None:
        self.position = 0
        self.schema = schema
        self.schema_facts: tuple[Statement, ...] = ()
        self.changes: list[tuple[int, StatementChange]] = []
        self.active: set[str] = set()
        self.document_prefixes: dict[str, Mapping[str, str]] = {}
        self.check: Check = lambda change, facts: None
        self.clock = 0.0
        self._spans: dict[Statement, dict[str, list[list[int | None]]]] = {}
        self._by_key: dict[tuple[int, str], dict[Statement, None]] = {}
        self._cache: dict[tuple[ReadPattern, ReadScope, int], list[Statement]] = {}
        self.commit(StatementChange(document, statement, True) for document, statement in statements)

    def commit(self, changes: Iterable[StatementChange]) -> int:
        """Apply changes at the next position, and return it. Changes that change nothing are dropped."""
        position = self.position + 1
        applied = [change for change in changes if self._apply(change, position)]
        if applied:
            self.position = position
            self.changes += [(position, change) for change in applied]
        return self.position

    def _apply(self, change: StatementChange, position: int) -> bool:
        document, statement, is_added = change
        spans = self._spans.setdefault(statement, {}).setdefault(document, [])
        is_said = bool(spans) and spans[-1][1] is None
        if is_said == is_added:
            return False
        if not is_added:
            spans[-1][1] = position
            return True
        spans.append([position, None])
        for number, key in ((0, statement.subject), (1, statement.property), (2, statement.object.value)):
            self._by_key.setdefault((number, key), {})[statement] = None
        return True

    def is_said(self, statement: Statement, scope: ReadScope, position: int) -> bool:
        """True if a document of the scope says a statement as of a position."""
        return any(
            scope_contains(scope, document) and _contains(spans, position)
            for document, spans in self._spans.get(statement, {}).items()
        )

    def content(self) -> set[tuple[str, Statement]]:
        """Return all statements with their documents, as of now."""
        return {
            (document, statement)
            for statement, documents in self._spans.items()
            for document, spans in documents.items()
            if _contains(spans, self.position)
        }

    def changes_after(self, position: int) -> list[StatementChange]:
        """Return the changes after a position, in order."""
        at = bisect_right(self.changes, position, key=lambda one: one[0])
        return [change for _, change in self.changes[at:]]

    def view(self) -> MemoryView:
        """Return a view as of now."""
        return MemoryView(self, self.position)

    def rows(self, pattern: ReadPattern, scope: ReadScope, position: int) -> list[Statement]:
        key = (pattern, scope, position)
        found = self._cache.get(key)
        if found is None:
            if len(self._cache) > 10_000:
                self._cache.clear()
            found = self._cache[key] = sorted(
                one
                for one in self._candidates(pattern)
                if pattern_matches(pattern, one, self.range_kind(one.property) if pattern.is_typed else ValueKind.TEXT)
                and self.is_said(one, scope, position)
            )
        return found

    def _candidates(self, pattern: ReadPattern) -> Iterable[Statement]:
        subject, name, value, is_typed = pattern
        keys = [(0, subject), (1, name), (2, None if value is None or is_typed else value.value)]
        lists = [self._by_key.get((number, key), {}) for number, key in keys if key is not None]
        if not lists:
            return self._spans
        return min(lists, key=lambda found: len(found))

    def range_kind(self, property_iri: str) -> ValueKind:
        declared = self.schema.property_of(property_iri)
        return declared.kind if declared is not None else ValueKind.TEXT


class MemoryView:
    """The statements of a `MemoryStore` as of a base position. Implements `StoreView`."""

    def __init__(self, store: MemoryStore, position: int) -> None:
        self.store, self._position = store, position
        self.prefetched: list[ReadPattern] = []

    @property
    def position(self) -> int:
        return self._position

    def read(
        self, pattern: ReadPattern, scope: ReadScope, position: int, after: Statement | None, limit: int
    ) -> Sequence[Statement]:
        rows = self.store.rows(pattern, scope, position)
        start = 0 if after is None else bisect_right(rows, after)
        return rows[start : start + limit]

    def prefetch(self, patterns: Sequence[ReadPattern], scope: ReadScope) -> None:
        self.prefetched += patterns

    def documents_with(self, statement: Statement) -> frozenset[str]:
        documents = self.store._spans.get(statement)
        if documents is None:
            return frozenset()
        return frozenset(document for document, spans in documents.items() if _contains(spans, self._position))

    def range_kind(self, property_iri: str) -> ValueKind:
        return self.store.range_kind(property_iri)

    def refusal(self, change: StatementChange, facts: FactReader) -> WriteRefusal | None:
        return self.store.check(change, facts)

    def infer(self, engine: str, pattern: ReadPattern, facts: FactReader) -> Iterable[Statement]:
        if engine != ENGINE + "schema":
            raise LookupError(engine)
        return infer_by_schema(self.store.schema, self.store.schema_facts, pattern, facts)

    def schema_statements(self) -> Iterable[Statement]:
        return self.store.schema_facts

    def prefixes(self, document: str) -> dict[str, str]:
        if document == SCHEMA_CONTEXT:
            return {**BUILT_IN_PREFIXES, **self.store.schema.prefixes}
        return dict(self.store.document_prefixes.get(document, {}))

    def is_active(self, process: str) -> bool:
        return process in self.store.active

    def stop_refusal(self, process: str) -> str | None:
        return None

    def now(self) -> float:
        return self.store.clock


def _contains(spans: Sequence[Sequence[int | None]], position: int) -> bool:
    return any(
        start is not None and start <= position and (end is None or position < end) for start, end in reversed(spans)
    )
