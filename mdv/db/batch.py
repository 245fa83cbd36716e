"""Batches as stored: runs, what executors have staged, and the texts from which documents were registered."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb
from sqlalchemy import Connection, select, update

from mdv.db.copy import copy_rows
from mdv.db.engine import driver, together
from mdv.db.statements import statements
from mdv.db.tables import batch_runs

SILENT_SECONDS = 6 * 3600.0
"""A run that is not heard of for so long has died. While it looks at what is there, nothing is heard of it."""
KEPT_SECONDS = 30 * 86400.0
"""So long the outcome of a run is kept."""
MOST_EXAMPLES = 5
"""Refusals that are kept of each partition; all of them go to the rejects."""


class Attempt(NamedTuple):
    """An attempt of Spark's at a partition of a run."""

    run: UUID
    partition: int
    attempt: int


class Chunk(NamedTuple):
    """Staged documents. `weight`: the bytes of their texts."""

    partition: int
    attempt: int
    chunk: int
    weight: int
    body: bytes


class Known(NamedTuple):
    """A registered document: the digest of what it says and, if it was a batch that registered that, the digest of the
    text and the run."""

    content: bytes
    digest: bytes | None
    run: UUID | None


@dataclass(slots=True)
class Tally:
    """What a part of a partition came to: documents, their statements and bytes, and the seconds it took."""

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
class Promoted:
    """What a transaction of promotion came to, in documents, and the statements of those."""

    registered: int = 0
    changed: int = 0
    unchanged: int = 0
    refused: int = 0
    statements: int = 0


class Progress(NamedTuple):
    """How far a run has come: what executors did, and what was promoted."""

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


# A run


def begin_run(connection: Connection, what: str, dry_run: bool) -> UUID:
    """A new run; what died ones left goes."""
    forget_runs(connection)
    ((run,),) = _run(connection, "begin_run", what=what, dry_run=dry_run).fetchall()
    return UUID(str(run))


def forget_runs(connection: Connection) -> None:
    """Drop runs that nobody has heard of for long, with what they staged, and those that ended long ago."""
    _run(connection, "forget_runs", silent=SILENT_SECONDS, kept=KEPT_SECONDS)


def expect_documents(connection: Connection, run: UUID, documents: int) -> None:
    """So many documents are to be looked at."""
    connection.execute(update(batch_runs).where(batch_runs.c.id == run).values(documents=documents))


def hear(connection: Connection, run: UUID) -> bool:
    """Say that the run lives; False where it was given up for dead."""
    return bool(_run(connection, "hear", run=run).rowcount)


def end_run(connection: Connection, run: UUID, state: str) -> None:
    _run(connection, "end_run", run=run, state=state)


def drop_run(connection: Connection, run: UUID) -> None:
    """Nothing of the run is kept."""
    _run(connection, "drop_run", run=run)


def read_run(connection: Connection, run: UUID) -> Progress:
    return Progress(*_run(connection, "read_run", run=run).fetchall()[0])


def read_examples(connection: Connection, run: UUID, most: int) -> list[dict[str, Any]]:
    """Some of the refusals of a run's executors."""
    return [example for (example,) in _run(connection, "examples", run=run, most=most).fetchall()]


def running(connection: Connection) -> list[Progress]:
    """How far the runs have come that go on now."""
    found = connection.execute(select(batch_runs.c.id).where(batch_runs.c.state == "running")).scalars()
    return [read_run(connection, run) for run in list(found)]


# Staging


def begin_attempt(connection: Connection, attempt: Attempt) -> bool:
    """Let an attempt take the place of earlier ones; False where a later one has begun."""
    if not _run(connection, "begin_attempt", **attempt._asdict()).rowcount:
        return False
    _run(connection, "drop_older", **attempt._asdict())
    return True


def find_known(connection: Connection, uris: Collection[str]) -> dict[str, Known]:
    """Those of these documents that are registered."""
    rows = _run(connection, "find_known", uris=json.dumps(list(uris), ensure_ascii=False)).fetchall()
    return {uri: Known(content, digest, run) for uri, content, digest, run in rows}


def stage(connection: Connection, attempt: Attempt, chunk: int, weight: int, body: bytes | None, tally: Tally) -> bool:
    """Stage a chunk of an attempt, if there is one, with what it came to; False where a later attempt has begun.

    A second time it does nothing: whoever never heard the answer to the first may call again.
    """
    here = attempt._asdict() | {"chunk": chunk}
    counted = asdict(tally) | {"examples": Jsonb(tally.examples), "most": MOST_EXAMPLES}
    if not _run(connection, "count_up", **here, **counted).rowcount:
        ((is_counted,),) = _run(connection, "is_counted", **here).fetchall()
        return bool(is_counted)
    if body is not None:
        row = (*attempt, chunk, weight, body)
        copy_rows(driver(connection), "batch_chunks (run_id, partition, attempt, chunk, weight, body)", [row])
    return True


def staged_bytes(connection: Connection, run: UUID) -> int:
    """What is staged and not yet promoted."""
    ((staged,),) = _run(connection, "staged_bytes", run=run).fetchall()
    return int(staged)


# Promotion


def take_chunks(connection: Connection, run: UUID, most: int, most_bytes: int) -> list[Chunk]:
    """The next chunks to promote, held by this transaction: no more than that, but one in any case."""
    return [Chunk(*row) for row in _run(connection, "take_chunks", run=run, most=most, bytes=most_bytes).fetchall()]


def end_chunks(
    connection: Connection,
    run: UUID,
    chunks: Sequence[Chunk],
    sources: Sequence[tuple[str, bytes, bytes]],
    promoted: Promoted,
) -> bool:
    """Chunks are promoted, in this transaction: so were the documents of `sources` (URI, digests of text and content)
    registered. False where the run was given up for dead."""
    with together(driver(connection)):
        counted = _run(connection, "count_promoted", run=run, **asdict(promoted))
        _run(connection, "drop_chunks", run=run, partitions=[chunk.partition for chunk in chunks],
             attempts=[chunk.attempt for chunk in chunks], chunks=[chunk.chunk for chunk in chunks])  # fmt: skip
        uris, digests, contents = [list(column) for column in zip(*sources, strict=True)] if sources else [[], [], []]
        _run(connection, "keep_sources", run=run, uris=uris, digests=digests, contents=contents)
    return bool(counted.rowcount)


def _run(connection: Connection, name: str, **given: Any) -> Any:
    return driver(connection).execute(statements("batch")[name], given, prepare=True)
