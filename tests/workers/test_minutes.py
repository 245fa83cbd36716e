"""Metrics per minute: every operation is counted once."""

from __future__ import annotations

from datetime import UTC, datetime

from mdv.db.metrics import delete_old_metrics, record_metrics
from mdv.inspect.sql.minute_metrics import TIME_RANGES, read_metrics
from mdv.metrics import BATCH_DOCUMENTS, time_stage
from tests.support.mdp import Mdp
from workers.metrics_recorder import MetricsRecorder

HOUR = TIME_RANGES["1h"]


def test_operations_of_a_process_are_summed_per_minute(mdp: Mdp) -> None:
    minutes = MetricsRecorder(mdp.engine)
    minutes.record()
    with mdp.engine.begin() as connection:
        assert read_metrics(connection, HOUR, datetime.now(UTC)) == [], "without operations nothing is written"
    for documents in (3, 4):
        BATCH_DOCUMENTS.observe(documents)
        with time_stage("answer"):
            pass
        minutes.record()
    minutes.record()
    with mdp.engine.begin() as connection:
        found = read_metrics(connection, HOUR, datetime.now(UTC))
    assert sum(minute.documents for minute in found) == 7 and sum(minute.transactions for minute in found) == 2
    assert all(minute.seconds > 0 and minute.ms_per_document > 0 for minute in found)


def test_metrics_of_several_processes_are_added_and_old_ones_are_deleted(mdp: Mdp) -> None:
    with mdp.engine.begin() as connection:
        record_metrics(connection, 1, 10, 0.5, lag=3.0, waiting=7)
        record_metrics(connection, 2, 20, 0.25, lag=1.0, waiting=9)
    (minute,) = _minutes(mdp)
    assert (minute.transactions, minute.documents, minute.seconds, minute.lag, minute.waiting) == (3, 30, 0.75, 3.0, 9)
    assert minute.ms_per_document == 25.0
    mdp.run("update figures set at = at - interval '8 days'")
    with mdp.engine.begin() as connection:
        delete_old_metrics(connection)
    assert mdp.one("select count(*) from figures") == 0


def _minutes(mdp: Mdp) -> list[object]:
    with mdp.engine.begin() as connection:
        return list(read_metrics(connection, HOUR, datetime.now(UTC)))
