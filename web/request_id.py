"""Request ids: in the response header and in every log line of the request."""

from __future__ import annotations

import re
import time
import uuid

import structlog
from flask import Flask, Response, g, request

HEADER = "X-Request-ID"
_VALID = re.compile(r"[A-Za-z0-9._-]{1,64}")

log = structlog.get_logger()


def assign_request_ids(app: Flask) -> None:
    """Accept a valid X-Request-ID or create one, and log each response. Queries and tokens are not logged."""

    @app.before_request
    def _name() -> None:
        given = request.headers.get(HEADER, "")
        g.request_id = given if _VALID.fullmatch(given) else uuid.uuid4().hex
        g.started = time.perf_counter()
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request=g.request_id)

    @app.after_request
    def _answered(response: Response) -> Response:
        response.headers[HEADER] = g.request_id
        seconds = round(time.perf_counter() - g.started, 6)
        log.info("answered", method=request.method, path=request.path, status=response.status_code, seconds=seconds,
                 address=request.remote_addr)  # fmt: skip
        return response
