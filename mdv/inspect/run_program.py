"""Programs in the modes `read` and `sandbox`. They change nothing: their changes are kept in memory and dropped.

A program runs in turns, each with a connection that is given back afterwards. Between two turns, it holds its own state
alone. So it runs only as fast as its solutions are read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from sqlalchemy import Connection

from mdv.db.real.processes import WriteLock, read_locks
from mdv.db.real.statement_reader import StatementReader
from mdv.db.real.view import PostgresView
from mdv.db.state import read_state
from mdv.errors import InvalidDocument, InvalidProgram, MdvError, ProgramStopped
from mdv.mdp.real.program_text import mark_json, parse_code, span_of
from mdv.mdp.real.refusals import lock_refusal, permission_refusal, schema_refusal
from mdv.mdp.schemas import SchemaInForce
from mdv.mdp.write_limits import WriteLimits
from mdv.model import Statement, Term
from mdv.rdf.schema import Schema
from mdv.rdf.term_json import read_term, write_statement
from mdv.real.check import check_program, solution_variables
from mdv.real.compile_code import compile_program
from mdv.real.events import (
    MachineSettings,
    ProgramEnded,
    ProgramFailed,
    ProgramLimits,
    ServiceCalled,
    SolutionFound,
    WaitingFor,
)
from mdv.real.machine_state import ProgramFault
from mdv.real.overlay import Overlay
from mdv.real.store import FactReader, ReadPattern, StatementChange, WriteRefusal
from mdv.real.trace import TracedMachine, TracedStep
from mdv.rules.ast import Span
from mdv.rules.text_errors import Mark

MAX_PROGRAM_SECONDS = 30.0
"""How long a program may run, without the time in which it waits or its solutions are not read."""
MAX_READ_SECONDS = 10.0
"""Time limit of one read of the database."""
TURN_SECONDS = 0.05
TURN_STEPS = 500
"""Steps after which the time of a turn is checked, at the most. It is checked more often while steps take long."""
STRETCH_SECONDS = 0.01
TURN_EVENTS = 200
LIMITS = ProgramLimits(steps=10_000_000, effects=100_000, solutions=1_000_000, depth=1000, choices=20_000)
MAX_WARNINGS = 100
MAX_EFFECT_CHARACTERS = 50_000_000
"""Characters of all statements that a program adds. They are in memory."""
MAX_DIFFERENCE = 10_000
"""Statements in the difference of a sandbox. The numbers of effects are complete."""


@dataclass(frozen=True, slots=True)
class ProgramWriter:
    """Who runs a program: what it would be allowed to change, and where its default context writes."""

    name: str
    into: str
    may_write: bool = True
    limits: WriteLimits = field(default_factory=WriteLimits)


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    """A program and how it runs. `limit`: it ends after that many solutions. `trace`: how many of its first
    steps are events."""

    code: str
    is_read_only: bool = False
    binding: Mapping[str, Term] = field(default_factory=dict)
    prefixes: Mapping[str, str] = field(default_factory=dict)
    limit: int | None = None
    max_wait: float = 60.0
    trace: int = 0


def read_binding(given: Mapping[str, Any]) -> dict[str, Term]:
    """Return the terms of variables, which have names without `?`. Raise `InvalidProgram` if one is not valid.

    >>> read_binding({"x": {"type": "uri", "value": "urn:a"}})
    {'x': Term(type='uri', value='urn:a', lang=None, datatype=None)}
    """
    found = {}
    for name, term in given.items():
        if not name.isidentifier() and not name.replace("-", "_").isidentifier():
            raise InvalidProgram(f"{name[:40]!r} in `binding` is not the name of a variable. Write it without '?'.")
        try:
            found[name] = read_term(term)
        except InvalidDocument as error:
            raise InvalidProgram(f"`binding` of {name}: {error.detail}") from None
    return found


def check_code(code: str, schema: Schema, prefixes: Mapping[str, str], inputs: Sequence[str] = ()) -> tuple[Mark, ...]:
    """Return the warnings about a program. Raise `InvalidProgram` if it is not valid."""
    return check_program(parse_code(code, schema, prefixes), schema, inputs=frozenset(inputs))


def outcome_of_refused(connection: Connection) -> dict[str, Any]:
    """Return what the problem of a program that was not run says about what it did, as for one that was."""
    return {"solutions": 0, "effects": {"added": 0, "removed": 0}, "position": read_state(connection).position}


def trace_json(text: str, step: TracedStep) -> dict[str, Any]:
    """Return a traced step. A part is a term, or the name of a variable with `?`."""
    parts = [f"?{part}" if isinstance(part, str) else part.as_dict() for part in step.parts]
    place = {} if step.span is None or not step.span.end else {"span": span_of(text, step.span)}
    return {
        "n": step.number, "operation": step.operation, "parts": parts, "found": step.is_found, "place": step.place,
        "binding": {name: term.as_dict() for name, term in step.binding.items()},
    } | place  # fmt: skip


class _RecordedOverlay(Overlay):
    """The changes outside `[ ]` and `{ }`, in the order in which they were made."""

    def __init__(self) -> None:
        super().__init__()
        self.is_sandbox = True  # a later view may contain what a change returned to
        self.recorded: list[StatementChange] = []
        self.doubtful: set[tuple[str, Statement]] = set()
        """Changed more than once, so that the last change may have returned to the stored state."""

    def apply(self, document: str, statement: Statement, is_added: bool) -> None:
        if document in self.changes.get(statement, ()):
            self.doubtful.add((document, statement))
        self.recorded.append(StatementChange(document, statement, is_added))
        super().apply(document, statement, is_added)


class ProgramRun:
    """One run of a program. Call `turn` until `is_over`. If it `is_waiting`, call it again after a short time, at the
    latest at `wait_until` (monotonic)."""

    def __init__(self, request: ProgramRequest, writer: ProgramWriter, schema: SchemaInForce, seed: str) -> None:
        self.request, self.writer, self.schema = request, writer, schema
        program = parse_code(request.code, schema.schema, request.prefixes)
        self._marks = check_program(program, schema.schema, inputs=frozenset(request.binding))
        settings = MachineSettings(
            process=f"urn:mdv:real:process/{seed}", into=writer.into, seed=seed, is_read_only=request.is_read_only,
            limits=LIMITS,
        )  # fmt: skip
        self.variables = solution_variables(program, frozenset(request.binding))
        code = compile_program(program, request.code)
        self.machine = TracedMachine(code, settings, request.binding, request.trace)
        self.root = _RecordedOverlay()
        self.machine.overlays[0] = self.root
        self.view: PostgresView | None = None
        self.views = 0
        self._locks: tuple[WriteLock, ...] = ()
        self.solutions = 0
        self.problem: MdvError | None = None
        self.is_over = False
        self.wait_until = 0.0
        self._awaits_change = False
        self._stretch = TURN_STEPS
        self._characters = 0
        self._deadline = float("inf")
        self._seconds = 0.0
        self._waited = 0.0
        self._wait_began: float | None = None
        self._wait_deadline: float | None = None
        self._notes: list[str] = []
        self._said: set[str] = set()
        self._end: dict[str, Any] = {}

    # --- turns ---

    def turn(self, session: psycopg.Connection[Any]) -> list[dict[str, Any]]:
        """Run for a short time and return the events. The last event of a program is its end or its error."""
        began = time.monotonic()
        self._deadline = began + MAX_PROGRAM_SECONDS - self._seconds
        reader = StatementReader(session, max(0.1, min(MAX_READ_SECONDS, self._deadline - began)))
        try:
            if not self._may_go_on(session, reader):
                return []
            assert self.view is not None
            self.view.use(reader)
            return self._run(began)
        finally:
            if self.view is not None:
                self.view.use(None)
            self._seconds += time.monotonic() - began

    def _may_go_on(self, session: psycopg.Connection[Any], reader: StatementReader) -> bool:
        """Take a view for the first turn, and after a WAIT. False: what the program waits for cannot have come yet."""
        if self.view is not None and self._wait_began is None:
            return True
        position, _ = reader.position()
        if self._wait_began is not None:
            assert self.view is not None
            is_due = time.time() >= (self._wait_deadline or float("inf"))
            is_over = self._waited + time.monotonic() - self._wait_began >= self.request.max_wait
            has_changed = self._awaits_change and position != self.view.position
            if not has_changed and not is_due and not is_over:
                return False
            self._waited += time.monotonic() - self._wait_began
            self._wait_began = None
            if not has_changed:
                if not is_due:
                    self.problem = ProgramStopped(
                        f"The program waited for {self.request.max_wait:g} s, the limit of MDV_MAX_WAIT_SECONDS."
                        " Use AT MOST.",
                        limit="wait",
                    )
                return True
        self.views += 1
        self._locks = read_locks(session)
        self.view = PostgresView(
            position, self.schema.schema, self.schema.statements, self._refusal, lambda: self._deadline
        )
        return True

    def _run(self, began: float) -> list[dict[str, Any]]:
        assert self.view is not None
        machine, found, until = self.machine, list[dict[str, Any]](), began + TURN_SECONDS
        while self.problem is None and time.monotonic() < until and len(found) < TURN_EVENTS:
            if time.monotonic() > self._deadline:
                self._stop(f"The program ran for {MAX_PROGRAM_SECONDS:g} s, which is the limit.", None, "seconds")
                break
            at = time.monotonic()
            event = machine.run(self.view, self._stretch)
            is_long = time.monotonic() - at > STRETCH_SECONDS
            self._stretch = max(1, self._stretch // 2) if is_long else min(TURN_STEPS, self._stretch * 2)
            found += self._news()
            match event:
                case SolutionFound(binding):
                    self.solutions += 1
                    terms = {name: term.as_dict() for name, term in binding.items()}
                    found.append({"type": "solution", "n": self.solutions, "binding": terms})
                    if self.solutions == self.request.limit:
                        self._finish()
                        break
                case ProgramEnded():
                    self._finish()
                    break
                case ProgramFailed(message, span, text, limit):
                    self._stop(message, None if span is None else (text, span), limit)
                case WaitingFor(reads, deadline):
                    self._wait_began, self._wait_deadline = time.monotonic(), deadline
                    self._awaits_change = bool(reads)
                    self._sleep()
                    return found
                case ServiceCalled(_, span, text):
                    where = None if span is None else (text, span)
                    self._stop("a service can be called in the mode run alone", where, None)
        if self.problem is not None:
            self.is_over = True
            found.append({"type": "error"} | self._problem())
        elif self.is_over:
            found.append({"type": "end"} | self._end)
        return found

    def _sleep(self) -> None:
        assert self._wait_began is not None
        left = self.request.max_wait - self._waited
        self.wait_until = self._wait_began + left
        if self._wait_deadline is not None:
            self.wait_until = min(self.wait_until, time.monotonic() + self._wait_deadline - time.time())

    @property
    def is_waiting(self) -> bool:
        """True if the program waits for a change or a time."""
        return self._wait_began is not None

    # --- events ---

    def _news(self) -> Iterator[dict[str, Any]]:
        for step in self.machine.trace:
            yield {"type": "trace"} | trace_json(self.request.code, step)
        self.machine.trace.clear()
        for document, statement, is_added in self.root.recorded:
            change = "added" if is_added else "removed"
            yield {"type": "effect", "change": change, "document": document, "statement": write_statement(statement)}
        self.root.recorded.clear()
        for mark in self._marks:
            yield {"type": "warning"} | mark_json(self.request.code, mark)
        self._marks = ()
        for message, span in self.machine.warnings:
            yield from self._warning(message, span)
        self.machine.warnings.clear()
        for message in self._notes:
            yield from self._warning(message, None)
        self._notes.clear()
        if self.root.spawned:
            yield from self._warning("SPAWN starts a process in the mode run alone", None)
        if self.root.stopped:
            yield from self._warning("STOP stops a process in the mode run alone", None)
        self.machine.reads.clear()  # for commits, which there are none of
        self.machine.log.clear()

    def _warning(self, message: str, span: Span | None) -> Iterator[dict[str, Any]]:
        if message in self._said or len(self._said) >= MAX_WARNINGS:
            return
        self._said.add(message)
        place = {} if span is None or not span.end else {"span": span_of(self.request.code, span)}
        yield {"type": "warning", "message": message} | place

    def effects(self) -> dict[str, int]:
        """Return the net numbers of statements that were added and removed outside `[ ]` and `{ }`."""
        added = sum(is_added for _, _, is_added in self.root.all_changes())
        return {"added": added, "removed": sum(1 for _ in self.root.all_changes()) - added}

    def _finish(self) -> None:
        """End with the net effects. A change that returned to the stored state is none."""
        assert self.view is not None
        try:
            self._drop_void_changes()
        except ProgramFault as fault:
            self._stop(fault.message, None, fault.limit)
            return
        self.is_over = True
        self._end = {"solutions": self.solutions, "effects": self.effects(), "position": self.view.position}
        if not self.request.is_read_only:
            self._end |= self._difference()

    def _drop_void_changes(self) -> None:
        if self.view is None:
            return
        doubtful = self.root.doubtful if self.views == 1 else {change[:2] for change in self.root.all_changes()}
        self.view.prefetch([ReadPattern(*statement) for _, statement in doubtful], None)
        for document, statement in doubtful:
            documents = self.root.changes[statement]
            is_said = document in self.view.documents_with(statement)
            if documents.get(document) is is_said:
                del documents[document]

    def _difference(self) -> dict[str, Any]:
        by_document: dict[str, dict[str, list[Any]]] = {}
        for number, (document, statement, is_added) in enumerate(self.root.all_changes()):
            if number == MAX_DIFFERENCE:
                break
            lists = by_document.setdefault(document, {"added": [], "removed": []})
            lists["added" if is_added else "removed"].append(write_statement(statement))
        difference = [{"document": document, **lists} for document, lists in sorted(by_document.items())]
        is_cut = sum(self.effects().values()) > MAX_DIFFERENCE
        return {"difference": difference} | ({"difference_truncated": True} if is_cut else {})

    def _stop(self, message: str, where: tuple[str, Span] | None, limit: str | None) -> None:
        extra: dict[str, Any] = {}
        if where is not None:
            text, span = where
            extra["span"] = span_of(text, span)
            if text != self.request.code:
                extra["text"] = text[:1000]
        if limit is not None:
            extra["limit"] = limit
        detail = f"{message[:1].upper()}{message[1:]}{'' if message.endswith('.') else '.'}"
        self.problem = ProgramStopped(detail, **extra)

    def _problem(self) -> dict[str, Any]:
        assert self.problem is not None
        with suppress(ProgramFault, psycopg.Error):  # a limit of time may not let it read
            self._drop_void_changes()
        position = self.view.position if self.view is not None else 0
        self.problem.extra |= {"solutions": self.solutions, "effects": self.effects(), "position": position}
        return {"problem": self.problem.problem()}

    # --- what a run would refuse ---

    def _refusal(self, change: StatementChange, facts: FactReader) -> WriteRefusal | None:
        document, statement, _ = change
        self._characters += sum(map(len, (document, statement.subject, statement.property, statement.object.value)))
        if self._characters > MAX_EFFECT_CHARACTERS:
            raise ProgramFault(f"the effects have more than {MAX_EFFECT_CHARACTERS:,} characters", "effects")
        self._note_refusal(change)
        return schema_refusal(change, facts, self.schema.schema)

    def _note_refusal(self, change: StatementChange) -> None:
        """Warn of a change that the mode run would refuse because of permissions or locks."""
        if not self.writer.may_write:
            message = f"{self.writer.name} may read only, so the mode run would refuse changes"
        elif (reason := permission_refusal(change.document, change.statement, self.writer.limits)) is not None:
            message = f"{self.writer.name} {reason}, so the mode run would refuse this change"
        elif (reason := lock_refusal(change, self._locks)) is not None:
            message = f"{reason}, so the mode run would refuse it"
        else:
            return
        if message not in self._said and len(self._notes) < MAX_WARNINGS:
            self._notes.append(message)
