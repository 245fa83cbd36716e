"""Runs the slices of processes, one after another. Processes take turns."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from sqlalchemy import Connection, Engine

from mdv.db.real.process_waits import is_watched_in_vain, unwatch
from mdv.db.real.processes import (
    ClaimedProcess,
    claim_process,
    delete_ended_states,
    fail_process,
    seconds_until_due,
    stop_revoked,
    wake_due,
)
from mdv.db.state import read_state
from mdv.failpoints import COMMITTED_SLICE, hit_failpoint
from mdv.mdp.database_outage import is_database_outage
from mdv.mdp.eca.slow_rules import RuleTimedOut
from mdv.mdp.provider import Provider
from mdv.mdp.real.quotas import ProcessQuotas
from mdv.mdp.real.slice_commit import SliceOutcome, run_process
from mdv.mdp.rule_cache import RuleOverBudget
from mdv.mdp.rules.suspend import suspend_over_budget
from mdv.mdp.transaction import Transaction
from mdv.metrics import SLICES, time_stage

LEASE_SECONDS = 30.0
"""A process is stopped if the request that follows it was not heard of for this long."""
DUE_SECONDS = 0.2
"""How often a busy worker looks for processes whose time has come."""
TENDING_SECONDS = 10.0
"""How often a worker ends processes whose token was revoked, and forgets properties that no process waits for."""
MAX_FAILURES = 5

log = structlog.get_logger()


class ProgramWorker:
    """Runs processes with one engine.

    `committed` is called after the commit of each slice, `published` after one that changed documents.
    """

    def __init__(
        self,
        engine: Engine,
        provider: Provider,
        quotas: ProcessQuotas | None = None,
        committed: Callable[[SliceOutcome], object] = lambda outcome: None,
        published: Callable[[], object] = lambda: None,
    ) -> None:
        self._engine, self._provider = engine, provider
        self._quotas = quotas or ProcessQuotas()
        self._committed, self._published = committed, published
        self._looked_at = self._tended_at = float("-inf")
        self._prefers_started = False

    def work(self, seconds: float = float("inf"), more: Callable[[], object] = lambda: None) -> int:
        """Run slices of ready processes for up to `seconds`. Return their number. `more` is called if others may be
        ready."""
        until, slices = time.monotonic() + seconds, 0
        self._tend()
        while (outcome := self.run_slice()) is not None:
            slices += 1
            if self._provider.take_woken() or outcome.has_started:
                more()  # other workers can help
            if time.monotonic() > until:
                more()
                break
        return slices

    def run_slice(self, iri: str | None = None) -> SliceOutcome | None:
        """Run the next slice, or that of one process. Return what it did; None if no process is ready."""
        outcome = self._run_slice(iri)
        if time.monotonic() - self._looked_at > DUE_SECONDS:
            self._looked_at = time.monotonic()
            with self._engine.begin() as connection:
                wake_due(connection, LEASE_SECONDS)
            return outcome or self._run_slice(iri)
        return outcome

    def _run_slice(self, iri: str | None) -> SliceOutcome | None:
        process: ClaimedProcess | None = None
        try:
            with self._engine.begin() as connection:
                # Every other turn, so that many spawned processes do not delay other programs by all of their slices.
                self._prefers_started = not self._prefers_started
                process = claim_process(connection, iri, self._prefers_started)
                if process is None:
                    return None
                with time_stage("slice"):
                    outcome = run_process(connection, process, self._provider, self._engine, self._quotas)
        except RuleOverBudget as error:
            suspend_over_budget(error, self._provider)
            self._published()
            return self._run_slice(iri)
        except RuleTimedOut as error:
            self._provider.slow_rules.note(error)
            return self._run_slice(iri)
        except Exception as error:
            if process is None or is_database_outage(error):
                raise
            return self._fail(process, error)
        self._provider.slow_rules.forget_rules()
        hit_failpoint(COMMITTED_SLICE)
        SLICES.labels(outcome.state).inc()
        if outcome.has_changed:
            self._published()
        self._committed(outcome)
        return outcome

    def seconds_until_due(self) -> float | None:
        """Return the seconds until the next process becomes ready by itself; None if there is none."""
        with self._engine.begin() as connection:
            return seconds_until_due(connection)

    def _fail(self, process: ClaimedProcess, error: Exception) -> SliceOutcome:
        """Count an internal error. The process is tried again after about 1, 4, 16 and 64 s, and then fails."""
        failures = process.failures + 1
        log.error("slice failed", process=process.iri, attempt=failures, reason=str(error), exc_info=error)
        problem = {"message": f"a slice failed {MAX_FAILURES} times with an internal error: {error}"}
        is_last = failures >= MAX_FAILURES
        with self._engine.begin() as connection:
            fail_process(connection, process.id, 4.0 ** (failures - 1), problem if is_last else None)
        outcome = SliceOutcome(process.iri, "failed" if is_last else "ready", is_followed=process.is_followed)
        self._committed(outcome)
        return outcome

    def _tend(self) -> None:
        if time.monotonic() - self._tended_at < TENDING_SECONDS:
            return
        self._tended_at = time.monotonic()
        with self._engine.begin() as connection:
            delete_ended_states(connection)
            stop_revoked(connection)
            is_in_vain = bool(read_state(connection).watched) and is_watched_in_vain(connection)
        if is_in_vain:
            with self._engine.begin() as connection:
                self._unwatch(connection)

    def _unwatch(self, connection: Connection) -> None:
        Transaction(self._provider, connection).lock()
        unwatch(connection)
