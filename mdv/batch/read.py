"""Read: files, folders, globs and archives become a table of documents, in any file system that Spark reads."""

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

from mdv.batch.archives import Share, read_archive
from mdv.batch.arguments import Arguments, escaped, find_arguments
from mdv.batch.kinds import ARCHIVE, DOCUMENT, DUMP, SUFFIXES, syntax_of_file
from mdv.batch.manifest import name_by_manifest, read_manifest
from mdv.batch.names import Naming, own_uri
from mdv.batch.session import is_local
from mdv.batch.shape import DOCUMENTS
from mdv.batch.unpack import unpack, without_packing
from mdv.errors import BadCommand, MdvError, Refused, storable
from mdv.rdf.gate import refuse_large

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

BATCH_BYTES = 4 << 20
BATCH_ROWS = 1000
PART_BYTES = 64 << 10
MOST_PARTS = 32
"""So many bytes of an archive are worth a task. More parts than the most would not make it faster: then going through
the archive costs as much as preparing a part."""

COLON = "/[^/]*:[^/]*$"
"""A file whose name Hadoop takes for a URL."""
FILES = "path string, length long, content binary"
READ = f"{DOCUMENTS}, relative string"
"""Documents, each with its path below what was given."""
_COLUMNS = pa.schema(
    [(name, pa.binary() if kind == "binary" else pa.string()) for name, kind in (c.split() for c in READ.split(", "))]
)


class Portion(NamedTuple):
    """What one task reads of an archive: its URL, the share, and where it lies if not where Spark brings files."""

    path: str
    share: Share
    file: str | None


class Place(NamedTuple):
    """Where a document lies: its file's URL, its source for people, its path below what was given, and its rank.

    What has no such path is the archive itself, which is no document.
    """

    path: str
    source: str
    relative: str | None
    rank: str
    in_archive: bool = False

    def member(self, number: int, name: str | None) -> Place:
        source = self.source if name is None else f"{self.source}!/{name}"
        return Place(self.path, source, name, f"{self.rank} {number:010}", in_archive=True)


@dataclass(frozen=True, slots=True)
class Reading:
    """All that an executor has to know to read documents."""

    arguments: Arguments
    naming: Naming
    syntax: str | None
    max_bytes: int

    def place(self, path: str) -> Place:
        number, relative = self.arguments.place(path)
        return Place(path, path.removeprefix("file:"), relative, f"{number:06} {path}")

    def row(self, place: Place, content: bytes | None, error: MdvError | None) -> dict[str, Any]:
        """A document, or why it is none, in the columns of `READ`."""
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
        source, rank, relative = storable(place.source), storable(place.rank), storable(place.relative or "")
        return dict(zip(_COLUMNS.names, (source, uri, media_type, content, rank, problem, relative), strict=True))


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the paths of a command line hold."""

    spark: SparkSession
    reading: Reading
    files: DataFrame | None
    """Of documents that are files: path, length and content."""
    count_files: int
    too_large: bool
    """Whether some of them are over the limit."""
    portions: tuple[Portion, ...]
    manifest: DataFrame | None
    dumps: tuple[str, ...]
    """Paths of N-Triples and N-Quads, as Spark's readers take them. Where there are some, there are no documents."""
    bytes: int
    """The sizes of all files together, packed as they are."""

    def listing(self) -> DataFrame:
        """What is there, in the columns of `LISTING`. No file is read for it; archives are gone through."""
        return self._named(contents=False).select("source", "uri", "rank")

    def documents(self) -> DataFrame:
        """The documents, in the columns of `DOCUMENTS`."""
        return self._named(contents=True)

    def count(self) -> int:
        """How many documents there are, those that will be refused included."""
        return self.count_files + (self._of_archives(contents=False).count() if self.portions else 0)

    def _named(self, contents: bool) -> DataFrame:
        parts = [self._of_files(self.files, contents)] if self.files is not None else []
        parts += [self._of_archives(contents)] if self.portions else []
        read = parts[0] if len(parts) == 1 else parts[0].unionAll(parts[1])
        return read.drop("relative") if self.manifest is None else name_by_manifest(read, self.manifest)

    def _of_files(self, files: DataFrame, contents: bool) -> DataFrame:
        from pyspark.sql import functions as f

        nothing = f.lit(None).cast("binary").alias("content")
        is_large = f.col("length") > self.reading.max_bytes
        if not contents:
            texts = files.select("path", "length", nothing)
        elif not self.too_large:
            texts = files.select("path", "length", "content")
        else:  # what is too large must not be read: Spark looks at lengths first
            texts = files.filter(~is_large).select("path", "length", "content")
            texts = texts.unionAll(files.filter(is_large).select("path", "length", nothing))
        return texts.mapInArrow(partial(_read_files, self.reading), READ)

    def _of_archives(self, contents: bool) -> DataFrame:
        numbers = self.spark.range(0, len(self.portions), 1, min(len(self.portions), BATCH_ROWS))
        return numbers.mapInArrow(partial(_read_archives, self.reading, self.portions, contents), READ)


