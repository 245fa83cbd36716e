"""Logging: every event of MDV and of its libraries is one line of JSON on standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

import structlog


def configure_logs(level: str) -> None:
    """Log events of `level` and above; events of libraries only if they are warnings or errors."""
    number = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        # Writes each line, including the newline, in one call: several processes share one log.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    writer = logging.StreamHandler(sys.stderr)
    writer.setFormatter(JsonLogFormatter())
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[writer])
    logging.captureWarnings(True)


class JsonLogFormatter(logging.Formatter):
    """Formats the records of libraries like MDV's own events.

    >>> record = logging.LogRecord("celery", logging.WARNING, "", 0, "%s is down", ("Redis",), None)
    >>> record.created = 0.0
    >>> JsonLogFormatter().format(record)
    '{"event": "Redis is down", "level": "warning", "timestamp": "1970-01-01T00:00:00.000000Z", "logger": "celery"}'
    """

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None)
        line = {
            "event": record.getMessage().strip(),
            "level": record.levelname.lower(),
            "timestamp": moment.isoformat(timespec="microseconds") + "Z",
            "logger": record.name,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)
