"""Decompose: what executors do with documents, from text to staged statements.

The same gate, parser, names of blank nodes and validation as the server's (`mdv.mdp.register.prepare`): one code,
shipped with the job. An executor asks the database which texts are registered already, prepares the others, and stages
them, chunk by chunk. What it gives back to Spark are the documents that are refused.
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

from mdv.batch.match import Constants, Matcher, Pair
from mdv.batch.pack import Packed, pack
from mdv.batch.rejects import Reject, rejects_batch
from mdv.db.batch import Attempt, Known, Tally, begin_attempt, find_known, stage, staged_bytes
from mdv.db.engine import make_engine
from mdv.errors import MdvError
from mdv.garbage import look_rarely
from mdv.mdp.register import prepare
from mdv.mdp.schemas import SchemaInForce, in_force
from mdv.mdp.work import is_nobodys_fault
from mdv.model import Statement

if TYPE_CHECKING:
    from pyspark import Broadcast

CHUNK_DOCUMENTS = 100
CHUNK_BYTES = 256 * 1024
"""A chunk is what is staged, and later promoted, together: about a tenth of a second of work."""
MOST_STAGED = 256 * 1024 * 1024
"""Bytes of texts that may wait for promotion; executors wait when there are more."""
PATIENCE = 300.0
"""Seconds in which a database that is away may come back."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Work:
    """What every executor has to know."""

    database_url: str = field(repr=False)
    run: UUID
    schema_version: int
    schema: tuple[Statement, ...]
    prefixes: Mapping[str, str]
    max_bytes: int
    dry_run: bool
    constants: Constants | None = None
    """What rules ask, where it is matched in executors."""


class Row(NamedTuple):
    """A document as it comes, in the columns of `DOCUMENTS`."""

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
        """Of the text and of how it is read."""
        about = f"{self.media_type}\n{self.uri}\n".encode()
        return hashlib.blake2b(about + (self.content or b""), digest_size=16).digest()


