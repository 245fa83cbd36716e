"""Run a batch: documents are read, prepared and staged, while this process promotes them.

    inputs → listing (the documents, and the URIs of several documents) → prepare → staging → promotion

Spark prepares them in executors (`mdv.batch.spark_preparation`), or a thread of this process does it by the same code
(`mdv.batch.local_preparation`).

If several documents have the same URI, the last one that is not refused counts, as if they had been registered one by
one.

If a process is killed, the same command continues where it stopped: it recognizes the texts that are registered already
and does not parse them again.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import structlog
from sqlalchemy import Engine

from mdv.batch.prefilter import RuleConstants, read_rule_constants
from mdv.batch.prepare_partition import ExecutorTask, with_retries
from mdv.batch.promote import Promoter, expired_run_error
from mdv.batch.rejects import RejectWriter
from mdv.db.batch import (
    BatchProgress,
    begin_run,
    delete_run,
    end_run,
    read_examples,
    read_run,
    record_heartbeat,
    set_document_count,
)
from mdv.db.schemas import read_schema_version
from mdv.db.state import read_state
from mdv.gc_tuning import tune_gc
from mdv.mdp.eca.run import DEFAULT_RUN_LIMITS, RunLimits
from mdv.mdp.provider import Provider
from mdv.mdp.rule_cache import DEFAULT_RULE_SECONDS
from mdv.metrics import stage_seconds

MAX_EXAMPLES = 20
POLL_SECONDS = 0.1
HEARTBEAT_SECONDS = 30.0

log = structlog.get_logger()


class DocumentCount(NamedTuple):
    """The number of listed documents, if it is known exactly, and that of distinct URIs, possibly approximate."""

    listed: int | None
    expected: int


class PreparationJob(Protocol):
    """Prepares and stages documents in parallel with their promotion."""

    @property
    def ended(self) -> bool: ...

    def wait(self, seconds: float) -> None:
        """Wait until it has ended, or for some seconds."""

    def check(self) -> None:
        """Raise the error that ended it, if any."""

    def end(self) -> None:
        """Cancel it if it is still running."""


class Preparation(Protocol):
    """How the documents of a run are listed, prepared and staged."""

    def check_rejects_folder(self, folder: str) -> None:
        """Refuse a folder that contains anything but rejects, since its content will be replaced."""

    def count(self) -> DocumentCount:
        """List the documents. Call it first."""

    def start(self, task: ExecutorTask, options: BatchOptions) -> PreparationJob: ...

    def add_rejects(self, file: Path, folder: str) -> None:
        """Add a file of rejects to a folder."""


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """The options of a run. `rejects` is the folder for refused documents, if any; `add_rejects` keeps its content.
    `reacts`: False if event-condition-action rules are not run; `run_limits` are their limits."""

    what: str
    max_bytes: int
    rejects: str | None = None
    dry_run: bool = False
    match_in_spark: bool = False
    add_rejects: bool = False
    rule_seconds: float = DEFAULT_RULE_SECONDS
    run_limits: RunLimits = DEFAULT_RUN_LIMITS
    reacts: bool = True


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """The result of a run; counts are documents. `stages` holds the seconds of each stage, summed over all
    executors."""

    documents: int
    registered: int
    changed: int
    unchanged: int
    refused: int
    duplicates: int
    statements: int
    bytes: int
    transactions: int
    seconds: float
    dry_run: bool
    rejects: str | None
    stages: Mapping[str, float]
    examples: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        rates = {
            "documents_per_second": round(self.documents / self.seconds, 1),
            "statements_per_second": round(self.statements / self.seconds, 1),
        }
        return asdict(self) | rates


ProgressCallback = Callable[[BatchProgress | None], object]
"""Receives the progress of a run; None while the input is being listed."""


def run_batch(
    preparation: Preparation,
    engine: Engine,
    database_url: str,
    options: BatchOptions,
    report_progress: ProgressCallback,
) -> BatchSummary:
    """Carry out a run."""
    tune_gc()
    if options.rejects is not None:
        preparation.check_rejects_folder(options.rejects)
    run = with_retries(engine, lambda connection: begin_run(connection, options.what, options.dry_run))
    state = "failed"
    try:
        with tempfile.TemporaryDirectory(prefix="mdv-batch-") as folder:
            summary = BatchRun(preparation, engine, database_url, run, options, report_progress).execute(Path(folder))
        state = "done"
        return summary
    finally:
        # Remove everything of a dry run. For other runs, remove only what is left in staging.
        end = delete_run if options.dry_run else partial(end_run, state=state)
        with_retries(engine, lambda connection: end(connection, run), max_seconds=10)


class BatchRun:
    """One run."""

    def __init__(
        self,
        preparation: Preparation,
        engine: Engine,
        database_url: str,
        run: UUID,
        options: BatchOptions,
        report_progress: ProgressCallback,
    ) -> None:
        self._preparation = preparation
        self._engine = engine
        self._database_url = database_url
        self._run = run
        self._options = options
        self._report_progress = report_progress
        self._heartbeat_at = time.monotonic()

    def execute(self, folder: Path) -> BatchSummary:
        began, before = time.monotonic(), stage_seconds()
        self._report_progress(None)
        found = self._preparation.count()
        self._expect(found.expected)
        listing_seconds = time.monotonic() - began
        reject_writer = RejectWriter(folder / f"part-promotion-{self._run}.parquet", MAX_EXAMPLES)
        task = self._executor_task()
        job = self._preparation.start(task, self._options)
        try:
            self._promote(job, reject_writer, task.constants)
        finally:
            job.end()
            reject_writer.close()
        if self._options.rejects is not None and reject_writer.has_rejects:
            self._preparation.add_rejects(reject_writer.file, self._options.rejects)
        stages = {name: seconds - before.get(name, 0.0) for name, seconds in stage_seconds().items()}
        return self._summary(
            found.listed, time.monotonic() - began, stages | {"look": listing_seconds}, reject_writer.examples
        )

    def _expect(self, documents: int) -> None:
        with_retries(self._engine, lambda connection: set_document_count(connection, self._run, documents))

    def _executor_task(self) -> ExecutorTask:
        with self._engine.begin() as connection:
            state = read_state(connection)
            statements, prefixes = read_schema_version(connection, state.schema_version)
            constants = read_rule_constants(connection, state) if self._options.match_in_spark else None
        if self._options.match_in_spark and constants is None:
            log.warning("the rules have too many constants to match them in Spark; the filter does all of the matching")
        return ExecutorTask(
            self._database_url, self._run, state.schema_version, tuple(statements), prefixes,
            self._options.max_bytes, self._options.dry_run, constants,
        )  # fmt: skip

    # Promotion

    def _promote(self, job: PreparationJob, reject_writer: RejectWriter, constants: RuleConstants | None) -> None:
        """Promote staged documents until all are prepared and nothing is left."""
        provider = Provider(self._engine, self._options.rule_seconds, self._options.run_limits)
        promoter = Promoter(self._engine, self._run, reject_writer, constants, provider, self._options.reacts)
        while True:
            is_last = job.ended
            promoted = 0 if self._options.dry_run else promoter.step()
            self._report_and_heartbeat()
            if promoted == 0:
                if is_last:
                    break
                job.wait(POLL_SECONDS)
        job.check()

    def _report_and_heartbeat(self) -> None:
        self._report_progress(self._read())
        if time.monotonic() - self._heartbeat_at > HEARTBEAT_SECONDS:
            self._heartbeat_at = time.monotonic()
            if not with_retries(self._engine, lambda connection: record_heartbeat(connection, self._run)):
                raise expired_run_error()

    def _read(self) -> BatchProgress:
        return with_retries(self._engine, lambda connection: read_run(connection, self._run))

    def _summary(
        self, total: int | None, seconds: float, stages: dict[str, float], examples: list[dict[str, Any]]
    ) -> BatchSummary:
        found = self._read()
        some = with_retries(self._engine, lambda connection: read_examples(connection, self._run, MAX_EXAMPLES))
        is_dry = self._options.dry_run
        of_executors = {"prepare": found.preparing, "stage": found.staging, "wait": found.waiting}
        documents = (found.prepared if is_dry else found.promoted) + found.skipped + found.rejected
        return BatchSummary(
            documents=documents,
            registered=found.fresh if is_dry else found.registered,
            changed=found.prepared - found.fresh - found.same if is_dry else found.changed,
            unchanged=found.skipped + (found.same if is_dry else found.unchanged),
            refused=found.rejected + found.refused,
            duplicates=max(0, total - documents) if total is not None else 0,
            statements=found.statements if is_dry else found.promoted_statements,
            bytes=found.bytes,
            transactions=found.transactions,
            seconds=round(seconds, 3),
            dry_run=is_dry,
            rejects=self._options.rejects,
            stages={name: round(spent, 3) for name, spent in {**of_executors, **stages}.items() if spent},
            examples=(some + examples)[:MAX_EXAMPLES],
        )
