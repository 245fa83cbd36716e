"""Content negotiation, and the parts of a request that HTTP defines."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, cast

from flask import Response, current_app, request
from gevent import Timeout, get_hub
from gevent.monkey import is_module_patched
from gunicorn.http.errors import ParseException
from werkzeug.datastructures import MIMEAccept
from werkzeug.exceptions import RequestEntityTooLarge

from mdv.errors import BadRequest, NotAcceptable, TooSlow, UnsupportedMediaType
from mdv.model import Statement
from mdv.rdf.serialise import serialise
from mdv.rdf.syntax import RDF_XML, SYNTAXES, Syntax

CHUNK = 64 * 1024


def wanted_syntax(first: Syntax = RDF_XML) -> Syntax:
    """The RDF syntax that the caller prefers; `first` where any will do."""
    found = wanted_type([first.media_type, *(s.media_type for s in SYNTAXES if s is not first)])
    return next(s for s in SYNTAXES if s.media_type == found)


def wanted_type(offered: list[str]) -> str:
    """The one of `offered` that the caller likes best."""
    if not request.headers.get("Accept"):
        return offered[0]
    # A charset or a profile that is asked for does not stand in the way: each type comes in one form.
    plain = [(value.partition(";")[0].strip(), quality) for value, quality in request.accept_mimetypes]
    found = MIMEAccept(plain).best_match(offered)
    if found is None:
        raise NotAcceptable(
            f"Accept: {request.headers['Accept']} fits nothing here; on offer are {', '.join(offered)}.",
            offered=offered,
        )
    return found


def rdf_response(text: bytes, syntax: Syntax, version: int | None = None) -> Response:
    charset = "; charset=utf-8" if syntax.media_type.startswith("text/") else ""
    response = Response(text, content_type=syntax.media_type + charset)
    response.headers["Vary"] = "Accept"
    if version is not None:
        response.set_etag(str(version))
        response.make_conditional(request)
    return response


MANY = 2000
Result = TypeVar("Result")


def written(
    statements: Sequence[Statement], syntax: Syntax, prefixes: Mapping[str, str], document: str | None = None
) -> bytes:
    """The statements as a text. Many of them are written in a thread, so that others are served meanwhile."""
    if len(statements) < MANY:
        return serialise(statements, syntax, prefixes, document)
    return in_thread(serialise, statements, syntax, prefixes, document)


def in_thread(function: Callable[..., Result], *values: object) -> Result:
    """What takes long and waits for nothing, in a thread. Its error comes back as a value: a thread has no caller."""
    if not is_module_patched("socket"):  # each request has a thread
        return function(*values)

    def attempt() -> tuple[Result | None, Exception | None]:
        try:
            return function(*values), None
        except Exception as error:
            return None, error

    result, error = get_hub().threadpool.apply(attempt)
    if error is not None:
        raise error
    return cast(Result, result)


def prefer_wait(most: int) -> int | None:
    """The seconds of `Prefer: wait=SECONDS` (RFC 7240), at most `most`."""
    found = re.search(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})", request.headers.get("Prefer", ""), re.IGNORECASE)
    return min(int(found.group(1)), most) if found else None


_TAG = re.compile(r'(W/)?"([^"]*)"|([^\s,"]+)')


def etags(header: str) -> list[str] | None:
    """The tags of If-Match or If-None-Match; None where the header is absent. What is no tag fits no version."""
    given = request.headers.get(header)
    if given is None:
        return None
    # RFC 9110: If-Match compares strongly, so a weak tag fits nothing.
    strong = header == "If-Match"
    return sorted({quoted or bare for weak, quoted, bare in _TAG.findall(given) if not (weak and strong)})


def read_body(seconds: int) -> bytes:
    """The body, if it is plain and whole, within the limit, and arrives in time."""
    coding = request.headers.get("Content-Encoding", "identity")
    if coding.strip().lower() not in ("", "identity"):
        raise UnsupportedMediaType(f"Content-Encoding: {coding} is not read; send the body as it is.")
    return in_time(seconds, _whole_body)


def in_time(seconds: int, read: Callable[[], Result]) -> Result:
    """What is read of a body, if it arrives in time."""
    if not is_module_patched("socket"):  # the server sees to it (web/lmr/bodies.py)
        return read()
    with Timeout(seconds, TooSlow(f"The body did not arrive within {seconds} s; nothing was changed.")):
        return read()


def _whole_body() -> bytes:
    """Of a body that does not tell its length, Werkzeug would keep what is within the limit and drop the rest."""
    if request.content_length is not None or not request.environ.get("wsgi.input_terminated"):
        return request.get_data(cache=False)
    limit: int = current_app.config["MAX_CONTENT_LENGTH"]
    body = bytearray()
    try:
        while part := request.environ["wsgi.input"].read(CHUNK):
            body += part
            if len(body) > limit:
                raise RequestEntityTooLarge
    except (OSError, ParseException):
        raise BadRequest("The body ended before it was whole, or its chunks are broken; nothing was changed.") from None
    return bytes(body)
