"""A replica store in memory, for simulations. It keeps the same facts as the tables: rows with the operation that wrote
them, and marks for the statements whose state does not follow from their row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from mdv.backbone.document_state import NO_DOCUMENT, ReplicatedDocument, without_stable
from mdv.backbone.operation import FIRST_CHAIN, LogRow, ReplicatedChange
from mdv.backbone.registers import Register, Registers
from mdv.backbone.replica_store import MemberFacts
from mdv.backbone.replicated_set import ElementState, SetKind
from mdv.backbone.sums import bucket_of, sums_of
from mdv.backbone.vector import Dot, Life, Vector
from mdv.model import Statement


class MemoryReplicaStore:
    """The store of one member. `marks`: the states that do not follow from rows."""

    def __init__(self, kind: SetKind, facts: MemberFacts) -> None:
        self.kind = kind
        self.facts = facts
        self.marks: dict[tuple[str, Statement], ElementState] = {}
        self._registers: dict[str, Register] = {}
        self._lmrs: dict[str, Register] = {}
        self.doubted: set[str] = set()
        self._documents: dict[str, ReplicatedDocument] = {}
        self._rows: dict[str, dict[Statement, Dot]] = {}
        self._log: dict[Life, list[tuple[int, LogRow]]] = {}
        self._bases: dict[Life, tuple[int, bytes | None]] = {}
        """The last operation that is no longer in the log, and its chain."""
        self._applied = 0

    def copy(self) -> MemoryReplicaStore:
        """Return a backup."""
        other = MemoryReplicaStore(self.kind, self.facts.copy())
        other.marks, other._documents = dict(self.marks), dict(self._documents)
        other._registers, other.doubted = dict(self._registers), set(self.doubted)
        other._lmrs = dict(self._lmrs)
        other._rows = {uri: dict(rows) for uri, rows in self._rows.items()}
        other._log = {life: list(rows) for life, rows in self._log.items()}
        other._bases, other._applied = dict(self._bases), self._applied
        return other

    @property
    def log_size(self) -> int:
        return sum(map(len, self._log.values()))

    def document(self, uri: str) -> ReplicatedDocument:
        return self._documents.get(uri, NO_DOCUMENT)

    def documents(self) -> Iterable[tuple[str, ReplicatedDocument]]:
        return self._documents.items()

    def sums(self) -> dict[int, int]:
        return sums_of(self.documents())

    def in_buckets(
        self, buckets: Collection[int]
    ) -> Iterable[tuple[str, ReplicatedDocument, Mapping[Statement, ElementState]]]:
        found = [(uri, document) for uri, document in self.documents() if bucket_of(uri) in buckets]
        return [(uri, document, self.all_states(uri)) for uri, document in found]

    def prefetch(self, changes: Iterable[ReplicatedChange]) -> None:
        """Everything is in memory."""

    def load(self, uris: Collection[str]) -> None:
        """Everything is in memory."""

    def statements(self, uri: str) -> Collection[Statement]:
        return self._rows.get(uri, {}).keys()

    def states(self, uri: str, statements: Iterable[Statement]) -> dict[Statement, ElementState]:
        rows, marks, kind = self._rows.get(uri, {}), self.marks, self.kind
        found = {}
        for statement in statements:
            mark = marks.get((uri, statement)) if marks else None
            found[statement] = kind.state_of_row(rows.get(statement)) if mark is None else mark
        return found

    def all_states(self, uri: str) -> dict[Statement, ElementState]:
        marked = [statement for marked, statement in self.marks if marked == uri]
        return self.states(uri, dict.fromkeys([*self._rows.get(uri, ()), *marked]))

    def write(self, uri: str, document: ReplicatedDocument, states: Mapping[Statement, ElementState]) -> None:
        self._documents[uri] = document
        rows, kind = self._rows.setdefault(uri, {}), self.kind
        for statement, state in states.items():
            if not kind.is_visible(state):
                rows.pop(statement, None)
            elif statement not in rows or not kind.is_live(state, rows[statement]):
                rows[statement] = document.last
            mark = kind.mark(state, rows.get(statement))
            if mark is None:
                self.marks.pop((uri, statement), None)
            else:
                self.marks[uri, statement] = mark

    def remove(self, uri: str) -> None:
        self._documents.pop(uri, None)
        self._rows.pop(uri, None)
        for key in [key for key in self.marks if key[0] == uri]:
            del self.marks[key]

    def doubt(self, uri: str) -> None:
        self.doubted.add(uri)

    def registers(self) -> Registers:
        return self._registers

    def write_registers(self, registers: Registers) -> None:
        self._registers.update(registers)

    def lmrs(self, keys: Collection[str] | None = None) -> Registers:
        return self._lmrs

    def write_lmrs(self, registers: Registers) -> None:
        self._lmrs.update(registers)

    def append(self, row: LogRow) -> None:
        self._applied += 1
        self._log.setdefault(row.life, []).append((self._applied, row))

    def rows(self, life: Life, after: int, limit: int) -> list[LogRow] | None:
        base, _ = self._bases.get(life, (0, FIRST_CHAIN))
        if after < base:
            return None
        return [row for _, row in self._log.get(life, ())[after - base : after - base + limit]]

    def rows_beyond(self, bounds: Mapping[Life, int]) -> Iterator[LogRow]:
        found = [item for life, seq in bounds.items() for item in self._log.get(life, ()) if item[1].seq > seq]
        return iter([row for _, row in sorted(found)])

    def cut(self, bounds: Mapping[Life, int]) -> None:
        for life, seq in bounds.items():
            self._log[life] = [item for item in self._log.get(life, ()) if item[1].seq <= seq]

    def skip_to(self, life: Life, seq: int) -> None:
        self._log.pop(life, None)
        self._bases[life] = (seq, self.facts.chain_of(life))

    def chain_at(self, life: Life, seq: int) -> bytes | None:
        base, chain = self._bases.get(life, (0, FIRST_CHAIN))
        if seq <= base:
            return chain if seq == base else None
        rows = self._log.get(life, ())
        return rows[seq - base - 1][1].chain if seq - base <= len(rows) else None

    def truncate(self, stable: Vector) -> None:
        for life, rows in self._log.items():
            gone = stable.get(life, 0) - self._bases.get(life, (0, FIRST_CHAIN))[0]
            if gone > 0 and rows:
                last = rows[:gone][-1][1]
                self._bases[life] = (last.seq, last.chain)
                del rows[:gone]
        for uri, document in self._documents.items():
            if document.recent:
                self._documents[uri] = without_stable(document, stable)
        for (uri, statement), state in list(self.marks.items()):
            if self.kind.is_settled(state, self._rows.get(uri, {}).get(statement), stable):
                del self.marks[uri, statement]
