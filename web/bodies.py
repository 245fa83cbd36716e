"""JSON bodies: read, checked by a model, and described."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from flask import request
from pydantic import BaseModel, ValidationError

from mdv.errors import BadRequest, Flaw, TooLarge, UnsupportedMediaType
from web.calls import parameter_error
from web.negotiate import read_body
from web.services import services

JSON = "application/json"
LARGEST = 64 * 1024
"""More than the longest rule takes, every character of it escaped."""

Model = TypeVar("Model", bound=BaseModel)


def json_body(model: type[Model], largest: int = LARGEST) -> Model:
    """The body of this request, if it is JSON, within the limit and as the model wants it."""
    given = request.mimetype
    if given != JSON:
        raise UnsupportedMediaType(f"This call reads JSON, sent with Content-Type: {JSON}, not {given or 'nothing'}.")
    if (request.content_length or 0) > largest:
        raise TooLarge(f"The body is larger than the limit of {largest:,} bytes.")
    body = read_body(services().config.body_seconds)
    if len(body) > largest:
        raise TooLarge(f"The body is larger than the limit of {largest:,} bytes.")
    try:
        return model.model_validate(_parsed(body))
    except ValidationError as error:
        raise parameter_error(error) from None


def json_request(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """How a JSON body is described."""
    schema = model.model_json_schema(by_alias=True)
    return {"required": True, "content": {JSON: {"schema": schema, "example": example}}}


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadRequest(f"The body is not JSON: byte {error.start + 1} is not UTF-8.") from None
    except json.JSONDecodeError as error:
        flaw = Flaw(error.msg, line=error.lineno, column=error.colno)
        raise BadRequest(f"The body is not JSON: {flaw}.", [flaw]) from None
    except (ValueError, RecursionError):
        raise BadRequest("The body is not JSON that can be read: nested too deep, or a number too long.") from None
