"""The rows of runs: traces, the changes that rules made, and how often rules fired."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.db.load_sql import load_sql
from mdv.db.pipeline import Pipeline


class RunRecord(NamedTuple):
    """A run to be stored. `subject`: the document that was registered or updated. `counts`: how often each rule fired
    and failed."""

    cause: str
    subject: str | None
    outcome: str
    fired: int
    trace: Mapping[str, Any]
    changes: Sequence[Mapping[str, Any]]
    counts: Mapping[int, tuple[int, int]]
    by: str | None


def store_run(connection: Connection, position: int | None, run: RunRecord) -> int:
    """Store a run, and return its ID. `position`: None if the change was refused."""
    sql = load_sql("eca")
    counts = [{"rule_id": rule, "fired": fired, "failed": failed} for rule, (fired, failed) in run.counts.items()]
    with Pipeline(connection) as pipeline:
        stored = pipeline.queue_named(
            sql["insert_run"], position=position, cause=run.cause, subject=run.subject, outcome=run.outcome,
            fired=run.fired, trace=_json(run.trace), by=run.by,
        )  # fmt: skip
        if counts:
            pipeline.queue_named(sql["count_fired"], counts=_json(counts))
    number = int(stored.rows()[0][0] or 0)
    if run.changes:
        with Pipeline(connection) as pipeline:
            pipeline.queue_named(sql["insert_changes"], position=position, run=number, changes=_json(run.changes))
    return number


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
