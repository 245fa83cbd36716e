"""Run a batch: Spark reads, prepares and stages documents, while the driver promotes them.

    inputs → listing (the documents, and the URIs of several documents) → prepare, in executors → staging → promotion

If several documents have the same URI, the last one that is not refused counts, as if they had been registered one by
one.

If a process is killed, the same command continues where it stopped: it recognizes the texts that are registered already
and does not parse them again.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import structlog
from sqlalchemy import Engine

from mdv.batch.executor_packages import spark_error_message
from mdv.batch.prefilter import RuleConstants, read_rule_constants
from mdv.batch.prepare_partition import ExecutorTask, prepare_partition, with_retries
from mdv.batch.promote import Promoter, expired_run_error
from mdv.batch.rejects import RejectWriter, check_rejects_folder
from mdv.batch.spark_schemas import REJECT_COLUMNS
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
from mdv.errors import BadCommand, Unavailable
from mdv.gc_tuning import tune_gc
from mdv.mdp.eca.run import DEFAULT_RUN_LIMITS, RunLimits
from mdv.mdp.provider import Provider
from mdv.mdp.rule_cache import DEFAULT_RULE_SECONDS
from mdv.metrics import stage_seconds

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

MAX_EXAMPLES = 20
MAX_DUPLICATED_URIS = 1_000_000
"""Maximum number of URIs with several documents in a run. Every executor holds all of them."""
POLL_SECONDS = 0.1
HEARTBEAT_SECONDS = 30.0

log = structlog.get_logger()


class DocumentSource(Protocol):
    """Documents to register."""

    def listing(self) -> DataFrame | None:
        """Return the list of documents, in the columns of `LISTING_COLUMNS`; None if no two have the same URI."""

    def documents(self) -> DataFrame:
        """Return the documents, in the columns of `DOCUMENT_COLUMNS`."""

    def count(self) -> int:
        """Return the number of documents, possibly approximate. Called only if there is no listing."""


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
    spark: SparkSession,
    engine: Engine,
    database_url: str,
    source: DocumentSource,
    options: BatchOptions,
    report_progress: ProgressCallback,
) -> BatchSummary:
    """Carry out a run."""
    tune_gc()
    if options.rejects is not None:
        check_rejects_folder(spark, options.rejects)
    run = with_retries(engine, lambda connection: begin_run(connection, options.what, options.dry_run))
    state = "failed"
    try:
        with tempfile.TemporaryDirectory(prefix="mdv-batch-") as folder:
            summary = BatchRun(spark, engine, database_url, run, options, report_progress).execute(source, Path(folder))
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
        spark: SparkSession,
        engine: Engine,
        database_url: str,
        run: UUID,
        options: BatchOptions,
        report_progress: ProgressCallback,
    ) -> None:
        self._spark = spark
        self._engine = engine
        self._database_url = database_url
        self._run = run
        self._options = options
        self._report_progress = report_progress
        self._heartbeat_at = time.monotonic()

    def execute(self, source: DocumentSource, folder: Path) -> BatchSummary:
        began, before = time.monotonic(), stage_seconds()
        self._report_progress(None)
        total, duplicated = self._list_documents(source)
        listing_seconds = time.monotonic() - began
        documents = source.documents() if duplicated is None else group_duplicates(source.documents(), duplicated)
        reject_writer = RejectWriter(folder / f"part-promotion-{self._run}.parquet", MAX_EXAMPLES)
        task = self._spark.sparkContext.broadcast(self._executor_task())
        job = ExecutorJob(self._spark, documents, task, self._options)
        try:
            self._promote(job, reject_writer, task.value.constants)
        finally:
            job.end()
            task.destroy()
            reject_writer.close()
        if self._options.rejects is not None:
            reject_writer.copy_to(self._spark, self._options.rejects)
        stages = {name: seconds - before.get(name, 0.0) for name, seconds in stage_seconds().items()}
        return self._summary(
            total, time.monotonic() - began, stages | {"look": listing_seconds}, reject_writer.examples
        )

    # Listing

    def _list_documents(self, source: DocumentSource) -> tuple[int | None, DataFrame | None]:
        """Return the number of documents, if it is known exactly, and the URIs that several of them have, if any."""
        listing = source.listing()
        if listing is None:
            self._expect(source.count())
            return None, None
        from pyspark.sql import functions as f

        by_uri = listing.groupBy("uri").agg(f.count("*").alias("times"))
        duplicated = (f.col("times") > 1) & f.col("uri").isNotNull()
        total, uris, extra = by_uri.agg(
            f.coalesce(f.sum("times"), f.lit(0)),
            f.count(f.when(duplicated, f.col("uri"))),
            f.coalesce(f.sum(f.when(duplicated, f.col("times") - 1)), f.lit(0)),
        ).collect()[0]
        if uris > MAX_DUPLICATED_URIS:
            raise BadCommand(
                f"{uris:,} URIs have several documents; a run can handle {MAX_DUPLICATED_URIS:,}. Use several runs."
            )
        self._expect(total - extra)
        if not uris:
            return total, None
        found = [(row["uri"],) for row in by_uri.where(duplicated).select("uri").toLocalIterator()]
        return total, self._spark.createDataFrame(found, "uri string")

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

    def _promote(self, job: ExecutorJob, reject_writer: RejectWriter, constants: RuleConstants | None) -> None:
        """Promote staged documents until the executors have finished and nothing is left."""
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


def group_duplicates(documents: DataFrame, duplicated: DataFrame) -> DataFrame:
    """Put all documents that have a URI among `duplicated` into one partition per URI, the last document first."""
    from pyspark.sql import functions as f

    uris = f.broadcast(duplicated)
    alone = documents.join(uris, "uri", "left_anti").select(documents.columns)
    theirs = documents.join(uris, "uri", "left_semi").select(documents.columns)
    return alone.unionAll(theirs.repartition("uri").sortWithinPartitions("uri", f.desc("rank")))


class ExecutorJob:
    """The Spark job of a run, which runs in parallel with the driver's promotion."""

    def __init__(
        self, spark: SparkSession, documents: DataFrame, task: Broadcast[ExecutorTask], options: BatchOptions
    ) -> None:
        from pyspark import InheritableThread

        self._spark = spark
        self._group = f"mdv batch {task.value.run}"
        self._error: Exception | None = None
        self._finished = threading.Event()
        refused = documents.mapInArrow(partial(prepare_partition, task), REJECT_COLUMNS)
        if options.rejects is None:
            self._write = refused.write.mode("overwrite").format("noop").save
        else:
            mode = "append" if options.add_rejects else "overwrite"
            self._write = partial(refused.write.mode(mode).parquet, options.rejects)
        InheritableThread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._spark.sparkContext.setJobGroup(self._group, self._group, interruptOnCancel=True)
            self._write()
        except Exception as error:
            self._error = error
        finally:
            self._finished.set()

    @property
    def ended(self) -> bool:
        return self._finished.is_set()

    def wait(self, seconds: float) -> None:
        self._finished.wait(seconds)

    def check(self) -> None:
        """Raise the error that ended the job, if any."""
        if self._error is not None:
            raise Unavailable(
                f"Spark failed: {spark_error_message(self._error)}. Start the same command again to continue."
            ) from self._error

    def end(self) -> None:
        """Cancel the job if it is still running."""
        if not self._finished.is_set():
            self._spark.sparkContext.cancelJobGroup(self._group)
            self._finished.wait(30)
