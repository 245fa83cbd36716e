"""Prepare the documents of a run on Spark: list them, and stage them in executors."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mdv.batch.executor_packages import spark_error_message
from mdv.batch.prepare_partition import ExecutorTask, prepare_partition
from mdv.batch.rejects import add_rejects_to_spark, check_spark_rejects_folder
from mdv.batch.run import BatchOptions, DocumentCount, PreparationJob
from mdv.batch.spark_schemas import REJECT_COLUMNS
from mdv.errors import BadCommand, Unavailable

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

MAX_DUPLICATED_URIS = 1_000_000
"""Maximum number of URIs with several documents in a run. Every executor holds all of them."""


class DocumentSource(Protocol):
    """Documents to register."""

    def listing(self) -> DataFrame | None:
        """Return the list of documents, in the columns of `LISTING_COLUMNS`; None if no two have the same URI."""

    def documents(self) -> DataFrame:
        """Return the documents, in the columns of `DOCUMENT_COLUMNS`."""

    def count(self) -> int:
        """Return the number of documents, possibly approximate. Called only if there is no listing."""


@dataclass(slots=True)
class SparkPreparation:
    """Lists, prepares and stages documents on Spark."""

    spark: SparkSession
    source: DocumentSource
    _duplicated: DataFrame | None = field(default=None, init=False)
    """The URIs that several documents have, if any."""

    def check_rejects_folder(self, folder: str) -> None:
        check_spark_rejects_folder(self.spark, folder)

    def count(self) -> DocumentCount:
        listing = self.source.listing()
        if listing is None:
            return DocumentCount(None, self.source.count())
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
        if uris:
            found = [(row["uri"],) for row in by_uri.where(duplicated).select("uri").toLocalIterator()]
            self._duplicated = self.spark.createDataFrame(found, "uri string")
        return DocumentCount(total, total - extra)

    def start(self, task: ExecutorTask, options: BatchOptions) -> PreparationJob:
        documents = self.source.documents()
        if self._duplicated is not None:
            documents = group_duplicates(documents, self._duplicated)
        return ExecutorJob(self.spark, documents, self.spark.sparkContext.broadcast(task), options)

    def add_rejects(self, file: Path, folder: str) -> None:
        add_rejects_to_spark(self.spark, file, folder)


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
        self._task = task
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
        self._task.destroy()
