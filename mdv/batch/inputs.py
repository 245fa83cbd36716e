"""Inputs: whatever a command line names, as documents for a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mdv.batch.dumps import count_documents, dump_documents
from mdv.batch.names import Naming
from mdv.batch.read import find_inputs
from mdv.errors import BadCommand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mdv.batch.run import Incoming


@dataclass(frozen=True, slots=True)
class Dumps:
    """The documents of N-Triples and N-Quads."""

    spark: SparkSession
    paths: tuple[str, ...]
    by: str | None
    max_bytes: int

    def listing(self) -> None:
        """Statements about one document come together, so none is there twice."""

    def documents(self) -> DataFrame:
        return dump_documents(self.spark, self.paths, self.by, self.max_bytes)

    def count(self) -> int:
        return count_documents(self.spark, self.paths, self.by, self.max_bytes)


def find_incoming(
    spark: SparkSession,
    paths: Sequence[str],
    naming: Naming,
    syntax: str | None,
    by: str | None,
    max_bytes: int,
    below: str | None = None,
) -> Incoming:
    """The documents of files, folders, globs and archives, or those of dumps."""
    found = find_inputs(spark, paths, naming, syntax, max_bytes, below)
    if not found.dumps:
        if by is not None:
            raise BadCommand("--by is for dumps of N-Triples and N-Quads; these are documents, which --uri names.")
        return found
    if naming != Naming():
        raise BadCommand("In a dump the graphs and subjects name the documents (see --by), not --uri and its like.")
    return Dumps(spark, found.dumps, by, max_bytes)
