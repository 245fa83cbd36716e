"""The worker of an MDP's web server: gevent's, which lets go of waiting readers when it is asked to end.

A reader of a feed may wait for a minute, a stream for ever. Both get a good end, and go on at another process.
"""

from __future__ import annotations

from typing import Any

import gevent
from gunicorn.workers.ggevent import GeventWorker


class WebWorker(GeventWorker):
    """Ends as soon as those have their answer who ask for something that is there."""

    def handle_exit(self, sig: int, frame: Any) -> None:
        super().handle_exit(sig, frame)
        gevent.spawn(self._let_readers_go)

    def _let_readers_go(self) -> None:
        self.wsgi.extensions["mdv"].watch.close()
