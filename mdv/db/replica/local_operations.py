"""The operation of a local transaction: it goes to the log in the message that stores the documents."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence

from sqlalchemy import Connection

from mdv.backbone.document_json import document_from_json, document_text, signed, unsigned
from mdv.backbone.document_state import NO_DOCUMENT, ReplicatedDocument
from mdv.backbone.etag import token_of
from mdv.backbone.kinds import SET_KINDS
from mdv.backbone.local_operation import LocalFacts, NetChange, Signer, make_local_operation
from mdv.backbone.operation import NumberedStatement
from mdv.backbone.replicated_set import ElementState
from mdv.db.delta import EncodedStatement, StoredDocument
from mdv.db.replica.effects import DocumentReplica, ReplicatedDifference, ReplicationEffects
from mdv.db.replica.marks import MarkKey, find_marks, mark_rows, more_marks
from mdv.db.state import State
from mdv.model import Statement


def stored_replica(stored: StoredDocument | None) -> ReplicatedDocument:
    """Return the replicated state of a document without its prefixes."""
    if stored is None or stored.replica is None:
        return NO_DOCUMENT if stored is None else NO_DOCUMENT._replace(version=stored.version)
    return document_from_json(
        stored.version, unsigned(stored.digest or 0), stored.statements or 0, {}, json.loads(stored.replica)
    )


class LocalOperations:
    """Makes the operation of one transaction. The lock is taken; `state` was read with it."""

    def __init__(self, connection: Connection, state: State, facts: LocalFacts, signer: Signer) -> None:
        self._connection = connection
        self._state, self._facts, self._signer = state, facts, signer
        self._kind = SET_KINDS[facts.mode]

    def effects(self, changes: Sequence[ReplicatedDifference]) -> ReplicationEffects:
        before = self._marks(changes)
        after: dict[MarkKey, ElementState | None] = {}
        net = [self._net_change(change, before, after) for change in changes]
        made = make_local_operation(self._facts, net, time.time_ns() // 1000, self._signer)
        documents = {}
        for change in changes:
            uri = change.difference.uri
            document = made.documents[uri]
            is_last_writer = document.prefixes_by == (made.operation.at, made.operation.life)
            documents[uri] = DocumentReplica(
                document.version, signed(document.digest), document.statements, document_text(document),
                made.operation.dot, change.difference.prefixes if is_last_writer else None,
            )  # fmt: skip
        rows = mark_rows(self._kind, before, after)
        token = token_of(made.operation.dot)
        return ReplicationEffects(
            documents, [made.row] if made.row is not None else [], [made.draft] if made.draft is not None else [],
            json.dumps(made.facts.to_json()), rows, more_marks(rows, before), token,
        )  # fmt: skip

    def _marks(self, changes: Sequence[ReplicatedDifference]) -> dict[MarkKey, ElementState]:
        if not self._state.marks:
            return {}
        return find_marks(self._connection, self._kind, (
            (change.stored.id, [*_hashed(change.inserted, change.difference.added),
                                *_hashed(change.deleted, change.difference.removed)])
            for change in changes if change.stored is not None
        ))  # fmt: skip

    def _net_change(
        self,
        change: ReplicatedDifference,
        marks: dict[MarkKey, ElementState],
        after: dict[MarkKey, ElementState | None],
    ) -> NetChange:
        difference = change.difference
        digest = sum([key.hash for key in difference.added]) - sum([key.hash for key in difference.removed])
        inserted: tuple[NumberedStatement, ...]
        deleted: tuple[NumberedStatement, ...]
        if not marks:
            inserted = tuple([(statement, 1) for statement in change.inserted])
            deleted = tuple([(statement, 1) for statement in change.deleted])
        else:
            dot = (self._facts.life, self._facts.seq + 1)
            inserted = tuple([self._number(change, one, marks, after, dot) for one in change.inserted])
            deleted = tuple([self._number(change, one, marks, after, None) for one in change.deleted])
        return NetChange(
            difference.uri, stored_replica(difference.stored), inserted, deleted,
            len(difference.added) - len(difference.removed), digest, difference.prefixes,
        )  # fmt: skip

    def _number(
        self,
        change: ReplicatedDifference,
        statement: Statement,
        marks: dict[MarkKey, ElementState],
        after: dict[MarkKey, ElementState | None],
        dot: tuple[str, int] | None,
    ) -> NumberedStatement:
        """Return a statement with the number to be sent, and note that its mark is removed. `dot`: of an insertion."""
        key = (change.difference.document, statement)
        if key not in marks:
            return statement, 1
        after[key] = None
        state, number = self._kind.insert(marks[key], dot) if dot is not None else self._kind.delete(marks[key])
        assert self._kind.mark(state, dot) is None
        return statement, number


def _hashed(statements: Sequence[Statement], keys: Iterable[EncodedStatement]) -> list[tuple[Statement, int]]:
    return list(zip(statements, [key.hash for key in keys], strict=True))
