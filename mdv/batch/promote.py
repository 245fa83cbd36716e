"""Promote: staged documents take the one way of registration, in transactions of sensible size.

A transaction takes chunks that need about as long together as a worker's batch does (`mdv.mdp.pace`), so that whoever
registers a document meanwhile waits no longer than at other times. A chunk leaves staging in the transaction that
registers its documents: it is promoted once, whatever is killed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from uuid import UUID

import structlog
from sqlalchemy import Connection, Engine

from mdv.batch.decompose import CHUNK_DOCUMENTS, patiently
from mdv.batch.match import Constants
from mdv.batch.pack import Packed, unpack
from mdv.batch.rejects import Refusals, Reject
from mdv.db.batch import Promoted, end_chunks, take_chunks
from mdv.db.figures import add_figures
from mdv.db.vocabulary import Vocabulary
from mdv.errors import MdvError, Unavailable
from mdv.figures import stage
from mdv.mdp.filter import Candidates
from mdv.mdp.pace import MOST, Pace
from mdv.mdp.register import Outcome, register
from mdv.mdp.rules import Rules
from mdv.mdp.schemas import Schemas
from mdv.mdp.work import is_nobodys_fault
from mdv.points import reach

log = structlog.get_logger()


class Promotion:
    """Promotes what a run has staged. `refusals` takes what the schema has come to refuse meanwhile; `constants` are
    those that executors have matched with, if they did."""

    def __init__(self, engine: Engine, run: UUID, refusals: Refusals, constants: Constants | None = None) -> None:
        self._engine = engine
        self._run = run
        self._refusals = refusals
        self._constants = constants
        self._pace = Pace()
        self._schemas = Schemas()
        self._vocabulary = Vocabulary(engine)
        self._rules = Rules()

    def step(self) -> int:
        """Promote what comes next, in one transaction; how many documents those were."""
        began = time.perf_counter()
        weight, documents, refused = patiently(self._engine, self._promote)
        if documents:
            seconds = time.perf_counter() - began
            self._pace.learn(weight, seconds)
            patiently(self._engine, lambda connection: add_figures(connection, 1, documents, seconds))
        self._refusals.add(refused)
        return documents

    def _promote(self, connection: Connection) -> tuple[int, int, list[Reject]]:
        with stage("take"):
            chunks = take_chunks(connection, self._run, MOST // CHUNK_DOCUMENTS, self._pace.bytes)
            bodies = [unpack(chunk.body) for chunk in chunks]
            # Each once, even where the input changed after it was looked through.
            documents = list({packed.item.uri: packed for mine, _ in bodies for packed in mine}.values())
            pairs = (pair for _, found in bodies for pair in found)
            candidates = self._constants.candidates(pairs) if self._constants is not None else None
        if not chunks:
            return 0, 0, []
        answers = self._register(connection, documents, candidates)
        promoted = Promoted()
        refused: list[Reject] = []
        sources = []
        for packed, answer in zip(documents, answers, strict=True):
            if isinstance(answer, MdvError):
                promoted.refused += 1
                refused.append(Reject(packed.item.uri, packed.source, answer))
                continue
            _count(promoted, answer)
            promoted.statements += len(packed.item.hashes)
            sources.append((packed.item.uri, packed.digest, packed.item.content))
        with stage("end"):
            if not end_chunks(connection, self._run, chunks, sources, promoted):
                raise taken_for_dead()
        reach("before the commit")
        return sum(chunk.weight for chunk in chunks), len(documents), refused

    def _register(
        self, connection: Connection, documents: Sequence[Packed], candidates: Candidates | None
    ) -> list[Outcome | MdvError]:
        """Register documents; of those that fail together each half is tried again, down to the one to blame."""
        savepoint = connection.begin_nested()
        try:
            items = [packed.item for packed in documents]
            answers = register(connection, items, self._schemas, self._vocabulary, self._rules, candidates=candidates)
            savepoint.commit()
            return answers
        except Exception as error:
            if is_nobodys_fault(error):
                raise
            savepoint.rollback()
            if len(documents) == 1:
                log.error("a document failed", uri=documents[0].item.uri, exc_info=error)
                return [MdvError(f"It failed inside MDV: {type(error).__name__}: {error}")]
        half = len(documents) // 2
        halves = documents[:half], documents[half:]
        return [answer for mine in halves for answer in self._register(connection, mine, candidates)]


def taken_for_dead() -> Unavailable:
    return Unavailable("This run was taken for dead, and what it had staged is gone: start it again.")


def _count(promoted: Promoted, outcome: Outcome) -> None:
    if outcome.created:
        promoted.registered += 1
    elif outcome.inserted or outcome.updated or outcome.deleted:
        promoted.changed += 1
    else:
        promoted.unchanged += 1
