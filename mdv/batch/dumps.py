"""Dumps: N-Triples and N-Quads of any size, each line looked at alone, become documents.

A statement belongs to the document that its graph names; without a graph, to the one that its subject tells. Blank
nodes tell none. So the laws are:

1. Statements that share a blank node stand in one document, since a blank node cannot be told in two. Where one of them
   has a document, it is the document of all of them, over any number of steps.
2. Where they have several, each of these documents is refused: neither would be whole. Where none has one, the
   statements are refused.
3. A label means the same node in all of its file, and another node in every other file.
4. A line that cannot be read refuses the document of which it seems to speak, so that none is registered in part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from mdv.batch.lines import Said, broken, read_line, refusal, shown
from mdv.batch.shape import DOCUMENTS
from mdv.errors import BadCommand, InvalidDocument, MdvError, TooLarge
from mdv.rdf.gate import refuse_large
from mdv.rdf.gated import count_flaws
from mdv.rdf.parse import MAX_FLAWS, check_document_uri
from mdv.rdf.syntax import N_TRIPLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATEMENTS = "document string, node string, other string, text string, problem string, source string"
"""What a line says (`mdv.batch.lines.Said`), and the file that it stands in."""

KNOTS = "node string, root string, document string, text string, source string"
"""A blank node, one that it hangs together with (the same for all that do), and a document that it is in. With a text:
a statement about it that has no document of its own."""

MOST_ROUNDS = 40
"""The rounds grow with the logarithm of the longest chain of blank nodes."""

Knot = tuple[str, str, str | None, str | None, str]
Row = tuple[str, str | None, str, bytes | None, str, str | None]
"""A document in the columns of `DOCUMENTS`, as Arrow has them:"""
_COLUMNS = pa.schema(
    [
        ("source", pa.string()),
        ("uri", pa.string()),
        ("media_type", pa.string()),
        ("content", pa.binary()),
        ("rank", pa.string()),
        ("problem", pa.string()),
    ]
)
_STATEMENT_COLUMNS = ["document", "node", "other", "text", "problem", "source"]
_MARK = 17
"""The length of what is put before a label to tell its file: a hash and a line."""
_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_ROWS = 1000


def dump_documents(spark: SparkSession, paths: Sequence[str], by: str | None, max_bytes: int) -> DataFrame:
    """The documents of dumps, in the columns of `DOCUMENTS`. No document is there twice.

    `by` is a regular expression that finds the document at the beginning of the subject of a statement without a graph
    (its first group, where it has one); without `by` it is the subject without its fragment.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    pattern = _checked(by)
    lines = _lines(spark, paths, max_bytes)
    statements = lines.mapInArrow(partial(_read, pattern, max_bytes), STATEMENTS)
    perhaps_blank = lines.where(F.contains("line", F.lit(bytearray(b"_:"))))
    knots = perhaps_blank.mapInArrow(partial(_tie, pattern, max_bytes), KNOTS).persist(StorageLevel.DISK_ONLY)
    if knots.isEmpty():
        knots.unpersist()
    else:
        statements = statements.where("document is not null or problem is not null").unionByName(_settled(knots))
    ordered = (
        statements.select("document", "text", "problem", "source")
        .repartition(F.coalesce("document", "text"))
        # Hashes are compared faster than names; with the texts in order the same dump gives the same bytes next time.
        .sortWithinPartitions(F.xxhash64("document"), "document", "text")
    )
    return ordered.mapInArrow(partial(_join, max_bytes), DOCUMENTS)


def count_documents(spark: SparkSession, paths: Sequence[str], by: str | None, max_bytes: int) -> int:
    """About how many documents there are (within some percent): for a progress bar, in one look at the lines."""
    from pyspark.sql import functions as F

    read = _lines(spark, paths, max_bytes).mapInArrow(
        partial(_documents_only, _checked(by), max_bytes), "document string"
    )
    return int(read.agg(F.approx_count_distinct("document", 0.02)).collect()[0][0])


def _checked(by: str | None) -> re.Pattern[str] | None:
    try:
        return None if by is None else re.compile(by)
    except re.error as error:
        raise BadCommand(f"--by {by} is not a regular expression: {error}.") from None


def _lines(spark: SparkSession, paths: Sequence[str], max_bytes: int) -> DataFrame:
    """The lines as bytes, which need not be UTF-8, with their files; of one that is too long only a little too much."""
    from pyspark.sql import functions as F

    read = spark.read.option("recursiveFileLookup", True).text(list(paths))
    line = F.col("value").cast("binary")
    cut = F.when(F.octet_length("value") > max_bytes, F.substring(line, 1, max_bytes + 1)).otherwise(line)
    return read.select(cut.alias("line"), F.col("_metadata.file_path").alias("file"))


