"""Store documents and their versions: the last write of a transaction that changes documents."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from mdv.db.delta import DocumentDifference, ResourceCounts
from mdv.db.load_sql import load_sql
from mdv.db.pipeline import Pipeline
from mdv.db.postgres_copy import copy_field, copy_lines, copy_text
from mdv.db.replica.effects import DocumentReplica, ReplicationEffects
from mdv.db.replica.log import log_fields
from mdv.db.replica.marks import mark_changes

CountedDifference = tuple[DocumentDifference, ResourceCounts]
_Replicas = Mapping[str, DocumentReplica]

_DOCUMENT = "id, uri, version, present, content, prefixes, position"
_VERSION = (
    "document_id, version, position, present, prefixes, inserted, updated, deleted, unchanged, cause, agent, changed_by"
)
_REPLICA_OF_DOCUMENT = ", digest, statements, replica"
_REPLICA_OF_VERSION = ", origin_life, origin_seq, digest"


def queue_documents(
    pipeline: Pipeline,
    position: int,
    documents: Sequence[CountedDifference],
    last_resource: int,
    last_document: int,
    effects: ReplicationEffects | None = None,
) -> None:
    """Queue the statement that stores documents with their new versions, and advances the state of the MDP. With
    `effects`, it also writes what a backbone needs."""
    replicas: _Replicas = {} if effects is None else effects.documents
    items = [_fields(difference, counted, replicas.get(difference.uri)) for difference, counted in documents]
    values = {
        "position": position,
        "documents": json.dumps(items, ensure_ascii=False),
        "last_resource": last_resource,
        "last_document": last_document,
    }
    if effects is None:
        pipeline.queue_named(load_sql("store")["keep_documents"], **values)
        return
    pipeline.queue_named(
        load_sql("store")["keep_replicated_documents"],
        **values,
        log=json.dumps([log_fields(row) for row in effects.log]),
        drafts=json.dumps([{"body": body.hex()} for body in effects.drafts]),
        replica=effects.replica,
        more_marks=effects.more_marks,
    )
    if effects.facts is not None:
        pipeline.queue_named(load_sql("replica")["store_facts"], facts=effects.facts)
    if effects.marks:
        for name, rows in mark_changes(effects.marks).items():
            pipeline.queue_named(load_sql("replica")[name], rows=rows)


def _fields(difference: DocumentDifference, counted: ResourceCounts, replica: DocumentReplica | None) -> dict[str, Any]:
    cause, prefixes = difference.cause, difference.prefixes
    fields = {
        "id": difference.document,
        "uri": difference.uri,
        "present": difference.present,
        "content": difference.content.hex(),
        **counted._asdict(),
    }
    if replica is not None:
        cause, prefixes = replica.cause or cause, replica.prefixes
        fields |= {
            "version": replica.version,
            "digest": replica.digest,
            "statements": replica.statements,
            "replica": json.loads(replica.replica),
            "origin_life": replica.origin[0],
            "origin_seq": replica.origin[1],
        }
    return fields | {
        "prefixes": None if prefixes is None else dict(prefixes),
        "cause": cause.kind.name,
        "agent": cause.agent,
        "changed_by": cause.by,
    }


def copy_new_documents(
    session: psycopg.Connection[Any],
    position: int,
    documents: Sequence[CountedDifference],
    effects: ReplicationEffects | None = None,
) -> None:
    """COPY new documents with their first versions."""
    replicas: _Replicas = {} if effects is None else effects.documents
    rows, versions = [], []
    prefixes: dict[str, str] = {}  # most documents have the same prefixes
    last_cause, cause_fields = None, ""  # and the same cause
    for difference, counted in documents:
        number, cause, replica = difference.document, difference.cause, replicas.get(difference.uri)
        version, more, origin, given = 1, "", "", difference.prefixes
        if replica is not None:
            version, cause, given = replica.version, replica.cause or cause, replica.prefixes
            more = f"\t{replica.digest}\t{replica.statements}\t{copy_text(replica.replica)}"
            origin = f"\t{replica.origin[0]}\t{replica.origin[1]}\t{replica.digest}"
        if cause is not last_cause:
            last_cause, cause_fields = cause, f"{cause.kind.name}\t{copy_field(cause.agent)}\t{copy_field(cause.by)}"
        written = repr(given)
        names = prefixes.get(written)
        if names is None:
            names = prefixes[written] = copy_text(json.dumps(dict(given or {}), ensure_ascii=False))
        digest = difference.content.hex()
        rows.append(f"{number}\t{copy_text(difference.uri)}\t{version}\tt\t\\\\x{digest}\t{names}\t{position}{more}\n")
        versions.append(
            f"{number}\t{version}\t{position}\tt\t{names}\t{counted.inserted}\t{counted.updated}\t{counted.deleted}"
            f"\t{counted.unchanged}\t{cause_fields}{origin}\n"
        )
    is_replicated = effects is not None
    copy_lines(session, f"documents ({_DOCUMENT}{_REPLICA_OF_DOCUMENT if is_replicated else ''})", rows)
    copy_lines(session, f"document_versions ({_VERSION}{_REPLICA_OF_VERSION if is_replicated else ''})", versions)
