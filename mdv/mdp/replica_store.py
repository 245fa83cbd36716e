"""The store of a member of a backbone in Postgres. It lives for one transaction.

The core reads documents and states of statements, and writes new ones. They are collected here; in the end, one
`Transaction` stores the net change, filters it and publishes it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from sqlalchemy import Connection

from mdv.backbone.document_json import document_text, signed
from mdv.backbone.document_state import NO_DOCUMENT, ReplicatedDocument, without_stable
from mdv.backbone.operation import FIRST_CHAIN, LogRow, ReplicatedChange
from mdv.backbone.registers import Register, Registers
from mdv.backbone.replica_store import MemberFacts
from mdv.backbone.replicated_set import ElementState, SetKind
from mdv.backbone.sums import bucket_of, document_sums
from mdv.backbone.vector import NO_DOT, Dot, Life, Vector
from mdv.cause import REPLICA, Cause
from mdv.db.delta import EncodedStatement, Replacement, StatementEdit, StoredDocument
from mdv.db.pipeline import Pipeline
from mdv.db.replica.checks import delete_row, iter_rows, mend_row
from mdv.db.replica.documents import (
    find_origins,
    find_replicated,
    forget_versions,
    iter_replicated,
    iter_sums,
    read_rows,
    refuse_documents,
)
from mdv.db.replica.effects import DocumentReplica
from mdv.db.replica.facts import (
    LogBases,
    StoredFacts,
    changed_facts,
    replace_drafts,
    replica_text,
    store_facts,
    store_replica,
)
from mdv.db.replica.lmrs import read_registers, write_registers
from mdv.db.replica.log import (
    append_operation,
    cut_operations,
    delete_life,
    delete_stable,
    find_chain,
    list_operations,
    list_operations_beyond,
)
from mdv.db.replica.marks import find_document_marks, find_marks, settle_marks
from mdv.db.replica.rules import list_registers, store_registers
from mdv.db.store_lookups import EditLookups, queue_edit_lookups, queue_store_lookups
from mdv.errors import InvalidDocument
from mdv.failpoints import APPLIED, hit_failpoint
from mdv.mdp.edit import Edit, encode_edits
from mdv.mdp.replica_changes import MarkChange, ReplicatedChanges
from mdv.mdp.transaction import Transaction, TransactionOutcome
from mdv.model import Document, Statement
from mdv.rdf.digest import statement_hash
from mdv.rdf.validate import validate

MAX_SETTLED_MARKS = 100_000
"""Marks that one transaction removes."""
_DOCUMENTS_OF_A_PAGE = 2000


class _Known(NamedTuple):
    """What is known of a document: how it is stored, its replicated state, and the operations that wrote its rows and
    the marks, as far as they were read. `is_complete`: all were."""

    stored: StoredDocument | None
    document: ReplicatedDocument
    rows: dict[Statement, Dot]
    marks: dict[Statement, ElementState]
    read: set[Statement]


class PostgresReplicaStore:
    """The `ReplicaStore` of one transaction. The lock is taken. `finish` writes everything."""

    def __init__(self, tx: Transaction, stored: StoredFacts, kind: SetKind) -> None:
        self.facts: MemberFacts = stored.facts
        self._tx, self._stored, self.kind = tx, stored, kind
        self._bases: LogBases = dict(stored.bases)
        self._log: list[LogRow] = []
        self._registers: dict[str, Register] | None = None
        self._doubted: set[str] = set()
        self._drafts_before = list(stored.facts.drafts)
        self._known: dict[str, _Known] = {}
        self._written: dict[str, tuple[ReplicatedDocument, dict[Statement, ElementState]]] = {}
        self._removed: set[str] = set()
        self._edits: dict[tuple[str, Statement], StatementEdit] = {}
        self._found: EditLookups | None = None
        self._reads = 0
        self._resource_ids: dict[str, int] = {}
        self._loaded: set[str] = set()
        """Documents of which everything was read."""
        self._looked_up: set[str] = set()
        """URIs whose IDs were looked up; some have none."""
        self._ids: Mapping[str, int] = {}
        self.new_lmrs: set[str] = set()
        """The lasting IDs of LMRs whose definitions have changed."""
        self.is_restoration = False
        """True: rows that were changed from outside are restored, so nothing is filtered and published."""

    @property
    def _connection(self) -> Connection:
        return self._tx.connection

    # Reading

    def document(self, uri: str) -> ReplicatedDocument:
        if uri in self._written:
            return self._written[uri][0]
        if uri not in self._known:
            self._read({uri: ()})
        return without_stable(self._known[uri].document, self.facts.stable)

    def documents(self) -> Iterator[tuple[str, ReplicatedDocument]]:
        for row in iter_replicated(self._connection):
            if row.stored.uri not in self._written:
                yield row.stored.uri, row.document
        for uri, (document, _) in list(self._written.items()):
            if document.version:
                yield uri, document

    def sums(self) -> dict[int, int]:
        every = {uri: (version, digest) for uri, version, digest in iter_sums(self._connection)}
        every |= {uri: (document.version, document.digest) for uri, (document, _) in self._written.items()}
        return document_sums((uri, version, digest) for uri, (version, digest) in every.items() if version)

    def in_buckets(
        self, buckets: Collection[int]
    ) -> Iterator[tuple[str, ReplicatedDocument, Mapping[Statement, ElementState]]]:
        chosen = [(uri, document) for uri, document in self.documents() if bucket_of(uri) in buckets]
        for first in range(0, len(chosen), _DOCUMENTS_OF_A_PAGE):
            page = chosen[first : first + _DOCUMENTS_OF_A_PAGE]
            self.load([uri for uri, _ in page])
            for uri, document in page:
                yield uri, document, self.all_states(uri)

    def statements(self, uri: str) -> Collection[Statement]:
        return [one for one, state in self.all_states(uri).items() if self.kind.is_visible(state)]

    def states(self, uri: str, statements: Iterable[Statement]) -> dict[Statement, ElementState]:
        wanted = list(statements)
        known, written = self._known.get(uri), self._written.get(uri, (None, {}))[1]
        if known is None or (
            known.stored is not None and uri not in self._loaded and not known.read.issuperset(wanted)
        ):
            self._read({uri: wanted})
            known = self._known[uri]
        if known.stored is None and not written:
            return dict.fromkeys(wanted, self.kind.absent)
        return {one: written[one] if one in written else self._state(known, one) for one in wanted}

    def all_states(self, uri: str) -> dict[Statement, ElementState]:
        self.load([uri])
        known, written = self._known[uri], self._written.get(uri, (None, {}))[1]
        return self.states(uri, dict.fromkeys([*known.rows, *known.marks, *written]))

    def _state(self, known: _Known, statement: Statement) -> ElementState:
        if statement in known.marks:
            return known.marks[statement]
        return self.kind.state_of_row(known.rows.get(statement))

    def prefetch(self, changes: Iterable[ReplicatedChange]) -> None:
        wanted: dict[str, dict[Statement, None]] = defaultdict(dict)
        for change in changes:
            concerned = wanted[change.uri]
            for statement, _ in (*change.inserted, *change.deleted):
                concerned[statement] = None
        if wanted:
            self._look_up_resources(chain.from_iterable(wanted.values()))
            self._read(wanted)

    def _read(self, wanted: Mapping[str, Collection[Statement]]) -> None:
        """Read documents with the states of some statements."""
        self._read_documents(wanted)
        edits = []
        for uri, statements in wanted.items():
            known = self._known[uri]
            if known.stored is not None:
                edits += [Edit(one, uri) for one in statements if one not in known.read]
                known.read.update(statements)
        if not edits:
            return
        encoded = encode_edits(edits, self._tx.schema)
        self._edits.update(((edit.document or "", edit.statement), edit) for edit in encoded)
        self._reads += 1
        found = self._found = self._look_up(encoded, [edit.document or "" for edit in encoded])
        places = {}
        keys = {(uri, key): row.position for document, key, row, _ in found.stored_rows() for uri in [document.uri]}
        for edit in encoded:
            key = self._key(edit)
            if key is not None and (edit.document, key) in keys:
                known = self._known[edit.document or ""]
                assert known.stored is not None
                places[edit.document or "", edit.statement] = (known.stored.id, keys[edit.document or "", key])
        origins = find_origins(self._connection, set(places.values()))
        for (uri, statement), place in places.items():
            self._known[uri].rows[statement] = origins.get(place, NO_DOT)
        if self._tx.state.marks:
            self._read_marks(encoded)

    def _read_documents(self, wanted: Mapping[str, Collection[Statement]]) -> None:
        unknown = [uri for uri in wanted if uri not in self._known]
        found = find_replicated(self._connection, unknown) if unknown else {}
        for uri in unknown:
            row = found.get(uri)
            stored, document = (row.stored, row.document) if row is not None else (None, NO_DOCUMENT)
            self._known[uri] = _Known(stored, document, {}, {}, set())

    def _read_marks(self, edits: Iterable[StatementEdit]) -> None:
        by_document: dict[int, list[tuple[Statement, int]]] = defaultdict(list)
        uris = {}
        for edit in edits:
            stored = self._known[edit.document or ""].stored
            assert stored is not None
            by_document[stored.id].append((edit.statement, edit.hash))
            uris[stored.id] = stored.uri
        for (number, statement), state in find_marks(self._connection, self.kind, by_document.items()).items():
            self._known[uris[number]].marks[statement] = state

    def load(self, uris: Collection[str]) -> None:
        uris = [uri for uri in uris if uri not in self._loaded]
        for first in range(0, len(uris), _DOCUMENTS_OF_A_PAGE):
            self._load(uris[first : first + _DOCUMENTS_OF_A_PAGE])

    def _load(self, uris: Collection[str]) -> None:
        """Read all rows and marks of documents."""
        self._loaded.update(uris)
        self._read_documents(dict.fromkeys(uris, ()))
        stored = {known.stored.id: uri for uri in uris if (known := self._known[uri]).stored is not None}
        if not stored:
            return
        for number, rows in read_rows(self._connection, stored).items():
            known = self._known[stored[number]]
            known.rows.update(rows)
            known.read.update(rows)
        if self._tx.state.marks:
            for (number, statement), state in find_document_marks(self._connection, self.kind, stored).items():
                self._known[stored[number]].marks[statement] = state
                self._known[stored[number]].read.add(statement)

    def _look_up(self, edits: list[StatementEdit], documents: Iterable[str]) -> EditLookups:
        names = {name for edit in edits for name in (edit.statement.property, edit.statement.object.datatype) if name}
        self._ids = self._tx.vocabulary.ids(names)
        with Pipeline(self._connection) as pipeline:
            found = queue_edit_lookups(pipeline, edits, set(documents), (), self._ids)
        self._resource_ids |= found.common.resource_ids()
        return found

    def _key(self, edit: StatementEdit) -> EncodedStatement | None:
        subject, name, (kind, value, lang, datatype) = edit.statement
        resource, ids = self._resource_ids.get(subject), self._ids
        target = self._resource_ids.get(value) if kind == "uri" else None
        if resource is None or (kind == "uri" and target is None):
            return None
        text = value if kind != "uri" else None
        return EncodedStatement(resource, ids[name], target, text, lang, ids[datatype] if datatype else None, edit.hash)

    # Writing

    def write(self, uri: str, document: ReplicatedDocument, states: Mapping[Statement, ElementState]) -> None:
        if uri not in self._known:
            self._read({uri: list(states)})
        _, before = self._written.get(uri, (None, {}))
        self._written[uri] = document, {**before, **states}

    def remove(self, uri: str) -> None:
        states = dict.fromkeys(self.all_states(uri), self.kind.absent)
        self._written[uri] = NO_DOCUMENT, states
        self._removed.add(uri)

    def mend_rows(self, uris: Collection[str]) -> None:
        """Give rows that were changed from outside the hashes of the statements that they have now, so that they are
        found, and delete those that are there twice. The documents were not read yet."""
        numbers = [row.stored.id for row in find_replicated(self._connection, uris).values()]
        seen: set[tuple[int, Statement]] = set()
        for row in list(iter_rows(self._connection, numbers)):
            digest = statement_hash(row.statement)
            if (row.document, row.statement) in seen:
                delete_row(self._connection, row)
            elif digest != row.hash:
                mend_row(self._connection, row, digest)
            seen.add((row.document, row.statement))

    def doubt(self, uri: str) -> None:
        self._doubted.add(uri)

    def registers(self) -> Registers:
        if self._registers is None:
            self._registers = list_registers(self._connection)
        return self._registers

    def write_registers(self, registers: Registers) -> None:
        if registers:
            self._registers = {**self.registers(), **registers}
            store_registers(self._connection, registers)

    def lmrs(self, keys: Collection[str] | None = None) -> Registers:
        return read_registers(self._connection, keys)

    def write_lmrs(self, registers: Registers) -> None:
        write_registers(self._connection, registers)
        self.new_lmrs |= {key.partition("/")[0] for key in registers}

    def append(self, row: LogRow) -> None:
        self._log.append(row)

    def rows(self, life: Life, after: int, limit: int) -> list[LogRow] | None:
        base, _ = self._bases.get(life, (0, FIRST_CHAIN))
        if after < base:
            return None
        self._write_log()
        return list_operations(self._connection, life, after, limit)

    def rows_beyond(self, bounds: Mapping[Life, int]) -> Iterator[LogRow]:
        self._write_log()
        return list_operations_beyond(self._connection, bounds)

    def cut(self, bounds: Mapping[Life, int]) -> None:
        self._write_log()
        cut_operations(self._connection, bounds)

    def skip_to(self, life: Life, seq: int) -> None:
        self._write_log()
        delete_life(self._connection, life)
        self._bases[life] = (seq, self.facts.chain_of(life))

    def chain_at(self, life: Life, seq: int) -> bytes | None:
        base, chain = self._bases.get(life, (0, FIRST_CHAIN))
        if seq <= base:
            return chain if seq == base else None
        self._write_log()
        return find_chain(self._connection, life, seq)

    def truncate(self, stable: Vector) -> None:
        self._write_log()
        self._bases |= delete_stable(self._connection, stable)
        if self.kind.is_causal and self._tx.state.marks:
            settle_marks(self._connection, stable, MAX_SETTLED_MARKS)

    def _write_log(self) -> None:
        rows, self._log = self._log, []
        for row in rows:
            append_operation(self._connection, row)

    # End

    def finish(self) -> TransactionOutcome | None:
        """Write everything. Return the effect on documents; None if none has changed."""
        if self.facts.drafts != self._drafts_before:
            replace_drafts(self._connection, self.facts.drafts)
        facts_text = changed_facts(self._stored, self._bases)
        replica = replica_text(self.facts, self._stored.mode, self._stored.epoch)
        if not self._written:
            self._write_log()
            if facts_text is not None:
                store_facts(self._connection, facts_text)
            if json.loads(replica) != self._stored.local.to_json():
                store_replica(self._connection, replica)
            return None
        hit_failpoint(APPLIED)
        refused = [uri for uri in sorted(self._doubted) if self._is_refused(uri)]
        outcome = self._tx.apply_operations(self._changes(replica, facts_text))
        refuse_documents(self._connection, refused)
        return outcome

    def _is_refused(self, uri: str) -> bool:
        """True if the schema refuses the document as it is now."""
        try:
            validate(Document(uri, tuple(self.statements(uri))), self._tx.schema.schema)
        except InvalidDocument:
            return True
        return False

    def _changes(self, replica: str, facts_text: str | None) -> ReplicatedChanges:
        """Return the net change of everything that was written."""
        additions: list[Edit] = []
        deletions: list[Edit] = []
        replacements, kept, documents, marks = [], [], {}, {}
        forgotten = [known.stored.id for uri in self._removed if (known := self._known[uri]).stored is not None]
        if forgotten:
            forget_versions(self._connection, forgotten)
        for uri, (document, states) in self._written.items():
            known = self._known[uri]
            documents[uri] = self._replica(document, known)
            marks[uri] = self._mark_changes(uri, document, states)
            visible = [one for one, state in states.items() if self.kind.is_visible(state)]
            if known.stored is None and visible:
                replacements.append(self._replacement(uri, document, visible))
                continue
            kept.append(uri)
            additions += [Edit(one, uri) for one in visible if one not in known.rows]
            gone = [one for one, state in states.items() if one in known.rows and not self.kind.is_visible(state)]
            deletions += [Edit(one, uri) for one in gone]
        self._look_up_resources(one for item in replacements for one in item.statements)
        added, deleted = self._encoded(additions), self._encoded(deletions)
        found = self._found
        if kept and (found is None or self._reads != 1 or not found.common.documents().keys() >= set(kept)):
            found = self._look_up([*added, *deleted], kept)
        present = {uri: document.is_present for uri, (document, _) in self._written.items()}
        return ReplicatedChanges(
            replacements,
            kept,
            added,
            deleted,
            found,
            self._resource_ids,
            documents,
            present,
            marks,
            self._log,
            replica,
            facts_text,
            self.is_restoration,
        )

    def _replica(self, document: ReplicatedDocument, known: _Known) -> DocumentReplica:
        life, seq = document.last
        cause = Cause(REPLICA, self.facts.table.owner_of(life))
        is_same = known.stored is not None and dict(document.prefixes) == dict(known.document.prefixes)
        return DocumentReplica(
            document.version, signed(document.digest), document.statements, document_text(document), (life, seq),
            None if is_same else document.prefixes, cause,
        )  # fmt: skip

    def _mark_changes(
        self, uri: str, document: ReplicatedDocument, states: Mapping[Statement, ElementState]
    ) -> list[MarkChange]:
        known, kind = self._known[uri], self.kind
        changes: list[MarkChange] = []
        if document.version == 1 and known.stored is None and document.statements == len(states):
            return changes  # nothing was concurrent
        for statement, state in states.items():
            row = known.rows.get(statement)
            if not kind.is_visible(state):
                row = None
            elif row is None:
                row = document.last
            elif uri in self._removed:
                row = NO_DOT  # its version was forgotten
            mark, before = kind.mark(state, row), known.marks.get(statement)
            if mark != before:
                changes.append(MarkChange(statement, None if mark is None else kind.to_json(mark), before is None))
        return changes

    def _replacement(self, uri: str, document: ReplicatedDocument, statements: list[Statement]) -> Replacement:
        hashes, typing = tuple(map(statement_hash, statements)), self._tx.schema.typing
        typed = tuple([typing.typed_values(one.property, one.object) for one in statements])
        return Replacement(uri, None, b"", tuple(statements), hashes, typed, dict(document.prefixes))

    def _look_up_resources(self, statements: Iterable[Statement]) -> None:
        """Look up the IDs of the URIs in statements, once."""
        uris = {name for one in statements for name in (one[0], one[2][1] if one[2][0] == "uri" else one[0])}
        uris -= self._looked_up
        self._looked_up |= uris
        if uris:
            with Pipeline(self._connection) as pipeline:
                found = queue_store_lookups(pipeline, (), uris)
            self._resource_ids |= found.resource_ids()

    def _encoded(self, edits: Iterable[Edit]) -> list[StatementEdit]:
        """Return edits with hashes and typed values, most of which are known."""
        every = list(edits)
        missing = [edit for edit in every if (edit.document or "", edit.statement) not in self._edits]
        for edit in encode_edits(missing, self._tx.schema):
            self._edits[edit.document or "", edit.statement] = edit
        return [self._edits[edit.document or "", edit.statement] for edit in every]
