"""What a transaction writes for the backbone, besides statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from mdv.backbone.operation import LogRow
from mdv.cause import Cause
from mdv.db.delta import DocumentDifference, StoredDocument
from mdv.model import Statement


class ReplicatedDifference(NamedTuple):
    """The net change of a document with its statements as texts."""

    difference: DocumentDifference
    inserted: Sequence[Statement]
    deleted: Sequence[Statement]

    @property
    def stored(self) -> StoredDocument | None:
        return self.difference.stored


class DocumentReplica(NamedTuple):
    """The replicated state of a document after a transaction: columns of `documents` and of its new version.

    `prefixes`: None if they do not change. `cause`: None if it is the one of the difference.
    """

    version: int
    digest: int
    statements: int
    replica: str
    origin: tuple[str, int]
    prefixes: Mapping[str, str] | None
    cause: Cause | None = None


class MarkRow(NamedTuple):
    """A row of `statement_marks`. `state`: as JSON; None if the mark is removed."""

    document_id: int
    hash: int
    statement: str
    state: Any


class ReplicationEffects(NamedTuple):
    """What a transaction writes. `replica`: the JSON of `mdp_state.replica`. `more_marks`: by how much their number
    grows."""

    documents: Mapping[str, DocumentReplica]
    log: Sequence[LogRow]
    drafts: Sequence[bytes]
    replica: str
    marks: Sequence[MarkRow] = ()
    more_marks: int = 0
    token: str | None = None
    """The life and number of the operation that was made here."""
    facts: str | None = None
    """The JSON of `backbone.facts`, if it has changed."""


class Replication(Protocol):
    """Determines what a transaction writes for the backbone."""

    def effects(self, changes: Sequence[ReplicatedDifference]) -> ReplicationEffects:
        """Return what to write. `changes`: the documents that have changed."""
        ...
