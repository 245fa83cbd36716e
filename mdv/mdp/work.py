"""Work: carry out the jobs that wait, as many at once as there are."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from mdv.db.jobs import Job, claim_jobs, count_attempt, end_job
from mdv.db.vocabulary import Vocabulary
from mdv.errors import MdvError
from mdv.mdp.register import Conditions, Outcome, Prepared, prepare, register
from mdv.mdp.schemas import Schemas

MAX_BATCH = 100
MAX_ATTEMPTS = 5

log = structlog.get_logger()


class Worker:
    """Carries out jobs with one engine; `ended` hears of every job that has ended, after its commit."""

    def __init__(self, engine: Engine, max_bytes: int, ended: Callable[[UUID], None] = lambda job: None) -> None:
        self._engine = engine
        self._max_bytes = max_bytes
        self._ended = ended
        self._schemas = Schemas()
        self._vocabulary = Vocabulary(engine)

    def work(self) -> int:
        """Carry out what waits now; the number of jobs ended."""
        total = 0
        while batch := self._work_batch():
            total += len(batch)
        return total

    def _work_batch(self) -> list[UUID]:
        jobs: list[Job] = []
        try:
            with self._engine.begin() as connection:
                jobs = claim_jobs(connection, MAX_BATCH)
                self._carry_out(connection, jobs)
        except DBAPIError as error:
            if error.connection_invalidated or len(jobs) == 0:
                raise
            log.warning("batch failed, one by one now", jobs=len(jobs), reason=str(error.orig))
            return [job.id for job in jobs if self._work_alone(job)]
        for job in jobs:
            self._ended(job.id)
        return [job.id for job in jobs]

    def _work_alone(self, job: Job) -> bool:
        """One job in a transaction of its own, so that one that always fails stops nobody else."""
        try:
            with self._engine.begin() as connection:
                self._carry_out(connection, claim_jobs(connection, 1, only=job.id))
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            log.error("job failed", job=str(job.id), uri=job.uri, reason=str(error.orig))
            with self._engine.begin() as connection:
                if count_attempt(connection, job.id) < MAX_ATTEMPTS:
                    return False
                problem = MdvError(f"The registration failed {MAX_ATTEMPTS} times inside MDV: {error.orig}").problem()
                end_job(connection, job, problem=problem)
        self._ended(job.id)
        return True

    def _carry_out(self, connection: Connection, jobs: list[Job]) -> None:
        prepared: list[tuple[Job, Prepared]] = []
        for job in jobs:
            try:
                prepared.append((job, self._prepare(connection, job)))
            except MdvError as error:
                end_job(connection, job, problem=error.problem())
        for job, item in prepared:
            if job.options.get("dry_run"):
                savepoint = connection.begin_nested()
                (answer,) = register(connection, [item], self._schemas, self._vocabulary)
                savepoint.rollback()
                _end(connection, job, answer)
        real = [(job, item) for job, item in prepared if not job.options.get("dry_run")]
        if real:
            answers = register(connection, [item for _, item in real], self._schemas, self._vocabulary)
            for (job, _), answer in zip(real, answers, strict=True):
                _end(connection, job, answer)

    def _prepare(self, connection: Connection, job: Job) -> Prepared:
        schema = self._schemas.now(connection)
        conditions = Conditions(
            **{name: tuple(value) for name, value in job.options.get("conditions", {}).items() if value is not None}
        )
        if job.kind == "delete":
            return Prepared(job.uri, None, schema.version, conditions)
        return prepare(job.uri, job.body or b"", job.media_type, schema, conditions, self._max_bytes)


def _end(connection: Connection, job: Job, answer: Outcome | MdvError) -> None:
    if isinstance(answer, MdvError):
        end_job(connection, job, problem=answer.problem())
    else:
        end_job(connection, job, result=answer.as_dict() | ({"dry_run": True} if job.options.get("dry_run") else {}))
