"""Read files, folders, globs and archives into a table of documents, from any file system that Spark supports."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from mdv.batch.archives import ArchiveShare, read_archive
from mdv.batch.decompress import decompress, split_compression_suffix
from mdv.batch.document_naming import Naming, file_uri
from mdv.batch.file_types import ARCHIVE_PATTERN, DOCUMENT_PATTERN, DOCUMENT_SUFFIXES, DUMP_PATTERN, syntax_of_file
from mdv.batch.input_paths import InputPaths, escape_glob, find_input_paths
from mdv.batch.manifest import name_by_manifest, read_manifest
from mdv.batch.session import is_local
from mdv.batch.spark_schemas import DOCUMENT_COLUMNS
from mdv.errors import BadCommand, MdvError, Refused, replace_unstorable
from mdv.rdf.gate import refuse_too_large

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

BATCH_BYTES = 4 << 20
BATCH_ROWS = 1000
MIN_PART_BYTES = 64 << 10
MAX_PARTS_PER_ARCHIVE = 32
"""Limits for splitting an archive: the bytes that are worth a task, and the number of tasks. With more tasks, reading
the whole archive in each would cost as much as preparing its part."""

COLON_PATTERN = "/[^/]*:[^/]*$"
"""A file name that Hadoop mistakes for a URL."""
FILE_COLUMNS = "path string, length long, content binary"
READ_COLUMNS = f"{DOCUMENT_COLUMNS}, relative string"
"""Documents with their relative paths."""
_COLUMNS = pa.schema(
    [
        (name, pa.binary() if type_ == "binary" else pa.string())
        for name, type_ in (c.split() for c in READ_COLUMNS.split(", "))
    ]
)


class ArchiveTask(NamedTuple):
    """The part of an archive that one task reads: URL, share, and local path unless Spark distributes the file."""

    path: str
    share: ArchiveShare
    file: str | None


class DocumentLocation(NamedTuple):
    """The location of a document: URL of the file, source to display, relative path, and rank in the input order.

    Without a relative path, it is the location of an archive, which is not a document.
    """

    path: str
    source: str
    relative: str | None
    rank: str
    in_archive: bool = False

    def member(self, number: int, name: str | None) -> DocumentLocation:
        source = self.source if name is None else f"{self.source}!/{name}"
        return DocumentLocation(self.path, source, name, f"{self.rank} {number:010}", in_archive=True)


@dataclass(frozen=True, slots=True)
class FileReader:
    """The data that executors need to read documents."""

    arguments: InputPaths
    naming: Naming
    syntax: str | None
    max_bytes: int

    def place(self, path: str) -> DocumentLocation:
        number, relative = self.arguments.place(path)
        return DocumentLocation(path, path.removeprefix("file:"), relative, f"{number:06} {path}")

    def row(self, place: DocumentLocation, content: bytes | None, error: MdvError | None) -> dict[str, Any]:
        """Return a document, or the problem that refuses it, in the columns of `READ_COLUMNS`."""
        uri = media_type = None
        if place.relative is not None:
            try:
                if self.naming.manifest is None:
                    uri = self.naming.uri(place.path, place.relative, place.in_archive)
                media_type = syntax_of_file(place.relative, self.syntax).media_type
            except MdvError as refusal:
                error = error or refusal
        problem = None
        if error is not None:
            content, problem = None, json.dumps(error.problem(), ensure_ascii=False)
        source, rank, relative = (
            replace_unstorable(place.source),
            replace_unstorable(place.rank),
            replace_unstorable(place.relative or ""),
        )
        return dict(zip(_COLUMNS.names, (source, uri, media_type, content, rank, problem, relative), strict=True))


@dataclass(frozen=True, slots=True)
class FileSource:
    """The documents that the given paths contain."""

    spark: SparkSession
    reading: FileReader
    files: DataFrame | None
    """Path, length and content of the documents that are files."""
    count_files: int
    too_large: bool
    """True if some of them exceed the size limit."""
    archive_tasks: tuple[ArchiveTask, ...]
    manifest: DataFrame | None
    dumps: tuple[str, ...]
    """Paths of N-Triples and N-Quads dumps for Spark's readers. If there are dumps, there are no documents."""
    bytes: int
    """Total size of all files, compressed files as they are."""

    def listing(self) -> DataFrame:
        """Return the list of documents, in the columns of `LISTING_COLUMNS`. Files are not read for it, but archives
        are."""
        return self._read(contents=False).select("source", "uri", "rank")

    def documents(self) -> DataFrame:
        """Return the documents, in the columns of `DOCUMENT_COLUMNS`."""
        return self._read(contents=True)

    def count(self) -> int:
        """Return the number of documents, including those that will be refused."""
        return self.count_files + (self._read_archive_table(contents=False).count() if self.archive_tasks else 0)

    def _read(self, contents: bool) -> DataFrame:
        parts = [self._read_files_table(self.files, contents)] if self.files is not None else []
        parts += [self._read_archive_table(contents)] if self.archive_tasks else []
        read = parts[0] if len(parts) == 1 else parts[0].unionAll(parts[1])
        return read.drop("relative") if self.manifest is None else name_by_manifest(read, self.manifest)

    def _read_files_table(self, files: DataFrame, contents: bool) -> DataFrame:
        from pyspark.sql import functions as f

        no_content = f.lit(None).cast("binary").alias("content")
        is_large = f.col("length") > self.reading.max_bytes
        if not contents:
            texts = files.select("path", "length", no_content)
        elif not self.too_large:
            texts = files.select("path", "length", "content")
        else:  # Spark checks lengths first, so it does not read files over the limit
            texts = files.filter(~is_large).select("path", "length", "content")
            texts = texts.unionAll(files.filter(is_large).select("path", "length", no_content))
        return texts.mapInArrow(partial(_read_files, self.reading), READ_COLUMNS)

    def _read_archive_table(self, contents: bool) -> DataFrame:
        numbers = self.spark.range(0, len(self.archive_tasks), 1, min(len(self.archive_tasks), BATCH_ROWS))
        return numbers.mapInArrow(partial(_read_archives, self.reading, self.archive_tasks, contents), READ_COLUMNS)


