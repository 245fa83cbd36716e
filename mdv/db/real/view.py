"""The statements of all documents as of a position, as a machine reads them. Implements `StoreView`."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import psycopg

from mdv.db.real.statement_reader import ReadShape, StatementReader, read_shape
from mdv.engines.registry import engine_names
from mdv.engines.run_engine import MAX_STATEMENTS, EngineFailed, run_engine
from mdv.model import Statement
from mdv.rdf.schema import Schema
from mdv.rdf.values import ValueKind
from mdv.real.engines import infer_by_schema
from mdv.real.machine_state import FIRST_CHUNK, ProgramFault
from mdv.real.store import FactReader, ReadPattern, ReadScope, StatementChange, WriteRefusal, pattern_matches
from mdv.real.vocabulary import BUILT_IN_PREFIXES, ENGINE, SCHEMA_CONTEXT

BLOCK_PATTERNS = 100
"""Inner reads that are fetched at once."""
MAX_PENDING = 10_000
"""Inner reads that are known and not fetched yet."""
MAX_KEPT = 2000
"""Results of reads that are kept: of inner reads that were fetched, and of documents of a statement."""

Refuse = Callable[[StatementChange, FactReader], WriteRefusal | None]


def _allow(change: StatementChange, facts: FactReader) -> WriteRefusal | None:
    return None


class PostgresView:
    """Reads as of a base position. It holds no connection: the host gives it a reader for each turn of a program."""

    def __init__(
        self,
        position: int,
        schema: Schema,
        schema_statements: Sequence[Statement] = (),
        refuse: Refuse = _allow,
        deadline: Callable[[], float] = lambda: float("inf"),
    ) -> None:
        """`refuse`: why a change would be refused. `deadline`: the time (monotonic) after which no read begins."""
        self._position, self._schema, self._refuse, self._deadline = position, schema, refuse, deadline
        self._schema_statements = tuple(schema_statements)
        self._reader: StatementReader | None = None
        self._pending: OrderedDict[tuple[ReadPattern, ReadScope], None] = OrderedDict()
        self._fetched: OrderedDict[tuple[ReadPattern, ReadScope], list[Statement]] = OrderedDict()
        self._documents: OrderedDict[Statement, frozenset[str]] = OrderedDict()
        self._asked: OrderedDict[Statement, None] = OrderedDict()
        """Statements whose documents are about to be asked."""
        self._prefixes: dict[str, dict[str, str]] = {}

    def use(self, reader: StatementReader | None) -> None:
        """Read through this reader from now on."""
        self._reader = reader

    def _call(self, read: Callable[..., Any], *values: Any) -> Any:
        if time.monotonic() > self._deadline():
            raise ProgramFault("the program took longer than its time limit", "seconds")
        try:
            return read(*values)
        except psycopg.errors.QueryCanceled:
            raise ProgramFault("a read took longer than its time limit", "seconds") from None

    @property
    def reader(self) -> StatementReader:
        assert self._reader is not None, "the host gives a view a reader before it runs a program"
        return self._reader

    # --- what a machine asks ---

    @property
    def position(self) -> int:
        return self._position

    def read(
        self, pattern: ReadPattern, scope: ReadScope, position: int, after: Statement | None, limit: int
    ) -> Sequence[Statement]:
        if scope == ():
            return ()
        if after is None and limit == FIRST_CHUNK and position == self._position:
            if (pattern, scope) in self._pending:
                self._fetch_block(pattern, scope)
            if (found := self._fetched.pop((pattern, scope), None)) is not None:
                return found
        return self._read(pattern, scope, position, after, limit)

    def _read(
        self, pattern: ReadPattern, scope: ReadScope, position: int, after: Statement | None, limit: int
    ) -> list[Statement]:
        kind = ValueKind.TEXT if pattern.property is None else self.range_kind(pattern.property)
        found: list[Statement] = []
        while True:
            shape = read_shape(pattern, scope, after, kind)
            (rows,) = self._call(self.reader.read, shape, [pattern], scope, position, limit, after)
            found += self._matching(pattern, rows)
            if len(found) >= limit or len(rows) < limit:
                return found[:limit]
            after = rows[-1]

    def count(self, pattern: ReadPattern, scope: ReadScope, limit: int) -> int:
        """Return the number of distinct statements that match a pattern, at most `limit`."""
        return len(self._read(pattern, scope, self._position, None, limit))

    def _matching(self, pattern: ReadPattern, rows: list[Statement]) -> list[Statement]:
        if not pattern.is_typed:
            return rows
        return [one for one in rows if pattern_matches(pattern, one, self.range_kind(one.property))]

    def prefetch(self, patterns: Sequence[ReadPattern], scope: ReadScope) -> None:
        if scope == ():
            return
        for pattern in patterns:
            if pattern.is_typed:
                continue
            if None not in pattern[:3]:
                self._asked[Statement(*pattern[:3])] = None  # type: ignore[arg-type]
            elif pattern.subject is not None or (pattern.property is not None and pattern.object is not None):
                self._pending[pattern, scope] = None
        for pending in (self._pending, self._asked):
            while len(pending) > MAX_PENDING:
                pending.popitem(last=False)

    def _fetch_block(self, pattern: ReadPattern, scope: ReadScope) -> None:
        """Fetch an inner read with those that come after it and have the same shape."""
        shape, block = self._shape(pattern, scope), list[ReadPattern]()
        for other, other_scope in self._pending:
            if not block and other != pattern:
                continue
            if other_scope != scope or self._shape(other, scope) != shape or len(block) == BLOCK_PATTERNS:
                break
            block.append(other)
        for other in block:
            del self._pending[other, scope]
        found = self._call(self.reader.read, shape, block, scope, self._position, FIRST_CHUNK)
        for other, rows in zip(block, found, strict=True):
            self._fetched[other, scope] = rows
        while len(self._fetched) > MAX_KEPT:
            self._fetched.popitem(last=False)

    def _shape(self, pattern: ReadPattern, scope: ReadScope) -> ReadShape:
        return read_shape(pattern, scope, None, ValueKind.TEXT)

    def documents_with(self, statement: Statement) -> frozenset[str]:
        found = self._documents.get(statement)
        if found is None:
            wanted = [statement]
            if statement in self._asked:
                del self._asked[statement]
                while self._asked and len(wanted) < BLOCK_PATTERNS:
                    wanted.append(self._asked.popitem(last=False)[0])
            documents = self._call(self.reader.documents_with, wanted, self._position)
            self._documents.update(zip(wanted, documents, strict=True))
            found = self._documents[statement]
            while len(self._documents) > MAX_KEPT:
                self._documents.popitem(last=False)
        return found

    def range_kind(self, property_iri: str) -> ValueKind:
        declared = self._schema.property_of(property_iri)
        return declared.kind if declared is not None else ValueKind.TEXT

    def refusal(self, change: StatementChange, facts: FactReader) -> WriteRefusal | None:
        return self._refuse(change, facts)

    def infer(self, engine: str, pattern: ReadPattern, facts: FactReader) -> Iterable[Statement]:
        if engine == ENGINE + "schema":
            return infer_by_schema(self._schema, self._schema_statements, pattern, facts)
        if not engine.startswith(ENGINE):
            raise LookupError(engine)
        return self._infer_apart(engine.removeprefix(ENGINE), pattern, facts)

    def _infer_apart(self, name: str, pattern: ReadPattern, facts: FactReader) -> Iterator[Statement]:
        """Yield the matching statements among the facts and what an engine infers from them and the schema."""
        if name not in engine_names():
            raise LookupError(name)
        read = islice(facts(ReadPattern()), MAX_STATEMENTS + 1)
        every = dict.fromkeys(chain(read, self._schema_statements))
        try:
            inferred = run_engine(name, every)
        except EngineFailed as error:
            raise ProgramFault(f"engine:{name}: {error}", "inferred") from None
        for one in chain(every, inferred):
            if pattern_matches(pattern, one, self.range_kind(one.property)):
                yield one

    def schema_statements(self) -> Iterable[Statement]:
        return self._schema_statements

    def prefixes(self, document: str) -> dict[str, str]:
        if document == SCHEMA_CONTEXT:
            return {**BUILT_IN_PREFIXES, **self._schema.prefixes}
        if document not in self._prefixes:
            self._prefixes[document] = self._call(self.reader.prefixes, document, self._position)
        return self._prefixes[document]

    def is_active(self, process: str) -> bool:
        return self._call(self.reader.caller_of, process) is not None

    def stop_refusal(self, process: str) -> str | None:
        return None

    def now(self) -> float:
        return time.time()


class TransactionView(PostgresView):
    """Reads what a transaction has written so far. A read that takes too long ends the transaction: the error of the
    database is raised. `new_prefixes`: those of the documents that the transaction registers."""

    def __init__(
        self,
        position: int,
        schema: Schema,
        schema_statements: Sequence[Statement],
        refuse: Refuse,
        deadline: Callable[[], float],
        new_prefixes: Mapping[str, Mapping[str, str]],
    ) -> None:
        super().__init__(position, schema, schema_statements, refuse, deadline)
        self._prefixes.update({document: dict(prefixes) for document, prefixes in new_prefixes.items()})

    def _call(self, read: Callable[..., Any], *values: Any) -> Any:
        if time.monotonic() > self._deadline():
            raise ProgramFault("the rules took longer than their time limit", "seconds")
        return read(*values)
