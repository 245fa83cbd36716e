"""Each request has a name, in its answer and in every line that is logged for it."""

from __future__ import annotations

import re
import time
import uuid

import structlog
from flask import Flask, Response, g, request

HEADER = "X-Request-ID"
_SANE = re.compile(r"[A-Za-z0-9._-]{1,64}")

log = structlog.get_logger()


def trace(app: Flask) -> None:
    """Take the name that the caller gives, if it is one; log each answer. Nothing of a query or a token is logged."""

    @app.before_request
    def _name() -> None:
        given = request.headers.get(HEADER, "")
        g.request_id = given if _SANE.fullmatch(given) else uuid.uuid4().hex
        g.started = time.perf_counter()
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request=g.request_id)

    @app.after_request
    def _answered(response: Response) -> Response:
        response.headers[HEADER] = g.request_id
        seconds = round(time.perf_counter() - g.started, 6)
        log.info("answered", method=request.method, path=request.path, status=response.status_code, seconds=seconds)
        return response
