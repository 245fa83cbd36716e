"""Run a slice of a process and commit it, in one database transaction.

    claim → read as of a position → run → lock → compare with the changes since → edit → wait → store → commit

The claim is a lock on a row that ends with the transaction. So a worker that dies leaves the process as it was. A slice
that changes nothing and does not wait needs no lock of the MDP: it is committed as of the position that it read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import psycopg
from sqlalchemy import Connection, Engine

from mdv.cause import PROGRAM, Cause
from mdv.db.engine import driver
from mdv.db.real.process_waits import delete_waits, wake_takers
from mdv.db.real.processes import (
    ENDED_STATES,
    ClaimedProcess,
    NewProcess,
    SliceRecord,
    StopRequested,
    WriteLock,
    changes_after,
    count_live,
    delete_state,
    is_active,
    queue_commit_check,
    read_for_commit,
    read_locks,
    start_process,
    stop_process,
    store_slice,
)
from mdv.db.real.service_calls import (
    CallResult,
    NewCall,
    count_recent_calls,
    end_call,
    insert_call,
    read_result,
)
from mdv.db.real.statement_reader import StatementReader
from mdv.db.real.view import PostgresView
from mdv.db.state import LockPurpose
from mdv.errors import MdvError
from mdv.failpoints import (
    BEGUN_SLICE,
    CHANGED_SLICE,
    LOCKED_SLICE,
    RUN_SLICE,
    STORED_SLICE,
    WAITING_SLICE,
    hit_failpoint,
)
from mdv.mdp.eca.refusals import record_refusal
from mdv.mdp.edit import Edit
from mdv.mdp.provider import Provider
from mdv.mdp.real.activity import started_edits, stopped_edits
from mdv.mdp.real.program_text import span_of
from mdv.mdp.real.quotas import ProcessQuotas
from mdv.mdp.real.refusals import lock_refusal, permission_refusal, schema_refusal
from mdv.mdp.real.service_call import apply_result, read_request
from mdv.mdp.real.start import BACKGROUND_PRIORITY, process_settings
from mdv.mdp.real.wake import begin_waiting, range_kind, write_as_json
from mdv.mdp.schemas import SchemaInForce
from mdv.mdp.transaction import Transaction
from mdv.mdp.write_limits import UNLIMITED, WriteLimits
from mdv.model import Statement, Term, is_blank
from mdv.rdf.term_json import write_statement
from mdv.real.checkpoint import read_checkpoint, read_settings, read_term, write_checkpoint, write_term
from mdv.real.compile_code import Code, compile_program
from mdv.real.events import MachineSettings, ProgramFailed, ServiceCalled, WaitingFor
from mdv.real.machine import Machine
from mdv.real.machine_state import TRUE_NODE
from mdv.real.overlay import SpawnedProcess
from mdv.real.resolve import read_program
from mdv.real.scheduler import ProcessState, SliceBudget, SliceResult, find_conflict, refresh_segment, run_slice
from mdv.real.store import FactReader, StatementChange, WriteRefusal

SLICE_SECONDS = 0.1
LOCKED_SECONDS = 1.0
"""Time limit of the reads of a slice that runs under the lock."""
READ_SECONDS = 10.0
"""Time limit of one read of the database."""
MAX_ATTEMPTS = 3
"""After this many conflicts, a slice is run under the lock."""
MAX_UNREAD = 1000
MAX_CHECKPOINT_CHARACTERS = 2**20
MAX_WARNINGS = 100
"""Warnings of one slice that are stored."""


class SliceOutcome(NamedTuple):
    """What a slice did: the process, its new state, when it wakes up by itself (seconds since 1970), and whether it
    changed documents or started processes. `is_followed`: a request reads its solutions."""

    iri: str
    state: str
    wake_at: float | None = None
    has_changed: bool = False
    has_started: bool = False
    is_followed: bool = False


class _Conflict(Exception):
    """What the slice has read has changed meanwhile."""


@dataclass(slots=True)
class _RunSlice:
    """A slice that was run and is not committed yet."""

    machine: Machine
    result: SliceResult
    schema: SchemaInForce
    locks: tuple[WriteLock, ...]
    codes: frozenset[Any]
    """The bodies of actions that the process ran before."""
    state: str
    problem: dict[str, Any] | None
    checkpoint: str
    call: NewCall | None = None
    """The request to a service that the slice ends with."""
    taken: CallResult | None = None
    """The result of the last request, which the slice has taken."""


class _ProcessView(PostgresView):
    """A view that also knows which processes the program may stop. `caller`: of its process. `is_limited`: it may write
    some documents or resources alone."""

    session: psycopg.Connection[Any]
    caller: str
    is_limited: bool

    def stop_refusal(self, process: str) -> str | None:
        if not self.is_limited or self.reader.caller_of(process) == self.caller:
            return None
        return f"{self.caller} is limited to URI prefixes, so it may stop its own processes alone"


def run_process(connection: Connection, process: ClaimedProcess, provider: Provider, engine: Engine,
                quotas: ProcessQuotas) -> SliceOutcome:  # fmt: skip
    """Run a slice of a claimed process. The caller commits. `engine`: for reads, on connections of their own."""
    outcome = _Slice(connection, process, provider, engine, quotas).run()
    return outcome._replace(is_followed=process.is_followed)


class _Slice:
    def __init__(
        self, connection: Connection, process: ClaimedProcess, provider: Provider, engine: Engine, quotas: ProcessQuotas
    ) -> None:
        self.connection, self.process, self.provider = connection, process, provider
        self.engine, self.quotas = engine, quotas
        self.limits = WriteLimits.from_json(process.permissions)
        self.conflicts = 0
        self.seconds = 0.0
        self.asked: StopRequested
        self.locks: tuple[WriteLock, ...]
        hit_failpoint(BEGUN_SLICE)

    def run(self) -> SliceOutcome:
        if self.process.stop_asked or not self.process.is_allowed:
            return self._end_stopped(self._locked(), self.process.message)
        try:
            return self._run()
        except MdvError as error:
            return self._fail(error)

    def _run(self) -> SliceOutcome:
        for _ in range(MAX_ATTEMPTS):
            found = self._run_at(None)
            hit_failpoint(RUN_SLICE)
            outcome = self._try_commit(found)
            if outcome is not None:
                return outcome
            self.conflicts += 1
        with self.connection.begin_nested():
            tx = self._locked()
            return self._commit(self._run_at(tx), tx)

    # --- running ---

    def _run_at(self, tx: Transaction | None) -> _RunSlice:
        """Run the slice on a view of the current position. `tx`: the lock is taken, so nothing changes meanwhile."""
        most = READ_SECONDS if tx is None else LOCKED_SECONDS
        with self.engine.connect() as reading:
            session = driver(reading)
            reader = StatementReader(session, most)
            position, version = reader.position()
            locks = read_locks(session)
            schema = self.provider.schemas.at(reading, version)
            deadline = time.monotonic() + most
            view = _ProcessView(
                position, schema.schema, schema.statements,
                lambda change, facts: self._refusal(change, facts, schema, locks), lambda: deadline,
            )  # fmt: skip
            view.session, view.caller = session, self.process.caller
            view.is_limited = self.limits != UNLIMITED
            view.use(reader)
            machine = self._machine()
            codes = frozenset(machine.codes)
            machine.count_spawnable = lambda: self._spawnable(reading)
            self._refresh(machine, view)
            began, until = time.thread_time(), time.monotonic() + SLICE_SECONDS
            taken = read_result(session, self.process.id) if machine.node is TRUE_NODE else None
            if taken is not None:
                apply_result(
                    machine, view, taken, schema.schema,
                    lambda change, facts: self._answer_refusal(change, facts, schema, locks),
                )  # fmt: skip
            result = run_slice(machine, view, self._budget(until))
            state, problem = self._next_state(result)
            call: NewCall | None = None
            if isinstance(result.event, ServiceCalled) and state == "calling":
                state, problem, call = self._call(result.event, machine, view)
                result = replace(result, reads=dict(machine.reads))
            self.seconds += time.thread_time() - began
            reading.rollback()
        machine.end_slice()
        checkpoint = json.dumps(write_checkpoint(machine), ensure_ascii=False, separators=(",", ":"))
        if state not in ENDED_STATES and len(checkpoint) > MAX_CHECKPOINT_CHARACTERS:
            message = f"the state of the process has more than {MAX_CHECKPOINT_CHARACTERS:,} characters, the limit"
            state, problem = "failed", {"message": message, "limit": "state"}
        return _RunSlice(machine, result, schema, locks, codes, state, problem, checkpoint, call, taken)

    def _spawnable(self, connection: Connection) -> int:
        """Return how many processes this one may spawn."""
        quotas = self.quotas
        most = max(quotas.family, quotas.processes) + 1
        of_caller, family = count_live(connection, self.process.caller, self.process.root, most)
        return max(0, min(quotas.family - family, quotas.processes - of_caller))

    def _refresh(self, machine: Machine, view: _ProcessView) -> None:
        """Check that what an open `[ ]` has read in earlier slices still holds. Otherwise it begins again."""

        def changes(position: int) -> list[StatementChange]:
            found = changes_after(view.session, position, None)
            if found is None:
                raise _Conflict
            return found

        try:
            refresh_segment(machine, view, changes)
        except _Conflict:
            machine.restart_segment()

    def _machine(self) -> Machine:
        process = self.process
        code = _compiled(process.code, tuple(sorted(process.prefixes.items())), process.action is not None)
        settings = _settings(json.dumps(process.settings))
        if process.checkpoint is not None:
            return read_checkpoint(process.checkpoint, code, settings)
        return Machine(code, settings, {name: read_term(term) for name, term in process.binding.items()})

    def _next_state(self, result: SliceResult) -> tuple[str, dict[str, Any] | None]:
        """Return the state of the process after a slice, and why it failed."""
        process, event = self.process, result.event
        if isinstance(event, ProgramFailed):
            return "failed", failure(event, process.code)
        if process.solution_limit is not None and process.solutions + len(result.solutions) >= process.solution_limit:
            return "done", None
        if result.state is ProcessState.DONE:
            return "done", None
        if process.seconds + self.seconds > self.quotas.seconds:
            message = f"the process used {self.quotas.seconds:g} s of CPU, which is the limit"
            return "failed", {"message": message, "limit": "seconds"}
        if result.state is ProcessState.FULL and not process.keeps_solutions:
            return "ready", None
        if any(one.process == process.iri for one in result.stopped):
            return "stopped", None
        return result.state.value, None

    def _call(
        self, event: ServiceCalled, machine: Machine, view: _ProcessView
    ) -> tuple[str, dict[str, Any] | None, NewCall | None]:
        """Return the state of a process that calls a service, with the request. One that cannot be sent has failed, so
        the process goes on at once."""
        if count_recent_calls(view.session, self.process.id) >= self.quotas.calls:
            message = f"the process made {self.quotas.calls:,} calls of services within a minute, which is the limit"
            return "failed", {"message": message, "limit": "calls"}, None
        call = read_request(machine, view, event.request, self.quotas.services)
        return "calling" if call.reason is None else "ready", None, call

    def _answer_refusal(
        self, change: StatementChange, facts: FactReader, schema: SchemaInForce, locks: Sequence[WriteLock]
    ) -> WriteRefusal | None:
        """Return why a statement of an answer is refused. Those about blank nodes are new, with the nodes."""
        reason = permission_refusal(change.document, change.statement, self.limits) or lock_refusal(change, locks)
        if reason is not None:
            return WriteRefusal(reason)
        return None if is_blank(change.statement.subject) else schema_refusal(change, facts, schema.schema)

    def _budget(self, until: float) -> SliceBudget:
        process, unread = self.process, 0
        if process.keeps_solutions:
            unread = process.solutions - process.read_solutions
        most = max(1, MAX_UNREAD - unread)
        if process.solution_limit is not None:
            most = min(most, process.solution_limit - process.solutions)
        return SliceBudget(
            effects=1000, solutions=most, steps_between=100, is_over=lambda: time.monotonic() > until
        )  # fmt: skip

    def _refusal(
        self, change: StatementChange, facts: FactReader, schema: SchemaInForce, locks: Sequence[WriteLock]
    ) -> WriteRefusal | None:
        reason = permission_refusal(change.document, change.statement, self.limits)
        if reason is not None:
            return WriteRefusal(f"{self.process.caller} {reason}")
        reason = lock_refusal(change, locks)
        if reason is not None:
            return WriteRefusal(reason)
        return schema_refusal(change, facts, schema.schema)

    # --- committing ---

    def _try_commit(self, found: _RunSlice) -> SliceOutcome | None:
        """Commit a slice; None if there is a conflict."""
        savepoint = self.connection.begin_nested()
        try:
            if self._needs_lock(found):
                outcome: SliceOutcome | None = self._commit(found, self._locked())
            elif (outcome := self._commit_without_lock(found)) is None:
                savepoint.rollback()  # releases the lock on the row, which must not be held while waiting
                savepoint = self.connection.begin_nested()
                outcome = self._commit(found, self._locked())
        except _Conflict:
            savepoint.rollback()
            return None
        except BaseException:
            savepoint.rollback()
            raise
        savepoint.commit()
        return outcome

    def _needs_lock(self, found: _RunSlice) -> bool:
        result = found.result
        return bool(
            result.changes or result.spawned or result.stopped or isinstance(result.event, WaitingFor)
            or (self.process.parent is not None and found.state in ("done", "failed"))
        )  # fmt: skip

    def _commit_without_lock(self, found: _RunSlice) -> SliceOutcome | None:
        """Commit a slice that has no effects; None if the process was asked to stop."""
        asked = read_for_commit(self.connection, self.process.id)
        return self._store(found, None) if asked.state == "ready" and not asked.stop_asked else None

    def _locked(self) -> Transaction:
        tx = Transaction(self.provider, self.connection)
        with tx.locking(LockPurpose.DOCUMENTS) as pipeline:
            read = queue_commit_check(pipeline, self.process.id)
        self.asked, self.locks = read()
        hit_failpoint(LOCKED_SLICE)
        return tx

    def _commit(self, found: _RunSlice, tx: Transaction) -> SliceOutcome:
        """Commit a slice under the lock. Raise `_Conflict` if what it has read has changed."""
        result, asked = found.result, self.asked
        if asked.state != "ready" or asked.stop_asked:
            return self._end_stopped(tx, asked.message, is_stopped=asked.state in ENDED_STATES)
        self._check_conflict(found, tx)
        cause = Cause(PROGRAM, self.process.iri, self.process.caller)
        additions = [Edit(one.statement, one.document) for one in result.changes if one.is_added]
        removals = [Edit(one.statement, one.document) for one in result.changes if not one.is_added]
        if additions or removals:
            has_blank_nodes = any(_has_blank_node(one.statement) for one in result.changes)
            tx.edit(cause, additions, removals, limits=self.limits, has_blank_nodes=has_blank_nodes)
        activity = self._start_and_stop(found, tx)
        if activity:
            tx.edit(cause, activity)
        hit_failpoint(CHANGED_SLICE)
        has_changed = bool(additions or removals or activity)
        outcome = self._store(found, tx.finish().position if has_changed else tx.state.position)
        if isinstance(result.event, WaitingFor) and found.state == "waiting":
            event = result.event
            begin_waiting(self.connection, self.process.id, event.reads, event.takes, self.provider.vocabulary)
            hit_failpoint(WAITING_SLICE)
        return outcome._replace(has_changed=has_changed, has_started=bool(result.spawned))

    def _check_conflict(self, found: _RunSlice, tx: Transaction) -> None:
        result, state = found.result, tx.state
        if state.schema_version != found.schema.version or self.locks != found.locks:
            raise _Conflict
        for request in result.stopped:
            if not is_active(driver(self.connection), request.process):
                raise _Conflict
        if result.spawned and len(result.spawned) > self._spawnable(self.connection):
            raise _Conflict
        if state.position == result.position:
            return
        names = {read.pattern.property for read in result.reads}
        properties = None if None in names else {name for name in names if name is not None}
        changes = _changes(driver(self.connection), result.position, properties, self.provider)
        schema = found.schema.schema
        if changes is None or find_conflict(result.reads, changes, lambda name: range_kind(schema, name)) is not None:
            raise _Conflict

    def _start_and_stop(self, found: _RunSlice, tx: Transaction) -> list[Edit]:
        """Start the spawned processes and stop others. Return what is added to their activity documents."""
        edits: list[Edit] = []
        for spawned in found.result.spawned:
            self._start(spawned, tx)
            edits += started_edits(spawned.process, spawned.action)
        for request in found.result.stopped:
            message = None if request.message is None else write_term(request.message)
            stopped = stop_process(self.connection, request.process, message, None)
            if stopped is None:
                continue
            number, was_taker, is_spawned = stopped
            delete_waits(self.connection, [number])
            if was_taker:
                wake_takers(self.connection)
            if is_spawned:
                edits += stopped_edits(request.process, request.message)
        if self.process.parent is not None and found.state in ("done", "failed"):
            edits += stopped_edits(self.process.iri)
        return edits

    def _start(self, spawned: SpawnedProcess, tx: Transaction) -> None:
        process = self.process
        names = [f"i{number}" for number in range(len(spawned.inputs))]
        start_process(
            self.connection,
            NewProcess(
                iri=spawned.process, code=f"CALL <{spawned.action}>({', '.join('?' + name for name in names)})",
                prefixes={}, binding={n: write_term(term) for n, term in zip(names, spawned.inputs, strict=True)},
                into=process.into, settings=process_settings(spawned.process, process.into, self.quotas),
                permissions=process.permissions, caller=process.caller, token=process.token,
                position=tx.state.position, root=process.root, parent=process.id, action=spawned.action,
                priority=BACKGROUND_PRIORITY, keeps_solutions=False,
            ),
        )  # fmt: skip

    # --- storing ---

    def _store(self, found: _RunSlice, position: int | None) -> SliceOutcome:
        """Store the new state, the solutions and the log. `position`: None if the lock is not taken."""
        process, machine, result, state = self.process, found.machine, found.result, found.state
        added = sum(one.is_added for one in result.changes)
        event = result.event if state == "waiting" else None
        wake_at = event.deadline if isinstance(event, WaitingFor) else None
        awaits = [write_as_json(one) for one in event.reads[:20]] if isinstance(event, WaitingFor) else None
        record = SliceRecord(
            process.id, state, result.position if position is None else position, machine.steps, machine.effects,
            added, len(result.changes) - added, process.solutions + len(result.solutions), self.conflicts, self.seconds,
            found.problem, awaits, wake_at, None if state in ENDED_STATES else found.checkpoint,
        )  # fmt: skip
        bindings = [_binding_json(one) for one in result.solutions] if process.keeps_solutions else []
        entries = self._entries(found, position)
        store_slice(self.connection, record, process.solutions + 1, bindings, entries, process.slices > 0)
        if found.taken is not None:
            end_call(self.connection, found.taken.id)
        if found.call is not None:
            insert_call(self.connection, process.id, found.call)
        if state in ("done", "failed") and process.is_taker and not result.changes:
            wake_takers(self.connection)
        hit_failpoint(STORED_SLICE)
        return SliceOutcome(process.iri, state, wake_at)

    def _fail(self, error: MdvError) -> SliceOutcome:
        """End the process with an error: its changes were refused. They were rolled back."""
        process = self.process
        error = record_refusal(self.connection, error, self.provider)
        tx = self._locked()
        asked = self.asked
        if asked.state != "ready" or asked.stop_asked:
            return self._end_stopped(tx, asked.message, is_stopped=asked.state in ENDED_STATES)
        if process.parent is not None:
            tx.edit(Cause(PROGRAM, process.iri, process.caller), stopped_edits(process.iri))
        record = SliceRecord(
            process.id, "failed", tx.finish().position, process.steps, process.effects, 0, 0, process.solutions,
            self.conflicts, self.seconds, refused(error), None, None, None,
        )  # fmt: skip
        store_slice(self.connection, record, process.solutions + 1, [], [], process.slices > 0)
        if process.is_taker:
            wake_takers(self.connection)
        return SliceOutcome(process.iri, "failed", has_changed=process.parent is not None)

    def _end_stopped(self, tx: Transaction, message: Any, is_stopped: bool = False) -> SliceOutcome:
        """End a process that was asked to stop, or whose token was revoked, under the lock. What this slice did is
        dropped. `is_stopped`: another process has stopped it."""
        process = self.process
        problem = None if process.is_allowed else {"message": "the token of the process was revoked or has expired"}
        if not is_stopped and stop_process(self.connection, process.iri, message, problem) is not None:
            delete_waits(self.connection, [process.id])
            if process.is_taker:
                wake_takers(self.connection)
            if process.parent is not None:
                term = None if message is None else read_term(message)
                tx.edit(Cause(PROGRAM, process.iri, process.caller), stopped_edits(process.iri, term))
                tx.finish()
        delete_state(self.connection, process.id)
        return SliceOutcome(process.iri, "stopped", has_changed=process.parent is not None and not is_stopped)

    # --- the log ---

    def _entries(self, found: _RunSlice, position: int | None) -> list[dict[str, Any]]:
        """Return what the log says about a slice: actions, warnings, messages and changes."""
        process, result = self.process, found.result
        entries: list[dict[str, Any]] = []
        for key in found.machine.codes.keys() - found.codes:
            if key and not key[2]:
                text: str = key[0]  # type: ignore[assignment]
                entries.append(_entry("call", {"digest": sha256(text.encode()).hexdigest()}))
        said: set[str] = set()
        for message, span in result.warnings:
            if message not in said and len(said) < MAX_WARNINGS:
                said.add(message)
                place = {"span": span_of(process.code, span)} if span.end else {}
                entries.append(_entry("warning", {"message": message} | place))
        entries += [_entry("log", term.as_dict()) for term in result.log]
        if position is not None and (result.changes or result.spawned or result.stopped):
            added = sum(one.is_added for one in result.changes)
            body: dict[str, Any] = {"position": position, "added": added, "removed": len(result.changes) - added}
            if process.is_followed:
                body["effects"] = [
                    [one.document, write_statement(one.statement), one.is_added] for one in result.changes
                ]
            entries.append(_entry("commit", body))
        return entries


def failure(event: ProgramFailed, code: str) -> dict[str, Any]:
    """Return why a program failed as JSON, with the place in its text, or in the text of an action."""
    found: dict[str, Any] = {"message": event.message}
    if event.span is not None:
        text = event.text or code
        found["span"] = span_of(text, event.span)
        if text != code:
            found["text"] = text[:1000]
    return found | ({} if event.limit is None else {"limit": event.limit})


def refused(error: MdvError) -> dict[str, Any]:
    """Return the problem of a process whose changes were refused."""
    extra = {name: value for name, value in error.extra.items() if name in ("run", "compensation")}
    return {"message": error.detail, "errors": [flaw.as_dict() for flaw in error.flaws[:20]]} | extra


def _changes(
    session: psycopg.Connection[Any], position: int, properties: set[str] | None, provider: Provider
) -> list[StatementChange] | None:
    ids = None if properties is None else [provider.vocabulary.ids(properties)[name] for name in properties]
    return changes_after(session, position, ids)


def _entry(kind: str, body: Any) -> dict[str, Any]:
    return {"kind": kind, "body": body}


def _binding_json(binding: Mapping[str, Term]) -> dict[str, Any]:
    return {name: term.as_dict() for name, term in binding.items()}


def _has_blank_node(statement: Statement) -> bool:
    return is_blank(statement.subject) or (statement.object.is_uri and is_blank(statement.object.value))


@lru_cache(maxsize=256)
def _compiled(code: str, prefixes: tuple[tuple[str, str], ...], is_action: bool) -> Code:
    """`is_action`: the code calls an action that was started as a process. Its outputs are not taken."""
    compiled = compile_program(read_program(code, dict(prefixes)), code)
    if is_action:  # the flag of other nodes has another meaning, such as IN
        compiled.root.flag = True
    return compiled


@lru_cache(maxsize=1024)
def _settings(text: str) -> MachineSettings:
    return read_settings(json.loads(text))
