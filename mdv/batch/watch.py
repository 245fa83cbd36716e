"""Watch: what arrives in a folder is registered, once, over restarts.

Spark's Structured Streaming notices new files and remembers in its checkpoint which ones it has handed over; each
handful is an ordinary run. A run that was cut short is handed over again, and finds what it had registered.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine

from mdv.batch.arguments import find_arguments
from mdv.batch.kinds import ARCHIVE, DOCUMENT, DUMP
from mdv.db.state import read_state
from mdv.errors import BadCommand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mdv.batch.run import Summary

FILES = "path string, modificationTime timestamp, length long, content binary"
PAUSE = 0.5
MOST_FILES = 10_000
"""Files that are handed over at once."""
CHECKPOINTS = ".mdv-watch"
"""The folder below the watched one in which Spark keeps what it has seen. Its name hides it from readers."""

Register = Callable[[list[str], str], "Summary"]
"""Registers files of a folder."""


class NotTaken(Exception):
    """A handful of files was not registered, or not wholly."""


def watch_folder(
    spark: SparkSession,
    engine: Engine,
    folder: str,
    register: Register,
    report: Callable[[Summary], object],
    complain: Callable[[BadCommand], object],
) -> None:
    """Register what is in `folder` and what arrives there, until it is interrupted. What cannot be taken for documents
    at all is complained of, and left alone.

    What was registered is remembered for each life of an MDP: one that was restored from a backup is given all again.
    """
    find_arguments(spark, [folder])  # is it there?
    with engine.connect() as connection:
        epoch = read_state(connection).epoch
    checkpoint = f"{folder.rstrip('/')}/{CHECKPOINTS}/{epoch}"
    files = spark.readStream.format("binaryFile").schema(FILES)
    files = files.option("recursiveFileLookup", "true").option("maxFilesPerTrigger", MOST_FILES)

    failures: list[Exception] = []

    def hand_over(arrived: DataFrame, number: int) -> None:
        try:
            for some in _kinds([row["path"] for row in arrived.select("path").collect()]):
                try:
                    report(register(some, folder))
                except BadCommand as error:
                    complain(error)
        except Exception as error:
            failures.append(error)
            # Spark must not take these files for registered; and what it is told must be short, or it breaks on that.
            raise NotTaken from None

    writer: Any = files.load(folder).writeStream.foreachBatch(hand_over).option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime="1 second").start()
    try:
        # Not within a call of Spark's: Ctrl-C would break its line.
        while query.isActive:
            time.sleep(PAUSE)
        if failures:
            raise failures[0]
        query.awaitTermination()  # says why, if it was an error
    finally:
        query.stop()


def _kinds(paths: list[str]) -> list[list[str]]:
    """Documents and dumps, which do not go together, each where there are some; what is neither is left alone.

    >>> _kinds(["a.rdf", "b.nq", "c.txt", "d.tar"])
    [['a.rdf', 'd.tar'], ['b.nq']]
    """
    dumps = [path for path in paths if re.search(DUMP, path)]
    others = [path for path in paths if re.search(DOCUMENT, path) or re.search(ARCHIVE, path)]
    documents = [path for path in others if not re.search(DUMP, path)]
    return [some for some in (documents, dumps) if some]