def find_inputs(
    spark: SparkSession,
    paths: Sequence[str],
    naming: Naming,
    syntax: str | None,
    max_bytes: int,
    below: str | None = None,
) -> Inputs:
    """Look up what `paths` hold, without reading any of it. With `below`, all of them lie below that folder."""
    from pyspark.sql import functions as f

    arguments = find_arguments(spark, paths, below)
    # This column is known before a file is opened, and a filter on it keeps files from being opened.
    name = f.col("_metadata.file_path")
    is_dump = name.rlike(DUMP) if syntax is None else f.lit(False)
    found = _files_of(spark, arguments.paths)
    is_document = name.rlike(DOCUMENT) & ~is_dump
    is_unreadable = is_document & name.rlike(COLON)
    files = found.filter(is_document & ~is_unreadable).select("path", "length", "content")
    # All in one look: each further one would cost a second.
    seen, number, size, largest, unreadable, others = found.agg(
        f.count("path"),
        f.count(f.when(is_document, f.col("path"))),
        f.sum(f.when(is_document, f.col("length"))),
        f.max(f.when(is_document, f.col("length"))),
        f.collect_list(f.when(is_unreadable, f.col("path"))),
        f.sort_array(f.collect_list(f.when(name.rlike(ARCHIVE) | is_dump, f.struct("path", "length")))),
    ).collect()[0]
    odd = [path for path in arguments.files if not _is_known(path, syntax)]
    more = _files_of(spark, map(escaped, odd)).select("path", "length", "content") if odd else None
    kinds = [ARCHIVE, DOCUMENT] if syntax else [DUMP, ARCHIVE, DOCUMENT]
    empty = [path for path in _empty_files(found, seen) if _kind(path, kinds) in (ARCHIVE, DOCUMENT)]
    number += len(empty)
    if empty or unreadable:
        files = files.unionAll(spark.createDataFrame([(path, 0, b"") for path in [*empty, *unreadable]], FILES))
    if more is not None:
        files = files.unionAll(more)
        more_number, more_size, more_largest = more.agg(f.count("path"), f.sum("length"), f.max("length")).collect()[0]
        number, size, largest = number + more_number, (size or 0) + more_size, max(largest or 0, more_largest)
    archives = [row for row in others if re.search(ARCHIVE, row.path)]
    dumps = [row.path for row in others if not re.search(ARCHIVE, row.path)]
    if not number and not others:
        raise BadCommand(f"No file in {', '.join(paths[:3])} has a suffix of RDF: {', '.join(SUFFIXES)}, .nq.")
    if dumps:
        _refuse_dumps(dumps, [row.path for row in archives or files.select("path").take(1)])
    return Inputs(
        spark,
        Reading(arguments, naming, syntax, max_bytes),
        files if number else None,
        number,
        (largest or 0) > max_bytes,
        _portions(spark, archives),
        read_manifest(spark, naming.manifest) if naming.manifest is not None else None,
        tuple(map(escaped, dumps)),
        (size or 0) + sum(row.length for row in others),
    )


def _files_of(spark: SparkSession, paths: Iterable[str]) -> DataFrame:
    return spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(list(paths))


def _empty_files(found: DataFrame, seen: int) -> list[str]:
    """The files that Spark knows of and passes over in silence, since they are empty; `seen` is how many others are."""
    known = found._jdf.inputFiles()
    if len(known) == seen:
        return []
    return sorted({_as_spark_writes(url) for url in known} - {row.path for row in found.select("path").collect()})


