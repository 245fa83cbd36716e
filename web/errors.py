"""API errors are answered as application/problem+json. Errors of pages are rendered by `web.page_base`."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import structlog
from flask import Flask, Response, request
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from werkzeug.exceptions import HTTPException

from mdv.errors import MdvError, TooLarge, TooMany, Unauthenticated, Unavailable

log = structlog.get_logger()

_DATABASE_ERRORS = (psycopg.OperationalError, psycopg.InterfaceError, OperationalError, InterfaceError, PoolTimeout)


def problem_response(problem: dict[str, Any]) -> Response:
    body = json.dumps(problem, ensure_ascii=False)
    response = Response(
        body.encode("utf-8", "replace"), status=problem["status"], content_type="application/problem+json"
    )
    if problem["status"] == Unauthenticated.status:
        response.headers["WWW-Authenticate"] = 'Bearer realm="mdv"'
    if problem["status"] in (Unavailable.status, TooMany.status):
        response.headers["Retry-After"] = str(problem.get("retry_after", 2))
    return response


def answer_errors(app: Flask) -> None:
    """Register the error handlers of the application."""

    @app.errorhandler(MdvError)
    def _known(error: MdvError) -> Response:
        return problem_response(error.problem())

    @app.errorhandler(HTTPException)
    def _http(error: HTTPException) -> Response:
        if error.response is not None and isinstance(error.response, Response):
            return error.response
        code = error.code or 500
        if code == TooLarge.status:
            limit = app.config["MAX_CONTENT_LENGTH"]
            return problem_response(TooLarge(f"The body is larger than the limit of {limit:,} bytes.").problem())
        problem = {
            "type": "about:blank",
            "title": error.name,
            "status": code,
            "detail": error.description or error.name,
        }
        response = problem_response(problem)
        for name, value in error.get_headers():
            if name.lower() not in ("content-type", "content-length"):
                response.headers[name] = value
        return response

    @app.errorhandler(Exception)
    def _unknown(error: Exception) -> Response:
        return problem_response(unexpected(error).problem())


def unexpected(error: Exception) -> MdvError:
    """Log an unexpected exception and return the error for the client, without details."""
    if isinstance(error, _DATABASE_ERRORS):
        log.error("database unavailable", reason=first_line(error))
        changes = request.method not in ("GET", "HEAD", "OPTIONS")
        hint = "Try again; an Idempotency-Key makes that safe." if changes else "Try again in a few seconds."
        return Unavailable(f"The database is unavailable. {hint}")
    log.error("unexpected error", error=repr(error), exc_info=error)
    return MdvError("Internal error. The server log has the details.")


def first_line(error: Exception) -> str:
    """Return the first line of a database error, without the statement and its values."""
    return (str(error).splitlines() or [repr(error)])[0]
