"""What Celery tells of itself, as lines of JSON like all others."""

from __future__ import annotations

import logging
import os
from contextlib import suppress

from celery.signals import celeryd_init, setup_logging
from celery.utils.log import get_multiprocessing_logger

from mdv.config import Config
from mdv.logs import JsonLine, configure_logs

STANDARD_ERROR = 2


def take_over_logs() -> None:
    """From when a worker begins, instead of Celery's own ways."""
    celeryd_init.connect(_begin)  # before Celery's first warning
    setup_logging.connect(_begin)  # whoever hears this has Celery set up nothing


def _begin(**_: object) -> None:
    from celery.apps import worker  # which a web server has no need of

    worker.safe_say = _say
    configure_logs(Config.from_environment().log_level)
    processes = get_multiprocessing_logger()  # tells of processes that were killed, to nobody but itself
    processes.propagate = True
    processes.setLevel(logging.ERROR)


def _say(words: str, _stream: object = None) -> None:
    """What Celery says when a signal comes: then no lock may be waited for."""
    record = logging.LogRecord("celery", logging.INFO, "", 0, words, None, None)
    with suppress(OSError):
        os.write(STANDARD_ERROR, (JsonLine().format(record) + "\n").encode())
