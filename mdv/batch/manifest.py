"""Manifest: a table that says the URI of each file, joined with the files by Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mdv.batch.arguments import find_arguments
from mdv.errors import BadCommand, BadRequest, MdvError
from mdv.rdf.parse import check_document_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TABLE = "path string, uri string, media_type string"
_FORMATS = {".csv": ",", ".tsv": "\t", ".json": None, ".jsonl": None, ".ndjson": None}


def read_manifest(spark: SparkSession, file: str) -> DataFrame:
    """The table of a manifest, with the columns path, uri and media_type."""
    from pyspark.sql.functions import lit

    path = find_arguments(spark, [file]).paths[0]
    name = file.lower().removesuffix(".gz").removesuffix(".bz2")
    suffix = next((suffix for suffix in _FORMATS if name.endswith(suffix)), None)
    if suffix is None:
        raise BadCommand(f"--manifest {file} is none of {', '.join(_FORMATS)}, so how to read it cannot be told.")
    if (separator := _FORMATS[suffix]) is None:
        return spark.read.json(path, schema=_TABLE)
    table = spark.read.csv(path, sep=separator, header=True, escape='"',
                           ignoreLeadingWhiteSpace=True, ignoreTrailingWhiteSpace=True)  # fmt: skip
    table = table.toDF(*(name.strip().strip("\ufeff").lower() for name in table.columns))
    missing = {"path", "uri"} - set(table.columns)
    if missing:
        raise BadCommand(
            f"--manifest {file} has no column {min(missing)}: its first line names the columns path, uri and, if it is"
            " to say it, media_type."
        )
    return table if "media_type" in table.columns else table.withColumn("media_type", lit(None).cast("string"))


def name_by_manifest(documents: DataFrame, manifest: DataFrame) -> DataFrame:
    """Documents with the URIs of the manifest, which speaks of each by its path below what was given or by its source.

    A file that it names twice is registered under both URIs, one that it does not name is refused.
    """
    from pyspark.sql.functions import coalesce, col, udf, when

    manifest = manifest.dropDuplicates(["path", "uri"])
    below = manifest.select(
        col("path").alias("relative"), col("uri").alias("uri_below"), col("media_type").alias("type_below")
    )
    whole = manifest.select(
        col("path").alias("source"), col("uri").alias("uri_whole"), col("media_type").alias("type_whole")
    )
    uri = coalesce("uri_whole", "uri_below")
    problem = coalesce("problem", "refusal")
    return (
        documents.join(below, "relative", "left")
        .join(whole, "source", "left")
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
    """The problem with a URI, as JSON."""
    try:
        if not uri:
            raise BadRequest(f"{source} is not in the manifest.")
        check_document_uri(uri)
    except MdvError as error:
        return json.dumps(error.problem(), ensure_ascii=False)
    return None
