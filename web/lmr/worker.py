"""The worker of an LMR's web server: gunicorn's threads, none of which waits for ever for a request to be told."""

from __future__ import annotations

import time
from typing import Any

from gunicorn.workers.gthread import ThreadWorker

from web.lmr.bodies import Late

HEAD_SECONDS = 15.0


class LmrWorker(ThreadWorker):
    """Who does not end the head of a request in time is not read from any more."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._late = Late()

    def handle(self, conn: Any) -> Any:
        with self._late.ending(conn.sock, time.monotonic() + HEAD_SECONDS):
            return super().handle(conn)

    def handle_request(self, req: Any, conn: Any) -> Any:
        # The head is here; a body has its own time.
        with self._late.ending(conn.sock, float("inf")):
            return super().handle_request(req, conn)
