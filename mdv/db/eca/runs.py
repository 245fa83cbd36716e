"""The rows of runs: traces, the changes that rules made, and how often rules fired."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection

from mdv.db.load_sql import load_sql
from mdv.db.pipeline import Pipeline, TextRow
from mdv.model import Statement, Term

REGISTRATION_RUN, UPDATE_RUN, DETACHED_RUN, COMPENSATION_RUN = "registration", "update", "detached", "compensation"
"""The causes of runs: a registration or an edit; an update; a detached copy; the compensation of other runs."""
REFUSED = "refused"


class RuleCount(NamedTuple):
    """How often a rule fired and failed in a run. `ran`: its actions ran there, and not only in detached copies."""

    fired: int
    failed: int
    ran: bool


class ParentCopy(NamedTuple):
    """The copy that a transaction executes: the run in which its rule fired, its number there, and the first run of the
    chain of detached copies. `aborted`: the copy that is compensated if this one fails, if any."""

    run: int
    copy: int
    origin: int
    aborted: int | None = None


class StoredCopy(NamedTuple):
    """A copy of a run. `parent`: the number of the copy whose update triggered it; -1 for the transaction itself."""

    parent: int
    rule: int
    name: str | None
    abort: str
    state: str


class RunRecord(NamedTuple):
    """A run to be stored. `subject`: the document that was registered or updated. `counts`: how often each rule fired
    and failed. `parent`: the copy that it executes, for a detached one."""

    cause: str
    subject: str | None
    outcome: str
    fired: int
    trace: Mapping[str, Any]
    changes: Sequence[Mapping[str, Any]]
    counts: Mapping[int, RuleCount]
    by: str | None
    copies: Sequence[StoredCopy] = ()
    parent: ParentCopy | None = None


class StoredRun(NamedTuple):
    """A run as far as compensation needs it. `compensated`: the numbers of copies that were compensated."""

    id: int
    position: int | None
    cause: str
    subject: str | None
    outcome: str
    copies: tuple[StoredCopy, ...]
    compensated: frozenset[int]
    parent_run: int | None
    parent_copy: int | None
    origin: int | None


class StoredChange(NamedTuple):
    """A statement that an action of a run added to a document or removed from it. `copy`: None for the actions of the
    transaction itself. `change`: equal for the old and the new value of an UPDATE."""

    copy: int | None
    step: int
    change: int
    rule_id: int | None
    rule_name: str | None
    is_added: bool
    document: str
    statement: Statement


class DetachedJob(NamedTuple):
    """A detached copy to be queued as a job. `body`: what is needed to execute it."""

    uri: str
    copy: int
    by: str | None
    body: str


def store_run(connection: Connection, position: int | None, run: RunRecord) -> int:
    """Store a run, and return its ID. `position`: None if the change was refused."""
    with Pipeline(connection) as pipeline:
        stored = queue_run(pipeline, position, run)
    return stored()


def queue_run(pipeline: Pipeline, position: int | None, run: RunRecord) -> Callable[[], int]:
    """Queue a run to be stored. Return a function that returns its ID, once the pipeline was sent."""
    sql = load_sql("eca")
    counts = [{"rule_id": rule, **count._asdict()} for rule, count in run.counts.items()]
    parent = run.parent[:3] if run.parent is not None else (None, None, None)
    stored = pipeline.queue_named(
        sql["insert_run"], position=position, cause=run.cause, subject=run.subject, outcome=run.outcome,
        fired=run.fired, trace=_json(run.trace), by=run.by, copies=_json(run.copies), parent_run=parent[0],
        parent_copy=parent[1], origin=parent[2], rules=_json(sorted(run.counts)), changes=_json(run.changes),
    )  # fmt: skip
    if counts:
        pipeline.queue_named(sql["count_fired"], counts=_json(counts))
    return lambda: int(stored.rows()[0][0] or 0)


def queue_detached(connection: Connection, run: int, jobs: Sequence[DetachedJob], priority: int) -> None:
    """Queue the detached copies of a run as jobs."""
    with Pipeline(connection) as pipeline:
        pipeline.queue_named(
            load_sql("eca")["queue_detached"], run=run, jobs=_json([job._asdict() for job in jobs]), priority=priority
        )  # fmt: skip


def count_detached(connection: Connection, origin: int) -> int:
    """Return how many detached copies have run because of a run."""
    ((number,),) = _query(connection, "count_detached", origin=origin)
    return int(number or 0)


def read_runs(connection: Connection, numbers: Collection[int]) -> list[StoredRun]:
    """Return runs by ID. Those that are not kept any more are missing."""
    return [_stored_run(row) for row in _query(connection, "read_runs", runs=_json(list(numbers)))]


def read_detached_runs(connection: Connection, numbers: Collection[int]) -> list[StoredRun]:
    """Return the completed runs of the detached copies of runs."""
    return [_stored_run(row) for row in _query(connection, "read_detached_runs", runs=_json(list(numbers)))]


def read_later_runs(connection: Connection, position: int, most: int) -> list[StoredRun]:
    """Return the first runs at a position and after it, without compensations."""
    return [_stored_run(row) for row in _query(connection, "read_later_runs", position=position, most=most)]


def read_changes(connection: Connection, run: int) -> list[StoredChange]:
    """Return the changes of the actions of a run, in order."""
    return [
        StoredChange(
            _int(copy), int(step or 0), int(change or 0), _int(rule), name, is_added == "t", document or "",
            Statement(subject or "", property_ or "", _term(term)),
        )
        for copy, step, change, rule, name, is_added, document, subject, property_, term in _query(
            connection, "read_changes", run=run
        )
    ]  # fmt: skip


def read_net_changes(connection: Connection, position: int, document: str) -> list[tuple[bool, Statement]]:
    """Return the net change of a document in a transaction: the statements that it gained (True) and lost."""
    return [
        (
            is_added == "t",
            Statement(
                subject or "",
                name or "",
                Term.uri(target) if target is not None else Term.literal(value or "", lang, datatype),
            ),
        )
        for is_added, subject, name, target, value, lang, datatype in _query(
            connection, "read_net_changes", position=position, document=document
        )
    ]


def queue_compensation(
    connection: Connection, run: int, copies: Collection[int] | None, reason: str, by: str | None, priority: int
) -> UUID:
    """Queue the compensation of a run, or of some of its copies, as a job. Return its ID."""
    values = {"run": run, "copies": _json(None if copies is None else sorted(copies)), "reason": reason, "by": by}
    found = _query(connection, "queue_compensation", uri=run_uri(run), priority=priority, **values)
    return UUID(found[0][0])


def run_uri(run: int) -> str:
    """Return the URI that identifies a run in jobs."""
    return f"urn:mdv:eca:run:{run}"


def mark_compensated(connection: Connection, copies: Mapping[int, Collection[int]]) -> None:
    """Record that copies were compensated, by run."""
    rows = [{"id": run, "numbers": sorted(numbers)} for run, numbers in copies.items()]
    with Pipeline(connection) as pipeline:
        pipeline.queue_named(load_sql("eca")["mark_compensated"], runs=_json(rows))


def delete_old_runs(connection: Connection, seconds: float, most: int) -> int:
    """Delete at most `most` runs that are older than `seconds`. The changes of their rules stay recorded."""
    with Pipeline(connection) as pipeline:
        done = pipeline.queue_named(load_sql("eca")["delete_old_runs"], seconds=seconds, most=most)
    return done.changed_rows


def _stored_run(row: TextRow) -> StoredRun:
    number, position, cause, subject, outcome, copies, compensated, parent_run, parent_copy, origin = row
    return StoredRun(
        int(number or 0), _int(position), cause or "", subject, outcome or "",
        tuple(StoredCopy(*one) for one in json.loads(copies or "[]")), frozenset(json.loads(compensated or "[]")),
        _int(parent_run), _int(parent_copy), _int(origin),
    )  # fmt: skip


def _int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _term(text: str | None) -> Term:
    found = json.loads(text or "{}")
    return Term(found["type"], found["value"], found.get("lang"), found.get("datatype"))


def _query(connection: Connection, statement: str, **values: object) -> list[TextRow]:
    with Pipeline(connection) as pipeline:
        found = pipeline.queue_named(load_sql("eca")[statement], **values)
    return found.rows()


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
