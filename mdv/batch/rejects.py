"""Write the refused documents with their reasons to Parquet files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

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

    @property
    def has_rejects(self) -> bool:
        return self._writer is not None


# Folders that Spark writes


def add_rejects_to_spark(spark: SparkSession, file: Path, folder: str) -> None:
    """Add a file of rejects to a folder."""
    files, target = _hadoop(spark, folder)
    files.copyFromLocalFile(_path(spark, file.as_uri()), _path(spark, f"{target}/{file.name}"))


def check_spark_rejects_folder(spark: SparkSession, folder: str) -> None:
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
        foreign = [] if columns == REJECT_SCHEMA.names else [_table_of(columns)]
    if foreign:
        raise _foreign_content_error(folder, foreign[0])


def _table_of(columns: Sequence[str]) -> str:
    return f"a table of {', '.join(columns[:3])} …"


def _foreign_content_error(folder: str, what: str) -> BadCommand:
    return BadCommand(
        f"--rejects {folder} contains {what}, which no earlier run has written. Its content would be replaced. Name an"
        " empty or new folder."
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


# Folders on this machine


def check_local_rejects_folder(folder: str) -> None:
    """Refuse a folder that contains anything but rejects, since its content will be replaced."""
    target = Path(folder)
    try:
        if not target.exists():
            return
        if not target.is_dir():
            raise BadCommand(f"--rejects {folder} is a file. Name a folder.")
        found = {path.name: path.is_file() for path in sorted(target.iterdir())}
        foreign = [name for name, is_file in found.items() if not _is_ours(name, is_file)]
        tables = [name for name in found if name.endswith(".parquet")]
        if tables and not foreign:
            columns = pyarrow.parquet.read_schema(target / tables[0]).names
            foreign = [] if columns == REJECT_SCHEMA.names else [_table_of(columns)]
    except OSError as error:
        raise BadCommand(f"--rejects {folder} cannot be written: {error.strerror}. Name another folder.") from None
    if foreign:
        raise _foreign_content_error(folder, foreign[0])


def write_local_rejects(batches: Iterable[pa.RecordBatch], folder: str | None, run: UUID, add: bool) -> None:
    """Write rejects into a folder as Spark does. Without `add`, they replace its content. Without a folder, only
    consume them."""
    if folder is None:
        for _ in batches:
            pass
        return
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    if not add:
        for path in target.iterdir():
            if path.is_file():
                path.unlink()
            else:  # `_temporary`, left by a killed run on Spark
                shutil.rmtree(path)
    part = target / f"part-00000-{run}.snappy.parquet"
    unfinished = part.with_name(f".{part.name}")
    with pyarrow.parquet.ParquetWriter(unfinished, REJECT_SCHEMA, compression="snappy") as writer:
        for batch in batches:
            writer.write_batch(batch)
    unfinished.replace(part)
    (target / "_SUCCESS").touch()
