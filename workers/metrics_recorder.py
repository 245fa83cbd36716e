"""Record the work of this process per minute in the database, for the charts of the web UI."""

from __future__ import annotations

import threading
import time

import structlog
from sqlalchemy import Engine

from mdv.db.feed import Feed
from mdv.db.jobs import summarize_queue
from mdv.db.metrics import record_metrics
from mdv.metrics import registration_totals

log = structlog.get_logger()

RECORD_INTERVAL_SECONDS = 5.0
MAX_JOBS_COUNTED = 10_000


class MetricsRecorder:
    """Records every few seconds the work since the last record, and the lag of LMRs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._recorded = registration_totals()

    def start(self) -> None:
        threading.Thread(target=self._run, name="metrics", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(RECORD_INTERVAL_SECONDS)
            try:
                self.record()
            except Exception as error:  # the database may be unreachable; the work is recorded later
                log.warning("metrics were not recorded", reason=(str(error).splitlines() or [repr(error)])[0])

    def record(self) -> None:
        now = registration_totals()
        transactions, documents, seconds = (new - old for new, old in zip(now, self._recorded, strict=True))
        with self._engine.begin() as connection:
            waiting = summarize_queue(connection, MAX_JOBS_COUNTED).jobs
            lag = max((age for _, age in Feed(connection).lags(1)), default=0.0)
            if transactions or waiting or lag:
                record_metrics(connection, int(transactions), int(documents), seconds, lag, waiting)
        self._recorded = now
