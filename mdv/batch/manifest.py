"""A manifest is a table that gives the URI of each file. Spark joins it with the files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mdv.batch.input_paths import find_input_paths
from mdv.errors import BadCommand, BadRequest, MdvError
from mdv.rdf.parse import check_registration_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = "path string, uri string, media_type string"
_SEPARATORS = {".csv": ",", ".tsv": "\t", ".json": None, ".jsonl": None, ".ndjson": None}


def read_manifest(spark: SparkSession, file: str) -> DataFrame:
    """Return the table of a manifest, with the columns path, uri and media_type."""
    from pyspark.sql.functions import lit

    path = find_input_paths(spark, [file]).paths[0]
    name = file.lower().removesuffix(".gz").removesuffix(".bz2")
    suffix = next((suffix for suffix in _SEPARATORS if name.endswith(suffix)), None)
    if suffix is None:
        raise BadCommand(
            f"--manifest {file} has an unknown format. Use a file that ends with one of {', '.join(_SEPARATORS)}."
        )
    if (separator := _SEPARATORS[suffix]) is None:
        return spark.read.json(path, schema=_COLUMNS)
    table = spark.read.csv(path, sep=separator, header=True, escape='"',
                           ignoreLeadingWhiteSpace=True, ignoreTrailingWhiteSpace=True)  # fmt: skip
    table = table.toDF(*(name.strip().strip("\ufeff").lower() for name in table.columns))
    missing = {"path", "uri"} - set(table.columns)
    if missing:
        raise BadCommand(
            f"--manifest {file} has no column {min(missing)}. Its first line must name the columns path and uri, and"
            " optionally media_type."
        )
    return table if "media_type" in table.columns else table.withColumn("media_type", lit(None).cast("string"))


def name_by_manifest(documents: DataFrame, manifest: DataFrame) -> DataFrame:
    """Return the documents with the URIs of the manifest. It names each document by its relative path or by its source.

    A file that the manifest names twice is registered under both URIs. A file that it does not name is refused.
    """
    from pyspark.sql.functions import coalesce, col, udf, when

    manifest = manifest.dropDuplicates(["path", "uri"])
    by_relative_path = manifest.select(
        col("path").alias("relative"), col("uri").alias("uri_below"), col("media_type").alias("type_below")
    )
    by_source = manifest.select(
        col("path").alias("source"), col("uri").alias("uri_whole"), col("media_type").alias("type_whole")
    )
    uri = coalesce("uri_whole", "uri_below")
    problem = coalesce("problem", "refusal")
    return (
        documents.join(by_relative_path, "relative", "left")
        .join(by_source, "source", "left")
        .withColumn("refusal", udf(_refusal, "string", useArrow=True)("source", uri))
        .select(
            "source",
            when(col("refusal").isNull(), uri).alias("uri"),
            coalesce("type_whole", "type_below", "media_type").alias("media_type"),
            when(problem.isNull(), col("content")).alias("content"),
            "rank",
            problem.alias("problem"),
        )
    )


def _refusal(source: str, uri: str | None) -> str | None:
    """Return the problem with a URI, as JSON."""
    try:
        if not uri:
            raise BadRequest(f"{source} is not in the manifest. Add a line for it.")
        check_registration_uri(uri)
    except MdvError as error:
        return json.dumps(error.problem(), ensure_ascii=False)
    return None
