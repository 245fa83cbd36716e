"""Documents for runs, straight from memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mdv.batch.shape import DOCUMENTS, LISTING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MEDIA_TYPES = {".rdf": "application/rdf+xml", ".ttl": "text/turtle", ".jsonld": "application/ld+json"}


class Listed:
    """Documents by name, or as pairs where a name comes twice; their URIs are below `base`."""

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
        return self._spark.createDataFrame([(row[0], row[1], row[4]) for row in self._rows], LISTING)

    def documents(self) -> DataFrame:
        rows = self._spark.sparkContext.parallelize(self._rows, self._partitions)
        return self._spark.createDataFrame(rows, DOCUMENTS)

    def count(self) -> int:
        return len(self._rows)
