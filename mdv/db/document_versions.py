"""Store documents and their versions: the last write of a transaction that changes documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import psycopg

from mdv.db.delta import DocumentDifference, ResourceCounts
from mdv.db.load_sql import load_sql
from mdv.db.pipeline import Pipeline
from mdv.db.postgres_copy import copy_field, copy_lines, copy_text

CountedDifference = tuple[DocumentDifference, ResourceCounts]

_DOCUMENT = "id, uri, version, present, content, prefixes, position"
_VERSION = (
    "document_id, version, position, present, prefixes, inserted, updated, deleted, unchanged, cause, agent, changed_by"
)


def queue_documents(
    pipeline: Pipeline,
    position: int,
    documents: Sequence[CountedDifference],
    last_resource: int,
    last_document: int,
) -> None:
    """Queue the statement that stores documents with their new versions, and advances the state of the MDP."""
    items = [
        {
            "id": difference.document,
            "uri": difference.uri,
            "present": difference.present,
            "content": difference.content.hex(),
            "prefixes": None if difference.prefixes is None else dict(difference.prefixes),
            "cause": difference.cause.kind.name,
            "agent": difference.cause.agent,
            "changed_by": difference.cause.by,
            **counted._asdict(),
        }
        for difference, counted in documents
    ]
    pipeline.queue_named(
        load_sql("store")["keep_documents"],
        position=position,
        documents=json.dumps(items, ensure_ascii=False),
        last_resource=last_resource,
        last_document=last_document,
    )


def copy_new_documents(session: psycopg.Connection[Any], position: int, documents: Sequence[CountedDifference]) -> None:
    """COPY new documents with their first versions."""
    rows, versions = [], []
    prefixes: dict[str, str] = {}  # most documents have the same prefixes
    last_cause, cause_fields = None, ""  # and the same cause
    for difference, counted in documents:
        number, cause = difference.document, difference.cause
        if cause is not last_cause:
            last_cause, cause_fields = cause, f"{cause.kind.name}\t{copy_field(cause.agent)}\t{copy_field(cause.by)}"
        written = repr(difference.prefixes)
        names = prefixes.get(written)
        if names is None:
            names = prefixes[written] = copy_text(json.dumps(dict(difference.prefixes or {}), ensure_ascii=False))
        digest = difference.content.hex()
        rows.append(f"{number}\t{copy_text(difference.uri)}\t1\tt\t\\\\x{digest}\t{names}\t{position}\n")
        versions.append(
            f"{number}\t1\t{position}\tt\t{names}\t{counted.inserted}\t{counted.updated}\t{counted.deleted}"
            f"\t{counted.unchanged}\t{cause_fields}\n"
        )
    copy_lines(session, f"documents ({_DOCUMENT})", rows)
    copy_lines(session, f"document_versions ({_VERSION})", versions)
