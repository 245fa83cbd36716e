"""Turn N-Triples and N-Quads dumps of any size into documents. Each line is parsed by itself.

A statement belongs to the document that its graph names. Without a graph, its subject determines the document. Blank
nodes determine none. The rules are:

1. Statements that share a blank node belong to one document, since a blank node cannot be in two documents. If one of
   these statements has a document, it is the document of all of them, over any number of steps.
2. If such statements have several documents, each of these documents is refused, because none of them would be
   complete. If they have no document, the statements are refused.
3. A label denotes the same node within a file, and a different node in every other file.
4. A line that cannot be parsed refuses the document that it seems to describe, so that no document is registered in
   part.
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

from mdv.batch.dump_lines import ParsedLine, excerpt, malformed_line, parse_line, problem_json
from mdv.batch.spark_schemas import DOCUMENT_COLUMNS
from mdv.errors import BadCommand, InvalidDocument, MdvError, TooLarge
from mdv.rdf.gate import refuse_too_large
from mdv.rdf.gated import summarise_flaws
from mdv.rdf.parse import MAX_FLAWS, check_registration_uri
from mdv.rdf.syntax import N_TRIPLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATEMENT_COLUMNS = "document string, node string, other string, text string, problem string, source string"
"""The content of a line (`mdv.batch.dump_lines.ParsedLine`), and its file."""

BLANK_NODE_COLUMNS = "node string, root string, document string, text string, source string"
"""A blank node, the root of its connected component, and a document of the component. A row with a text is a statement
about the node that has no document of its own."""

MAX_COMPONENT_ROUNDS = 40
"""The number of rounds grows with the logarithm of the longest chain of blank nodes."""

BlankNodeRow = tuple[str, str, str | None, str | None, str]
DocumentRow = tuple[str, str | None, str, bytes | None, str, str | None]
"""A document in the columns of `DOCUMENT_COLUMNS`, whose Arrow schema follows."""
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
_MARK_LENGTH = 17
"""Length of the prefix that marks a label with its file: a hash and an underscore."""
_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_ROWS = 1000


def dump_documents(spark: SparkSession, paths: Sequence[str], by: str | None, max_bytes: int) -> DataFrame:
    """Return the documents of dumps, in the columns of `DOCUMENT_COLUMNS`. No document occurs twice.

    `by` is a regular expression for statements without a graph. It finds the document at the beginning of the subject
    (its first group, if it has one). Without `by`, the document is the subject without its fragment.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    pattern = _compile_pattern(by)
    lines = _lines(spark, paths, max_bytes)
    statements = lines.mapInArrow(partial(_parse_statements, pattern, max_bytes), STATEMENT_COLUMNS)
    lines_with_blank_nodes = lines.where(F.contains("line", F.lit(bytearray(b"_:"))))
    blank_nodes = lines_with_blank_nodes.mapInArrow(
        partial(_connect_blank_nodes, pattern, max_bytes), BLANK_NODE_COLUMNS
    ).persist(StorageLevel.DISK_ONLY)
    if blank_nodes.isEmpty():
        blank_nodes.unpersist()
    else:
        statements = statements.where("document is not null or problem is not null").unionByName(
            _assign_documents(blank_nodes)
        )
    ordered = (
        statements.select("document", "text", "problem", "source")
        .repartition(F.coalesce("document", "text"))
        # Hashes are compared faster than names. Sorting the texts makes the same dump yield the same bytes next time.
        .sortWithinPartitions(F.xxhash64("document"), "document", "text")
    )
    return ordered.mapInArrow(partial(_join_statements, max_bytes), DOCUMENT_COLUMNS)


def count_documents(spark: SparkSession, paths: Sequence[str], by: str | None, max_bytes: int) -> int:
    """Return the approximate number of documents (within a few percent) for a progress bar, in one pass over the
    lines."""
    from pyspark.sql import functions as F

    read = _lines(spark, paths, max_bytes).mapInArrow(
        partial(_documents_only, _compile_pattern(by), max_bytes), "document string"
    )
    return int(read.agg(F.approx_count_distinct("document", 0.02)).collect()[0][0])


