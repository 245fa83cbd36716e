"""Stored batches: runs, staged documents, and the texts from which documents were registered."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb
from sqlalchemy import Connection, select, update

from mdv.db.engine import driver, pipelined
from mdv.db.load_sql import load_sql
from mdv.db.postgres_copy import copy_rows
from mdv.db.tables import batch_runs

RUN_TIMEOUT_SECONDS = 6 * 3600.0
"""A run without a heartbeat for this long is considered dead. It sends no heartbeat while it scans its input."""
RUN_RETENTION_SECONDS = 30 * 86400.0
"""How long the outcome of a run is kept."""
RUN_CALLER_PREFIX = "batch "
"""An index contains the versions whose caller starts with this."""
MAX_EXAMPLES_PER_PARTITION = 5
"""Limit of rejected documents that are stored as examples for each partition. The rejects file has all of them."""


class PartitionAttempt(NamedTuple):
    """A Spark attempt at a partition of a run."""

    run: UUID
    partition: int
    attempt: int


class StagedChunk(NamedTuple):
    """Staged documents. `weight`: the size of their texts in bytes."""

    partition: int
    attempt: int
    chunk: int
    weight: int
    body: bytes


class RegisteredDocument(NamedTuple):
    """A registered document: the digest of its statements and, if a batch registered them, the digest of the text and
    the run."""

    content: bytes
    digest: bytes | None
    run: UUID | None


@dataclass(slots=True)
class PartitionCounts:
    """Counts for a part of a partition: documents, their statements and bytes, and seconds spent."""

    prepared: int = 0
    statements: int = 0
    fresh: int = 0
    same: int = 0
    unchanged: int = 0
    refused: int = 0
    bytes: int = 0
    preparing: float = 0.0
    staging: float = 0.0
    waiting: float = 0.0
    examples: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class PromotionCounts:
    """Counts for one promotion transaction: documents and their statements."""

    registered: int = 0
    changed: int = 0
    unchanged: int = 0
    refused: int = 0
    statements: int = 0


class BatchProgress(NamedTuple):
    """The progress of a run: counts of the executors, and counts of the promotion."""

    documents: int | None
    prepared: int
    statements: int
    fresh: int
    same: int
    skipped: int
    rejected: int
    bytes: int
    preparing: float
    staging: float
    waiting: float
    registered: int
    changed: int
    unchanged: int
    refused: int
    promoted_statements: int
    transactions: int

    @property
    def promoted(self) -> int:
        return self.registered + self.changed + self.unchanged + self.refused


def caller_of_run(run: UUID) -> str:
    """Return the caller of the documents that a run registers, as it is kept with their versions."""
    return f"{RUN_CALLER_PREFIX}{run}"


# A run


def begin_run(connection: Connection, what: str, dry_run: bool) -> UUID:
    """Start a run and return its ID. Runs that died are deleted."""
    delete_old_runs(connection)
    ((run,),) = _run(connection, "begin_run", what=what, dry_run=dry_run).fetchall()
    return UUID(str(run))


def delete_old_runs(connection: Connection) -> None:
    """Delete dead runs with their staged documents, and runs that ended long ago."""
    _run(connection, "delete_old_runs", silent=RUN_TIMEOUT_SECONDS, kept=RUN_RETENTION_SECONDS)


def set_document_count(connection: Connection, run: UUID, documents: int) -> None:
    """Set the number of documents that the run has to process."""
    connection.execute(update(batch_runs).where(batch_runs.c.id == run).values(documents=documents))


def record_heartbeat(connection: Connection, run: UUID) -> bool:
    """Record a heartbeat. Return False if the run was considered dead."""
    return bool(_run(connection, "record_heartbeat", run=run).rowcount)


def end_run(connection: Connection, run: UUID, state: str) -> None:
    _run(connection, "end_run", run=run, state=state)


def delete_run(connection: Connection, run: UUID) -> None:
    """Delete a run with its staged documents."""
    _run(connection, "delete_run", run=run)


def read_run(connection: Connection, run: UUID) -> BatchProgress:
    return BatchProgress(*_run(connection, "read_run", run=run).fetchall()[0])


def read_examples(connection: Connection, run: UUID, most: int) -> list[dict[str, Any]]:
    """Return examples of documents that the executors of a run rejected."""
    return [example for (example,) in _run(connection, "examples", run=run, most=most).fetchall()]


def list_running(connection: Connection) -> list[BatchProgress]:
    """Return the progress of all active runs."""
    found = connection.execute(select(batch_runs.c.id).where(batch_runs.c.state == "running")).scalars()
    return [read_run(connection, run) for run in list(found)]


# Staging


def begin_attempt(connection: Connection, attempt: PartitionAttempt) -> bool:
    """Replace earlier attempts at the partition. Return False if a later attempt has started."""
    if not _run(connection, "begin_attempt", **attempt._asdict()).rowcount:
        return False
    _run(connection, "drop_older", **attempt._asdict())
    return True


def find_registered(connection: Connection, uris: Collection[str]) -> dict[str, RegisteredDocument]:
    """Return those of these documents that are registered, by URI."""
    rows = _run(connection, "find_registered", uris=json.dumps(list(uris), ensure_ascii=False)).fetchall()
    return {uri: RegisteredDocument(content, digest, run) for uri, content, digest, run in rows}


def stage(
    connection: Connection,
    attempt: PartitionAttempt,
    chunk: int,
    weight: int,
    body: bytes | None,
    tally: PartitionCounts,
) -> bool:
    """Stage a chunk of an attempt, if it has a body, and add its counts. Return False if a later attempt has started.

    The call is idempotent: it can be repeated if its outcome is unknown.
    """
    here = attempt._asdict() | {"chunk": chunk}
    counted = asdict(tally) | {"examples": Jsonb(tally.examples), "most": MAX_EXAMPLES_PER_PARTITION}
    if not _run(connection, "add_counts", **here, **counted).rowcount:
        ((is_counted,),) = _run(connection, "is_counted", **here).fetchall()
        return bool(is_counted)
    if body is not None:
        row = (*attempt, chunk, weight, body)
        copy_rows(driver(connection), "batch_chunks (run_id, partition, attempt, chunk, weight, body)", [row])
    return True


def staged_bytes(connection: Connection, run: UUID) -> int:
    """Return the number of bytes that are staged and not yet promoted."""
    ((staged,),) = _run(connection, "staged_bytes", run=run).fetchall()
    return int(staged)


# Promotion


def claim_chunks(connection: Connection, run: UUID, most: int, most_bytes: int) -> list[StagedChunk]:
    """Lock and return the next chunks to promote, up to `most` chunks and `most_bytes`, but at least one."""
    return [
        StagedChunk(*row) for row in _run(connection, "claim_chunks", run=run, most=most, bytes=most_bytes).fetchall()
    ]


def finish_chunks(
    connection: Connection,
    run: UUID,
    chunks: Sequence[StagedChunk],
    sources: Sequence[tuple[str, bytes, bytes]],
    promoted: PromotionCounts,
) -> bool:
    """Delete promoted chunks, add their counts, and store the `sources` (URI, digests of text and content) of the
    documents. Return False if the run was considered dead."""
    with pipelined(driver(connection)):
        counted = _run(connection, "count_promoted", run=run, **asdict(promoted))
        _run(connection, "drop_chunks", run=run, partitions=[chunk.partition for chunk in chunks],
             attempts=[chunk.attempt for chunk in chunks], chunks=[chunk.chunk for chunk in chunks])  # fmt: skip
        uris, digests, contents = [list(column) for column in zip(*sources, strict=True)] if sources else [[], [], []]
        _run(connection, "keep_sources", run=run, uris=uris, digests=digests, contents=contents)
    return bool(counted.rowcount)


def _run(connection: Connection, name: str, **given: Any) -> Any:
    return driver(connection).execute(load_sql("batch")[name], given, prepare=True)