def _said(
    by: re.Pattern[str] | None, max_bytes: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[list[Said], list[str]]]:
    """What each batch of lines says, and the files."""
    for batch in batches:
        files = batch.column(1).dictionary_encode()
        sources = [_source(file) for file in files.dictionary.to_pylist()]
        marks = [blake2b(file.encode(), digest_size=8).hexdigest() + "_" for file in files.dictionary.to_pylist()]
        said: list[Said] = []
        where: list[str] = []
        for line, file in zip(batch.column(0).to_pylist(), files.indices.to_pylist(), strict=True):
            text = line.decode("utf-8", "surrogateescape")
            if len(line) > max_bytes:
                found: Said | None = broken(text, f"it has more than {max_bytes:,} bytes, the limit for a document", by)
            else:
                found = read_line(text, marks[file], by)
            if found is not None:
                said.append(found)
                where.append(sources[file])
        yield said, where


def _read(by: re.Pattern[str] | None, max_bytes: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Lines become statements, in the columns of `STATEMENTS`."""
    for said, where in _said(by, max_bytes, batches):
        columns = [*([one[place] for one in said] for place in range(5)), where]
        yield pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in columns], _STATEMENT_COLUMNS)


def _documents_only(
    by: re.Pattern[str] | None, max_bytes: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The documents of which lines speak, without repetition as far as one batch goes."""
    for said, _ in _said(by, max_bytes, batches):
        documents = {document for document, *_ in said if document is not None}
        yield pa.RecordBatch.from_arrays([pa.array(list(documents), pa.string())], ["document"])


def _source(file: str) -> str:
    """A file's URL, as people write it."""
    return unquote(file.removeprefix("file:").replace("///", "/", 1)) if file.startswith("file:") else file


def _tie(by: re.Pattern[str] | None, max_bytes: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The blank nodes of lines, in the columns of `KNOTS`, hanging together as far as one batch of lines shows.

    Most belong to lines that stand near each other, so that little is left to be found out over all of the dump.
    """
    for said, where in _said(by, max_bytes, batches):
        above: dict[str, str] = {}
        blank = [
            (document, node, other, text, source)
            for (document, node, other, text, _), source in zip(said, where, strict=True)
            if node is not None
        ]
        for _, node, other, *_ in blank:
            _unite(above, node, other or node)
        homes: dict[str, str] = {}
        for document, node, *_ in blank:
            if document is not None:
                root = _top(above, node)
                homes[root] = min(document, homes.get(root, document))
        knots: dict[Knot, None] = {}
        for document, node, other, text, source in blank:
            root = _top(above, node)
            home = document or homes.get(root)  # one of them: where there are several, all are refused
            knots[node, root, home, None, source] = None
            if other is not None:
                knots[other, root, home, None, source] = None
            if document is None:
                knots[node, root, home, text, source] = None
        columns = [pa.array([knot[place] for knot in knots], pa.string()) for place in range(5)]
        yield pa.RecordBatch.from_arrays(columns, ["node", "root", "document", "text", "source"])


def _unite(above: dict[str, str], one: str, other: str) -> None:
    one, other = _top(above, one), _top(above, other)
    above[max(one, other)] = min(one, other)


def _top(above: dict[str, str], node: str) -> str:
    while (higher := above.setdefault(node, node)) != node:
        above[node] = above[higher]  # the next way up is half as long
        node = higher
    return node


def _settled(knots: DataFrame) -> DataFrame:
    """The statements about blank nodes in their documents, with a refusal for each document that shares a node."""
    from pyspark.sql import functions as F

    nothing = F.lit(None).cast("string")
    nodes = knots.where("text is null")
    seams = nodes.groupBy("node").agg(F.min("root").alias("least"), F.max("root").alias("most")).where("least < most")
    links = nodes.join(seams, "node").where("root <> least").select(F.col("root").alias("node"), "least")
    tops = _roots(links.toDF("node", "other")).toDF("root", "top")

    def topped(some: DataFrame) -> DataFrame:
        return some.join(tops, "root", "left").withColumn("top", F.coalesce("top", "root"))

    told = topped(nodes.where("document is not null"))
    homes = told.groupBy("top").agg(F.min("document").alias("home"), F.max("document").alias("last"))
    free = knots.where("text is not null").withColumn("other", nothing).withColumn("problem", nothing)
    near = free.where("document is not null").drop("root")
    far = (
        topped(free.where("document is null"))
        .join(homes, "top", "left")
        .select("node", F.col("home").alias("document"), "text", "source", "other", "problem")
    )
    shared = (
        told.join(homes.where("home < last"), "top")
        .withColumn("other", F.when(F.col("document") == F.col("home"), F.col("last")).otherwise(F.col("home")))
        .groupBy("document")
        .agg(F.min("node").alias("node"), F.min_by("other", "node").alias("other"), F.min("source").alias("source"))
        .select("node", "document", nothing.alias("text"), "source", "other", nothing.alias("problem"))
    )
    refused = far.where("document is null").unionByName(shared).mapInArrow(_refuse, STATEMENTS)
    return near.unionByName(far.where("document is not null")).unionByName(refused)


def _roots(links: DataFrame) -> DataFrame:
    """Which nodes hang together: to each node of `links`, but for the least, the least of all that it is linked with.

    Links are turned into stars, alternately from the greater ends and from the smaller ones, until nothing changes
    (Kiveris and others, Connected Components in MapReduce and Beyond, 2014).
    """
    from pyspark.sql import functions as F

    pair = [F.greatest("node", "other").alias("node"), F.least("node", "other").alias("other")]
    links = _cut_off(links.select(*pair).where("node <> other").distinct())
    if links.isEmpty():
        return links
    before = None
    for _ in range(MOST_ROUNDS):
        links = _cut_off(_stars(_stars(links, greater=True), greater=False))
        now = links.agg(F.count("*"), F.bit_xor(F.xxhash64("node", "other"))).first()
        if now == before:
            return links
        before = now
    raise TooLarge("The blank nodes of the dump are linked in chains too long to be followed. Name them by URIs.")


def _stars(links: DataFrame, greater: bool) -> DataFrame:
    """One step: the greater neighbours of a node, or the smaller ones and itself, are linked with the least of all."""
    from pyspark.sql import functions as F

    around = links.union(links.select("other", "node")) if greater else links
    least = around.groupBy("node").agg(F.min("other").alias("least"))
    if greater:
        least = least.withColumn("least", F.least("node", "least"))
    ends = around.join(least, "node").where("other > node" if greater else "other <> least")
    stars = ends.select(F.col("other").alias("node"), F.col("least").alias("other"))
    return (stars if greater else stars.union(least)).distinct()


def _cut_off(frame: DataFrame) -> DataFrame:
    """The same rows without their history, which would double with every round.

    They are kept where Spark keeps checkpoints (`spark.checkpoint.dir`), or with the executors that made them.
    """
    kept = frame.sparkSession.sparkContext.getCheckpointDir()
    return frame.checkpoint() if kept else frame.localCheckpoint()


def _refuse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Statements that have no document, and documents that share a blank node with another, each with its problem."""
    for batch in batches:
        rows = batch.to_pylist()
        for row in rows:
            mark, label = row["node"][:_MARK], row["node"][_MARK:]
            if row["document"] is not None:
                reason = f"the blank node _:{label} is also in the document {row['other']}, and cannot be told in two"
            else:
                said = shown(row["text"].replace(mark, ""))
                reason = f"no statement of a document is linked with the blank node _:{label}, in `{said}`"
            row["problem"] = refusal(InvalidDocument, reason)
        columns = [pa.array([row[name] for row in rows], pa.string()) for name in _STATEMENT_COLUMNS]
        yield pa.RecordBatch.from_arrays(columns, _STATEMENT_COLUMNS)


def _join(max_bytes: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Statements that follow each other by document become documents, of which no more than some are held at a time."""
    rows: list[Row] = []
    weight = 0
    for row in _joined(max_bytes, batches):
        rows.append(row)
        weight += len(row[3] or b"") + len(row[5] or "")
        if weight > _BATCH_BYTES or len(rows) == _BATCH_ROWS:
            yield _documents(rows)
            rows, weight = [], 0
    yield _documents(rows)


def _documents(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [()] * len(_COLUMNS)
    return pa.RecordBatch.from_arrays(list(map(pa.array, columns, _COLUMNS.types)), schema=_COLUMNS)


def _joined(max_bytes: int, batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    growing: _Growing | None = None
    for batch in batches:
        texts = batch.column("text").cast(pa.binary()).to_pylist()
        others = (batch.column(name).to_pylist() for name in ("document", "problem", "source"))
        for text, document, problem, source in zip(texts, *others, strict=True):
            if document is None:
                yield source, None, N_TRIPLES.media_type, None, "", problem
                continue
            if growing is None or growing.uri != document:
                if growing is not None:
                    yield growing.row()
                growing = _Growing(document, source, max_bytes)
            growing.add(text, problem, source)
    if growing is not None:
        yield growing.row()


class _Growing:
    """A document whose statements are still coming."""

    def __init__(self, uri: str, source: str, max_bytes: int) -> None:
        self.uri = uri
        self._source = source
        self._max_bytes = max_bytes
        self._size = 0
        self._last = b""
        self._texts: list[bytes] = []
        self._problems: list[str] = []

    def add(self, text: bytes, problem: str | None, source: str) -> None:
        if source < self._source:
            self._source = source
        if problem is not None:
            if len(self._problems) < MAX_FLAWS:
                self._problems.append(problem)
        elif text != self._last:
            self._last = text
            self._size += len(text) + 1
            if self._size <= self._max_bytes and not self._problems:
                self._texts.append(text)
            else:
                self._texts.clear()

    def row(self) -> Row:
        try:
            self._check()
        except MdvError as error:
            problem = json.dumps(error.problem(), ensure_ascii=False)
            return self._source, self.uri, N_TRIPLES.media_type, None, "", problem
        return self._source, self.uri, N_TRIPLES.media_type, b"\n".join([*self._texts, b""]), "", None

    def _check(self) -> None:
        check_document_uri(self.uri)
        if self._problems:
            errors = [MdvError.from_problem(json.loads(problem)) for problem in self._problems]
            flaws = [flaw for error in errors for flaw in error.flaws]
            raise type(errors[0])(count_flaws(flaws, "The document"), flaws)
        refuse_large(self._size, self._max_bytes)
