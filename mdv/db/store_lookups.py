"""Look-ups of the statement store: documents, IDs of URIs, and the rows of edited statements.

They are queued in a pipeline, and sent in one message with the lock where possible.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from mdv.db.delta import EncodedStatement, StatementEdit, StoredDocument, StoredRow
from mdv.db.load_sql import load_sql
from mdv.db.pipeline import PendingResult, Pipeline, TextRow
from mdv.model import Statement, Term


class StoreLookups(NamedTuple):
    """The look-ups of a transaction, available after the pipeline was sent."""

    found: PendingResult
    numbers: PendingResult

    def documents(self) -> dict[str, StoredDocument]:
        """Return the documents that are or were registered, by URI."""
        return {document.uri: document for document in map(_stored_document, self.found.rows())}

    def resource_ids(self) -> dict[str, int]:
        return {uri or "": int(number or 0) for uri, number in self.numbers.rows()}


def queue_store_lookups(pipeline: Pipeline, documents: Collection[str], resources: Collection[str]) -> StoreLookups:
    """Queue the look-ups of documents, and of the IDs of URIs."""
    sql = load_sql("store")
    return StoreLookups(
        pipeline.queue_named(sql["find_documents"], uris=_as_json(documents)),
        pipeline.queue_named(sql["find_resources"], uris=_as_json(resources)),
    )


class EditLookups(NamedTuple):
    """The look-ups of edits, available after the pipeline was sent."""

    common: StoreLookups
    rows: PendingResult
    subjects: PendingResult
    singles: PendingResult

    def stored_rows(self) -> Iterator[tuple[StoredDocument, EncodedStatement, StoredRow, int]]:
        """Yield the stored rows of the edited statements: document, statement, row, and how many statements the
        document has. The count stops at one more than the number of these rows in the document."""
        for texts in self.rows.rows():
            row, document, uri, version, present, content, count, *encoded, position, shows, blank = texts[:17]
            facts = texts[20:23]
            resource, name, target, value, lang, datatype, digest = encoded
            key = EncodedStatement(
                int(resource or 0), int(name or 0), _int(target), value, lang, _int(datatype), int(digest or 0)
            )
            stored = StoredRow(row or "", int(position or 0), shows == "t", blank == "t", texts[17:20])  # type: ignore[arg-type]
            yield _stored_document((document, uri, version, present, content, *facts)), key, stored, int(count or 0)

    def single_values(self) -> Iterator[tuple[str, EncodedStatement, Statement]]:
        """Yield the stored values of properties that are not set-valued: document, encoded statement and statement."""
        for uri, subject, name, target_uri, datatype_name, *encoded in self.singles.rows():
            resource, property_, target, value, lang, datatype, digest = encoded
            key = EncodedStatement(
                int(resource or 0), int(property_ or 0), _int(target), value, lang, _int(datatype), int(digest or 0)
            )
            term = Term.uri(target_uri) if target_uri is not None else Term.literal(value or "", lang, datatype_name)
            yield uri or "", key, Statement(subject or "", name or "", term)

    def subject_counts(self) -> dict[int, int]:
        """Return how many statements each subject has. The count stops at one more than the number of its rows."""
        return {int(number or 0): int(count or 0) for number, count in self.subjects.rows()}


def queue_edit_lookups(
    pipeline: Pipeline,
    edits: Sequence[StatementEdit],
    documents: Collection[str],
    singles: Iterable[tuple[str, str, str]],
    property_ids: Mapping[str, int],
) -> EditLookups:
    """Queue the look-ups of edited statements in all documents, of `documents`, and of the IDs of URIs.

    `singles`: documents, subjects and properties whose stored values are needed.
    """
    sql = load_sql("store")
    uris = {edit.statement.subject for edit in edits}
    uris |= {edit.statement.object.value for edit in edits if edit.statement.object.is_uri}
    items = [
        {"subject": edit.statement.subject, "property_id": property_ids[edit.statement.property], "hash": edit.hash}
        for edit in edits
    ]
    statements = json.dumps(items, ensure_ascii=False)
    wanted = [
        {"document": uri, "subject": subject, "property_id": property_ids[name], "property": name}
        for uri, subject, name in singles
    ]
    return EditLookups(
        queue_store_lookups(pipeline, documents, uris),
        pipeline.queue_named(sql["find_edited"], statements=statements),
        pipeline.queue_named(sql["count_subjects"], statements=statements),
        pipeline.queue_named(sql["find_values"], values=json.dumps(wanted, ensure_ascii=False)),
    )


def _int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _stored_document(row: TextRow) -> StoredDocument:
    number, uri, version, present, content = [text or "" for text in row[:5]]
    digest, statements, replica = row[5:]
    return StoredDocument(
        int(number),
        uri,
        int(version),
        present == "t",
        bytes.fromhex(content[2:]),
        _int(digest),
        _int(statements),
        replica,
    )


def _as_json(texts: Iterable[str]) -> str:
    return json.dumps(list(texts), ensure_ascii=False)
