"""Minutes: what this process has done is added up for the pages, minute by minute."""

from __future__ import annotations

import threading
import time

import structlog
from sqlalchemy import Engine

from mdv.db.feed import Feed
from mdv.db.figures import add_figures
from mdv.db.jobs import look_at_waiting
from mdv.figures import registered

log = structlog.get_logger()

PAUSE = 5.0
MOST_WAITING = 10_000


class Minutes:
    """Notes, every few seconds, what has been done since it was last noted, and how far LMRs are behind."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._noted = registered()

    def start(self) -> None:
        threading.Thread(target=self._go_on, name="minutes", daemon=True).start()

    def _go_on(self) -> None:
        while True:
            time.sleep(PAUSE)
            try:
                self.note()
            except Exception as error:  # the database may be away; what was done is noted later
                log.warning("figures were not noted", reason=(str(error).splitlines() or [repr(error)])[0])

    def note(self) -> None:
        now = registered()
        transactions, documents, seconds = (new - old for new, old in zip(now, self._noted, strict=True))
        with self._engine.begin() as connection:
            waiting = look_at_waiting(connection, MOST_WAITING).jobs
            lag = max((age for _, age in Feed(connection).lags(1)), default=0.0)
            if transactions or waiting or lag:
                add_figures(connection, int(transactions), int(documents), seconds, lag, waiting)
        self._noted = now
