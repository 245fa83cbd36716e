"""What a program would do, without running it: its plan, counts of what it reads, and what it may read and write."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg

from mdv.db.real.statement_reader import StatementReader
from mdv.db.real.view import PostgresView
from mdv.inspect.real_actions import ActionCatalogue
from mdv.inspect.run_program import MAX_READ_SECONDS
from mdv.mdp.real.program_text import mark_json, parse_code, span_of
from mdv.mdp.schemas import SchemaInForce
from mdv.real.check import check_program
from mdv.real.machine_state import ProgramFault
from mdv.real.plan import (
    PatternTerms,
    PlannedRead,
    PlannedWrite,
    PlanStep,
    ProgramPlan,
    distinct_reads,
    distinct_writes,
    plan_program,
)
from mdv.real.store import ReadPattern

MAX_COUNT = 1000
"""A read is counted up to this number of statements."""
MAX_COUNTED = 50
COUNT_SECONDS = 5.0
"""Time limit of all counts together."""
MAX_SHOWN_TEXT = 300
MAX_LISTED = 500
"""Reads, and likewise writes, in an answer."""


def explain_program(
    session: psycopg.Connection[Any],
    schema: SchemaInForce,
    code: str,
    prefixes: Mapping[str, str],
    into: str,
    inputs: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the plan of a program as JSON, with the statements of the current position."""
    program = parse_code(code, schema.schema, prefixes)
    reader = StatementReader(session, MAX_READ_SECONDS)
    position, _ = reader.position()
    view = PostgresView(position, schema.schema, schema.statements)
    view.use(reader)
    catalogue = ActionCatalogue(view)
    plan = plan_program(program, code, into, catalogue.find, frozenset(inputs))
    signatures = {iri: found.signature for iri in plan.calls if (found := catalogue.find(iri)) is not None}
    marks = check_program(program, schema.schema, signatures, frozenset(inputs))
    session.rollback()
    counts = dict(_counts(session, view, plan.steps))
    return {
        "position": position,
        "steps": [_step_json(code, step, counts) for step in plan.steps],
        **effects_json(plan),
        "warnings": [mark_json(code, mark) for mark in marks],
    }


def effects_json(plan: ProgramPlan) -> dict[str, Any]:
    """Return what a program may read and write. `complete` is false if it may do more; `gaps` says why."""
    reads, writes = distinct_reads(plan.reads), distinct_writes(plan.writes)
    return {
        "may_read": [_read_json(one) for one in reads[:MAX_LISTED]],
        "may_write": [_write_json(one) for one in writes[:MAX_LISTED]],
        "calls": list(plan.calls),
        "starts": list(plan.starts),
        "complete": plan.is_complete and len(reads) <= MAX_LISTED and len(writes) <= MAX_LISTED,
        "gaps": list(plan.gaps),
    }


def _counts(
    session: psycopg.Connection[Any], view: PostgresView, steps: Sequence[PlanStep]
) -> Iterator[tuple[PlannedRead, int | None]]:
    """Yield the number of statements that each read matches, whatever its variables. None: it took too long."""
    until = time.monotonic() + COUNT_SECONDS
    typed = {step.read: step.is_typed for step in steps if step.read is not None}
    for read, is_typed in list(typed.items())[:MAX_COUNTED]:
        left = until - time.monotonic()
        if left <= 0:
            yield read, None
            continue
        view.use(StatementReader(session, left))
        pattern = ReadPattern(*read.pattern, is_typed)
        try:
            yield read, view.count(pattern, read.documents, MAX_COUNT + 1)
        except ProgramFault:  # the time limit
            yield read, None
        finally:
            session.rollback()


def _step_json(code: str, step: PlanStep, counts: Mapping[PlannedRead, int | None]) -> dict[str, Any]:
    shown: dict[str, Any] = {"level": step.level, "operation": step.operation, "text": step.text[:MAX_SHOWN_TEXT]}
    if step.action is None:
        shown["span"] = span_of(code, step.span)
    else:
        shown["action"] = step.action
    if step.access is not None:
        shown |= {"access": step.access, "repeats": step.repeats}
    if step.read is not None and step.read in counts:
        count = counts[step.read]
        shown["count"] = None if count is None else min(count, MAX_COUNT)
        shown["more"] = count is not None and count > MAX_COUNT
    return shown


def _read_json(read: PlannedRead) -> dict[str, Any]:
    return {"documents": None if read.documents is None else list(read.documents)} | _pattern_json(read.pattern)


def _write_json(write: PlannedWrite) -> dict[str, Any]:
    change = "added" if write.is_added else "removed"
    return {"change": change, "document": write.document} | _pattern_json(write.pattern)


def _pattern_json(pattern: PatternTerms) -> dict[str, Any]:
    subject, name, value = pattern
    return {"subject": subject, "property": name, "object": None if value is None else value.as_dict()}
