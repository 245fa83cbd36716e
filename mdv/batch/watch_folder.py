"""Watch a folder and register the files that arrive in it, once each, also across restarts.

Spark's Structured Streaming detects new files and records in its checkpoint which ones were processed. Each group of
new files is an ordinary run. Files of an interrupted run are processed again; what it had registered is recognized.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine

from mdv.batch.file_types import ARCHIVE_PATTERN, DOCUMENT_PATTERN, DUMP_PATTERN
from mdv.batch.input_paths import find_input_paths
from mdv.db.state import read_state
from mdv.errors import BadCommand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mdv.batch.run import BatchSummary

FILE_COLUMNS = "path string, modificationTime timestamp, length long, content binary"
POLL_SECONDS = 0.5
MAX_FILES_PER_RUN = 10_000
"""Maximum number of files in one run."""
CHECKPOINT_FOLDER = ".mdv-watch"
"""The subfolder in which Spark keeps its checkpoints. Its name hides it from readers."""

RegisterFiles = Callable[[list[str], str], "BatchSummary"]
"""Registers files of a folder."""


class FilesNotRegistered(Exception):
    """Some of the files were not registered."""


def watch_folder(
    spark: SparkSession,
    engine: Engine,
    folder: str,
    register: RegisterFiles,
    report: Callable[[BatchSummary], object],
    report_error: Callable[[BadCommand], object],
) -> None:
    """Register the files in `folder` and those that arrive later, until interrupted. Inputs that cannot be registered
    at all are passed to `report_error` and skipped.

    Checkpoints are kept per epoch: after a restore from a backup, all files are registered again.
    """
    find_input_paths(spark, [folder])  # check that it exists
    with engine.connect() as connection:
        epoch = read_state(connection).epoch
    checkpoint = f"{folder.rstrip('/')}/{CHECKPOINT_FOLDER}/{epoch}"
    files = spark.readStream.format("binaryFile").schema(FILE_COLUMNS)
    files = files.option("recursiveFileLookup", "true").option("maxFilesPerTrigger", MAX_FILES_PER_RUN)

    failures: list[Exception] = []

    def process_files(arrived: DataFrame, batch_id: int) -> None:
        try:
            for paths in _split_by_type([row["path"] for row in arrived.select("path").collect()]):
                try:
                    report(register(paths, folder))
                except BadCommand as error:
                    report_error(error)
        except Exception as error:
            failures.append(error)
            # Spark must not record these files as processed. The error must be short, because Spark fails on long ones.
            raise FilesNotRegistered from None

    writer: Any = files.load(folder).writeStream.foreachBatch(process_files).option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime="1 second").start()
    try:
        # Not within a Spark call: Ctrl-C would break its connection.
        while query.isActive:
            time.sleep(POLL_SECONDS)
        if failures:
            raise failures[0]
        query.awaitTermination()  # raises the error that ended it, if any
    finally:
        query.stop()


def _split_by_type(paths: list[str]) -> list[list[str]]:
    """Return the documents and the dumps, which need separate runs, as lists that are not empty. Other files are
    ignored.

    >>> _split_by_type(["a.rdf", "b.nq", "c.txt", "d.tar"])
    [['a.rdf', 'd.tar'], ['b.nq']]
    """
    dumps = [path for path in paths if re.search(DUMP_PATTERN, path)]
    others = [path for path in paths if re.search(DOCUMENT_PATTERN, path) or re.search(ARCHIVE_PATTERN, path)]
    documents = [path for path in others if not re.search(DUMP_PATTERN, path)]
    return [paths for paths in (documents, dumps) if paths]
