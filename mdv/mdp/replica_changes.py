"""What operations of other members change here: statements of documents, and their replicated states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mdv.backbone.operation import LogRow
from mdv.backbone.replicated_set import ElementState
from mdv.db.delta import Replacement, StatementEdit
from mdv.db.replica.effects import DocumentReplica, MarkRow, ReplicatedDifference, ReplicationEffects
from mdv.db.replica.marks import statement_text
from mdv.db.store_lookups import EditLookups
from mdv.model import Statement
from mdv.rdf.digest import statement_hash


@dataclass(frozen=True, slots=True)
class MarkChange:
    """A new mark; None if it is removed. `is_new`: there was none."""

    statement: Statement
    state: ElementState
    is_new: bool


@dataclass(frozen=True, slots=True)
class ReplicatedChanges:
    """The changes of one local transaction. It is the `Replication` of its statement store.

    `replacements`: documents that are new here. `kept`: the others, with their `additions` and `deletions`, and
    `found`, the look-ups of these. `replica`: the JSON of `mdp_state.replica`. `facts`: that of the
    other facts, if they have changed.
    """

    replacements: Sequence[Replacement]
    kept: Sequence[str]
    additions: Sequence[StatementEdit]
    deletions: Sequence[StatementEdit]
    found: EditLookups | None
    resource_ids: Mapping[str, int]
    documents: Mapping[str, DocumentReplica]
    present: Mapping[str, bool]
    marks: Mapping[str, Sequence[MarkChange]]
    log: Sequence[LogRow]
    replica: str
    facts: str | None = None
    is_restoration: bool = False
    """Rows that were changed from outside get the statements back that rules and feeds know: nothing is filtered."""

    def effects(self, changes: Sequence[ReplicatedDifference]) -> ReplicationEffects:
        rows, more = [], 0
        for change in changes:
            difference = change.difference
            difference.present = self.present[difference.uri]
            for mark in self.marks.get(difference.uri, ()):
                text, digest = statement_text(mark.statement), statement_hash(mark.statement)
                rows.append(MarkRow(difference.document, digest, text, mark.state))
                more += (mark.state is not None) - (not mark.is_new)
        return ReplicationEffects(self.documents, self.log, (), self.replica, rows, more, facts=self.facts)