def _as_spark_writes(url: str) -> str:
    """The path of a URL, as it stands in a table of files.

    >>> _as_spark_writes("file:///books/a%20b.ttl")
    'file:/books/a b.ttl'
    """
    return unquote(re.sub("^file:///", "file:/", url))


def _kind(path: str, kinds: Iterable[str]) -> str | None:
    """The first of these kinds that a file's name shows."""
    return next((kind for kind in kinds if re.search(kind, path)), None)


def _is_known(path: str, syntax: str | None) -> bool:
    return any(re.search(kind, path) for kind in (DOCUMENT, ARCHIVE) + (() if syntax else (DUMP,)))


def _refuse_dumps(dumps: Sequence[str], others: Sequence[str]) -> None:
    """Refuse dumps among documents, and those that Spark does not read."""
    if others:
        raise BadCommand(
            f"There are dumps ({dumps[0]}) and documents ({others[0]}): register them in two runs, or say --syntax"
            " ntriples where each .nt file is one document."
        )
    packed = next((path for path in dumps if path.lower().endswith(".xz")), None)
    if packed is not None:
        raise BadCommand(f"Spark does not read dumps packed as .xz, as {packed} is. Pack it as .bz2, or not at all.")


def _portions(spark: SparkSession, archives: Sequence[Row]) -> tuple[Portion, ...]:
    """Tasks for the archives, about two for a core, the larger an archive the more."""
    context = spark.sparkContext
    in_place = is_local(context.master or "")
    urls: dict[str, str] = {}
    portions = []
    total = sum(row.length for row in archives)
    for row in archives:
        file = None
        if in_place and row.path.startswith("file:"):
            file = row.path.removeprefix("file:")
        elif urls.setdefault(name := row.path.rpartition("/")[2], row.path) != row.path:
            raise BadCommand(
                f"{urls[name]} and {row.path} have one name, under which executors get them: use two runs."
            )
        else:
            context.addFile(own_uri(row.path))
        wanted = math.ceil(2 * context.defaultParallelism * row.length / total) if total else 1
        parts = max(1, min(wanted, MOST_PARTS, math.ceil(row.length / PART_BYTES)))
        portions += [Portion(row.path, Share(part, parts), file) for part in range(parts)]
    return tuple(portions)


# What executors do


def _read_files(reading: Reading, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    columns = ([batch.column(name).to_pylist() for name in ("path", "length", "content")] for batch in batches)
    return _in_batches(_row_of_file(reading, *file) for batch in columns for file in zip(*batch, strict=True))


def _row_of_file(reading: Reading, path: str, length: int, content: bytes | None) -> dict[str, Any]:
    place = reading.place(path)
    try:
        if re.search(COLON, path):
            raise Refused("Its name holds a colon, with which Spark does not read files. Give it another name.")
        refuse_large(length, reading.max_bytes)
        opener = without_packing(path)[1]
        if opener is not None and content is not None:
            content = unpack(content, opener, reading.max_bytes)
    except MdvError as error:
        return reading.row(place, None, error)
    return reading.row(place, content, None)


def _read_archives(
    reading: Reading, portions: Sequence[Portion], contents: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    numbers = (number for batch in batches for number in batch.column(0).to_pylist())
    return _in_batches(row for number in numbers for row in _rows_of_archive(reading, portions[number], contents))


def _rows_of_archive(reading: Reading, portion: Portion, contents: bool) -> Iterator[dict[str, Any]]:
    from pyspark import SparkFiles

    place = reading.place(portion.path)
    file = Path(portion.file or SparkFiles.get(portion.path.rpartition("/")[2]))
    for number, name, content, error in read_archive(file, portion.share, reading.max_bytes, contents):
        yield reading.row(place.member(number, name), content, error)


def _in_batches(rows: Iterable[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """A few rows at a time: one of several MB goes alone."""
    waiting: list[dict[str, Any]] = []
    weight = 0
    for row in rows:
        waiting.append(row)
        weight += len(row["content"] or b"")
        if weight >= BATCH_BYTES or len(waiting) == BATCH_ROWS:
            yield pa.RecordBatch.from_pylist(waiting, schema=_COLUMNS)
            waiting, weight = [], 0
    if waiting:
        yield pa.RecordBatch.from_pylist(waiting, schema=_COLUMNS)
