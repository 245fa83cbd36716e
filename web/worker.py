"""The worker of an MDP's web server: gevent's, which leaves nobody without an answer when it is replaced.

When gunicorn is asked to reload (HUP), it starts new processes and at once asks the old ones to end. These go on until
the new ones can serve. A reader of a feed may wait for a minute, a stream for ever: both get a good end then, and go on
at another process.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from typing import Any

import gevent
import structlog
from gunicorn.workers.ggevent import GeventWorker

LONGEST_BOOT = 60.0
"""Seconds that a process waits for another to take its place."""

log = structlog.get_logger()


class _Ages:
    """How old, as gunicorn counts, the youngest process is that was started, and the youngest that serves. The memory
    is made in the parent, so that all its processes see the same."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 16)

    def note(self, place: int, age: int) -> None:
        struct.pack_into("q", self._shared, 8 * place, age)

    @property
    def is_somebody_booting(self) -> bool:
        started, serving = struct.unpack_from("qq", self._shared)
        return bool(started > serving)


_ages = _Ages()


class WebWorker(GeventWorker):
    """Ends when others serve, and as soon as those have their answer who ask for something that is there."""

    def __init__(self, age: int, *given: Any) -> None:
        super().__init__(age, *given)
        self._serves = False
        _ages.note(0, age)  # still in the parent, before it asks anybody to end

    def notify(self) -> None:
        super().notify()
        if not self._serves:
            self._serves = True
            _ages.note(1, self.age)
            log.info("serving", process=os.getpid())

    def handle_exit(self, sig: int, frame: Any) -> None:
        gevent.spawn(self._end, sig)

    def _end(self, sig: int) -> None:
        until = time.monotonic() + LONGEST_BOOT
        while _ages.is_somebody_booting and time.monotonic() < until and os.getppid() == self.ppid:
            gevent.sleep(0.1)
        super().handle_exit(sig, None)
        self.wsgi.extensions["mdv"].watch.close()
