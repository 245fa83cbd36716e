"""Log the messages of Celery as lines of JSON, like all others."""

from __future__ import annotations

import logging
import os
from contextlib import suppress

from celery.signals import celeryd_init, setup_logging
from celery.utils.log import get_multiprocessing_logger

from mdv.config import Config
from mdv.logs import JsonLogFormatter, configure_logs

STDERR_FD = 2


def redirect_celery_logs() -> None:
    """Replace the logging of Celery from the start of a worker."""
    celeryd_init.connect(_configure)  # before Celery's first warning
    setup_logging.connect(_configure)  # with a receiver of this signal, Celery does not configure logging


def _configure(**_: object) -> None:
    from celery.apps import worker  # not needed in a web server

    worker.safe_say = _log_unlocked
    configure_logs(Config.from_environment().log_level)
    processes = get_multiprocessing_logger()  # reports killed processes, by default to no handler
    processes.propagate = True
    processes.setLevel(logging.ERROR)


def _log_unlocked(message: str, _stream: object = None) -> None:
    """Log a message of Celery in a signal handler, where no lock may be acquired."""
    record = logging.LogRecord("celery", logging.INFO, "", 0, message, None, None)
    with suppress(OSError):
        os.write(STDERR_FD, (JsonLogFormatter().format(record) + "\n").encode())
