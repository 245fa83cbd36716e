"""Documents for batch runs, directly from memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mdv.batch.local_preparation import ListedDocument
from mdv.batch.prepare_partition import InputDocument
from mdv.batch.spark_schemas import DOCUMENT_COLUMNS, LISTING_COLUMNS
from mdv.mdp.register import prepare
from tests.support.catalogues import BASE
from tests.support.mdp import Mdp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MEDIA_TYPES = {".rdf": "application/rdf+xml", ".ttl": "text/turtle", ".jsonld": "application/ld+json"}


class Listed:
    """Documents by name, or as pairs if a name occurs twice; their URIs are below `base`."""

    def __init__(
        self, spark: SparkSession, files: dict[str, bytes] | list[tuple[str, bytes]], base: str, partitions: int = 2
    ) -> None:
        pairs = list(files.items()) if isinstance(files, dict) else files
        self._spark = spark
        self._partitions = partitions
        self._rows = [
            (name, base + name, MEDIA_TYPES[name[name.rindex(".") :]], text, f"{number:09}", None)
            for number, (name, text) in enumerate(pairs)
        ]

    def listing(self) -> DataFrame:
        return self._spark.createDataFrame([(row[0], row[1], row[4]) for row in self._rows], LISTING_COLUMNS)

    def documents(self) -> DataFrame:
        rows = self._spark.sparkContext.parallelize(self._rows, self._partitions)
        return self._spark.createDataFrame(rows, DOCUMENT_COLUMNS)

    def count(self) -> int:
        return len(self._rows)


class ListedLocally:
    """The same for runs without Spark."""

    def __init__(self, files: dict[str, bytes] | list[tuple[str, bytes]], base: str) -> None:
        pairs = list(files.items()) if isinstance(files, dict) else files
        self._rows = [
            InputDocument(name, base + name, MEDIA_TYPES[name[name.rindex(".") :]], text, f"{number:09}", None)
            for number, (name, text) in enumerate(pairs)
        ]

    def listing(self) -> Iterator[ListedDocument]:
        return (ListedDocument(row.source, row.uri) for row in self._rows)

    def documents(self) -> Iterator[InputDocument]:
        return iter(self._rows)


def register_one_by_one(mdp: Mdp, files: dict[str, bytes]) -> None:
    with mdp.engine.connect() as connection:
        schema = mdp.schemas.now(connection)
    for name, text in files.items():
        media_type = MEDIA_TYPES[name[name.rindex(".") :]]
        mdp.register_batch([prepare(BASE + name, text, media_type, schema)])
