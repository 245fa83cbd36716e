"""JSON request bodies: reading, validation and OpenAPI description.

A body of at most `MAX_ITEM_BYTES` is parsed in one call. Calls that take a list accept larger bodies, which are parsed
in a thread, item by item, so that the number and the size of the items are checked before the rest is parsed. A single
call of the C parser on a large body would block all other requests of the process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json import JSONDecodeError
from typing import Any, TypeVar

from flask import request
from pydantic import BaseModel, ValidationError

from mdv.errors import BadRequest, Flaw, TooLarge, UnsupportedMediaType
from web.current_config import current_config
from web.negotiate import discard_body, read_body, run_in_thread
from web.routing import parameter_error

JSON = "application/json"
MAX_ITEM_BYTES = 64 * 1024
"""Larger than the longest rule with every character escaped."""
MAX_ITEMS_PER_REQUEST = 100_000
"""Items of a body that is a list."""
PARSE_WINDOW_CHARS = 4 * MAX_ITEM_BYTES
"""Characters of a list that are parsed from one slice."""

Model = TypeVar("Model", bound=BaseModel)

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_LONGEST_TOKEN = 16
"""A number, literal or escape that is cut off at the end of a slice fails at most this far before the end."""


def read_json_body(model: type[Model], max_bytes: int = MAX_ITEM_BYTES) -> Model:
    """Return the request body, parsed and validated by the model."""
    return _checked(model, _parsed(read_json(max_bytes)))


def parse_json_body(model: type[Model], body: bytes) -> Model:
    """Return a body that was read before, parsed in a thread and validated by the model."""
    return _checked(model, run_in_thread(_parsed, body))


def read_json_items(model: type[Model], max_bytes: int) -> Model | list[Model]:
    """Return the request body: one item or a list of items. A list may have up to `max_bytes` bytes and
    `MAX_ITEMS_PER_REQUEST` items, each of at most `MAX_ITEM_BYTES` characters."""
    body = read_json(max_bytes)
    if body[:MAX_ITEM_BYTES].lstrip()[:1] == b"[":
        return run_in_thread(parse_items, body, model)
    if len(body) > MAX_ITEM_BYTES:
        raise TooLarge(
            f"A single item is larger than the limit of {MAX_ITEM_BYTES:,} bytes. Send several items as a list."
        )
    return _checked(model, _parsed(body))


def describe_json_body(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI description of a JSON body."""
    schema = model.model_json_schema(by_alias=True)
    return {"required": True, "content": {JSON: {"schema": schema, "example": example}}}


def parse_items(body: bytes, model: type[Model], max_items: int = MAX_ITEMS_PER_REQUEST) -> list[Model]:
    """Return the items of a JSON list. Parsing stops at the first item that is over a limit or not valid.

    >>> from web.models import NewRule
    >>> [item.rule for item in parse_items(b'[{"rule": "a"}, {"rule": "b"}]', NewRule)]
    ['a', 'b']
    """
    items: list[Model] = []
    for value in _values(_decoded(body)):
        if len(items) == max_items:
            raise TooLarge(
                f"The list has more than {max_items:,} items, the limit of one call. Send it in several calls."
            )
        items.append(_checked(model, value, len(items)))
    return items


def read_json(max_bytes: int) -> bytes:
    """Return the request body if its type is JSON and it is not larger than the limit. It is not parsed."""
    given = request.mimetype
    if given != JSON:
        raise UnsupportedMediaType(f"This call requires Content-Type: {JSON}, not {given or 'no content type'}.")
    if (request.content_length or 0) > max_bytes:
        discard_body()
        raise TooLarge(f"The body is larger than the limit of {max_bytes:,} bytes.")
    body = read_body(current_config().body_seconds)
    if len(body) > max_bytes:
        raise TooLarge(f"The body is larger than the limit of {max_bytes:,} bytes.")
    return body


def _checked(model: type[Model], value: Any, number: int | None = None) -> Model:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise parameter_error(error, "" if number is None else f"item {number + 1}: ") from None


def _values(text: str) -> Iterator[Any]:
    """Yield the values of a JSON list one by one."""
    at = _skip(text, _skip(text, 0) + 1)
    if text[at : at + 1] == "]":
        return _refuse_rest(text, at + 1)
    start, window = at, text[at : at + PARSE_WINDOW_CHARS]
    while True:
        try:
            value, end = _DECODER.raw_decode(window, at - start)
        except RecursionError:
            raise BadRequest("The JSON body is nested too deeply or contains a number that is too long.") from None
        except ValueError as error:
            if at > start and start + len(window) < len(text):
                start, window = at, text[at : at + PARSE_WINDOW_CHARS]  # the item may go on after the end of the slice
                continue
            raise _item_error(text, start, window, error) from None
        if end == len(window) and start + end < len(text) and at > start:
            start, window = at, text[at : at + PARSE_WINDOW_CHARS]  # a number may go on
            continue
        if start + end - at > MAX_ITEM_BYTES:
            raise _item_too_large(text, at)
        yield value
        at = _skip(text, start + end)
        if text[at : at + 1] == "]":
            return _refuse_rest(text, at + 1)
        if text[at : at + 1] != ",":
            raise _not_json(JSONDecodeError("Expecting ',' delimiter", text, at))
        at = _skip(text, at + 1)
        if at - start >= len(window):
            start, window = at, text[at : at + PARSE_WINDOW_CHARS]


def _item_error(text: str, start: int, window: str, error: ValueError) -> BadRequest:
    """Return the error of the item at the start of a slice: it is not JSON, or it does not end within the slice."""
    is_cut = start + len(window) < len(text)
    if not isinstance(error, JSONDecodeError):
        return BadRequest("The JSON body is nested too deeply or contains a number that is too long.")
    if is_cut and (error.msg.startswith("Unterminated string") or error.pos >= len(window) - _LONGEST_TOKEN):
        return _item_too_large(text, start)
    return _not_json(JSONDecodeError(error.msg, text, start + error.pos))


def _item_too_large(text: str, start: int) -> BadRequest:
    where = JSONDecodeError("", text, start)
    return TooLarge(
        f"The item at line {where.lineno}, column {where.colno} is larger than the limit of {MAX_ITEM_BYTES:,}"
        " characters."
    )


def _refuse_rest(text: str, at: int) -> None:
    if _skip(text, at) < len(text):
        raise _not_json(JSONDecodeError("Extra data", text, _skip(text, at)))


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(_decoded(body))
    except JSONDecodeError as error:
        raise _not_json(error) from None
    except (ValueError, RecursionError):
        raise BadRequest("The JSON body is nested too deeply or contains a number that is too long.") from None


def _decoded(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(f"The body is not JSON: byte {error.start + 1} is not UTF-8.") from None


def _not_json(error: JSONDecodeError) -> BadRequest:
    flaw = Flaw(error.msg, line=error.lineno, column=error.colno)
    return BadRequest(f"The body is not JSON: {flaw}.", [flaw])