def _compile_pattern(by: str | None) -> re.Pattern[str] | None:
    try:
        return None if by is None else re.compile(by)
    except re.error as error:
        raise BadCommand(f"--by {by} is not a regular expression: {error}.") from None


def _lines(spark: SparkSession, paths: Sequence[str], max_bytes: int) -> DataFrame:
    """Return the lines as bytes, which need not be UTF-8, with their files. Lines over the size limit are cut just
    above it."""
    from pyspark.sql import functions as F

    read = spark.read.option("recursiveFileLookup", True).text(list(paths))
    line = F.col("value").cast("binary")
    cut = F.when(F.octet_length("value") > max_bytes, F.substring(line, 1, max_bytes + 1)).otherwise(line)
    return read.select(cut.alias("line"), F.col("_metadata.file_path").alias("file"))


def _parse_batches(
    by: re.Pattern[str] | None, max_bytes: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[list[ParsedLine], list[str]]]:
    """Yield the parsed lines of each batch, and the file of each line."""
    for batch in batches:
        files = batch.column(1).dictionary_encode()
        sources = [_source(file) for file in files.dictionary.to_pylist()]
        marks = [blake2b(file.encode(), digest_size=8).hexdigest() + "_" for file in files.dictionary.to_pylist()]
        parsed: list[ParsedLine] = []
        line_sources: list[str] = []
        for line, file in zip(batch.column(0).to_pylist(), files.indices.to_pylist(), strict=True):
            text = line.decode("utf-8", "surrogateescape")
            if len(line) > max_bytes:
                found: ParsedLine | None = malformed_line(
                    text, f"it has more than {max_bytes:,} bytes, the limit for a document", by
                )
            else:
                found = parse_line(text, marks[file], by)
            if found is not None:
                parsed.append(found)
                line_sources.append(sources[file])
        yield parsed, line_sources


