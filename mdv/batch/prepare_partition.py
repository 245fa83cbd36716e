"""Prepare documents in executors: from text to staged statements.

Executors run the server's own gate, parser, blank node naming and validation (`mdv.mdp.register.prepare`), which is
shipped with the job. An executor asks the database which texts are registered already, prepares the others and stages
them in chunks. It returns the refused documents to Spark.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import UUID

import pyarrow as pa
from sqlalchemy import Connection, Engine

from mdv.batch.arrow_codec import StagedDocument, encode_documents
from mdv.batch.prefilter import CandidateMatcher, CandidatePair, RuleConstants
from mdv.batch.rejects import Reject, encode_rejects
from mdv.db.batch import (
    PartitionAttempt,
    PartitionCounts,
    RegisteredDocument,
    begin_attempt,
    find_registered,
    stage,
    staged_bytes,
)
from mdv.db.engine import make_engine
from mdv.errors import MdvError
from mdv.gc_tuning import tune_gc
from mdv.mdp.database_outage import is_database_outage
from mdv.mdp.register import prepare
from mdv.mdp.schemas import SchemaInForce, build_schema
from mdv.model import Statement

if TYPE_CHECKING:
    from pyspark import Broadcast

CHUNK_DOCUMENTS = 100
CHUNK_BYTES = 256 * 1024
"""A chunk is staged, and later promoted, as a unit. It takes about 0.1 s of work."""
MAX_STAGED_BYTES = 256 * 1024 * 1024
"""Maximum number of bytes of text that wait for promotion. Executors pause when there are more."""
DATABASE_RETRY_SECONDS = 300.0
"""How long to retry while the database is unavailable."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ExecutorTask:
    """The data that every executor needs."""

    database_url: str = field(repr=False)
    run: UUID
    schema_version: int
    schema: tuple[Statement, ...]
    prefixes: Mapping[str, str]
    max_bytes: int
    dry_run: bool
    constants: RuleConstants | None = None
    """The constants of the rules, if executors find the candidates."""


class InputDocument(NamedTuple):
    """An input document, in the columns of `DOCUMENT_COLUMNS`."""

    source: str
    uri: str | None
    media_type: str | None
    content: bytes | None
    rank: str
    problem: str | None

    @property
    def weight(self) -> int:
        return len(self.content or b"")

    @property
    def digest(self) -> bytes:
        """Digest of the text, its media type and its URI."""
        prefix = f"{self.media_type}\n{self.uri}\n".encode()
        return hashlib.blake2b(prefix + (self.content or b""), digest_size=16).digest()


