"""Rejects: the documents that were refused, as Parquet, with their reasons."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
from py4j.protocol import Py4JJavaError

from mdv.errors import BadCommand, MdvError, storable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FLAW = pa.struct([("message", pa.string()), ("line", pa.int32()), ("column", pa.int32())])
COLUMNS = pa.schema(
    [
        ("document", pa.string()),
        ("source", pa.string()),
        ("reason", pa.string()),
        ("type", pa.string()),
        ("line", pa.int32()),
        ("column", pa.int32()),
        ("flaws", pa.list_(_FLAW)),
        ("problem", pa.string()),
    ]
)
"""`REJECTS` of mdv/batch/shape.py, in Arrow's words."""

MOST_WORDS = 2000


@dataclass(frozen=True, slots=True)
class Reject:
    """A document that was refused: its URI, where one could be made, its source, and the error."""

    document: str | None
    source: str
    error: MdvError

    def row(self) -> dict[str, Any]:
        problem = self.error.problem()
        flaws = problem.get("errors", [])
        first = flaws[0] if flaws else {}
        the_first = f" The first: {storable(str(self.error.flaws[0]))}." if len(flaws) > 1 else ""
        return {
            "document": self.document,
            "source": self.source,
            "reason": problem["detail"] + the_first,
            "type": problem["type"].rpartition(":")[2],
            "line": first.get("line", problem.get("line")),
            "column": first.get("column", problem.get("column")),
            "flaws": flaws,
            "problem": json.dumps(problem, ensure_ascii=False),
        }

    def example(self) -> dict[str, Any]:
        """What people are shown of it."""
        row = self.row()
        return {name: row[name] for name in ("document", "source", "line")} | {"reason": row["reason"][:MOST_WORDS]}


def rejects_batch(rejects: Sequence[Reject]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([reject.row() for reject in rejects], schema=COLUMNS)


class Refusals:
    """Those that were refused when it was their turn: kept in a file until the run ends, the first also here."""

    def __init__(self, file: Path, most: int) -> None:
        self.file = file
        self.examples: list[dict[str, Any]] = []
        self._most = most
        self._writer: pa.parquet.ParquetWriter | None = None

    def add(self, rejects: Sequence[Reject]) -> None:
        if not rejects:
            return
        if self._writer is None:
            self._writer = pa.parquet.ParquetWriter(self.file, COLUMNS)
        self._writer.write_batch(rejects_batch(rejects))
        self.examples += [reject.example() for reject in rejects[: self._most - len(self.examples)]]

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def put_into(self, spark: SparkSession, folder: str) -> None:
        """Put the file beside those that Spark has written."""
        if self._writer is not None:
            files, target = _hadoop(spark, folder)
            files.copyFromLocalFile(_path(spark, self.file.as_uri()), _path(spark, f"{target}/{self.file.name}"))


def check_folder(spark: SparkSession, folder: str) -> None:
    """Refuse a folder that holds anything but rejects: what was in it before goes."""
    try:
        files, target = _hadoop(spark, folder)
        if not files.exists(target):
            return
    except Py4JJavaError as error:
        raise BadCommand(f"--rejects {folder} cannot be written: {error.java_exception.getMessage()}.") from None
    if not files.getFileStatus(target).isDirectory():
        raise BadCommand(f"--rejects {folder} is a file; it takes a folder.")
    found = {str(status.getPath().getName()): bool(status.isFile()) for status in files.listStatus(target)}
    foreign = [name for name, is_file in found.items() if not _is_ours(name, is_file)]
    if any(name.endswith(".parquet") for name in found) and not foreign:
        columns = spark.read.parquet(folder).columns
        foreign = [] if columns == COLUMNS.names else [f"a table of {', '.join(columns[:3])} …"]
    if foreign:
        raise BadCommand(
            f"--rejects {folder} holds {foreign[0]}, which is no reject of an earlier run: its content would be"
            " replaced. Name a folder that is empty or not there yet."
        )


def _is_ours(name: str, is_file: bool) -> bool:
    if name == "_temporary":  # of a run that was killed
        return not is_file
    is_part = name.removeprefix(".").startswith("part-") and name.removesuffix(".crc").endswith(".parquet")
    return is_file and (is_part or name in ("_SUCCESS", "._SUCCESS.crc"))


def _hadoop(spark: SparkSession, folder: str) -> tuple[Any, Any]:
    path = _path(spark, folder)
    return path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), path


def _path(spark: SparkSession, url: str) -> Any:
    jvm: Any = spark.sparkContext._jvm
    return jvm.org.apache.hadoop.fs.Path(url)
