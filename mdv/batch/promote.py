"""Promote staged documents: register them in transactions of limited size.

A transaction takes as many chunks as need about as long as a worker's batch (`mdv.mdp.batch_size`), so that interactive
registrations wait no longer than usual. A chunk leaves staging in the transaction that registers its documents. So it
is promoted exactly once, also if a process is killed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import structlog
from sqlalchemy import Connection, Engine

from mdv.batch.arrow_codec import StagedDocument, decode_documents
from mdv.batch.prefilter import RuleConstants
from mdv.batch.prepare_partition import CHUNK_DOCUMENTS, with_retries
from mdv.batch.rejects import Reject, RejectWriter
from mdv.db.batch import PromotionCounts, caller_of_run, claim_chunks, finish_chunks
from mdv.db.metrics import record_metrics
from mdv.errors import MdvError, Refused, Unavailable
from mdv.failpoints import hit_failpoint
from mdv.mdp.batch_size import MAX_DOCUMENTS_PER_BATCH, BatchSizer
from mdv.mdp.database_outage import is_database_outage
from mdv.mdp.eca.refusals import record_refusal
from mdv.mdp.eca.slow_rules import RuleTimedOut
from mdv.mdp.filter import Candidates
from mdv.mdp.provider import Provider
from mdv.mdp.register import RegistrationOutcome, register
from mdv.mdp.rule_cache import RuleOverBudget
from mdv.mdp.rules.suspend import suspend_over_budget
from mdv.metrics import time_stage

log = structlog.get_logger()


class Promoter:
    """Promotes the staged chunks of a run.

    `reject_writer` receives the documents that the schema refuses by now. `constants` are those that the executors
    used, if any. `provider` has the limits of rules. `reacts`: False if event-condition-action rules are not run.
    """

    def __init__(
        self,
        engine: Engine,
        run: UUID,
        reject_writer: RejectWriter,
        constants: RuleConstants | None = None,
        provider: Provider | None = None,
        reacts: bool = True,
    ) -> None:
        self._engine = engine
        self._run = run
        self._reject_writer = reject_writer
        self._constants = constants
        self._pace = BatchSizer()
        self._provider = provider or Provider(engine)
        self._reacts = reacts
        self._most_chunks = MAX_DOCUMENTS_PER_BATCH // CHUNK_DOCUMENTS

    def step(self) -> int:
        """Promote the next chunks in one transaction. Return the number of their documents."""
        began = time.perf_counter()
        try:
            weight, documents, refused = with_retries(self._engine, self._promote)
        except RuleOverBudget as error:
            if self._most_chunks > 1:
                self._most_chunks = 1  # judge a rule by as few documents as possible
            else:
                suspend_over_budget(error, self._provider)
            return self.step()
        except RuleTimedOut as error:
            self._provider.slow_rules.note(error)
            return self.step()
        self._provider.slow_rules.forget_rules()
        self._most_chunks = MAX_DOCUMENTS_PER_BATCH // CHUNK_DOCUMENTS
        if documents:
            seconds = time.perf_counter() - began
            self._pace.record_batch(weight, seconds)
            with_retries(self._engine, lambda connection: record_metrics(connection, 1, documents, seconds))
        self._reject_writer.add(refused)
        return documents

    def _promote(self, connection: Connection) -> tuple[int, int, list[Reject]]:
        with time_stage("take"):
            chunks = claim_chunks(connection, self._run, self._most_chunks, self._pace.bytes)
            bodies = [decode_documents(chunk.body) for chunk in chunks]
            # Take each URI once, even if the input changed after it was listed.
            documents = list({packed.item.uri: packed for chunk, _ in bodies for packed in chunk}.values())
            pairs = (pair for _, found in bodies for pair in found)
            candidates = self._constants.candidates(pairs) if self._constants is not None else None
        if not chunks:
            return 0, 0, []
        answers = self._register(connection, documents, candidates)
        promoted = PromotionCounts()
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
        with time_stage("end"):
            if not finish_chunks(connection, self._run, chunks, sources, promoted):
                raise expired_run_error()
        hit_failpoint("before the commit")
        return sum(chunk.weight for chunk in chunks), len(documents), refused

    def _register(
        self, connection: Connection, documents: Sequence[StagedDocument], candidates: Candidates | None
    ) -> list[RegistrationOutcome | MdvError]:
        """Register documents. If they fail together, register each half by itself, down to the document that fails."""
        savepoint = connection.begin_nested()
        try:
            items = [replace(packed.item, by=caller_of_run(self._run), reacts=self._reacts) for packed in documents]
            answers = register(connection, items, self._provider, candidates=candidates)
            savepoint.commit()
            return answers
        except (RuleOverBudget, RuleTimedOut):
            raise
        except Exception as error:
            if is_database_outage(error):
                raise
            savepoint.rollback()
            if len(documents) == 1 and isinstance(error, Refused):
                return [record_refusal(connection, error, self._provider)]
            if len(documents) == 1:
                log.error("a document failed", uri=documents[0].item.uri, exc_info=error)
                return [MdvError(f"Internal error in MDV: {type(error).__name__}: {error}")]
        half = len(documents) // 2
        halves = documents[:half], documents[half:]
        return [answer for part in halves for answer in self._register(connection, part, candidates)]


def expired_run_error() -> Unavailable:
    return Unavailable("This run sent no heartbeat for too long, so its staged documents were removed. Start it again.")


def _count(promoted: PromotionCounts, outcome: RegistrationOutcome) -> None:
    if outcome.created:
        promoted.registered += 1
    elif outcome.inserted or outcome.updated or outcome.deleted:
        promoted.changed += 1
    else:
        promoted.unchanged += 1
