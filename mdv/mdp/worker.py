"""The worker: runs queued jobs, in batches of a suitable size."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar
from uuid import UUID

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from mdv.db.jobs import (
    BACKGROUND_PRIORITIES,
    INTERACTIVE_PRIORITIES,
    JOB_KINDS,
    JOB_OVERHEAD_BYTES,
    Job,
    JobOutcome,
    JobQueue,
    claim_jobs,
    claim_jobs_by_id,
    clear_jobs_started,
    defer_job,
    finish_jobs,
    mark_jobs_started,
    postpone_job,
)
from mdv.errors import InvalidRule, MdvError, Refused
from mdv.failpoints import hit_failpoint
from mdv.mdp.backbone_conflicts import name_conflicts
from mdv.mdp.batch_size import MAX_DOCUMENTS_PER_BATCH, BatchSizer
from mdv.mdp.database_outage import is_database_outage
from mdv.mdp.eca.change_rules import add_drafts
from mdv.mdp.eca.compensate import CompensationOutcome, CompensationRequest, compensate_run
from mdv.mdp.eca.detached import decode_detached
from mdv.mdp.eca.refusals import record_refusal, report_refusal
from mdv.mdp.eca.rule_jobs import drafts_of, run_eca_job
from mdv.mdp.eca.run_detached import DetachedOutcome, DetachedRequest, run_detached
from mdv.mdp.eca.slow_rules import RuleTimedOut
from mdv.mdp.eca.update import UpdateOutcome, UpdateRequest, execute_update
from mdv.mdp.edit_document import DocumentEdit, edit_document, read_edits
from mdv.mdp.provider import Provider
from mdv.mdp.put_schema import put_schema
from mdv.mdp.register import Preconditions, Prepared, RegistrationOutcome, prepare, register
from mdv.mdp.replicated_rules import announce_rules, carry_out_rules
from mdv.mdp.replicated_schema import announce_schema, refuse_schema_unless_lead, try_schema
from mdv.mdp.rule_cache import DEFAULT_RULE_SECONDS, RuleOverBudget
from mdv.mdp.rules.operations import PrecomputeBusy
from mdv.mdp.rules.suspend import suspend_group, suspend_over_budget
from mdv.mdp.schemas import SchemaInForce, read_schema_document
from mdv.mdp.subscribe import RULE_JOBS, run_rule_job
from mdv.mdp.write_limits import WriteLimits
from mdv.metrics import ATTEMPTS_FAILED, BATCH_DOCUMENTS, JOB_WAIT_SECONDS, JOBS_ENDED, start_at_zero, time_stage

MAX_ATTEMPTS = 5
MAX_WORKER_DEATHS = 8
BATCH_SIZE_AFTER_DEATHS = (MAX_DOCUMENTS_PER_BATCH, MAX_DOCUMENTS_PER_BATCH // 10, MAX_DOCUMENTS_PER_BATCH // 100, 1)
"""The batch size for jobs that were running when 0, 1, 2 … workers died. One of them may be the cause."""
BUSY_RETRY_SECONDS = 1.0
"""How long a change of rules is deferred while another one is being precomputed."""
NO_RUN: Mapping[str, Any] = {"fired": 0, "run": None}
"""What a dry run reports about event-condition-action rules if none was triggered."""
MAX_EDITS_PER_COMMIT = 32
"""Each edit has a savepoint of its own. Postgres gets slower if a transaction has more than 64 of them."""
BULK_BATCH_INTERVAL = 10
"""One of this many batches contains bulk jobs, even if interactive jobs are always queued."""

log = structlog.get_logger()

Claim = Callable[[Connection], list[Job]]
Changed = TypeVar("Changed")


def back_off(attempts: int) -> float:
    """Return the seconds until the next attempt: about 1, 4, 16, 64."""
    return 4.0 ** (attempts - 1) * random.uniform(0.8, 1.2)


class Worker:
    """Runs jobs with one engine.

    `ended` is called with the jobs that have ended, after their commit. `published` is called after every commit that
    may have added events to feeds. `longest`: the time limit of the database for a transaction, in seconds.
    `rule_seconds`: the time limit for a rule in one transaction. `provider`: the provider with these limits and others,
    by default a new one. `woken`: is called after a commit that has made processes of programs ready.
    """

    def __init__(
        self,
        engine: Engine,
        max_bytes: int,
        ended: Callable[[Sequence[JobOutcome]], object] = lambda outcomes: None,
        published: Callable[[], object] = lambda: None,
        back_off: Callable[[int], float] = back_off,
        longest: float = float("inf"),
        rule_seconds: float = DEFAULT_RULE_SECONDS,
        provider: Provider | None = None,
        woken: Callable[[], object] = lambda: None,
    ) -> None:
        self._engine = engine
        self._single = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._max_bytes = max_bytes
        self._ended = ended
        self._published = published
        self._woken = woken
        self._back_off = back_off
        self._longest = longest or float("inf")
        self._provider = provider or Provider(engine, rule_seconds)
        self._sizer = BatchSizer()
        self._batch_count = 0
        self._running: list[UUID] = []
        start_at_zero(JOBS_ENDED, JOB_KINDS, ("done", "failed", "dead"))

    def work(self, seconds: float = float("inf"), more: Callable[[], object] = lambda: None) -> int:
        """Run queued jobs for documents, for up to `seconds`. Return the number of ended jobs. `more` is called if more
        jobs are queued than this worker takes now."""
        return self._work(lambda connection: self._next_documents(connection, more), seconds, more)

    def work_rules(self, seconds: float = float("inf"), more: Callable[[], object] = lambda: None) -> int:
        """Run queued jobs for rules, LMRs and the schema, one at a time."""
        return self._work(lambda connection: claim_jobs(connection, 1, JobQueue.RULES), seconds, more)

    def _work(self, claim: Claim, seconds: float, more: Callable[[], object]) -> int:
        until = time.monotonic() + seconds
        ended = 0
        while (now_ended := self._attempt(claim)) is not None:
            ended += now_ended
            if time.monotonic() > until:
                more()
                break
        return ended

    # Claiming jobs

    def _next_documents(self, connection: Connection, more: Callable[[], object]) -> list[Job]:
        """Return the jobs of the next batch: interactive jobs or bulk jobs, never both."""
        self._batch_count += 1
        priorities = (
            (BACKGROUND_PRIORITIES, INTERACTIVE_PRIORITIES)
            if self._batch_count % BULK_BATCH_INTERVAL == 0
            else (INTERACTIVE_PRIORITIES, BACKGROUND_PRIORITIES)
        )
        most = min(
            MAX_DOCUMENTS_PER_BATCH, 1 + self._sizer.bytes // JOB_OVERHEAD_BYTES
        )  # jobs that do not fit must not be locked
        found = claim_jobs(connection, most, JobQueue.DOCUMENTS, *priorities, self._sizer.bytes)
        if not found:
            return []
        first = found[0]
        is_batched = JOB_KINDS[first.kind].is_batched
        alike = [job for job in found if job.deaths == first.deaths and JOB_KINDS[job.kind].is_batched is is_batched]
        size = BATCH_SIZE_AFTER_DEATHS[min(first.deaths, len(BATCH_SIZE_AFTER_DEATHS) - 1)]
        taken = alike[: size if is_batched else min(size, MAX_EDITS_PER_COMMIT)]
        if len(taken) < len(found) or len(found) == most or sum(job.weight for job in found) > self._sizer.bytes // 2:
            more()  # another process can work, too
        return taken

    # Running jobs

    def _attempt(self, claim: Claim) -> int | None:
        """Run the jobs that `claim` returns in one transaction. Return how many ended; None if there were no jobs.

        If a batch fails, each half is tried again, down to the job that causes the failure.
        """
        self._unmark_running()
        jobs: list[Job] = []
        began = time.perf_counter()
        try:
            with self._engine.begin() as connection:
                with time_stage("claim"):
                    jobs = claim(connection)
                if not jobs:
                    self._provider.slow_rules.forget_rules()
                    return None
                self._begin(jobs)
                outcomes = self._run_jobs(connection, jobs)
                finish_jobs(connection, outcomes)
                hit_failpoint("before the commit")
        except RuleOverBudget as error:
            if len(jobs) > 1:  # the result must not depend on the batch size
                return self._retry_halves(jobs, error)
            suspend_over_budget(error, self._provider)
            self._published()
            return self._attempt_known([job.id for job in jobs])
        except RuleTimedOut as error:
            self._provider.slow_rules.note(error)
            return self._attempt_known([job.id for job in jobs])
        except Exception as error:
            took_too_long = time.perf_counter() - began >= self._longest
            if not jobs or (is_database_outage(error) and not took_too_long):
                raise
            return self._retry_halves(jobs, error)
        self._running = []
        self._provider.slow_rules.forget_rules()
        seconds = time.perf_counter() - began
        if JOB_KINDS[jobs[0].kind].is_batched:
            self._sizer.record_batch(sum(job.weight for job in jobs), seconds)
        self._report(outcomes, seconds)
        return len(outcomes)

    def _begin(self, jobs: Sequence[Job]) -> None:
        """Mark jobs as running, in case this worker dies while it runs them."""
        self._running = [job.id for job in jobs]
        with self._single.connect() as connection:
            mark_jobs_started(connection, self._running)
        hit_failpoint("after the claim")

    def _unmark_running(self) -> None:
        """Remove the mark from jobs that did not end, since this worker is alive."""
        if self._running:
            with self._single.connect() as connection:
                clear_jobs_started(connection, self._running)
            self._running = []

    def _retry_halves(self, jobs: Sequence[Job], error: Exception) -> int:
        if len(jobs) == 1:
            return self._fail(jobs[0], error)
        log.warning("batch failed, retrying each half", jobs=len(jobs), reason=_reason(error))
        half = len(jobs) // 2
        return sum(self._attempt_known([job.id for job in part]) for part in (jobs[:half], jobs[half:]))

    def _attempt_known(self, ids: Sequence[UUID]) -> int:
        return self._attempt(lambda connection: claim_jobs_by_id(connection, ids)) or 0

    def _fail(self, job: Job, error: Exception) -> int:
        """Record the failure of a job that ran alone. Another worker may have claimed it meanwhile."""
        with self._engine.begin() as connection:
            outcomes = [
                outcome
                for claimed in claim_jobs_by_id(connection, [job.id])
                for outcome in self._failed_outcomes(connection, claimed, error)
            ]
            finish_jobs(connection, outcomes)
        self._running = []
        self._provider.slow_rules.forget_rules()
        self._report(outcomes, 0)
        return len(outcomes)

    def _failed_outcomes(self, connection: Connection, job: Job, error: Exception) -> list[JobOutcome]:
        if isinstance(error, Refused):  # by an event-condition-action rule
            return [_job_outcome(job, record_refusal(connection, error, self._provider))]
        return self._count_failure(connection, job, error)

    def _run_jobs(self, connection: Connection, jobs: Sequence[Job]) -> list[JobOutcome]:
        """Run claimed jobs. Return how they end, without those that will be retried after an internal error."""
        for job in jobs:
            JOB_WAIT_SECONDS.observe(job.waited)
        if jobs[0].deaths >= MAX_WORKER_DEATHS:
            return [JobOutcome(job, None, _deadly_job_error(job).problem(), dead=True) for job in jobs]
        kind = JOB_KINDS[jobs[0].kind]
        if kind.queue is JobQueue.RULES:
            return [outcome for job in jobs for outcome in self._change_rules(connection, job)]
        if not kind.is_batched:
            return [self._edit(connection, job) for job in jobs]
        return self._register(connection, jobs)

    def _change_rules(self, connection: Connection, job: Job) -> list[JobOutcome]:
        try:
            with time_stage("rules"):
                return [JobOutcome(job, RULE_JOB_HANDLERS[job.kind](connection, job, self._provider), None)]
        except PrecomputeBusy:
            defer_job(connection, job, BUSY_RETRY_SECONDS)
            return []
        except MdvError as error:
            return [JobOutcome(job, None, error.problem())]

    def _edit(self, connection: Connection, job: Job) -> JobOutcome:
        """Edit documents. A rejected edit changes nothing, and does not affect other jobs of the transaction."""
        run = EDIT_JOB_HANDLERS[job.kind]
        if job.options.get("dry_run"):
            return _job_outcome(job, self._dry_run(connection, job, lambda provider: run(connection, job, provider)))
        try:
            with connection.begin_nested():
                return _job_outcome(job, run(connection, job, self._provider))
        except MdvError as error:
            return _job_outcome(job, record_refusal(connection, error, self._provider))

    def _register(self, connection: Connection, jobs: Sequence[Job]) -> list[JobOutcome]:
        schema = self._provider.schemas.now(connection)
        outcomes: list[JobOutcome] = []
        prepared: list[tuple[Job, Prepared]] = []
        with time_stage("prepare"):
            for job in jobs:
                try:
                    prepared.append((job, self._prepare(schema, job)))
                except MdvError as error:
                    outcomes.append(_job_outcome(job, name_conflicts(connection, job.uri, error, self._provider)))
                except Exception as error:
                    outcomes += self._count_failure(connection, job, error)
        hit_failpoint("after the gate")
        for job, item in prepared:
            if job.options.get("dry_run"):
                outcomes.append(_job_outcome(job, self._dry_run_registration(connection, job, item)))
        real = [(job, item) for job, item in prepared if not job.options.get("dry_run")]
        if real:
            BATCH_DOCUMENTS.observe(len(real))
            results = register(connection, [item for _, item in real], self._provider)
            outcomes += [_job_outcome(job, result) for (job, _), result in zip(real, results, strict=True)]
        return outcomes

    def _dry_run_registration(self, connection: Connection, job: Job, item: Prepared) -> RegistrationOutcome | MdvError:
        return self._dry_run(connection, job, lambda provider: register(connection, [item], provider, naming=True)[0])

    def _dry_run(self, connection: Connection, job: Job, change: Callable[[Provider], Changed]) -> Changed | MdvError:
        """Return what a change would do, or why it would be refused. Draft rules of the job are added before. Rules
        that it would suspend are suspended during the dry run."""
        provider = self._provider
        savepoint = connection.begin_nested()
        try:
            if drafts := job.options.get("rules"):
                provider = provider.for_dry_run()
                add_drafts(connection, drafts_of(drafts, _limits(job), job.by), provider)
            while True:
                attempt = connection.begin_nested()
                try:
                    return change(provider)
                except MdvError as error:
                    return report_refusal(error)
                except RuleTimedOut as error:
                    attempt.rollback()
                    self._provider.slow_rules.note(error)
                except RuleOverBudget as error:
                    attempt.rollback()
                    provider = self._provider.for_dry_run()
                    suspend_group(connection, error.group_id, error.seconds, provider)
                finally:
                    if attempt.is_active:
                        attempt.rollback()
        except InvalidRule as error:  # of a draft
            return error
        finally:
            savepoint.rollback()

    def _prepare(self, schema: SchemaInForce, job: Job) -> Prepared:
        conditions = _preconditions(job)
        if job.kind == "delete":
            return Prepared(job.uri, None, schema.version, conditions, job.by, _reacts(job))
        return prepare(
            job.uri, job.body or b"", job.media_type, schema, conditions, self._max_bytes, job.by, _reacts(job)
        )  # fmt: skip

    def _count_failure(self, connection: Connection, job: Job, error: Exception) -> list[JobOutcome]:
        """Count a failed attempt of a claimed job. After the last attempt, the job ends as a dead letter."""
        ATTEMPTS_FAILED.inc()
        log.error("attempt failed", job=str(job.id), request=job.request, uri=job.uri, attempt=job.attempts + 1,
                  reason=_reason(error), exc_info=error)  # fmt: skip
        if job.attempts + 1 < MAX_ATTEMPTS:
            problem = MdvError(
                f"An attempt failed with an internal error and will be retried: {_reason(error)}"
            ).problem()
            postpone_job(connection, job, problem, self._back_off(job.attempts + 1))
            return []
        last = MdvError(
            f"The job failed {MAX_ATTEMPTS} times with an internal error. The last one was: {_reason(error)}"
        )
        return [JobOutcome(job, None, last.problem(), dead=True)]

    def _report(self, outcomes: Sequence[JobOutcome], seconds: float) -> None:
        """Report ended jobs, after the commit."""
        if not outcomes:
            return
        hit_failpoint("after the commit")
        self._published()
        if self._provider.take_woken():
            self._woken()
        self._ended(outcomes)
        hit_failpoint("after the news")
        for outcome in outcomes:
            job, result, problem, _ = outcome
            JOBS_ENDED.labels(job.kind, outcome.state).inc()
            log.info(
                "job ended", job=str(job.id), request=job.request, kind=job.kind, uri=job.uri, state=outcome.state,
                position=(result or {}).get("position"), problem=(problem or {}).get("type"), batch=len(outcomes),
                waited=round(job.waited, 3), seconds=round(seconds, 3),
            )  # fmt: skip


def _job_outcome(job: Job, result: EditJobOutcome | MdvError) -> JobOutcome:
    if isinstance(result, MdvError):
        return JobOutcome(job, None, result.problem())
    found = result.as_dict()
    return JobOutcome(job, {**NO_RUN, **found, "dry_run": True} if job.options.get("dry_run") else found, None)


def _preconditions(job: Job) -> Preconditions:
    given: dict[str, Any] = job.options.get("conditions", {})
    return Preconditions(**{name: tuple(value) for name, value in given.items() if value is not None})


def _reacts(job: Job) -> bool:
    """False if the caller wants no event-condition-action rules to run."""
    return job.options.get("eca") != "off"


def _document_edit(job: Job) -> DocumentEdit:
    additions, removals = read_edits(job.body or b"")
    conditions = _preconditions(job)
    limits = WriteLimits(resources=conditions.resource_prefixes)  # the request was refused if the document is foreign
    confirms = bool(job.options.get("confirms"))
    return DocumentEdit(job.uri, additions, removals, conditions, limits, job.by, _reacts(job), confirms)


def _run_edit_job(connection: Connection, job: Job, provider: Provider) -> RegistrationOutcome:
    return edit_document(connection, _document_edit(job), provider, naming=bool(job.options.get("dry_run")))


def _run_update_job(connection: Connection, job: Job, provider: Provider) -> UpdateOutcome:
    text = (job.body or b"").decode()
    request = UpdateRequest(text, job.uri, _limits(job), job.by, _reacts(job))
    return execute_update(connection, request, provider, tracing=bool(job.options.get("dry_run")))


def _limits(job: Job) -> WriteLimits:
    return WriteLimits.from_json(job.options.get("limits", {}))


def _run_detached_job(connection: Connection, job: Job, provider: Provider) -> DetachedOutcome:
    copy = decode_detached(job.body or b"")
    return run_detached(connection, DetachedRequest(job.options["run"], job.options["copy"], copy, job.by), provider)


def _run_compensation_job(connection: Connection, job: Job, provider: Provider) -> CompensationOutcome:
    copies = job.options.get("copies")
    request = CompensationRequest(
        job.options["run"], None if copies is None else tuple(copies), job.options.get("reason"), job.by
    )
    return compensate_run(connection, request, provider)


EditJobOutcome = RegistrationOutcome | UpdateOutcome | DetachedOutcome | CompensationOutcome

EDIT_JOB_HANDLERS: dict[str, Callable[[Connection, Job, Provider], EditJobOutcome]] = {
    "edit": _run_edit_job,
    "update": _run_update_job,
    "detached": _run_detached_job,
    "compensate": _run_compensation_job,
}


def _run_schema_job(connection: Connection, job: Job, provider: Provider) -> dict[str, Any]:
    document = read_schema_document(job.body or b"", job.media_type)
    if_match = job.options.get("if_match")
    dry_run = bool(job.options.get("dry_run"))
    if job.options.get("trial"):
        try_schema(connection, document, provider, bool(job.options.get("holds")))
        return {"accepted": True}
    is_member = refuse_schema_unless_lead(connection, provider)
    savepoint = connection.begin_nested()
    try:
        outcome = put_schema(
            connection, document, provider.for_dry_run() if dry_run else provider,
            None if if_match is None else tuple(if_match), job.by,
        )  # fmt: skip
    except MdvError:
        savepoint.rollback()
        raise
    if dry_run:
        savepoint.rollback()
        return asdict(outcome) | {"dry_run": True}
    savepoint.commit()
    token = {"token": announce_schema(connection, provider)} if is_member else {}
    return asdict(outcome) | token


def _run_eca_job(connection: Connection, job: Job, provider: Provider) -> dict[str, Any]:
    carry_out_rules(connection, provider)
    result = run_eca_job(connection, job, provider)
    announce_rules(connection, provider)
    return result


RULE_JOB_HANDLERS: dict[str, Callable[[Connection, Job, Provider], dict[str, Any]]] = {
    "schema": _run_schema_job,
    "eca": _run_eca_job,
    **dict.fromkeys(RULE_JOBS, run_rule_job),
}
"""The handlers of the kinds in `JobQueue.RULES`."""


def _deadly_job_error(job: Job) -> MdvError:
    return MdvError(
        f"{job.deaths} workers died while running this job. It may need more memory or time than a worker has."
    )


def _reason(error: Exception) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return str(cause) or type(cause).__name__
