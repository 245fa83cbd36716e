"""Work: carry out the jobs that wait, as many at once as there are."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import psycopg
import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from mdv.db.jobs import RULE_KINDS, Ending, Job, claim_jobs, count_attempt, end_jobs
from mdv.db.vocabulary import Vocabulary
from mdv.errors import MdvError
from mdv.mdp.register import Conditions, Outcome, Prepared, prepare, register
from mdv.mdp.rules import Rules
from mdv.mdp.schemas import SchemaInForce, Schemas
from mdv.mdp.subscribe import change_rules
from mdv.points import reach

MAX_BATCH = 100
MAX_ATTEMPTS = 5

log = structlog.get_logger()


class Worker:
    """Carries out jobs with one engine; `ended` hears of every job that has ended, after its commit, and `published`
    of every commit that may have put something into feeds."""

    def __init__(
        self,
        engine: Engine,
        max_bytes: int,
        ended: Callable[[UUID], None] = lambda job: None,
        published: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._max_bytes = max_bytes
        self._ended = ended
        self._published = published
        self._schemas = Schemas()
        self._vocabulary = Vocabulary(engine)
        self._rules = Rules()

    def work(self) -> int:
        """Carry out what waits now of documents; the number of jobs ended. A job that fails is tried again by another
        call."""
        ended: list[UUID] = []
        failed: set[UUID] = set()
        while self._work_batch(ended, failed):
            pass
        return len(ended)

    def work_rules(self) -> int:
        """Carry out the changes of rules that wait now; the number of jobs ended."""
        ended: list[UUID] = []
        failed: set[UUID] = set()
        while self._work_rules(ended, failed):
            pass
        return len(ended)

    def _work_rules(self, ended: list[UUID], failed: set[UUID]) -> bool:
        """Carry out one job about rules, in a transaction of its own; false where none waits."""
        with self._engine.begin() as connection:
            found = claim_jobs(connection, 1, without=failed, kinds=RULE_KINDS)
            now_ended = []
            for job in found:
                failed.add(job.id)
                ending = self._carry_out_rules(connection, job)
                end_jobs(connection, ending)
                now_ended = [one.job.id for one in ending]
        self._tell(now_ended, ended)
        return bool(found)

    def _carry_out_rules(self, connection: Connection, job: Job) -> list[Ending]:
        """What came of a job about rules; nothing, where it is to be tried again."""
        savepoint = connection.begin_nested()
        try:
            result = change_rules(connection, job, self._schemas, self._vocabulary, self._rules)
            savepoint.commit()
        except MdvError as error:
            savepoint.rollback()
            return [Ending(job, None, error.problem())]
        except Exception as error:
            if _is_away(error):
                raise
            savepoint.rollback()
            return _count_failure(connection, job, error)
        return [Ending(job, result, None)]

    def _work_batch(self, ended: list[UUID], failed: set[UUID]) -> bool:
        """Carry out some jobs, and tell which ended and which failed; false where nothing waits."""
        jobs: list[Job] = []
        try:
            with self._engine.begin() as connection:
                jobs = claim_jobs(connection, MAX_BATCH, without=failed)
                now_ended = self._carry_out(connection, jobs)
        except Exception as error:
            if not jobs or _is_away(error):
                raise
            log.warning("batch failed, one by one now", jobs=len(jobs), reason=_reason(error))
            for job in jobs:
                self._work_alone(job, ended, failed)
            return True
        self._tell(now_ended, ended)
        failed.update({job.id for job in jobs} - set(now_ended))
        return bool(jobs)

    def _work_alone(self, job: Job, ended: list[UUID], failed: set[UUID]) -> None:
        """One job in a transaction of its own, so that one that always fails stops nobody else."""
        failed.add(job.id)
        try:
            with self._engine.begin() as connection:
                now_ended = self._carry_out(connection, claim_jobs(connection, 1, only=job.id))
        except Exception as error:
            if _is_away(error):
                raise
            with self._engine.begin() as connection:
                # Another worker may have taken it meanwhile.
                claimed = claim_jobs(connection, 1, only=job.id)
                endings = [ending for c in claimed for ending in _count_failure(connection, c, error)]
                end_jobs(connection, endings)
                now_ended = [ending.job.id for ending in endings]
        self._tell(now_ended, ended)

    def _tell(self, now_ended: list[UUID], ended: list[UUID]) -> None:
        if now_ended:
            reach("after the commit")
            self._published()
        for job_id in now_ended:
            ended.append(job_id)
            self._ended(job_id)
        if now_ended:
            reach("after the news")

    def _carry_out(self, connection: Connection, jobs: list[Job]) -> list[UUID]:
        """Carry out claimed jobs, and tell which ended: all but those that failed by a fault of MDV's own."""
        if not jobs:
            return []
        reach("after the claim")
        schema = self._schemas.now(connection)
        endings: list[Ending] = []
        prepared: list[tuple[Job, Prepared]] = []
        for job in jobs:
            try:
                prepared.append((job, self._prepare(schema, job)))
            except MdvError as error:
                endings.append(_ending(job, error))
            except Exception as error:
                endings += _count_failure(connection, job, error)
        reach("after the gate")
        for job, item in prepared:
            if job.options.get("dry_run"):
                savepoint = connection.begin_nested()
                (answer,) = register(connection, [item], self._schemas, self._vocabulary, self._rules, naming=True)
                savepoint.rollback()
                endings.append(_ending(job, answer))
        real = [(job, item) for job, item in prepared if not job.options.get("dry_run")]
        if real:
            answers = register(connection, [item for _, item in real], self._schemas, self._vocabulary, self._rules)
            endings += [_ending(job, answer) for (job, _), answer in zip(real, answers, strict=True)]
        end_jobs(connection, endings)
        reach("before the commit")
        return [ending.job.id for ending in endings]

    def _prepare(self, schema: SchemaInForce, job: Job) -> Prepared:
        conditions = Conditions(
            **{name: tuple(value) for name, value in job.options.get("conditions", {}).items() if value is not None}
        )
        if job.kind == "delete":
            return Prepared(job.uri, None, schema.version, conditions)
        return prepare(job.uri, job.body or b"", job.media_type, schema, conditions, self._max_bytes)


def _ending(job: Job, answer: Outcome | MdvError) -> Ending:
    if isinstance(answer, MdvError):
        return Ending(job, None, answer.problem())
    return Ending(job, answer.as_dict() | ({"dry_run": True} if job.options.get("dry_run") else {}), None)


def _count_failure(connection: Connection, job: Job, error: Exception) -> list[Ending]:
    """Count an attempt at a claimed job that failed inside MDV; where it was the last, that is the job's end."""
    log.error("job failed", job=str(job.id), uri=job.uri, reason=_reason(error), exc_info=error)
    if job.attempts + 1 < MAX_ATTEMPTS:
        count_attempt(connection, job)
        return []
    return [_ending(job, MdvError(f"The job failed {MAX_ATTEMPTS} times inside MDV: {_reason(error)}"))]


def _is_away(error: Exception) -> bool:
    """Whether the database is gone, rather than displeased: then no job is to blame, and all wait again."""
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or (isinstance(error.orig, psycopg.Error) and _is_away(error.orig))
    return isinstance(error, psycopg.OperationalError) and (
        # A statement that was cancelled (57014) tells of itself, not of the database.
        error.sqlstate is None or error.sqlstate[:2] == "08" or error.sqlstate[:3] == "57P"
    )


def _reason(error: Exception) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return str(cause) or type(cause).__name__
