"""Find the documents that the arguments of a command line name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mdv.batch.document_naming import Naming
from mdv.batch.dumps import count_documents, dump_documents
from mdv.batch.file_source import find_files
from mdv.errors import BadCommand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mdv.batch.spark_preparation import DocumentSource


@dataclass(frozen=True, slots=True)
class DumpSource:
    """The documents of N-Triples and N-Quads dumps."""

    spark: SparkSession
    paths: tuple[str, ...]
    by: str | None
    max_bytes: int

    def listing(self) -> None:
        """Return None: the statements of a document are grouped, so no document occurs twice."""

    def documents(self) -> DataFrame:
        return dump_documents(self.spark, self.paths, self.by, self.max_bytes)

    def count(self) -> int:
        return count_documents(self.spark, self.paths, self.by, self.max_bytes)


def find_document_source(
    spark: SparkSession,
    paths: Sequence[str],
    naming: Naming,
    syntax: str | None,
    by: str | None,
    max_bytes: int,
    below: str | None = None,
) -> DocumentSource:
    """Return the documents of files, folders, globs and archives, or those of dumps."""
    found = find_files(spark, paths, naming, syntax, max_bytes, below)
    if not found.dumps:
        refuse_by(by)
        return found
    if naming != Naming():
        raise BadCommand(
            "In a dump, graphs and subjects name the documents. Use --by instead of --uri, --uri-base or --manifest."
        )
    return DumpSource(spark, found.dumps, by, max_bytes)


def refuse_by(by: str | None) -> None:
    """Refuse --by for documents."""
    if by is not None:
        raise BadCommand(
            "--by applies to dumps of N-Triples and N-Quads only. These inputs are documents; name them with --uri."
        )