def prepare_partition(task: Broadcast[ExecutorTask], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Stage the documents of one partition. Yield the refused ones, in the columns of `REJECT_COLUMNS`."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None  # this runs in executors only
    tune_gc()
    known = task.value
    attempt = PartitionAttempt(known.run, context.partitionId(), context.taskAttemptId())
    partition = PartitionStager(known, attempt, make_engine(known.database_url, pool_size=1))
    try:
        yield from partition.stage(read_rows(batches))
    finally:
        partition.close()


def read_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[InputDocument]:
    for batch in batches:
        for start in range(0, batch.num_rows, CHUNK_DOCUMENTS):  # convert only a few texts to Python objects at a time
            part = batch.slice(start, CHUNK_DOCUMENTS)
            yield from map(InputDocument, *(part.column(name).to_pylist() for name in InputDocument._fields))


class AttemptSuperseded(Exception):
    """Spark has started a later attempt at this partition, so this attempt must stop."""


class PartitionStager:
    """One attempt at one partition."""

    def __init__(self, task: ExecutorTask, attempt: PartitionAttempt, engine: Engine) -> None:
        self._task = task
        self._attempt = attempt
        self._engine = engine
        self._schema: SchemaInForce = build_schema(task.schema_version, task.schema, dict(task.prefixes))
        self._matcher = CandidateMatcher(task.constants, self._schema.schema) if task.constants is not None else None
        self._chunk = 0
        self._last_accepted: str | None = None
        """The URI of the last document that was not refused."""

    def close(self) -> None:
        self._engine.dispose()

    def stage(self, documents: Iterator[InputDocument]) -> Iterator[pa.RecordBatch]:
        """Stage the documents and yield the refused ones. Documents with the same URI follow each other; the first one
        that is not refused counts."""
        if not self._run_with_retries(lambda connection: begin_attempt(connection, self._attempt)):
            raise AttemptSuperseded(f"a later attempt than {self._attempt} has started")
        for chunk in split_into_chunks(documents):
            refused = self._stage_chunk(chunk)
            if refused:
                yield encode_rejects(refused)

    def _stage_chunk(self, chunk: list[InputDocument]) -> list[Reject]:
        tally = PartitionCounts(bytes=sum(row.weight for row in chunk))
        began = time.perf_counter()
        known = self._run_with_retries(
            lambda connection: find_registered(connection, [row.uri for row in chunk if row.uri])
        )
        tally.staging += time.perf_counter() - began
        began = time.perf_counter()
        staged, refused = self._prepare(chunk, known, tally)
        body = encode_documents(staged, self._match(staged)) if staged and not self._task.dry_run else None
        tally.preparing = time.perf_counter() - began
        tally.examples = [reject.example() for reject in refused]
        tally.waiting = self._wait_for_promotion() if body else 0.0
        self._stage_chunk_body(tally, body, sum(row.weight for row in chunk))
        return refused

    def _prepare(
        self, chunk: list[InputDocument], known: Mapping[str, RegisteredDocument], tally: PartitionCounts
    ) -> tuple[list[StagedDocument], list[Reject]]:
        staged: list[StagedDocument] = []
        refused: list[Reject] = []
        for row in chunk:
            if row.uri is not None and row.uri == self._last_accepted:
                continue
            try:
                found = self._prepare_one(row, known.get(row.uri or ""), tally)
            except MdvError as error:
                refused.append(Reject(row.uri, row.source, error))
            else:
                self._last_accepted = row.uri
                staged += [found] if found else []
        tally.prepared, tally.refused = len(staged), len(refused)
        tally.statements = sum(len(found.item.hashes) for found in staged)
        return staged, refused

    def _prepare_one(
        self, row: InputDocument, known: RegisteredDocument | None, tally: PartitionCounts
    ) -> StagedDocument | None:
        """Return a document that has to be registered, or None if its text is registered already."""
        if row.problem is not None or row.uri is None:
            raise MdvError.from_problem(json.loads(row.problem or "{}"))
        digest = row.digest
        if known is not None and known.digest == digest:
            tally.unchanged += known.run != self._task.run  # documents that this run promoted are counted there
            return None
        try:
            item = prepare(row.uri, row.content or b"", row.media_type, self._schema, max_bytes=self._task.max_bytes)
        except MdvError:
            raise
        except Exception as error:
            raise MdvError(f"Internal error in MDV: {type(error).__name__}: {error}") from error
        if self._task.dry_run:
            tally.fresh += known is None
            tally.same += known is not None and known.content == item.content
        return StagedDocument(row.source, digest, item)

    def _match(self, staged: list[StagedDocument]) -> set[CandidatePair]:
        return self._matcher.match(found.item for found in staged) if self._matcher is not None else set()

    def _wait_for_promotion(self) -> float:
        """Wait while too much is staged. Return the seconds spent."""
        began = time.perf_counter()
        while self._run_with_retries(lambda connection: staged_bytes(connection, self._task.run)) > MAX_STAGED_BYTES:
            time.sleep(0.5)
        return time.perf_counter() - began

    def _stage_chunk_body(self, tally: PartitionCounts, body: bytes | None, weight: int) -> None:
        number, self._chunk = self._chunk, self._chunk + 1
        began, before = time.perf_counter(), tally.staging

        def keep(connection: Connection) -> bool:
            tally.staging = before + time.perf_counter() - began
            return stage(connection, self._attempt, number, weight, body, tally)

        if not self._run_with_retries(keep):
            raise AttemptSuperseded(f"a later attempt than {self._attempt} has started")

    def _run_with_retries(self, act: Callable[[Connection], T]) -> T:
        return with_retries(self._engine, act)


def with_retries(engine: Engine, act: Callable[[Connection], T], max_seconds: float = DATABASE_RETRY_SECONDS) -> T:
    """Return the result of `act`, run in its own transaction. Retry while the database is unavailable."""
    deadline = time.monotonic() + max_seconds
    pause = 0.2
    while True:
        try:
            with engine.begin() as connection:
                return act(connection)
        except Exception as error:
            if not is_database_outage(error) or time.monotonic() > deadline:
                raise
        time.sleep(pause * random.uniform(0.8, 1.2))
        pause = min(2 * pause, 5.0)


def split_into_chunks(documents: Iterator[InputDocument]) -> Iterator[list[InputDocument]]:
    """Split documents into chunks. A document that exceeds the limit is a chunk of its own."""
    chunk: list[InputDocument] = []
    weight = 0
    for row in documents:
        if chunk and (len(chunk) == CHUNK_DOCUMENTS or weight + row.weight > CHUNK_BYTES):
            yield chunk
            chunk, weight = [], 0
        chunk.append(row)
        weight += row.weight
    if chunk:
        yield chunk
