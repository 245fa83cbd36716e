"""What gunicorn tells of itself, as lines of JSON like all others."""

from __future__ import annotations

from typing import Any

from gunicorn.glogging import Logger

from mdv.logs import JsonLine


class JsonLogger(Logger):
    """Named by `--logger-class`."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for writer in (*self.error_log.handlers, *self.access_log.handlers):
            writer.setFormatter(JsonLine())
