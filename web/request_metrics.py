"""Prometheus metrics of requests. They are counted as they happen."""

from __future__ import annotations

import time

from flask import Flask, Response, g, request

from mdv.metrics import REQUEST_SECONDS, REQUESTS

METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"})
"""Other methods are counted as `other`, so that clients cannot create metric series."""


def count_requests(app: Flask) -> None:
    """Count and time all requests by route."""

    @app.before_request
    def _begin() -> None:
        g.began = time.perf_counter()

    @app.after_request
    def _end(response: Response) -> Response:
        call = request.url_rule.rule if request.url_rule else "unknown"
        method = request.method if request.method in METHODS else "other"
        REQUESTS.labels(call, method, response.status_code).inc()
        if "began" in g:
            REQUEST_SECONDS.labels(call, method).observe(time.perf_counter() - g.began)
        return response