def _parse_statements(
    by: re.Pattern[str] | None, max_bytes: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the statements of lines, in the columns of `STATEMENT_COLUMNS`."""
    for parsed, line_sources in _parse_batches(by, max_bytes, batches):
        columns = [*([one[place] for one in parsed] for place in range(5)), line_sources]
        yield pa.RecordBatch.from_arrays([pa.array(column, pa.string()) for column in columns], _STATEMENT_COLUMNS)


def _documents_only(
    by: re.Pattern[str] | None, max_bytes: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the documents that lines belong to, without duplicates within a batch."""
    for parsed, _ in _parse_batches(by, max_bytes, batches):
        documents = {document for document, *_ in parsed if document is not None}
        yield pa.RecordBatch.from_arrays([pa.array(list(documents), pa.string())], ["document"])


def _source(file: str) -> str:
    """Return the URL of a file in readable form."""
    return unquote(file.removeprefix("file:").replace("///", "/", 1)) if file.startswith("file:") else file


def _connect_blank_nodes(
    by: re.Pattern[str] | None, max_bytes: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the blank nodes of lines, in the columns of `BLANK_NODE_COLUMNS`, connected within each batch of lines.

    Most connected nodes are on nearby lines, so that little remains to be connected over the whole dump.
    """
    for parsed, line_sources in _parse_batches(by, max_bytes, batches):
        parent_of: dict[str, str] = {}
        blank = [
            (document, node, other, text, source)
            for (document, node, other, text, _), source in zip(parsed, line_sources, strict=True)
            if node is not None
        ]
        for _, node, other, *_ in blank:
            _union(parent_of, node, other or node)
        documents_by_top: dict[str, str] = {}
        for document, node, *_ in blank:
            if document is not None:
                root = _find_root(parent_of, node)
                documents_by_top[root] = min(document, documents_by_top.get(root, document))
        blank_nodes: dict[BlankNodeRow, None] = {}
        for document, node, other, text, source in blank:
            root = _find_root(parent_of, node)
            assigned = document or documents_by_top.get(root)  # any of them: if there are several, all are refused
            blank_nodes[node, root, assigned, None, source] = None
            if other is not None:
                blank_nodes[other, root, assigned, None, source] = None
            if document is None:
                blank_nodes[node, root, assigned, text, source] = None
        columns = [pa.array([row[place] for row in blank_nodes], pa.string()) for place in range(5)]
        yield pa.RecordBatch.from_arrays(columns, ["node", "root", "document", "text", "source"])


def _union(parent_of: dict[str, str], one: str, other: str) -> None:
    one, other = _find_root(parent_of, one), _find_root(parent_of, other)
    parent_of[max(one, other)] = min(one, other)


def _find_root(parent_of: dict[str, str], node: str) -> str:
    while (parent := parent_of.setdefault(node, node)) != node:
        parent_of[node] = parent_of[parent]  # path halving
        node = parent
    return node


def _assign_documents(blank_nodes: DataFrame) -> DataFrame:
    """Return the statements about blank nodes with their documents, and a refusal for each document that shares a
    node."""
    from pyspark.sql import functions as F

    nothing = F.lit(None).cast("string")
    nodes = blank_nodes.where("text is null")
    seams = nodes.groupBy("node").agg(F.min("root").alias("least"), F.max("root").alias("most")).where("least < most")
    links = nodes.join(seams, "node").where("root <> least").select(F.col("root").alias("node"), "least")
    tops = _connected_components(links.toDF("node", "other")).toDF("root", "top")

    def with_top(some: DataFrame) -> DataFrame:
        return some.join(tops, "root", "left").withColumn("top", F.coalesce("top", "root"))

    with_document = with_top(nodes.where("document is not null"))
    documents_by_top = with_document.groupBy("top").agg(
        F.min("document").alias("home"), F.max("document").alias("last")
    )
    undecided = blank_nodes.where("text is not null").withColumn("other", nothing).withColumn("problem", nothing)
    decided_locally = undecided.where("document is not null").drop("root")
    decided_globally = (
        with_top(undecided.where("document is null"))
        .join(documents_by_top, "top", "left")
        .select("node", F.col("home").alias("document"), "text", "source", "other", "problem")
    )
    shared = (
        with_document.join(documents_by_top.where("home < last"), "top")
        .withColumn("other", F.when(F.col("document") == F.col("home"), F.col("last")).otherwise(F.col("home")))
        .groupBy("document")
        .agg(F.min("node").alias("node"), F.min_by("other", "node").alias("other"), F.min("source").alias("source"))
        .select("node", "document", nothing.alias("text"), "source", "other", nothing.alias("problem"))
    )
    refused = (
        decided_globally.where("document is null").unionByName(shared).mapInArrow(_add_problems, STATEMENT_COLUMNS)
    )
    return decided_locally.unionByName(decided_globally.where("document is not null")).unionByName(refused)


def _connected_components(links: DataFrame) -> DataFrame:
    """Return the connected components: for each node of `links` except the smallest of its component, that smallest
    node.

    Links are turned into stars, alternately from the greater and from the smaller nodes, until nothing changes (Kiveris
    et al., Connected Components in MapReduce and Beyond, 2014).
    """
    from pyspark.sql import functions as F

    pair = [F.greatest("node", "other").alias("node"), F.least("node", "other").alias("other")]
    links = _truncate_lineage(links.select(*pair).where("node <> other").distinct())
    if links.isEmpty():
        return links
    before = None
    for _ in range(MAX_COMPONENT_ROUNDS):
        links = _truncate_lineage(_star_step(_star_step(links, greater=True), greater=False))
        now = links.agg(F.count("*"), F.bit_xor(F.xxhash64("node", "other"))).first()
        if now == before:
            return links
        before = now
    raise TooLarge("The blank nodes of the dump form chains that are too long to follow. Give these nodes URIs.")


def _star_step(links: DataFrame, greater: bool) -> DataFrame:
    """One step: link the greater neighbors of a node, or its smaller neighbors and itself, with the smallest of
    them."""
    from pyspark.sql import functions as F

    around = links.union(links.select("other", "node")) if greater else links
    least = around.groupBy("node").agg(F.min("other").alias("least"))
    if greater:
        least = least.withColumn("least", F.least("node", "least"))
    ends = around.join(least, "node").where("other > node" if greater else "other <> least")
    stars = ends.select(F.col("other").alias("node"), F.col("least").alias("other"))
    return (stars if greater else stars.union(least)).distinct()


def _truncate_lineage(frame: DataFrame) -> DataFrame:
    """Return the same rows without their lineage, which would double with every round.

    They are stored in Spark's checkpoint directory (`spark.checkpoint.dir`), or else on the executors.
    """
    kept = frame.sparkSession.sparkContext.getCheckpointDir()
    return frame.checkpoint() if kept else frame.localCheckpoint()


def _add_problems(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add a problem to statements that have no document, and to documents that share a blank node with another."""
    for batch in batches:
        rows = batch.to_pylist()
        for row in rows:
            mark, label = row["node"][:_MARK_LENGTH], row["node"][_MARK_LENGTH:]
            if row["document"] is not None:
                reason = (
                    f"the blank node _:{label} is also in the document {row['other']}, but must be in one document only"
                )
            else:
                text = excerpt(row["text"].replace(mark, ""))
                reason = f"the blank node _:{label} is not linked to any document, in `{text}`"
            row["problem"] = problem_json(InvalidDocument, reason)
        columns = [pa.array([row[name] for row in rows], pa.string()) for name in _STATEMENT_COLUMNS]
        yield pa.RecordBatch.from_arrays(columns, _STATEMENT_COLUMNS)


def _join_statements(max_bytes: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield documents, joined from consecutive statements of the same document. Only a limited number is held at a
    time."""
    rows: list[DocumentRow] = []
    weight = 0
    for row in _iterate_documents(max_bytes, batches):
        rows.append(row)
        weight += len(row[3] or b"") + len(row[5] or "")
        if weight > _BATCH_BYTES or len(rows) == _BATCH_ROWS:
            yield _encode_documents(rows)
            rows, weight = [], 0
    yield _encode_documents(rows)


def _encode_documents(rows: list[DocumentRow]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [()] * len(_COLUMNS)
    return pa.RecordBatch.from_arrays(list(map(pa.array, columns, _COLUMNS.types)), schema=_COLUMNS)


def _iterate_documents(max_bytes: int, batches: Iterator[pa.RecordBatch]) -> Iterator[DocumentRow]:
    partial_document: _PartialDocument | None = None
    for batch in batches:
        texts = batch.column("text").cast(pa.binary()).to_pylist()
        others = (batch.column(name).to_pylist() for name in ("document", "problem", "source"))
        for text, document, problem, source in zip(texts, *others, strict=True):
            if document is None:
                yield source, None, N_TRIPLES.media_type, None, "", problem
                continue
            if partial_document is None or partial_document.uri != document:
                if partial_document is not None:
                    yield partial_document.row()
                partial_document = _PartialDocument(document, source, max_bytes)
            partial_document.add(text, problem, source)
    if partial_document is not None:
        yield partial_document.row()


class _PartialDocument:
    """A document whose statements are still being read."""

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

    def row(self) -> DocumentRow:
        try:
            self._check()
        except MdvError as error:
            problem = json.dumps(error.problem(), ensure_ascii=False)
            return self._source, self.uri, N_TRIPLES.media_type, None, "", problem
        return self._source, self.uri, N_TRIPLES.media_type, b"\n".join([*self._texts, b""]), "", None

    def _check(self) -> None:
        check_registration_uri(self.uri)
        if self._problems:
            errors = [MdvError.from_problem(json.loads(problem)) for problem in self._problems]
            flaws = [flaw for error in errors for flaw in error.flaws]
            raise type(errors[0])(summarise_flaws(flaws, "The document"), flaws)
        refuse_too_large(self._size, self._max_bytes)
