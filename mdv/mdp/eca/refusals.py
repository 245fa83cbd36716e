"""Changes that event-condition-action rules refuse: the run is stored after the change was rolled back."""

from __future__ import annotations

from sqlalchemy import Connection

from mdv.db.eca.rules import advance_rules
from mdv.db.eca.runs import RunRecord, queue_compensation, store_run
from mdv.db.jobs import PRIORITY_BACKGROUND
from mdv.errors import MdvError, RuleFailed, RulesDoNotEnd
from mdv.mdp.provider import Provider
from mdv.mdp.transaction import Transaction, new_graph_version, stop_failing_rules


def report_refusal(error: MdvError) -> MdvError:
    """Add the trace of the run to the error of a dry run. Nothing is stored."""
    if isinstance(error, RuleFailed | RulesDoNotEnd) and error.record is not None:
        record, error.record = error.record, None
        error.extra["run"] = record.trace
    return error


def record_refusal(connection: Connection, error: MdvError, provider: Provider) -> MdvError:
    """Store the run of a refused change, and add its ID to the error. Rules that have failed too often are quarantined.

    If a detached copy failed, the compensation of its parent is queued, as ABORT says. Other errors are returned as
    they are.
    """
    if not isinstance(error, RuleFailed | RulesDoNotEnd) or error.record is None:
        return error
    record: RunRecord = error.record
    error.record = None
    trace = {**record.trace, "reason": error.detail}
    error.extra["run"] = store_run(connection, None, record._replace(trace=trace))
    if record.parent is not None and record.parent.aborted is not None:
        reason = f"A detached copy failed: {error.detail}"
        run, copy = record.parent.run, record.parent.aborted
        job = queue_compensation(connection, run, [copy], reason, record.by, PRIORITY_BACKGROUND)
        error.extra["compensation"] = str(job)
    failing = [rule for rule, count in record.counts.items() if count.failed]
    if failing:
        tx = Transaction(provider, connection)
        tx.lock()
        if stop_failing_rules(connection, failing, 0, tx.position, provider.slow_rules):
            advance_rules(connection, tx.position, new_graph_version() | 1)
    return error
