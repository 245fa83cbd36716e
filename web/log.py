"""Write the logs of gunicorn as JSON lines."""

from __future__ import annotations

from typing import Any

from gunicorn.glogging import Logger

from mdv.logs import JsonLogFormatter


class JsonLogger(Logger):
    """The gunicorn logger class (`--logger-class`)."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for writer in (*self.error_log.handlers, *self.access_log.handlers):
            writer.setFormatter(JsonLogFormatter())
