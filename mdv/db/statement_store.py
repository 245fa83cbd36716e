"""The statement store: changes the stored statements in one transaction, by document.

`replace` gives documents new statements; the difference to the stored ones is computed here, in memory. `edit` adds and
removes single statements. Both may be called several times: a row that comes and goes within the transaction leaves no
trace, and what changes visibly is determined once, for the net change, by `write`.

The database is asked only for IDs of URIs, stored statements, and whether other documents contain the same statements.
Many rows are written with COPY, and those of the first documents are sent while the next documents are compared. So a
new document costs little more than the COPY of its statements.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import psycopg
from sqlalchemy import Connection, select

from mdv.cause import REGISTRATION, Cause
from mdv.db.delta import (
    DocumentDifference,
    EffectiveEdits,
    EncodedStatement,
    Replacement,
    ResourceCounts,
    StatementEdit,
    StoreChange,
    StoredDocument,
    StoredRow,
    TypedValue,
    cancel_moved_statements,
    described_before_and_after,
)
from mdv.db.document_versions import copy_new_documents, queue_documents
from mdv.db.engine import driver
from mdv.db.load_sql import load_sql
from mdv.db.pipeline import Pipeline
from mdv.db.postgres_copy import COPY_NULL, array_literal, copy_field, copy_lines, copy_rows, copy_text
from mdv.db.replica.effects import ReplicatedDifference, Replication, ReplicationEffects
from mdv.db.state import State
from mdv.db.store_lookups import EditLookups
from mdv.db.tables import filter_data, resources, vocabulary
from mdv.model import BLANK_MARK, Statement, Term

_Flag = Callable[[DocumentDifference, EncodedStatement], bool]


def _everything(difference: DocumentDifference, key: EncodedStatement) -> bool:
    return True


MAX_PIPELINED_STATEMENTS = 200
"""Up to this many statements are written with the other queries of the transaction, in one pipeline. More are written
with COPY, which needs a round trip of its own but costs far less per row."""


class StatementStore:
    """The stored statements, and how one transaction changes them. The caller holds the lock.

    `outcomes` and `change` are available after `write`.
    """

    def __init__(
        self,
        connection: Connection,
        state: State,
        resource_ids: dict[str, int],
        property_ids: Mapping[str, int],
        replication: Replication | None = None,
    ) -> None:
        self._replication = replication
        self._texts: dict[EncodedStatement, Statement] = {}
        """The changed statements, if there is a backbone."""
        self._new_texts: dict[str, tuple[Statement, ...]] = {}
        """The statements of documents all of whose statements are added, in the order of these."""
        self._connection = connection
        self._session = driver(connection)
        self._sql = load_sql("store")
        self._position = state.position + 1
        self._known_resources = state.last_resource
        self._last_resource = state.last_resource
        self._last_document = state.last_document
        self._resources = resource_ids
        self._property_ids = property_ids
        self._fresh: list[tuple[int, str]] = []
        self._blank: set[int] = set()
        self._batch: Sequence[Replacement] = ()
        self._stored: Mapping[int, dict[EncodedStatement, StoredRow]] = {}
        self._differences: list[DocumentDifference] = []
        self._gains: dict[EncodedStatement, DocumentDifference] = {}
        self._losses: dict[EncodedStatement, DocumentDifference] = {}
        self._doubtful: list[tuple[DocumentDifference, dict[EncodedStatement, TypedValue]]] = []
        """Statements about resources that existed before: other documents may contain the same statements."""
        self._documents: dict[str, StoredDocument] = {}
        self._statements: dict[EncodedStatement, Statement] = {}
        """The statements that edits have added."""
        self._added_in: dict[EncodedStatement, dict[str, None]] = defaultdict(dict)
        """The documents that a statement was added to."""
        self._by_uri: dict[str, DocumentDifference] = {}
        self._edited: dict[EncodedStatement, dict[str, StoredRow]] = {}
        """The edited statements, with the rows that documents had before the transaction."""
        self._subject_counts: dict[int, int] = {}
        self._document_counts: dict[str, int] = {}
        self._registrations: dict[tuple[str | None, str | None], Cause] = {}
        """The causes of registrations, by agent and caller."""
        self._rounds = 0
        self._is_read = False
        self._is_replaced_written = False
        self._is_flushed = False
        self._added_about: dict[tuple[str, int], dict[EncodedStatement, None]] = defaultdict(dict)
        """The statements that edits have added, by document and subject."""
        self._resource_names: dict[int, str] = {}
        """The URIs of the resources of replaced documents, if there is a backbone."""
        self.effects: ReplicationEffects | None = None
        """What was written for the backbone."""
        self.is_small = True
        """The rows are few enough to be sent with the other queries of the transaction."""

    def replace(self, batch: Sequence[Replacement]) -> set[str]:
        """Replace the statements of documents. A document is in the batch once, and its digest differs from the stored
        one. Return the URIs of those that do not differ all the same: edited documents have no digest.

        A small batch is compared here. The documents of a large one are compared one by one while `write` sends the
        rows of previous ones.
        """
        self.read_stored(batch)
        same = self._find_same(batch)
        self._batch = [item for item in batch if item.uri not in same] if same else batch
        written = sum(len(item.statements) for item in self._batch) + sum(map(len, self._stored.values()))
        self.is_small = written <= MAX_PIPELINED_STATEMENTS
        if self.is_small and self._batch:
            for item in self._batch:
                self._compare(item)
            self._resolve_visibility()
        return same

    def read_stored(self, batch: Sequence[Replacement]) -> set[int]:
        """Read the stored statements of the documents, once. Return the IDs of their properties."""
        if not self._is_read:
            self._stored, self._is_read = self._read_stored(batch), True
        return {key.property for rows in self._stored.values() for key in rows}

    def _find_same(self, batch: Sequence[Replacement]) -> set[str]:
        """Return the edited documents whose new statements are the stored ones. Store their digests."""
        edited = [item for item in batch if item.stored is not None and item.stored.present and not item.stored.content]
        same = {item.uri: item for item in edited if self._difference(item).is_empty}
        for item in same.values():
            self._execute("set_content", uri=item.uri, content=item.content)
        return set(same)

    def edit(
        self,
        additions: Sequence[StatementEdit],
        deletions: Sequence[StatementEdit],
        default_document: str | None,
        found: EditLookups,
        cause: Cause,
    ) -> EffectiveEdits:
        """Remove and add single statements, in this order. Return the edits that changed something.

        `default_document`: where additions without a document go. `found`: the result of their look-ups.
        """
        if not self._rounds:
            self._begin_edits()
        self._rounds += 1
        self._remember(found)
        effective = EffectiveEdits([], [], [], [])
        before: dict[EncodedStatement, tuple[Statement, bool]] = {}
        for edit in deletions:
            known = self._known_key(edit)
            if known is not None and self._replication is not None:
                self._texts[known] = edit.statement
            holding = self._documents_with(known) if known is not None else []
            for uri in holding:
                if known is not None and edit.document in (None, uri):
                    before.setdefault(known, (edit.statement, True))
                    self._remove(self._difference_of(uri, cause), known)
                    effective.removed.append((uri, edit.statement))
        for edit in additions:
            target = edit.document or default_document
            key = self._key(edit)
            is_held = bool(self._documents_with(key))
            if target is None or (edit.document is None and is_held):
                continue
            before.setdefault(key, (edit.statement, is_held))
            if self._add(self._difference_of(target, cause), key, edit.typed):
                effective.added.append((target, edit.statement))
            self._statements[key] = edit.statement
            if self._replication is not None:
                self._texts[key] = edit.statement
        for key, (statement, was_held) in before.items():
            if bool(self._documents_with(key)) != was_held:
                (effective.lost if was_held else effective.gained).append(statement)
        self.is_small = sum(len(d.added) + len(d.removed) for d in self._differences) <= MAX_PIPELINED_STATEMENTS
        return effective

    def keep(self, uri: str, cause: Cause) -> None:
        """Give a document a new version even if none of its statements changes."""
        self._difference_of(uri, cause).is_kept = True

    def write_replaced(self, pipeline: Pipeline) -> None:
        """Write the replaced documents, before any edit. The rows of a small batch are queued."""
        self._write_replaced(pipeline)
        self._note_written()

    def visible_additions(self, is_wanted: Callable[[str], bool]) -> list[Statement]:
        """Return the statements of replaced documents that became visible, of wanted properties."""
        return [
            statement
            for item in self._batch
            for statement, digest, typed in zip(item.statements, item.hashes, item.typed, strict=True)
            if is_wanted(statement.property)
            and self._known_key(StatementEdit(item.uri, statement, digest, typed)) in self._gains
        ]

    @property
    def visible_removals(self) -> Collection[EncodedStatement]:
        """The statements of replaced documents that became invisible."""
        return self._losses.keys()

    @property
    def changed_properties(self) -> set[int]:
        """The properties of the visible changes of replaced documents."""
        return {key.property for changes in (self._gains, self._losses) for key in changes}

    @property
    def share_resources(self) -> bool:
        """True if several of the replaced documents change statements about the same resource."""
        owners: dict[int, DocumentDifference] = {}
        return any(
            owners.setdefault(key.resource, d) is not d
            for d in self._differences
            for changes in (d.added, d.removed)
            for key in changes
        )

    def _begin_edits(self) -> None:
        """Write the rows of the documents that were replaced in this transaction. Edits are relative to them."""
        if not self._batch or self._is_replaced_written:
            return
        with Pipeline(self._connection) as pipeline:
            self._write_replaced(pipeline)
        self._note_written()

    def _note_written(self) -> None:
        """Note that the rows of replaced documents are written."""
        self._is_replaced_written = True
        self._fresh = []
        for d in self._differences:
            self._by_uri[d.uri] = d
            d.written = {key: self._gains.get(key) is d for key in d.added}
            d.dropped = {key: (row, self._losses.get(key) is d) for key, row in d.removed.items()}
            for key in d.added:
                self._added_in[key][d.uri] = None

    def _remember(self, found: EditLookups) -> None:
        """Keep the results of look-ups. Later ones do not overwrite earlier ones, which saw the state before."""
        for uri, number in found.common.resource_ids().items():
            self._resources.setdefault(uri, number)
        self._subject_counts = found.subject_counts()
        for document in found.common.documents().values():
            self._documents.setdefault(document.uri, document)
        for document, key, row, count in found.stored_rows():
            self._documents.setdefault(document.uri, document)
            self._edited.setdefault(key, {}).setdefault(document.uri, row)
            self._document_counts[document.uri] = count

    def _known_key(self, edit: StatementEdit) -> EncodedStatement | None:
        """Return the encoded statement; None if it contains a URI that has no ID yet."""
        subject, name, (kind, value, lang, datatype) = edit.statement
        resource = self._resources.get(subject)
        target = self._resources.get(value) if kind == "uri" else None
        if resource is None or (kind == "uri" and target is None):
            return None
        ids, text = self._property_ids, value if kind != "uri" else None
        return EncodedStatement(resource, ids[name], target, text, lang, ids[datatype] if datatype else None, edit.hash)

    def _key(self, edit: StatementEdit) -> EncodedStatement:
        """Return the encoded statement. New URIs get IDs."""
        subject, _, term = edit.statement
        for uri in (subject, term.value) if term.is_uri else (subject,):
            if uri not in self._resources:
                self._number(uri)
        key = self._known_key(edit)
        assert key is not None
        if key.target is not None and BLANK_MARK in term.value:
            self._blank.add(key.target)
        return key

    def _documents_with(self, key: EncodedStatement) -> list[str]:
        """Return the URIs of the documents that contain a looked-up statement now."""
        stored = [uri for uri in self._edited.get(key, ()) if not self._is_removed(uri, key)]
        return [*stored, *self._added_in.get(key, ())]

    def _is_removed(self, uri: str, key: EncodedStatement) -> bool:
        difference = self._by_uri.get(uri)
        return difference is not None and key in difference.removed

    def _difference_of(self, uri: str, cause: Cause) -> DocumentDifference:
        if uri not in self._by_uri:
            stored = self._documents.get(uri)
            if stored is None:
                self._last_document += 1
            number = self._last_document if stored is None else stored.id
            difference = self._by_uri[uri] = DocumentDifference(number, uri, stored, cause=cause)
            self._differences.append(difference)
        elif self._by_uri[uri].is_empty and self._by_uri[uri].prefixes is None:
            self._by_uri[uri].cause = cause
        return self._by_uri[uri]

    def _add(self, difference: DocumentDifference, key: EncodedStatement, typed: TypedValue) -> bool:
        """Add a statement to a document. Return False if the document contains it already."""
        difference.described.add(key.resource)
        if key in difference.removed:
            self._edited.setdefault(key, {})[difference.uri] = difference.removed.pop(key)
        elif key not in difference.added and difference.uri not in self._edited.get(key, ()):
            difference.added[key] = typed
            self._added_in[key][difference.uri] = None
            self._added_about[difference.uri, key.resource][key] = None
        else:
            return False
        difference.content = b""
        return True

    def _remove(self, difference: DocumentDifference, key: EncodedStatement) -> None:
        difference.described.add(key.resource)
        difference.content = b""
        if key in difference.added:
            del difference.added[key], self._added_in[key][difference.uri]
            self._added_about[difference.uri, key.resource].pop(key, None)
        else:
            row = difference.removed[key] = self._edited[key][difference.uri]
            if row.blank and key.target is not None:
                self._blank.add(key.target)

    def look_up(self, found: EditLookups) -> None:
        """Take over the look-ups of statements that may be edited, so that `is_in` knows them."""
        if not self._rounds:
            self._begin_edits()
        self._rounds += 1
        self._remember(found)

    def stored_document(self, uri: str) -> StoredDocument | None:
        """Return a looked-up document as it was before this transaction."""
        return self._documents.get(uri)

    def name_document(self, number: int) -> str:
        """Return the URI of a document that this transaction changes."""
        return next(difference.uri for difference in self._differences if difference.document == number)

    @property
    def new_documents(self) -> dict[str, int]:
        """The documents that this transaction registers, with their IDs. They are stored at its end."""
        return {d.uri: d.document for d in self._differences if d.stored is None}

    @property
    def new_prefixes(self) -> dict[str, Mapping[str, str]]:
        """The prefixes of the documents that are replaced."""
        return {d.uri: d.prefixes for d in self._differences if d.prefixes is not None}

    def has_changed(self, uri: str) -> bool:
        """True if edits have changed a document, or it was replaced."""
        difference = self._by_uri.get(uri)
        return difference is not None and not (difference.is_empty and difference.prefixes is None)

    def is_in(self, uri: str, edit: StatementEdit) -> bool:
        """True if a document contains a looked-up statement now."""
        key = self._known_key(edit)
        return key is not None and uri in self._documents_with(key)

    def statements_about(self, uri: str, subjects: Collection[str]) -> list[Statement]:
        """Return the statements about these resources that this transaction adds to a document."""
        difference = self._by_uri[uri]
        about = [self._added_about.get((uri, self._resources[subject]), {}) for subject in subjects]
        added = [self._statements[key] for keys in about for key in keys if key in self._statements]
        return added + self._replaced_statements(difference, set(subjects))

    def edited_documents(self) -> list[tuple[str, list[Statement]]]:
        """Return the documents that edits have added statements to, each with these statements, and with those that a
        registration in the same transaction makes about the same resources."""
        documents = []
        for d in self._differences if self._rounds else ():
            added = [self._statements[key] for key in d.added if key in self._statements]
            if added:
                documents.append((d.uri, added + self._replaced_statements(d, {s.subject for s in added})))
        return documents

    def _replaced_statements(self, difference: DocumentDifference, subjects: set[str]) -> list[Statement]:
        if difference.prefixes is None:
            return []
        stored = self._stored.get(difference.document, {})
        (item,) = (item for item in self._batch if item.uri == difference.uri)
        keys = {
            statement: self._known_key(StatementEdit(item.uri, statement, digest, typed))
            for statement, digest, typed in zip(item.statements, item.hashes, item.typed, strict=True)
            if statement.subject in subjects
        }
        return [
            statement
            for statement, key in keys.items()
            if key in difference.added or (key in stored and key not in difference.removed)
        ]

    def values_after(self, document: str, values: Iterable[tuple[EncodedStatement, Statement]]) -> list[Statement]:
        """Return those of the stored statements of a document that the transaction does not remove."""
        return [statement for key, statement in values if not self._is_removed(document, key)]

    @property
    def is_changed(self) -> bool:
        """True if the transaction changes a document."""
        return bool(self._batch) or any(
            not difference.is_empty or difference.is_kept for difference in self._differences
        )

    @property
    def outcomes(self) -> dict[str, tuple[ResourceCounts, bool]]:
        """The effect on each document, and whether it has statements now."""
        return {d.uri: (counted, d.present) for d, counted in zip(self._differences, self._counts, strict=True)}

    @property
    def change(self) -> StoreChange:
        described = {difference.uri: difference.described for difference in self._differences}
        before, after = self._described_before, self._described_after
        gone, returned = before - after, [resource for resource in after - before if resource <= self._known_resources]
        return StoreChange(self._position, self._known_resources, self._gains.keys(), self._losses.keys(), described,
                           gone, returned, self._blank)  # fmt: skip

    def changes_of(self, properties: Collection[int] | None) -> list[tuple[str, EncodedStatement, bool]]:
        """Return the statements of some properties, or of all, that documents gained (True) and lost, after `write`."""
        return [
            (d.uri, key, is_added)
            for d in self._differences
            for keys, is_added in ((d.added, True), (d.removed, False))
            for key in keys
            if properties is None or key.property in properties
        ]

    def known_names(self, ids: Collection[int]) -> dict[int, str]:
        """Return the URIs of those of these resources that this transaction has looked up or created."""
        return {number: uri for uri, number in self._resources.items() if number in ids}

    def flush(self) -> None:
        """Write the changes so far, so that queries see them. `write` corrects which of them are visible."""
        self._is_flushed = True
        pipeline = Pipeline(self._connection)
        self._synchronise(pipeline, self._differences, _everything, _everything)
        pipeline.send()

    def withdraw(self) -> None:
        """Remove the rows that earlier rounds have written, when nothing is left of their edits. New URIs keep their
        IDs."""
        if self._is_flushed:
            self.flush()
            self._execute("set_last_resource", last=self._last_resource)

    def write(self, pipeline: Pipeline) -> None:
        """Write the net change of the transaction, with the versions of documents and the next position."""
        if self._rounds:
            self._write_edits(pipeline)
        elif not self._is_replaced_written:
            self._write_replaced(pipeline)
        self._keep_documents(pipeline)
        pipeline.send_unless_waiting(self.is_small)

    def _write_replaced(self, pipeline: Pipeline) -> None:
        """Write the rows of replaced documents."""
        if self.is_small:
            self._insert(pipeline, "insert_statements", _FILTER_DATA, self._inserted_rows())
            self._insert(pipeline, "insert_resources", ("id", "uri"), self._fresh)
            self._insert(pipeline, "insert_history", _HISTORY, self._removed_rows())
        else:
            copy_lines(self._session, f"filter_data ({', '.join(_FILTER_DATA)})", self._compared_lines())
            self._resolve_visibility()
            copy_lines(self._session, f"filter_data ({', '.join(_FILTER_DATA)})", self._doubtful_lines())
            copy_rows(self._session, "resources (id, uri)", self._fresh)
            copy_lines(self._session, f"filter_data_history ({', '.join(_HISTORY)})", self._removed_lines())

    def _write_edits(self, pipeline: Pipeline) -> None:
        is_looked_up = self._rounds == 1 and not self._batch
        every = self._differences
        self._differences = [d for d in every if not d.is_empty or d.prefixes is not None or d.is_kept]
        if is_looked_up:
            self._resolve_looked_up()
        else:
            self._flush_and_resolve(every)
        gains, losses = self._gains, self._losses
        self._synchronise(pipeline, every, lambda d, key: gains.get(key) is d, lambda d, key: losses.get(key) is d)

    def _resolve_looked_up(self) -> None:
        """Determine visible changes from the look-ups of the only round of edits, without asking the database."""
        gains, losses = self._net_changes()
        for changes in (gains, losses):
            for key in [key for key in changes if self._is_held(key)]:
                del changes[key]
        removed = Counter(key.resource for d in self._differences for key in d.removed)
        # Also those whose statements other documents contain: they are not gone.
        touched = {key.resource for d in self._differences for key in (*d.added, *d.removed)}
        kept = {resource for resource in touched if self._subject_counts.get(resource, 0) > removed[resource]}
        for d in self._differences:
            if d.is_empty and d.stored is not None:  # it was not looked up
                d.present = d.stored.present
            else:
                d.present = bool(d.added) or self._document_counts.get(d.uri, 0) > len(d.removed)
        self._conclude(gains, losses, kept)

    def _is_held(self, key: EncodedStatement) -> bool:
        """True if a document contains a statement before and after the transaction."""
        return any(not self._is_removed(uri, key) for uri in self._edited.get(key, ()))

    def _flush_and_resolve(self, every: Iterable[DocumentDifference]) -> None:
        """Write the rows of `every` document, and determine visible changes, in one message."""
        self._is_flushed = True
        pipeline = Pipeline(self._connection)
        self._synchronise(pipeline, every, _everything, _everything)
        gains, losses = self._net_changes()
        statements = [*gains, *losses]
        touched = {key.resource for key in statements}
        others = pipeline.queue_named(self._sql["find_others_before"], position=self._position, **_columns(statements))
        described = pipeline.queue_named(
            self._sql["find_described_before"], position=self._position, resources=array_literal(touched)
        )
        documents = array_literal(d.document for d in self._differences)
        present = pipeline.queue_named(self._sql["find_present"], documents=documents)
        pipeline.send()
        for (number,) in others.rows():
            gains.pop(statements[int(number or 0) - 1], None)
            losses.pop(statements[int(number or 0) - 1], None)
        with_statements = {int(document or 0) for (document,) in present.rows()}
        for d in self._differences:
            d.present = d.document in with_statements
        self._conclude(gains, losses, {int(resource or 0) for (resource,) in described.rows()})

    def _net_changes(
        self,
    ) -> tuple[dict[EncodedStatement, DocumentDifference], dict[EncodedStatement, DocumentDifference]]:
        """Return the added and the removed statements, without those that only moved between documents. Of several
        documents with the same change, the first one shows it."""
        gains = {key: d for d in reversed(self._differences) for key in d.added}
        losses = {key: d for d in reversed(self._differences) for key in d.removed}
        cancel_moved_statements(gains, losses)
        return gains, losses

    def _conclude(
        self,
        gains: dict[EncodedStatement, DocumentDifference],
        losses: dict[EncodedStatement, DocumentDifference],
        kept: set[int],
    ) -> None:
        """Record the visible changes, and compute the effect on each document."""
        self._gains, self._losses = gains, losses
        self._described_before, self._described_after = described_before_and_after(self._differences, kept)
        self._counts = self._count()

    def _synchronise(
        self, pipeline: Pipeline, differences: Iterable[DocumentDifference], shows: _Flag, hides: _Flag
    ) -> None:
        """Bring the rows from what earlier rounds have written to the net change, with flags of visibility."""
        deleted, inserted, shown, undone, history, hidden = ([] for _ in range(6))
        for d in differences:
            deleted += [(d.document, *key) for key in d.written if key not in d.added]
            deleted += [(d.document, *key) for key in d.removed if key not in d.dropped]
            undone += [(d.document, *key) for key in d.dropped if key not in d.removed]
            inserted += [
                (d.document, *key, row.position, row.shows, row.blank, *row.typed)
                for key, (row, _) in d.dropped.items()
                if key not in d.removed
            ]
            flags = {key: shows(d, key) for key in d.added}
            for key, flag in flags.items():
                if key not in d.written:
                    inserted.append((d.document, *key, self._position, flag, key.target in self._blank, *d.added[key]))
                elif d.written[key] != flag:
                    shown.append((d.document, *key, flag))
            d.written = flags
            past = {key: (row, hides(d, key)) for key, row in d.removed.items()}
            for key, (row, flag) in past.items():
                if key not in d.dropped:
                    kept = (row.position, row.shows, row.blank, *row.typed)
                    history.append((d.document, *key, *kept, self._position, flag))
                elif d.dropped[key][1] != flag:
                    hidden.append((d.document, *key, flag))
            d.dropped = past
        fresh, self._fresh = self._fresh, []
        self._insert(pipeline, "delete_rows", _KEY, deleted)
        self._insert(pipeline, "delete_history", _KEY, undone, position=self._position)
        self._insert(pipeline, "set_shows", (*_KEY, "shows"), shown)
        self._insert(pipeline, "set_hides", (*_KEY, "hides"), hidden, position=self._position)
        self._insert(pipeline, "insert_statements", _FILTER_DATA, inserted)
        self._insert(pipeline, "insert_resources", ("id", "uri"), fresh)
        self._insert(pipeline, "insert_history", _HISTORY, history)

    def _insert(
        self,
        pipeline: Pipeline,
        name: str,
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        **values: object,
    ) -> None:
        """Queue a statement that takes rows as JSON, unless there are none."""
        items = [dict(zip(columns, row, strict=True)) for row in rows]
        if items:
            pipeline.queue_named(self._sql[name], rows=json.dumps(items, ensure_ascii=False, default=str), **values)

    def _read_stored(self, batch: Sequence[Replacement]) -> dict[int, dict[EncodedStatement, StoredRow]]:
        """Return the stored statements of the documents."""
        stored: dict[int, dict[EncodedStatement, StoredRow]] = defaultdict(dict)
        there = [item.stored.id for item in batch if item.stored is not None and item.stored.present]
        query = "find_statements" if self._replication is None else "find_named_statements"
        rows = self._execute(query, documents=array_literal(there)).fetchall() if there else ()
        for row, document, *encoded, position, shows, blank, number, instant, truth in (row[:15] for row in rows):
            stored[document][EncodedStatement(*encoded)] = StoredRow(
                row, position, shows, blank, (number, instant, truth)
            )
        for row in rows if self._replication is not None else ():
            self._resource_names[row[2]] = row[15]
            if row[4] is not None:
                self._resource_names[row[4]] = row[16]
        return stored

    # Comparing

    def _compare(self, item: Replacement) -> tuple[DocumentDifference, dict[EncodedStatement, TypedValue]]:
        """Return the difference of a document, and those added statements that no stored document can contain: the ones
        about resources that are new in this run. Of several documents with such a statement, the first shows it."""
        difference = self._difference(item)
        self._differences.append(difference)
        known, certain = self._known_resources, difference.added
        if any(resource <= known for resource in difference.described):
            certain = {key: typed for key, typed in difference.added.items() if key[0] > known}
            self._doubtful.append((difference, {k: typed for k, typed in difference.added.items() if k[0] <= known}))
        gains = self._gains
        for key in certain:
            if key not in gains:
                gains[key] = difference
        return difference, certain

    def _difference(self, item: Replacement) -> DocumentDifference:
        stored = item.stored
        if stored is None:
            self._last_document += 1
        number = self._last_document if stored is None else stored.id
        cause = self._registrations.get((item.agent, item.by))
        if cause is None:
            cause = self._registrations[item.agent, item.by] = Cause(REGISTRATION, item.agent, item.by)
        difference = DocumentDifference(
            number, item.uri, stored, item.content, item.prefixes, bool(item.statements), cause
        )
        before = dict(self._stored.get(difference.document, {}))
        ids, added, described, new = self._property_ids, difference.added, difference.described, tuple.__new__
        numbers = self._resources
        for (subject, name, (kind, value, lang, datatype)), digest, typed in zip(
            item.statements, item.hashes, item.typed, strict=True
        ):
            resource = numbers.get(subject) or self._number(subject)
            described.add(resource)
            kind_of = ids[datatype] if datatype else None
            # `tuple.__new__` is several times faster than the constructor, and this runs for every statement.
            if kind == "uri":
                target = numbers.get(value) or self._number(value)
                if BLANK_MARK in value:
                    self._blank.add(target)
                key = new(EncodedStatement, (resource, ids[name], target, None, lang, kind_of, digest))
            else:
                key = new(EncodedStatement, (resource, ids[name], None, value, lang, kind_of, digest))
            if not before or before.pop(key, None) is None:
                added[key] = typed
        difference.removed = before
        if self._replication is not None:
            self._keep_texts(item, difference)
        self._blank.update(key[2] for key, row in before.items() if row.blank and key[2] is not None)
        return difference

    def _keep_texts(self, item: Replacement, difference: DocumentDifference) -> None:
        """Keep the added statements of a document as texts. The removed ones are decoded later."""
        added = difference.added
        if len(added) == len(item.statements):
            self._new_texts[item.uri] = item.statements
            return
        self._texts |= {key: one for key, one in self._texts_of(item).items() if key in added}

    def _texts_of(self, item: Replacement) -> dict[EncodedStatement, Statement]:
        """Return the statements of a replaced document by their encoded form."""
        edits = [
            StatementEdit(item.uri, statement, digest, typed)
            for statement, digest, typed in zip(item.statements, item.hashes, item.typed, strict=True)
        ]
        keys = [(self._known_key(edit), edit.statement) for edit in edits]
        return {key: statement for key, statement in keys if key is not None}

    def _number(self, uri: str) -> int:
        """Assign the next ID to a new URI."""
        self._last_resource += 1
        self._resources[uri] = self._last_resource
        self._fresh.append((self._last_resource, uri))
        return self._last_resource

    def _resolve_visibility(self) -> None:
        """Determine which of the remaining changes are visible: those whose statements no other document contains. Of
        several documents with the same change, the first one shows it. Then compute the effect on each document."""
        gains = {key: d for d, added in reversed(self._doubtful) for key in added}
        losses = {key: d for d in reversed(self._differences) for key in d.removed}
        cancel_moved_statements(gains, losses)
        kept = self._drop_shared_statements(gains, losses)
        self._conclude(self._gains | gains, losses, kept)

    def _drop_shared_statements(
        self, gains: dict[EncodedStatement, DocumentDifference], losses: dict[EncodedStatement, DocumentDifference]
    ) -> set[int]:
        """Drop changes of statements that other documents contain. Return the resources of the changes that other
        statements describe, before and after."""
        statements = [*gains, *losses]
        rows = [f'"{stored.row}"' for d in self._differences for stored in d.removed.values()]
        if not rows and not statements:
            return set()
        touched = {key.resource for key in statements}
        with self._session.pipeline():
            if rows:
                self._execute("remove_statements", rows=array_literal(rows))
            others = self._execute("find_others", **_columns(statements)) if statements else None
            described = self._execute("find_described", resources=array_literal(touched)) if touched else None
        for (number,) in others.fetchall() if others else ():
            gains.pop(statements[number - 1], None)
            losses.pop(statements[number - 1], None)
        return {resource for (resource,) in described.fetchall()} if described else set()

    def _count(self) -> list[ResourceCounts]:
        changed: dict[int, set[int]] = defaultdict(set)
        for changes in (self._gains, self._losses):
            for key, difference in changes.items():
                changed[difference.document].add(key[0])
        before, after = self._described_before, self._described_after
        counts = []
        for difference in self._differences:
            changed_here = changed[difference.document]
            counts.append(
                ResourceCounts(
                    difference.version,
                    inserted=len(changed_here - before),
                    updated=len(changed_here & before & after),
                    deleted=len(changed_here - after),
                    unchanged=len(difference.described - changed_here),
                )
            )
        return counts

    # Writing

    def _compared_lines(self) -> Iterator[str]:
        """Yield the rows of each document as soon as it is compared."""
        for item in self._batch:
            difference, certain = self._compare(item)
            yield from self._lines(difference, certain)

    def _doubtful_lines(self) -> Iterator[str]:
        for difference, added in self._doubtful:
            yield from self._lines(difference, added)

    def _lines(self, difference: DocumentDifference, added: Mapping[EncodedStatement, TypedValue]) -> Iterator[str]:
        # Formatted by hand for speed: these are by far the most rows.
        position, gains, blank, document = self._position, self._gains, self._blank, difference.document
        for key, (number, instant, truth) in added.items():
            resource, name, target, value, lang, datatype, digest = key
            yield (
                f"{document}\t{resource}\t{name}\t{COPY_NULL if target is None else target}"
                f"\t{COPY_NULL if value is None else copy_text(value)}\t{lang or COPY_NULL}\t{datatype or COPY_NULL}"
                f"\t{digest}"
                f"\t{position}\t{'t' if gains.get(key) is difference else 'f'}\t{'t' if target in blank else 'f'}"
                f"\t{COPY_NULL if number is None else number}\t{COPY_NULL if instant is None else instant}"
                f"\t{copy_field(truth)}\n"
            )

    def _removed_lines(self) -> Iterator[str]:
        until, losses = self._position, self._losses
        for difference in self._differences:
            document = difference.document
            for key, (_, position, shows, blank, (number, instant, truth)) in difference.removed.items():
                resource, name, target, value, lang, datatype, digest = key
                yield (
                    f"{document}\t{resource}\t{name}\t{COPY_NULL if target is None else target}"
                    f"\t{COPY_NULL if value is None else copy_text(value)}\t{lang or COPY_NULL}"
                    f"\t{datatype or COPY_NULL}\t{digest}"
                    f"\t{position}\t{'t' if shows else 'f'}\t{'t' if blank else 'f'}"
                    f"\t{COPY_NULL if number is None else number}\t{COPY_NULL if instant is None else instant}"
                    f"\t{copy_field(truth)}\t{until}\t{'t' if losses.get(key) is difference else 'f'}\n"
                )

    def _inserted_rows(self) -> Iterable[tuple[object, ...]]:
        for difference in self._differences:
            for key, typed in difference.added.items():
                shows = self._gains.get(key) is difference
                yield (difference.document, *key, self._position, shows, key.target in self._blank, *typed)

    def _removed_rows(self) -> Iterable[tuple[object, ...]]:
        for difference in self._differences:
            for key, stored in difference.removed.items():
                hides = self._losses.get(key) is difference
                kept = (stored.position, stored.shows, stored.blank, *stored.typed)
                yield (difference.document, *key, *kept, self._position, hides)

    def _keep_documents(self, pipeline: Pipeline) -> None:
        kept = list(zip(self._differences, self._counts, strict=True))
        effects = self.effects = self._replication_effects()
        if not self.is_small:
            new = [(d, counted) for d, counted in kept if d.stored is None and d.present]
            copy_new_documents(self._session, self._position, new, effects)
            kept = [(d, counted) for d, counted in kept if d.stored is not None or not d.present]
        queue_documents(pipeline, self._position, kept, self._last_resource, self._last_document, effects)

    def _replication_effects(self) -> ReplicationEffects | None:
        """Return what the transaction writes for the backbone; None if there is none."""
        if self._replication is None:
            return None
        texts = self._removed_texts()
        if self._rounds:  # edits may have changed these documents, too
            for d in self._differences:
                if d.uri in self._new_texts:
                    (item,) = (item for item in self._batch if item.uri == d.uri)
                    self._texts |= self._texts_of(item)
            self._new_texts = {}
        effects = self._replication.effects([
            ReplicatedDifference(d, self._new_texts.get(d.uri) or [self._texts[key] for key in d.added],
                                 [texts.get(key) or self._texts[key] for key in d.removed])
            for d in self._differences
        ])  # fmt: skip
        self._counts = [
            counted._replace(version=effects.documents[d.uri].version)
            for d, counted in zip(self._differences, self._counts, strict=True)
        ]
        return effects

    def _removed_texts(self) -> dict[EncodedStatement, Statement]:
        """Return the removed statements of replaced documents as texts."""
        names = {number: uri for uri, number in self._property_ids.items()}
        keys = [key for d in self._differences for key in d.removed if key not in self._texts]
        unknown = {number for key in keys for number in (key.property, key.datatype) if number not in names} - {None}
        if unknown:
            rows = self._connection.execute(
                select(vocabulary.c.id, vocabulary.c.uri).where(vocabulary.c.id.in_(unknown))
            )
            names |= {row.id: row.uri for row in rows}
        return {
            key: Statement(
                self._resource_names[key.resource],
                names[key.property],
                Term.uri(self._resource_names[key.target])
                if key.target is not None
                else Term.literal(key.value or "", key.lang, names[key.datatype] if key.datatype else None),
            )
            for key in keys
        }

    def _execute(self, name: str, **values: object) -> psycopg.Cursor[Any]:
        return self._session.execute(self._sql[name], values, prepare=True)


_KEY = ("document_id", "resource_id", "property_id", "target_id", "value", "lang", "datatype_id", "hash")
_FILTER_DATA = (*_KEY, "position", "shows", "blank", "number", "instant", "truth")
_HISTORY = (*_FILTER_DATA, "until_position", "hides")


def _columns(keys: Sequence[EncodedStatement]) -> dict[str, str]:
    """Return the parameters of `find_others`: one list for each column, numbers as arrays and texts as JSON."""
    return {
        "resources": array_literal([key[0] for key in keys]),
        "properties": array_literal([key[1] for key in keys]),
        "targets": array_literal(["NULL" if key[2] is None else key[2] for key in keys]),
        "values": json.dumps([key[3] for key in keys], ensure_ascii=False),
        "langs": json.dumps([key[4] for key in keys], ensure_ascii=False),
        "datatypes": array_literal(["NULL" if key[5] is None else key[5] for key in keys]),
        "hashes": array_literal([key[6] for key in keys]),
    }


def list_described_resources(connection: Connection, document: int) -> list[str]:
    """Return the URIs of the resources that a document describes now."""
    described = select(filter_data.c.resource_id).where(filter_data.c.document_id == document).distinct().subquery()
    query = select(resources.c.uri).join(described, described.c.resource_id == resources.c.id)
    return list(connection.execute(query).scalars())
