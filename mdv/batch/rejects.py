"""Write the refused documents with their reasons to Parquet files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet
from py4j.protocol import Py4JJavaError

from mdv.errors import BadCommand, MdvError, replace_unstorable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FLAW = pa.struct([("message", pa.string()), ("line", pa.int32()), ("column", pa.int32())])
REJECT_SCHEMA = pa.schema(
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
"""`REJECT_COLUMNS` of mdv/batch/spark_schemas.py as an Arrow schema."""

MAX_REASON_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Reject:
    """A refused document: its URI (if it has one), its source, and the error."""

    document: str | None
    source: str
    error: MdvError

    def row(self) -> dict[str, Any]:
        problem = self.error.problem()
        flaws = problem.get("errors", [])
        first = flaws[0] if flaws else {}
        first_flaw = f" The first: {replace_unstorable(str(self.error.flaws[0]))}." if len(flaws) > 1 else ""
        return {
            "document": self.document,
            "source": self.source,
            "reason": problem["detail"] + first_flaw,
            "type": problem["type"].rpartition(":")[2],
            "line": first.get("line", problem.get("line")),
            "column": first.get("column", problem.get("column")),
            "flaws": flaws,
            "problem": json.dumps(problem, ensure_ascii=False),
        }

    def example(self) -> dict[str, Any]:
        """Return the part that is shown to users."""
        row = self.row()
        return {name: row[name] for name in ("document", "source", "line")} | {
            "reason": row["reason"][:MAX_REASON_CHARS]
        }


def encode_rejects(rejects: Sequence[Reject]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([reject.row() for reject in rejects], schema=REJECT_SCHEMA)


class RejectWriter:
    """Collects the documents that promotion refuses in a file until the run ends, and keeps the first ones as
    examples."""

    def __init__(self, file: Path, max_examples: int) -> None:
        self.file = file
        self.examples: list[dict[str, Any]] = []
        self._max_examples = max_examples
        self._writer: pa.parquet.ParquetWriter | None = None

    def add(self, rejects: Sequence[Reject]) -> None:
        if not rejects:
            return
        if self._writer is None:
            self._writer = pa.parquet.ParquetWriter(self.file, REJECT_SCHEMA)
        self._writer.write_batch(encode_rejects(rejects))
        self.examples += [reject.example() for reject in rejects[: self._max_examples - len(self.examples)]]

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def copy_to(self, spark: SparkSession, folder: str) -> None:
        """Copy the file into the folder that Spark has written."""
        if self._writer is not None:
            files, target = _hadoop(spark, folder)
            files.copyFromLocalFile(_path(spark, self.file.as_uri()), _path(spark, f"{target}/{self.file.name}"))


def check_rejects_folder(spark: SparkSession, folder: str) -> None:
    """Refuse a folder that contains anything but rejects, since its content will be replaced."""
    try:
        files, target = _hadoop(spark, folder)
        if not files.exists(target):
            return
    except Py4JJavaError as error:
        raise BadCommand(
            f"--rejects {folder} cannot be written: {error.java_exception.getMessage()}. Name another folder."
        ) from None
    if not files.getFileStatus(target).isDirectory():
        raise BadCommand(f"--rejects {folder} is a file. Name a folder.")
    found = {str(status.getPath().getName()): bool(status.isFile()) for status in files.listStatus(target)}
    foreign = [name for name, is_file in found.items() if not _is_ours(name, is_file)]
    if any(name.endswith(".parquet") for name in found) and not foreign:
        columns = spark.read.parquet(folder).columns
        foreign = [] if columns == REJECT_SCHEMA.names else [f"a table of {', '.join(columns[:3])} …"]
    if foreign:
        raise BadCommand(
            f"--rejects {folder} contains {foreign[0]}, which no earlier run has written. Its content would be"
            " replaced. Name an empty or new folder."
        )


def _is_ours(name: str, is_file: bool) -> bool:
    if name == "_temporary":  # left by a killed run
        return not is_file
    is_part = name.removeprefix(".").startswith("part-") and name.removesuffix(".crc").endswith(".parquet")
    return is_file and (is_part or name in ("_SUCCESS", "._SUCCESS.crc"))


def _hadoop(spark: SparkSession, folder: str) -> tuple[Any, Any]:
    path = _path(spark, folder)
    return path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), path


def _path(spark: SparkSession, url: str) -> Any:
    jvm: Any = spark.sparkContext._jvm
    return jvm.org.apache.hadoop.fs.Path(url)
