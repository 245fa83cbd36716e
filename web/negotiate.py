"""Content negotiation, request headers and request bodies."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TypeVar, cast

from flask import Response, current_app, request
from gevent import Timeout, sleep
from gevent.monkey import is_module_patched
from gevent.threadpool import ThreadPool
from gunicorn.http.errors import ParseException
from werkzeug.datastructures import MIMEAccept
from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge

from mdv.errors import BadRequest, NotAcceptable, TooSlow, UnsupportedMediaType
from mdv.model import Statement
from mdv.rdf.serialise import serialise
from mdv.rdf.syntax import RDF_XML, SYNTAXES, Syntax

READ_CHUNK_BYTES = 64 * 1024
MAX_DISCARDED_BYTES, DISCARD_SECONDS = 64 * 1024 * 1024, 5.0
"""How much of a body that is too large is read before the answer, and for how long."""


def negotiate_syntax(first: Syntax = RDF_XML) -> Syntax:
    """Return the RDF syntax that the caller prefers; `first` if any is accepted."""
    found = negotiate_type([first.media_type, *(s.media_type for s in SYNTAXES if s is not first)])
    return next(s for s in SYNTAXES if s.media_type == found)


def negotiate_type(offered: list[str]) -> str:
    """Return the media type of `offered` that the caller prefers."""
    if not request.headers.get("Accept"):
        return offered[0]
    # Parameters such as charset or profile are ignored: each type is available in one form only.
    plain = [(value.partition(";")[0].strip(), quality) for value, quality in request.accept_mimetypes]
    found = MIMEAccept(plain).best_match(offered)
    if found is None:
        raise NotAcceptable(
            f"Accept: {request.headers['Accept']} is not available. Available types: {', '.join(offered)}.",
            offered=offered,
        )
    return found


def rdf_content_type(syntax: Syntax) -> str:
    return syntax.media_type + ("; charset=utf-8" if syntax.media_type.startswith("text/") else "")


def rdf_response(text: bytes, syntax: Syntax, etag: str | int | None = None) -> Response:
    response = Response(text, content_type=rdf_content_type(syntax))
    response.headers["Vary"] = "Accept"
    if etag is not None:
        response.set_etag(str(etag))
        response.make_conditional(request)
    return response


def not_modified(syntax: Syntax, etag: str | int) -> Response | None:
    """Return a 304 response if the caller already has this version (`If-None-Match`), else None."""
    response = rdf_response(b"", syntax, etag)
    return response if response.status_code == NOT_MODIFIED else None


NOT_MODIFIED = 304
THREAD_THRESHOLD_STATEMENTS = 2000
Result = TypeVar("Result")


def serialise_statements(
    statements: Sequence[Statement], syntax: Syntax, prefixes: Mapping[str, str], document: str | None = None
) -> bytes:
    """Serialise statements. Large numbers are serialised in a thread, so that other requests are served meanwhile."""
    if len(statements) < THREAD_THRESHOLD_STATEMENTS:
        return serialise(statements, syntax, prefixes, document)
    return run_in_thread(serialise, statements, syntax, prefixes, document)


def run_in_thread(function: Callable[..., Result], *values: object) -> Result:
    """Run CPU-bound work in a thread pool beside the event loop, and return its result or raise its error."""
    return _run_in(_pool, function, *values)


def run_program_turn(function: Callable[..., Result], *values: object) -> Result:
    """Run a turn of a program, which also reads the database, in a thread pool of its own."""
    return _run_in(_program_pool, function, *values)


def _run_in(pool: Callable[[], ThreadPool], function: Callable[..., Result], *values: object) -> Result:
    if not is_module_patched("socket"):  # not on gevent: each request already has a thread
        return function(*values)

    def attempt() -> tuple[Result | None, Exception | None]:
        try:
            return function(*values), None
        except Exception as error:
            return None, error

    result, error = pool().apply(attempt)
    if error is not None:
        raise error
    return cast(Result, result)


OFFLOAD_THREADS = 3
"""Threads beside the event loop. With more of them, the event loop gets the interpreter lock too rarely."""


@cache
def _pool() -> ThreadPool:
    """Return a pool of our own: the pool of the gevent hub resolves host names."""
    return ThreadPool(OFFLOAD_THREADS)


PROGRAM_THREADS = 3
"""Threads for programs. A turn is short unless it waits for the database."""


@cache
def _program_pool() -> ThreadPool:
    return ThreadPool(PROGRAM_THREADS)


def prefer_wait(most: int) -> int | None:
    """Return the seconds of `Prefer: wait=SECONDS` (RFC 7240), at most `most`; None if absent."""
    found = re.search(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})", request.headers.get("Prefer", ""), re.IGNORECASE)
    return min(int(found.group(1)), most) if found else None


_TAG = re.compile(r'(W/)?"([^"]*)"|([^\s,"]+)')


def request_etags(header: str) -> list[str] | None:
    """Return the tags of If-Match or If-None-Match; None if the header is absent. Invalid tags match no version."""
    given = request.headers.get(header)
    if given is None:
        return None
    # RFC 9110: If-Match uses strong comparison, so weak tags never match.
    strong = header == "If-Match"
    return sorted({quoted or bare for weak, quoted, bare in _TAG.findall(given) if not (weak and strong)})


def read_body(seconds: int) -> bytes:
    """Return the request body. Raises an error if it is encoded, incomplete, too large or too slow."""
    coding = request.headers.get("Content-Encoding", "identity")
    if coding.strip().lower() not in ("", "identity"):
        raise UnsupportedMediaType(f"Content-Encoding: {coding} is not supported. Send the body without encoding.")
    return read_within(seconds, _whole_body)


def discard_body() -> None:
    """Read and forget the body of a request that is refused. A client that still sends when the connection is closed
    would get a reset instead of the answer."""
    left, stream = MAX_DISCARDED_BYTES, request.environ["wsgi.input"]
    if not is_module_patched("socket"):  # the worker has already received the body (web/lmr/worker.py)
        return
    with Timeout(DISCARD_SECONDS, False), suppress(OSError, ParseException):
        while left > 0 and (part := stream.read(READ_CHUNK_BYTES)):
            left -= len(part)


def read_within(seconds: int, read: Callable[[], Result]) -> Result:
    """Return `read()`, or raise TooSlow if the body does not arrive within `seconds`."""
    if not is_module_patched("socket"):  # the worker has already received the body (web/lmr/worker.py)
        return read()
    with Timeout(seconds, TooSlow(f"The body did not arrive within {seconds} s. Nothing was changed.")):
        return read()


def _whole_body() -> bytes:
    """Read the body in chunks, so that other greenlets can run in between. A chunked body is read from the raw stream:
    Werkzeug would truncate it at the limit instead of raising an error."""
    has_length = request.content_length is not None or not request.environ.get("wsgi.input_terminated")
    stream = request.stream if has_length else request.environ["wsgi.input"]
    limit: int = current_app.config["MAX_CONTENT_LENGTH"]
    body = bytearray()
    try:
        while part := stream.read(READ_CHUNK_BYTES):
            body += part
            if len(body) > limit:
                raise RequestEntityTooLarge
            if is_module_patched("socket"):
                sleep(0)
    except (OSError, ParseException, ClientDisconnected):
        raise BadRequest("The body is incomplete or its chunked encoding is invalid. Nothing was changed.") from None
    return bytes(body)
