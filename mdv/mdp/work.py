"""Work: carry out the jobs that wait, as many at once as is good."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

import psycopg
import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from mdv.db.jobs import (
    DOCUMENT_KINDS,
    PATIENT,
    RULE_KINDS,
    URGENT,
    WEIGHT,
    Ending,
    Job,
    begin_jobs,
    claim_jobs,
    claim_known,
    end_jobs,
    let_go,
    postpone_job,
)
from mdv.db.vocabulary import Vocabulary
from mdv.errors import MdvError
from mdv.figures import ATTEMPTS_FAILED, BATCH, JOB_WAITED, JOBS_ENDED, stage
from mdv.mdp.pace import MOST, Pace
from mdv.mdp.put_schema import put_schema
from mdv.mdp.register import Conditions, Outcome, Prepared, prepare, register
from mdv.mdp.rules import Rules
from mdv.mdp.schemas import SchemaInForce, Schemas, read_schema_document
from mdv.mdp.subscribe import change_rules
from mdv.points import reach

MAX_ATTEMPTS = 5
MAX_DEATHS = 8
AFTER_DEATHS = (MOST, MOST // 10, MOST // 100, 1)
"""How many jobs are taken at once that were in hand when so many workers died: one of them may be what kills."""
PATIENT_TURN = 10
"""Of so many batches one holds jobs that nobody waits for, also while there are always others."""

log = structlog.get_logger()

Claim = Callable[[Connection], list[Job]]


def back_off(attempts: int) -> float:
    """Seconds until the next attempt: about 1, 4, 16, 64."""
    return 4.0 ** (attempts - 1) * random.uniform(0.8, 1.2)


class Worker:
    """Carries out jobs with one engine.

    `ended` hears of jobs that have ended, after their commit, and `published` of every commit that may have put
    something into feeds. `longest`: the seconds after which the database gives a transaction up.
    """

    def __init__(
        self,
        engine: Engine,
        max_bytes: int,
        ended: Callable[[Sequence[Ending]], object] = lambda endings: None,
        published: Callable[[], object] = lambda: None,
        back_off: Callable[[int], float] = back_off,
        longest: float = float("inf"),
    ) -> None:
        self._engine = engine
        self._single = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._max_bytes = max_bytes
        self._ended = ended
        self._published = published
        self._back_off = back_off
        self._longest = longest or float("inf")
        self._schemas = Schemas()
        self._vocabulary = Vocabulary(engine)
        self._rules = Rules()
        self._pace = Pace()
        self._turn = 0
        self._in_hand: list[UUID] = []

    def work(self, seconds: float = float("inf"), more: Callable[[], object] = lambda: None) -> int:
        """Carry out what waits of documents, for so many seconds; the number of jobs ended. `more` is called when more
        waits than this worker takes now."""
        return self._work(lambda connection: self._next_documents(connection, more), seconds, more)

    def work_rules(self, seconds: float = float("inf"), more: Callable[[], object] = lambda: None) -> int:
        """Carry out what waits of changes of rules, of LMRs and of the schema, one after the other."""
        return self._work(lambda connection: claim_jobs(connection, 1, RULE_KINDS), seconds, more)

    def _work(self, claim: Claim, seconds: float, more: Callable[[], object]) -> int:
        until = time.monotonic() + seconds
        ended = 0
        while (now_ended := self._attempt(claim)) is not None:
            ended += now_ended
            if time.monotonic() > until:
                more()
                break
        return ended

    # What to take

    def _next_documents(self, connection: Connection, more: Callable[[], object]) -> list[Job]:
        """The jobs of the next batch: urgent ones, or those that nobody waits for, never both."""
        self._turn += 1
        halves = (PATIENT, URGENT) if self._turn % PATIENT_TURN == 0 else (URGENT, PATIENT)
        most = min(MOST, 1 + self._pace.bytes // WEIGHT)  # what does not fit is not to be held
        found = claim_jobs(connection, most, DOCUMENT_KINDS, *halves, self._pace.bytes)
        if not found:
            return []
        alike = [job for job in found if job.deaths == found[0].deaths]
        taken = alike[: AFTER_DEATHS[min(found[0].deaths, len(AFTER_DEATHS) - 1)]]
        if len(taken) < len(found) or len(found) == most or sum(job.weight for job in found) > self._pace.bytes // 2:
            more()  # there will be work for another process, too
        return taken

    # Carrying it out

    def _attempt(self, claim: Claim) -> int | None:
        """Carry out what `claim` takes, in one transaction; how many jobs ended, None where there was none.

        Of jobs that fail together, each half is tried again, down to the one that is to blame.
        """
        self._let_go()
        jobs: list[Job] = []
        began = time.perf_counter()
        try:
            with self._engine.begin() as connection:
                with stage("claim"):
                    jobs = claim(connection)
                if not jobs:
                    return None
                self._begin(jobs)
                endings = self._carry_out(connection, jobs)
                end_jobs(connection, endings)
                reach("before the commit")
        except Exception as error:
            took_too_long = time.perf_counter() - began >= self._longest
            if not jobs or (is_nobodys_fault(error) and not took_too_long):
                raise
            return self._apart(jobs, error)
        self._in_hand = []
        seconds = time.perf_counter() - began
        if jobs[0].kind in DOCUMENT_KINDS:
            self._pace.learn(sum(job.weight for job in jobs), seconds)
        self._tell(endings, seconds)
        return len(endings)

    def _begin(self, jobs: Sequence[Job]) -> None:
        """Leave a trace, in case this worker dies of one of them."""
        self._in_hand = [job.id for job in jobs]
        with self._single.connect() as connection:
            begin_jobs(connection, self._in_hand)
        reach("after the claim")

    def _let_go(self) -> None:
        """Take back the trace of jobs that did not end, since this worker is alive."""
        if self._in_hand:
            with self._single.connect() as connection:
                let_go(connection, self._in_hand)
            self._in_hand = []

    def _apart(self, jobs: Sequence[Job], error: Exception) -> int:
        if len(jobs) == 1:
            return self._fail(jobs[0], error)
        log.warning("batch failed, in halves now", jobs=len(jobs), reason=_reason(error))
        half = len(jobs) // 2
        return sum(self._attempt_known([job.id for job in part]) for part in (jobs[:half], jobs[half:]))

    def _attempt_known(self, ids: Sequence[UUID]) -> int:
        return self._attempt(lambda connection: claim_known(connection, ids)) or 0

    def _fail(self, job: Job, error: Exception) -> int:
        """A job failed in a transaction of its own. Another worker may have taken it meanwhile."""
        with self._engine.begin() as connection:
            endings = [
                ending
                for claimed in claim_known(connection, [job.id])
                for ending in self._count_failure(connection, claimed, error)
            ]
            end_jobs(connection, endings)
        self._in_hand = []
        self._tell(endings, 0)
        return len(endings)

    def _carry_out(self, connection: Connection, jobs: Sequence[Job]) -> list[Ending]:
        """How claimed jobs end: all but those that failed by a fault of MDV's own."""
        for job in jobs:
            JOB_WAITED.observe(job.waited)
        if jobs[0].deaths >= MAX_DEATHS:
            return [Ending(job, None, _deadly(job).problem(), dead=True) for job in jobs]
        if jobs[0].kind in RULE_KINDS:
            return [ending for job in jobs for ending in self._change_rules(connection, job)]
        return self._register(connection, jobs)

    def _change_rules(self, connection: Connection, job: Job) -> list[Ending]:
        savepoint = connection.begin_nested()
        try:
            with stage("rules"):
                result = self._rules_changed(connection, job)
            if job.options.get("dry_run"):
                savepoint.rollback()
                result["dry_run"] = True
            else:
                savepoint.commit()
        except MdvError as error:
            savepoint.rollback()
            return [Ending(job, None, error.problem())]
        return [Ending(job, result, None)]

    def _rules_changed(self, connection: Connection, job: Job) -> dict[str, Any]:
        # What a dry run finds of groups never was, and is to be remembered by nobody.
        rules = Rules() if job.options.get("dry_run") else self._rules
        known = (self._schemas, self._vocabulary, rules)
        if job.kind != "schema":
            return change_rules(connection, job, *known)
        document = read_schema_document(job.body or b"", job.media_type)
        if_match = job.options.get("if_match")
        return asdict(put_schema(connection, document, *known, None if if_match is None else tuple(if_match)))

    def _register(self, connection: Connection, jobs: Sequence[Job]) -> list[Ending]:
        schema = self._schemas.now(connection)
        endings: list[Ending] = []
        prepared: list[tuple[Job, Prepared]] = []
        with stage("prepare"):
            for job in jobs:
                try:
                    prepared.append((job, self._prepare(schema, job)))
                except MdvError as error:
                    endings.append(_ending(job, error))
                except Exception as error:
                    endings += self._count_failure(connection, job, error)
        reach("after the gate")
        for job, item in prepared:
            if job.options.get("dry_run"):
                savepoint = connection.begin_nested()
                (answer,) = register(connection, [item], self._schemas, self._vocabulary, self._rules, naming=True)
                savepoint.rollback()
                endings.append(_ending(job, answer))
        real = [(job, item) for job, item in prepared if not job.options.get("dry_run")]
        if real:
            BATCH.observe(len(real))
            answers = register(connection, [item for _, item in real], self._schemas, self._vocabulary, self._rules)
            endings += [_ending(job, answer) for (job, _), answer in zip(real, answers, strict=True)]
        return endings

    def _prepare(self, schema: SchemaInForce, job: Job) -> Prepared:
        conditions = Conditions(
            **{name: tuple(value) for name, value in job.options.get("conditions", {}).items() if value is not None}
        )
        if job.kind == "delete":
            return Prepared(job.uri, None, schema.version, conditions)
        return prepare(job.uri, job.body or b"", job.media_type, schema, conditions, self._max_bytes)

    def _count_failure(self, connection: Connection, job: Job, error: Exception) -> list[Ending]:
        """Count an attempt at a claimed job that failed inside MDV; where it was the last, that is the job's end."""
        ATTEMPTS_FAILED.inc()
        log.error("attempt failed", job=str(job.id), request=job.request, uri=job.uri, attempt=job.attempts + 1,
                  reason=_reason(error), exc_info=error)  # fmt: skip
        if job.attempts + 1 < MAX_ATTEMPTS:
            problem = MdvError(f"An attempt failed inside MDV, and there will be another: {_reason(error)}").problem()
            postpone_job(connection, job, problem, self._back_off(job.attempts + 1))
            return []
        last = MdvError(f"The job failed {MAX_ATTEMPTS} times inside MDV: {_reason(error)}")
        return [Ending(job, None, last.problem(), dead=True)]

    def _tell(self, endings: Sequence[Ending], seconds: float) -> None:
        """After the commit."""
        if not endings:
            return
        reach("after the commit")
        self._published()
        self._ended(endings)
        reach("after the news")
        for ending in endings:
            job, result, problem, _ = ending
            JOBS_ENDED.labels(job.kind, ending.state).inc()
            log.info(
                "job ended", job=str(job.id), request=job.request, kind=job.kind, uri=job.uri, state=ending.state,
                position=(result or {}).get("position"), problem=(problem or {}).get("type"), batch=len(endings),
                waited=round(job.waited, 3), seconds=round(seconds, 3),
            )  # fmt: skip


def _ending(job: Job, answer: Outcome | MdvError) -> Ending:
    if isinstance(answer, MdvError):
        return Ending(job, None, answer.problem())
    return Ending(job, answer.as_dict() | ({"dry_run": True} if job.options.get("dry_run") else {}), None)


def _deadly(job: Job) -> MdvError:
    return MdvError(f"{job.deaths} workers died with this job in hand: it may need more memory or time than they have.")


_NOBODYS = (
    psycopg.errors.DiskFull,
    psycopg.errors.TooManyConnections,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.LockNotAvailable,
)


def is_nobodys_fault(error: Exception) -> bool:
    """Whether the database is gone or has no room, rather than displeased: then no job is to blame, and all wait."""
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or (isinstance(error.orig, psycopg.Error) and is_nobodys_fault(error.orig))
    if isinstance(error, _NOBODYS):
        return True
    return isinstance(error, psycopg.OperationalError) and (
        # A statement that was cancelled (57014) tells of itself, not of the database.
        error.sqlstate is None or error.sqlstate[:2] == "08" or error.sqlstate[:3] == "57P"
    )


def _reason(error: Exception) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return str(cause) or type(cause).__name__
