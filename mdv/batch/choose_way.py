"""Choose how a batch is prepared: in this process if it is small, otherwise on Spark, whose start takes seconds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mdv.batch.document_naming import Naming
from mdv.batch.document_source import refuse_by
from mdv.batch.file_source import no_documents_error
from mdv.batch.input_paths import local_path
from mdv.batch.local_source import FoundFiles, LocalSource, find_local_files

MAX_LOCAL_FILES = 10_000
MAX_LOCAL_BYTES = 16 << 20
"""Limits of a batch that is prepared without Spark: one core prepares them in about the time that Spark needs to start
(docs/batch.md has measurements)."""
ARCHIVE_EXPANSION_FACTOR = 15
"""How much larger the documents of an archive are than the archive, about."""


class ChosenWay(NamedTuple):
    """How a batch is prepared, with the reason. Without a source, it is prepared on Spark."""

    source: LocalSource | None
    reason: str


@dataclass(frozen=True, slots=True)
class BatchInput:
    """What a command line says about its input. `needs_spark`: the options that only Spark has."""

    paths: Sequence[str]
    naming: Naming
    syntax: str | None
    by: str | None
    rejects: str | None
    max_bytes: int
    needs_spark: Sequence[str]


def choose_way(given: BatchInput) -> ChosenWay:
    """Choose the way that is faster for the input, among those that can read it."""
    if given.needs_spark:
        return ChosenWay(None, given.needs_spark[0])
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return ChosenWay(None, "started by spark-submit")
    if given.naming.manifest is not None:
        return ChosenWay(None, "--manifest is read by Spark")
    if any(local_path(path) is None for path in (*given.paths, *([given.rejects] if given.rejects else []))):
        return ChosenWay(None, "a path is not on this machine")
    found = find_local_files(given.paths, given.syntax, MAX_LOCAL_FILES)
    if found is None:
        return ChosenWay(None, f"more than {MAX_LOCAL_FILES:,} files")
    if found.dumps:
        return ChosenWay(None, "dumps are split into documents by Spark")
    if not found.count:
        raise no_documents_error(given.paths)
    refuse_by(given.by)
    size = _document_bytes(found)
    if size > MAX_LOCAL_BYTES:
        return ChosenWay(None, f"about {size / 1e6:,.0f} MB, more than {MAX_LOCAL_BYTES / 1e6:,.0f} MB")
    files = f"{found.count:,} {'file' if found.count == 1 else 'files'}"
    return ChosenWay(LocalSource(found, given.naming, given.syntax, given.max_bytes), f"{files}, {size / 1e6:,.1f} MB")


def _document_bytes(found: FoundFiles) -> int:
    archives = sum(file.size for file in found.archives)
    return found.bytes + (ARCHIVE_EXPANSION_FACTOR - 1) * archives
