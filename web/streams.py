"""Streaming of large responses, so that other requests of the process are served meanwhile.

Chunks are serialised in a thread (`run_in_thread`), each within milliseconds, and are not kept. A response holds a
database connection until its last chunk is sent. Therefore their number is limited, and a client that does not read
is disconnected.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import islice
from typing import Any, Protocol

import structlog
from flask import Response, make_response, request
from sqlalchemy import Connection

from mdv.errors import TooMany
from mdv.model import Statement
from mdv.rdf.serialise import XML_FORBIDDEN
from mdv.rdf.stream import XML_FORBIDDEN_PATTERN, check_writable, make_stream_writer
from mdv.rdf.syntax import Syntax
from web.negotiate import rdf_content_type, rdf_response, run_in_thread, serialise_statements

STREAM_THRESHOLD_STATEMENTS = 10_000
"""Responses with more statements are streamed."""
STREAM_CHUNK_ITEMS = 1000
"""Statements or list items per chunk."""
MAX_LARGE_ANSWERS = 4
"""Concurrent large responses in one process."""
WAIT_SECONDS = 10.0
"""How long a request waits for a free slot."""
SEND_SECONDS = 60.0
"""Time limit for a client to accept one chunk."""
ANSWER_SECONDS = 900.0
"""Time limit for a client to accept the whole response."""

OpenConnection = Callable[[], AbstractContextManager[Connection]]
"""Opens the database connection to read from."""

log = structlog.get_logger()
_slots = threading.BoundedSemaphore(MAX_LARGE_ANSWERS)


class StatementSource(Protocol):
    """Stored statements: `few` returns all of them if there are at most `most`, `chunks` streams them."""

    def few(self, connection: Connection, most: int) -> list[Statement] | None: ...

    def chunks(self, connection: Connection, size: int) -> Iterator[list[Statement]]: ...

    def properties(self, connection: Connection) -> list[str]: ...

    def find_value(self, connection: Connection, pattern: str) -> str | None: ...


def stream(reading: OpenConnection, make: Callable[[Connection], Generator[bytes]], content_type: str) -> Response:
    """Return a response that is read while it is sent. Errors before the first chunk are answered as errors; later ones
    close the connection, so that the client sees that the response is incomplete."""
    if not _slots.acquire(timeout=WAIT_SECONDS):
        raise TooMany(f"{MAX_LARGE_ANSWERS} large responses are already being sent. Try again in a few seconds.")
    with ExitStack() as stack:
        stack.callback(_slots.release)
        connection = stack.enter_context(reading())
        pieces = make(connection)
        stack.callback(pieces.close)
        first = next(pieces)
        stack.enter_context(_send_timeout())
        closing = stack.pop_all()
    response = Response(_sent(first, pieces), content_type=content_type)
    response.call_on_close(closing.close)
    return response


def stream_statements(
    statements: StatementSource,
    reading: OpenConnection,
    syntax: Syntax,
    prefixes: Mapping[str, str],
    document: str | None = None,
) -> Response:
    """Stream stored statements as RDF."""

    def make(connection: Connection) -> Generator[bytes]:
        check_writable(
            syntax, statements.properties(connection), lambda: statements.find_value(connection, XML_FORBIDDEN_PATTERN)
        )
        chunks = statements.chunks(connection, STREAM_CHUNK_ITEMS)
        yield from make_stream_writer(syntax, prefixes, document).pieces(chunks, run_in_thread)

    response = stream(reading, make, rdf_content_type(syntax))
    response.headers["Vary"] = "Accept"
    return response


def statements_response(
    statements: Sequence[Statement], syntax: Syntax, prefixes: Mapping[str, str], document: str | None = None
) -> Response:
    """Return statements in memory as RDF. Large numbers are serialised in chunks."""
    if len(statements) <= STREAM_THRESHOLD_STATEMENTS:
        return rdf_response(serialise_statements(statements, syntax, prefixes, document), syntax)
    check_writable(syntax, run_in_thread(lambda: {s.property for s in statements}),
                   lambda: run_in_thread(_find_unwritable, statements))  # fmt: skip
    chunks = (statements[start : start + STREAM_CHUNK_ITEMS] for start in range(0, len(statements), STREAM_CHUNK_ITEMS))
    pieces = make_stream_writer(syntax, prefixes, document).pieces(chunks, run_in_thread)
    response = Response((piece for piece in pieces if piece), content_type=rdf_content_type(syntax))
    response.headers["Vary"] = "Accept"
    return response


def _find_unwritable(statements: Sequence[Statement]) -> str | None:
    return next((s.subject for s in statements if XML_FORBIDDEN.search(s.object.value)), None)


def list_response(
    name: str, items: Sequence[Any], before: Mapping[str, Any], after: Mapping[str, Any], status: int = 200
) -> Response:
    """Return a JSON object with a list and fields before and after it. A long list is serialised in chunks."""
    if len(items) <= STREAM_CHUNK_ITEMS:
        return make_response({**before, name: list(items), **after}, status)
    return Response(json_pieces(name, items, before, lambda: after), status, content_type="application/json")


def json_pieces(
    name: str, items: Iterable[Any], before: Mapping[str, Any], after: Callable[[], Mapping[str, Any]]
) -> Generator[bytes]:
    """Yield a JSON object with a list in chunks. `after` is called when all items are written.

    >>> b"".join(json_pieces("items", [1, 2], {"a": 0}, lambda: {"b": 3}))
    b'{"a":0,"items":[1,2],"b":3}\\n'
    """
    yield "{{{}{}:[".format("".join(f"{field}," for field in _fields(before)), json.dumps(name)).encode()
    yield from json_chunks(items)
    yield "]{}}}\n".format("".join(f",{field}" for field in _fields(after()))).encode()


def json_chunks(items: Iterable[Any]) -> Iterator[bytes]:
    """Yield the items of a list as JSON, separated by commas, in chunks.

    >>> list(json_chunks([1, "a"]))
    [b'1,"a"']
    """
    rest, comma = iter(items), ""
    while chunk := list(islice(rest, STREAM_CHUNK_ITEMS)):
        yield run_in_thread(_dumped, chunk, comma)
        comma = ","


def _fields(values: Mapping[str, Any]) -> list[str]:
    return [f"{json.dumps(name)}:{json.dumps(value, separators=(',', ':'))}" for name, value in values.items()]


def _dumped(chunk: Sequence[Any], comma: str) -> bytes:
    return (comma + json.dumps(chunk, separators=(",", ":"))[1:-1]).encode()


def _sent(first: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    deadline = time.monotonic() + ANSWER_SECONDS
    if first:
        yield first
    for piece in pieces:
        if time.monotonic() > deadline:
            log.warning("response too slow", path=request.path, seconds=ANSWER_SECONDS)
            raise TimeoutError(f"The client did not accept the response within {ANSWER_SECONDS:g} s.")
        if piece:  # an empty chunk would end a chunked response
            yield piece


@contextmanager
def _send_timeout() -> Iterator[None]:
    """Limit the time of each send on the connection of this request. The old timeout is restored afterwards."""
    connection = request.environ.get("gunicorn.socket")
    if connection is None:
        yield
        return
    before = connection.gettimeout()
    connection.settimeout(SEND_SECONDS)
    try:
        yield
    finally:
        if connection.fileno() >= 0:
            connection.settimeout(before)