def find_files(
    spark: SparkSession,
    paths: Sequence[str],
    naming: Naming,
    syntax: str | None,
    max_bytes: int,
    below: str | None = None,
) -> FileSource:
    """Find the files in `paths` without reading them. With `below`, all of them are inside that folder."""
    from pyspark.sql import functions as f

    arguments = find_input_paths(spark, paths, below)
    # This column is known before a file is opened, so a filter on it avoids opening files.
    name = f.col("_metadata.file_path")
    is_dump = name.rlike(DUMP_PATTERN) if syntax is None else f.lit(False)
    found = _files_of(spark, arguments.paths)
    is_document = name.rlike(DOCUMENT_PATTERN) & ~is_dump
    is_unreadable = is_document & name.rlike(COLON_PATTERN)
    files = found.filter(is_document & ~is_unreadable).select("path", "length", "content")
    # One aggregation for everything: each further pass would take a second.
    seen, number, size, largest, unreadable, others = found.agg(
        f.count("path"),
        f.count(f.when(is_document, f.col("path"))),
        f.sum(f.when(is_document, f.col("length"))),
        f.max(f.when(is_document, f.col("length"))),
        f.collect_list(f.when(is_unreadable, f.col("path"))),
        f.sort_array(f.collect_list(f.when(name.rlike(ARCHIVE_PATTERN) | is_dump, f.struct("path", "length")))),
    ).collect()[0]
    without_suffix = [path for path in arguments.files if not _is_known(path, syntax)]
    extra = (
        _files_of(spark, map(escape_glob, without_suffix)).select("path", "length", "content")
        if without_suffix
        else None
    )
    patterns = [ARCHIVE_PATTERN, DOCUMENT_PATTERN] if syntax else [DUMP_PATTERN, ARCHIVE_PATTERN, DOCUMENT_PATTERN]
    empty = [
        path
        for path in _empty_files(found, seen)
        if _first_match(path, patterns) in (ARCHIVE_PATTERN, DOCUMENT_PATTERN)
    ]
    number += len(empty)
    if empty or unreadable:
        files = files.unionAll(spark.createDataFrame([(path, 0, b"") for path in [*empty, *unreadable]], FILE_COLUMNS))
    if extra is not None:
        files = files.unionAll(extra)
        extra_number, extra_size, extra_largest = extra.agg(
            f.count("path"), f.sum("length"), f.max("length")
        ).collect()[0]
        number, size, largest = number + extra_number, (size or 0) + extra_size, max(largest or 0, extra_largest)
    archives = [row for row in others if re.search(ARCHIVE_PATTERN, row.path)]
    dumps = [row.path for row in others if not re.search(ARCHIVE_PATTERN, row.path)]
    if not number and not others:
        raise no_documents_error(paths)
    if dumps:
        _refuse_dumps(dumps, [row.path for row in archives or files.select("path").take(1)])
    return FileSource(
        spark,
        FileReader(arguments, naming, syntax, max_bytes),
        files if number else None,
        number,
        (largest or 0) > max_bytes,
        _archive_tasks(spark, archives),
        read_manifest(spark, naming.manifest) if naming.manifest is not None else None,
        tuple(map(escape_glob, dumps)),
        (size or 0) + sum(row.length for row in others),
    )


def no_documents_error(paths: Sequence[str]) -> BadCommand:
    return BadCommand(
        f"No file in {', '.join(paths[:3])} has a suffix of RDF: {', '.join(DOCUMENT_SUFFIXES)}, .nq."
        " Rename the files, or name one file and its --syntax."
    )


def _files_of(spark: SparkSession, paths: Iterable[str]) -> DataFrame:
    return spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(list(paths))


def _empty_files(found: DataFrame, seen: int) -> list[str]:
    """Return the empty files, which Spark silently skips. `seen` is the number of the other files."""
    known = found._jdf.inputFiles()
    if len(known) == seen:
        return []
    return sorted({_spark_path(url) for url in known} - {row.path for row in found.select("path").collect()})


