"""The gunicorn worker of an MDP: a gevent worker that reloads without dropping requests.

On reload (HUP), gunicorn starts new processes and immediately asks the old ones to exit. The old ones keep serving
until the new ones are ready. Then long polls and streams are ended cleanly, and clients reconnect to a new process.
"""

from __future__ import annotations

import os
import time
from typing import Any

import gevent
import structlog

from web.booting_processes import BootingProcesses
from web.bounded_worker import BoundedWorker

MAX_BOOT_SECONDS = 60.0
"""How long a process waits for its replacements."""

IDLE_GRACE_SECONDS = 1.0
"""How long idle connections stay open when a process exits: a request that arrives meanwhile is answered."""

log = structlog.get_logger()

_booting = BootingProcesses()


class WebWorker(BoundedWorker):
    """Exits when all of its replacements serve and the requests in progress are answered."""

    def __init__(self, age: int, *given: Any) -> None:
        super().__init__(age, *given)
        self._is_serving = False
        _booting.start(age)  # still in the parent, before it stops old processes

    def init_process(self) -> None:
        _booting.boot(self.age, os.getpid())
        super().init_process()

    def load_wsgi(self) -> None:
        super().load_wsgi()
        waits = self.application.extensions["mdv"].waits
        waits.limit, waits.limit_per_key = self.connections.limit // 2, self.connections.limit // 4

    def notify(self) -> None:
        super().notify()
        if not self._is_serving:
            self._is_serving = True
            _booting.serve(self.age)
            log.info("serving", process=os.getpid())

    def handle_exit(self, sig: int, frame: Any) -> None:
        gevent.spawn(self._exit, sig)

    def _exit(self, sig: int) -> None:
        deadline = time.monotonic() + MAX_BOOT_SECONDS
        while _booting.is_any and time.monotonic() < deadline and os.getppid() == self.ppid:
            gevent.sleep(0.1)
        super().handle_exit(sig, None)
        self.application.extensions["mdv"].feed_notifier.close()
        self.application.extensions["mdv"].log_notifier.close()
        gevent.sleep(IDLE_GRACE_SECONDS)
        self.connections.close_between_requests()