def decompose(work: Broadcast[Work], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Stage the documents of one partition; those that are refused, in the columns of `REJECTS`."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None  # this runs in executors only
    look_rarely()
    known = work.value
    attempt = Attempt(known.run, context.partitionId(), context.taskAttemptId())
    partition = Partition(known, attempt, make_engine(known.database_url, pool_size=1))
    try:
        yield from partition.stage(rows(batches))
    finally:
        partition.close()


def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        for start in range(0, batch.num_rows, CHUNK_DOCUMENTS):  # texts become Python's own a few at a time
            part = batch.slice(start, CHUNK_DOCUMENTS)
            yield from map(Row, *(part.column(name).to_pylist() for name in Row._fields))


class Superseded(Exception):
    """Spark has begun another attempt at this partition; this one must not go on."""


class Partition:
    """One attempt at one partition."""

    def __init__(self, work: Work, attempt: Attempt, engine: Engine) -> None:
        self._work = work
        self._attempt = attempt
        self._engine = engine
        self._schema: SchemaInForce = in_force(work.schema_version, work.schema, dict(work.prefixes))
        self._matcher = Matcher(work.constants, self._schema.schema) if work.constants is not None else None
        self._chunk = 0
        self._settled: str | None = None
        """The URI of the last document that was not refused."""

    def close(self) -> None:
        self._engine.dispose()

    def stage(self, documents: Iterator[Row]) -> Iterator[pa.RecordBatch]:
        """Stage them; those that are refused. Of several with one URI, which follow each other, the first that is not
        refused counts."""
        if not self._ask(lambda connection: begin_attempt(connection, self._attempt)):
            raise Superseded(f"a later attempt than {self._attempt} has begun")
        for chunk in chunks(documents):
            refused = self._stage_chunk(chunk)
            if refused:
                yield rejects_batch(refused)

    def _stage_chunk(self, chunk: list[Row]) -> list[Reject]:
        tally = Tally(bytes=sum(row.weight for row in chunk))
        began = time.perf_counter()
        known = self._ask(lambda connection: find_known(connection, [row.uri for row in chunk if row.uri]))
        tally.staging += time.perf_counter() - began
        began = time.perf_counter()
        packed, refused = self._prepare(chunk, known, tally)
        body = pack(packed, self._match(packed)) if packed and not self._work.dry_run else None
        tally.preparing = time.perf_counter() - began
        tally.examples = [reject.example() for reject in refused]
        tally.waiting = self._wait() if body else 0.0
        self._keep(tally, body, sum(row.weight for row in chunk))
        return refused

    def _prepare(self, chunk: list[Row], known: Mapping[str, Known], tally: Tally) -> tuple[list[Packed], list[Reject]]:
        packed: list[Packed] = []
        refused: list[Reject] = []
        for row in chunk:
            if row.uri is not None and row.uri == self._settled:
                continue
            try:
                found = self._prepare_one(row, known.get(row.uri or ""), tally)
            except MdvError as error:
                refused.append(Reject(row.uri, row.source, error))
            else:
                self._settled = row.uri
                packed += [found] if found else []
        tally.prepared, tally.refused = len(packed), len(refused)
        tally.statements = sum(len(found.item.hashes) for found in packed)
        return packed, refused

    def _prepare_one(self, row: Row, known: Known | None, tally: Tally) -> Packed | None:
        """A document that is to be registered; None for one that is."""
        if row.problem is not None or row.uri is None:
            raise MdvError.from_problem(json.loads(row.problem or "{}"))
        digest = row.digest
        if known is not None and known.digest == digest:
            tally.unchanged += known.run != self._work.run  # what this run promoted is counted there
            return None
        try:
            item = prepare(row.uri, row.content or b"", row.media_type, self._schema, max_bytes=self._work.max_bytes)
        except MdvError:
            raise
        except Exception as error:
            raise MdvError(f"It failed inside MDV: {type(error).__name__}: {error}") from error
        if self._work.dry_run:
            tally.fresh += known is None
            tally.same += known is not None and known.content == item.content
        return Packed(row.source, digest, item)

    def _match(self, packed: list[Packed]) -> set[Pair]:
        return self._matcher.match(found.item for found in packed) if self._matcher is not None else set()

    def _wait(self) -> float:
        """Let promotion come near; the seconds that this took."""
        began = time.perf_counter()
        while self._ask(lambda connection: staged_bytes(connection, self._work.run)) > MOST_STAGED:
            time.sleep(0.5)
        return time.perf_counter() - began

    def _keep(self, tally: Tally, body: bytes | None, weight: int) -> None:
        number, self._chunk = self._chunk, self._chunk + 1
        began, before = time.perf_counter(), tally.staging

        def keep(connection: Connection) -> bool:
            tally.staging = before + time.perf_counter() - began
            return stage(connection, self._attempt, number, weight, body, tally)

        if not self._ask(keep):
            raise Superseded(f"a later attempt than {self._attempt} has begun")

    def _ask(self, act: Callable[[Connection], T]) -> T:
        return patiently(self._engine, act)


def patiently(engine: Engine, act: Callable[[Connection], T], patience: float = PATIENCE) -> T:
    """What `act` gives in a transaction of its own; where the database is away, it may come back meanwhile."""
    until = time.monotonic() + patience
    pause = 0.2
    while True:
        try:
            with engine.begin() as connection:
                return act(connection)
        except Exception as error:
            if not is_nobodys_fault(error) or time.monotonic() > until:
                raise
        time.sleep(pause * random.uniform(0.8, 1.2))
        pause = min(2 * pause, 5.0)


def chunks(documents: Iterator[Row]) -> Iterator[list[Row]]:
    """The documents, some at a time: no more than that, and a larger one alone."""
    chunk: list[Row] = []
    weight = 0
    for row in documents:
        if chunk and (len(chunk) == CHUNK_DOCUMENTS or weight + row.weight > CHUNK_BYTES):
            yield chunk
            chunk, weight = [], 0
        chunk.append(row)
        weight += row.weight
    if chunk:
        yield chunk