def _spark_path(url: str) -> str:
    """Return the path of a URL in the form of Spark's file tables.

    >>> _spark_path("file:///books/a%20b.ttl")
    'file:/books/a b.ttl'
    """
    return unquote(re.sub("^file:///", "file:/", url))


def _first_match(path: str, patterns: Iterable[str]) -> str | None:
    """Return the first of these patterns that matches a file's name."""
    return next((pattern for pattern in patterns if re.search(pattern, path)), None)


def _is_known(path: str, syntax: str | None) -> bool:
    return any(
        re.search(pattern, path)
        for pattern in (DOCUMENT_PATTERN, ARCHIVE_PATTERN) + (() if syntax else (DUMP_PATTERN,))
    )


def _refuse_dumps(dumps: Sequence[str], others: Sequence[str]) -> None:
    """Refuse dumps that are mixed with documents, and dumps that Spark cannot read."""
    if others:
        raise BadCommand(
            f"The input mixes dumps ({dumps[0]}) and documents ({others[0]}). Register them in two runs, or use"
            " --syntax ntriples if each .nt file is one document."
        )
    packed = next((path for path in dumps if path.lower().endswith(".xz")), None)
    if packed is not None:
        raise BadCommand(
            f"Spark cannot read dumps compressed as .xz, such as {packed}. Compress it as .bz2, or not at all."
        )


def _archive_tasks(spark: SparkSession, archives: Sequence[Row]) -> tuple[ArchiveTask, ...]:
    """Return the tasks for the archives: about two per core, in proportion to the archives' sizes."""
    context = spark.sparkContext
    is_local_master = is_local(context.master or "")
    urls: dict[str, str] = {}
    archive_tasks = []
    total = sum(row.length for row in archives)
    for row in archives:
        file = None
        if is_local_master and row.path.startswith("file:"):
            file = row.path.removeprefix("file:")
        elif urls.setdefault(name := row.path.rpartition("/")[2], row.path) != row.path:
            raise BadCommand(
                f"{urls[name]} and {row.path} have the same file name, but executors need distinct names. Use two runs."
            )
        else:
            context.addFile(file_uri(row.path))
        wanted = math.ceil(2 * context.defaultParallelism * row.length / total) if total else 1
        parts = max(1, min(wanted, MAX_PARTS_PER_ARCHIVE, math.ceil(row.length / MIN_PART_BYTES)))
        archive_tasks += [ArchiveTask(row.path, ArchiveShare(part, parts), file) for part in range(parts)]
    return tuple(archive_tasks)


# Functions that run in executors


def _read_files(reading: FileReader, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    columns = ([batch.column(name).to_pylist() for name in ("path", "length", "content")] for batch in batches)
    return _to_arrow(row_of_file(reading, *file) for batch in columns for file in zip(*batch, strict=True))


def row_of_file(reading: FileReader, path: str, length: int, content: bytes | None) -> dict[str, Any]:
    """Return the document of a file, in the columns of `READ_COLUMNS`. Without a content, the file is too large."""
    place = reading.place(path)
    try:
        if re.search(COLON_PATTERN, path):
            raise Refused("Its name contains a colon, so Spark cannot read it. Rename the file.")
        refuse_too_large(length, reading.max_bytes)
        opener = split_compression_suffix(path)[1]
        if opener is not None and content is not None:
            content = decompress(content, opener, reading.max_bytes)
    except MdvError as error:
        return reading.row(place, None, error)
    return reading.row(place, content, None)


def _read_archives(
    reading: FileReader, archive_tasks: Sequence[ArchiveTask], contents: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    numbers = (number for batch in batches for number in batch.column(0).to_pylist())
    return _to_arrow(row for number in numbers for row in read_archive_rows(reading, archive_tasks[number], contents))


def read_archive_rows(reading: FileReader, task: ArchiveTask, contents: bool) -> Iterator[dict[str, Any]]:
    """Yield the documents of a part of an archive, in the columns of `READ_COLUMNS`."""
    place = reading.place(task.path)
    file = Path(task.file or _distributed_file(task.path))
    for number, name, content, error in read_archive(file, task.share, reading.max_bytes, contents):
        yield reading.row(place.member(number, name), content, error)


def _distributed_file(path: str) -> str:
    """Return the path of a file that Spark has copied to this executor."""
    from pyspark import SparkFiles

    return str(SparkFiles.get(path.rpartition("/")[2]))


def _to_arrow(rows: Iterable[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in Arrow batches of limited size. A row of several MB is a batch of its own."""
    pending: list[dict[str, Any]] = []
    pending_bytes = 0
    for row in rows:
        pending.append(row)
        pending_bytes += len(row["content"] or b"")
        if pending_bytes >= BATCH_BYTES or len(pending) == BATCH_ROWS:
            yield pa.RecordBatch.from_pylist(pending, schema=_COLUMNS)
            pending, pending_bytes = [], 0
    if pending:
        yield pa.RecordBatch.from_pylist(pending, schema=_COLUMNS)
