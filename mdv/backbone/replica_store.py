"""What a member of a backbone needs of its database. `memory_store.py` implements it for simulations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from mdv.backbone.document_state import ReplicatedDocument
from mdv.backbone.membership import MemberTable
from mdv.backbone.operation import FIRST_CHAIN, LogRow, Operation, ReplicatedChange
from mdv.backbone.registers import Registers
from mdv.backbone.replicated_set import ElementState
from mdv.backbone.vector import Life, Vector
from mdv.model import Statement


class MemberStatus(Enum):
    """`CHECKING`: after a start, until the peers have answered; own operations are not sent yet. `RETURNING`: in a new
    life, until the state was transferred; changes are drafts. `ACTIVE`: neither."""

    ACTIVE = "active"
    CHECKING = "checking"
    RETURNING = "returning"


@dataclass(slots=True)
class MemberFacts:
    """What a member knows about itself and the backbone. Stored with every commit.

    `started_at`: own operations up to here were made before the last start. `clock`: the last hybrid time.
    `promised`: lives of which no more is accepted. `forked`: lives that two databases have continued. `required`: lives
    of other members that a state must include to be taken over, by name. `invitations`: codes with their end.
    `code`: the invitation of a member that joins. `url`, `key`: sent to the others. `removing`:
    members that the lead is removing. `diverged`: documents that differ from those of others although nothing is
    pending. `divergences`: how many were ever found. `schema_here`, `schema_here_by`: the schema that is stored in the
    database; a newer one of the table is stored in a transaction of its own. `hold`: until when (in microseconds)
    documents must also be valid under a schema that the lead is about to put in force, and its text.
    """

    name: str
    life: Life
    status: MemberStatus = MemberStatus.ACTIVE
    vector: dict[Life, int] = field(default_factory=dict)
    chains: dict[Life, bytes] = field(default_factory=dict)
    stable: dict[Life, int] = field(default_factory=dict)
    table: MemberTable = field(default_factory=MemberTable)
    reports: dict[Life, Vector] = field(default_factory=dict)
    promised: dict[Life, int] = field(default_factory=dict)
    required: dict[str, Life] = field(default_factory=dict)
    forked: set[Life] = field(default_factory=set)
    diverged: set[str] = field(default_factory=set)
    divergences: int = 0
    paused: set[str] = field(default_factory=set)
    invitations: dict[str, int] = field(default_factory=dict)
    code: str | None = None
    url: str = ""
    key: str = ""
    removing: set[str] = field(default_factory=set)
    schema_here: tuple[int, int] = (0, 0)
    schema_here_by: Life = ""
    drafts: list[Operation] = field(default_factory=list)
    started_at: int = 0
    clock: int = 0
    hold: tuple[int, str] | None = None

    @property
    def has_new_schema(self) -> bool:
        """True if the schema of the backbone is not stored in the database yet."""
        ours, table = (*self.schema_here, self.schema_here_by), self.table
        return (*table.schema, table.schema_by) > ours and table.schema_text is not None

    def note_schema(self) -> None:
        """Note that the schema of the backbone is stored in the database."""
        self.schema_here, self.schema_here_by = self.table.schema, self.table.schema_by

    @property
    def seq(self) -> int:
        """The number of the last own operation."""
        return self.vector.get(self.life, 0)

    def note_diverged(self, uris: Iterable[str]) -> None:
        """Note documents that have diverged."""
        new = set(uris) - self.diverged
        self.diverged |= new
        self.divergences += len(new)

    def chain_of(self, life: Life) -> bytes:
        return self.chains.get(life, FIRST_CHAIN)

    def copy(self) -> MemberFacts:
        return replace(
            self, vector=dict(self.vector), chains=dict(self.chains), stable=dict(self.stable),
            table=self.table.copy(), reports=dict(self.reports), promised=dict(self.promised),
            required=dict(self.required), forked=set(self.forked), diverged=set(self.diverged), paused=set(self.paused),
            invitations=dict(self.invitations), removing=set(self.removing), drafts=list(self.drafts),
        )  # fmt: skip


class ReplicaStore(Protocol):
    """The store of a member. All writes of one call of the member are committed together by its caller."""

    facts: MemberFacts

    def document(self, uri: str) -> ReplicatedDocument:
        """Return a document; `NO_DOCUMENT` if no operation has changed it."""
        ...

    def documents(self) -> Iterable[tuple[str, ReplicatedDocument]]:
        """Return all documents, also deleted ones."""
        ...

    def sums(self) -> dict[int, int]:
        """Return the sums of all documents by bucket; see `sums.py`."""
        ...

    def in_buckets(
        self, buckets: Collection[int]
    ) -> Iterable[tuple[str, ReplicatedDocument, Mapping[Statement, ElementState]]]:
        """Return the documents of some buckets with the states of all their statements that have a row or a mark."""
        ...

    def prefetch(self, changes: Iterable[ReplicatedChange]) -> None:
        """Read what these changes concern, together."""
        ...

    def load(self, uris: Collection[str]) -> None:
        """Read documents with the states of all their statements, together."""
        ...

    def statements(self, uri: str) -> Collection[Statement]:
        """Return the visible statements of a document."""
        ...

    def states(self, uri: str, statements: Iterable[Statement]) -> dict[Statement, ElementState]:
        """Return the states of some statements."""
        ...

    def all_states(self, uri: str) -> dict[Statement, ElementState]:
        """Return the states of all statements of a document that have a row or a mark."""
        ...

    def write(self, uri: str, document: ReplicatedDocument, states: Mapping[Statement, ElementState]) -> None:
        """Store a document with new states of some statements."""
        ...

    def remove(self, uri: str) -> None:
        """Forget a document, as if no operation had changed it."""
        ...

    def doubt(self, uri: str) -> None:
        """Note that a document may have statements that the schema in force refuses."""
        ...

    def registers(self) -> Registers:
        """Return all registers, also removed ones."""
        ...

    def write_registers(self, registers: Registers) -> None:
        """Store registers."""
        ...

    def lmrs(self, keys: Collection[str] | None = None) -> Registers:
        """Return the registers that define LMRs, also removed ones: all, or at least those with some keys."""
        ...

    def write_lmrs(self, registers: Registers) -> None:
        """Store registers that define LMRs."""
        ...

    def append(self, row: LogRow) -> None:
        """Add an operation to the log."""
        ...

    def rows(self, life: Life, after: int, limit: int) -> list[LogRow] | None:
        """Return operations of a life in order; None if some of them are no longer kept."""
        ...

    def rows_beyond(self, bounds: Mapping[Life, int]) -> Iterator[LogRow]:
        """Return the operations of these lives after the bounds, in the order in which they were applied."""
        ...

    def cut(self, bounds: Mapping[Life, int]) -> None:
        """Remove these operations."""
        ...

    def skip_to(self, life: Life, seq: int) -> None:
        """Empty the log of a life, which continues after `seq`."""
        ...

    def chain_at(self, life: Life, seq: int) -> bytes | None:
        """Return the chain at an operation; None if it is not kept."""
        ...

    def truncate(self, stable: Vector) -> None:
        """Remove the stable operations from the log, and marks and recent operations that are no longer needed."""
        ...
