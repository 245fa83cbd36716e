"""Read runs of `mdv batch`, and the documents that they registered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, func, select

from mdv.db.batch import BatchProgress, caller_of_run, read_examples, read_run
from mdv.db.engine import driver
from mdv.db.load_sql import load_sql
from mdv.db.tables import batch_runs

_COLUMNS = (
    batch_runs.c.id,
    batch_runs.c.what,
    batch_runs.c.state,
    batch_runs.c.started_at,
    func.coalesce(batch_runs.c.ended_at, batch_runs.c.heard_at),
)


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run with its progress. `what`: its input; `until`: its end or its last sign of life."""

    progress: BatchProgress
    id: UUID
    what: str
    state: str
    started_at: datetime
    until: datetime

    @property
    def is_running(self) -> bool:
        return self.state == "running"

    @property
    def documents(self) -> int:
        """The number of documents that made a version."""
        return self.progress.registered + self.progress.changed

    @property
    def unchanged(self) -> int:
        return self.progress.unchanged + self.progress.skipped

    @property
    def refused(self) -> int:
        return self.progress.refused + self.progress.rejected

    @property
    def finished(self) -> int:
        """The number of documents that are registered, unchanged or refused."""
        return self.documents + self.unchanged + self.refused


class RunDocument(NamedTuple):
    """A document that a run registered or changed, and the version that it made, with its numbers of resources."""

    id: int
    uri: str
    version: int
    inserted: int
    updated: int
    deleted: int


def list_runs(connection: Connection, limit: int) -> list[ListedRun]:
    """List the newest runs."""
    query = select(*_COLUMNS).where(~batch_runs.c.dry_run).order_by(batch_runs.c.started_at.desc()).limit(limit)
    return [_with_progress(connection, row) for row in connection.execute(query).all()]


def find_run(connection: Connection, run: UUID) -> ListedRun | None:
    row = connection.execute(select(*_COLUMNS).where(batch_runs.c.id == run)).one_or_none()
    return None if row is None else _with_progress(connection, row)


def _with_progress(connection: Connection, row: Iterable[Any]) -> ListedRun:
    run, *others = row
    return ListedRun(read_run(connection, run), run, *others)


def list_run_documents(connection: Connection, run: UUID, after: int, limit: int) -> list[RunDocument]:
    """List a page of the documents that a run registered or changed."""
    values = {"caller": caller_of_run(run), "after": after, "limit": limit}
    return [
        RunDocument(*row)
        for row in driver(connection).execute(load_sql("batch_runs", __package__)["documents"], values)
    ]


def list_refused_examples(connection: Connection, run: UUID, limit: int) -> Sequence[dict[str, Any]]:
    """List examples of the documents that were refused before promotion."""
    return read_examples(connection, run, limit)
