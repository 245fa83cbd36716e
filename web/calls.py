"""Calls: one decorator routes a handler, checks its parameters and describes it for /openapi.json."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from flask import Blueprint, request
from pydantic import BaseModel, ValidationError

import mdv
from mdv.errors import BadRequest, Flaw
from web.auth import refuse_strangers
from web.models import Problem

Handler = Callable[..., Any]

REFERENCE = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class Call:
    """What is known of a call: where it is, what it takes, what it answers."""

    path: str
    method: str
    tag: str
    summary: str
    description: str
    query: type[BaseModel] | None
    headers: tuple[dict[str, Any], ...]
    body: dict[str, Any] | None
    answers: dict[int, Any]


@dataclass
class Calls:
    """The calls about one noun."""

    noun: str
    description: str
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.blueprint = Blueprint(self.noun, __name__, url_prefix="/api/v1")

    def call(
        self,
        method: str,
        path: str,
        summary: str,
        answers: dict[int, Any],
        query: type[BaseModel] | None = None,
        headers: tuple[dict[str, Any], ...] = (),
        body: dict[str, Any] | None = None,
        reads: bool = False,
    ) -> Callable[[Handler], Handler]:
        """Route a handler. `query` is checked and handed over as its first argument; `reads`: a POST that changes
        nothing, for whoever may read."""

        def decorate(handler: Handler) -> Handler:
            whole = "/api/v1" + path.replace("<", "{").replace(">", "}")
            text = inspect.getdoc(handler) or ""
            self.calls.append(Call(whole, method, self.noun, summary, text, query, headers, body, answers))

            @wraps(handler)
            def handle(**places: str) -> Any:
                refuse_strangers(reads or request.method in ("GET", "HEAD"))
                return handler(*_checked(query), **places)

            self.blueprint.add_url_rule(path, endpoint=handler.__name__, view_func=handle, methods=[method])
            return handle

        return decorate


def _checked(model: type[BaseModel] | None) -> tuple[BaseModel, ...]:
    given = request.args.to_dict(flat=False)
    twice = [name for name, values in given.items() if len(values) > 1]
    if twice:
        raise BadRequest(f"The parameter {twice[0]!r} is given {len(given[twice[0]])} times.")
    if model is None:
        if given:
            raise BadRequest(f"This call takes no parameter {next(iter(given))!r}.")
        return ()
    try:
        return (model.model_validate({name: values[0] for name, values in given.items()}),)
    except ValidationError as error:
        raise parameter_error(error) from None


def parameter_error(error: ValidationError) -> BadRequest:
    """What pydantic has against some parameters."""
    flaws = [
        Flaw(f"{'.'.join(str(part) for part in item['loc']) or 'body'}: {item['msg']}", value=_shown(item.get("input")))
        for item in error.errors()
    ]
    return BadRequest("; ".join(flaw.message for flaw in flaws) + ".", flaws)


def _shown(value: object) -> str | None:
    return None if value is None or isinstance(value, dict) else str(value)[:200]


def describe(nouns: list[Calls]) -> dict[str, Any]:
    """All calls, as OpenAPI 3.1."""
    models: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for noun in nouns:
        for call in noun.calls:
            paths.setdefault(call.path, {})[call.method.lower()] = _operation(call, models)
    _model(Problem, models)
    return {
        "openapi": "3.1.0",
        "info": {"title": "MDV", "version": mdv.__version__, "description": mdv.__doc__},
        "tags": [{"name": noun.noun, "description": noun.description} for noun in nouns],
        "paths": paths,
        "components": {"schemas": models, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _operation(call: Call, models: dict[str, Any]) -> dict[str, Any]:
    places = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", call.path)
    ]
    operation: dict[str, Any] = {
        "operationId": f"{call.method.lower()}_{re.sub(r'[^a-z]+', '_', call.path.removeprefix('/api/v1/').lower())}",
        "tags": [call.tag],
        "summary": call.summary,
        "description": call.description,
        "parameters": [*places, *_parameters(call.query), *call.headers],
        "responses": {str(status): _answer(answer, models) for status, answer in sorted(call.answers.items())},
    }
    if call.body is not None:
        operation["requestBody"] = call.body
    return operation


def _parameters(query: type[BaseModel] | None) -> list[dict[str, Any]]:
    if query is None:
        return []
    schema = query.model_json_schema(by_alias=True)
    required = schema.get("required", [])
    parameters = []
    for name, shape in schema["properties"].items():
        shape = dict(shape)
        parameter = {"name": name, "in": "query", "required": name in required}
        for word in ("description", "example"):
            if word in shape:
                parameter[word] = shape.pop(word)
        parameters.append(parameter | {"schema": _without_null(shape)})
    return parameters


def _without_null(shape: dict[str, Any]) -> dict[str, Any]:
    """A parameter that may be absent is not one that may be null: there is no null in a query."""
    kinds = [kind for kind in shape.pop("anyOf", []) if kind.get("type") != "null"]
    shape = {key: value for key, value in shape.items() if not (key == "default" and value is None)}
    return shape | (kinds[0] if kinds else {})


def _answer(answer: Any, models: dict[str, Any]) -> dict[str, Any]:
    if isinstance(answer, dict):
        return answer
    reference = {"$ref": _model(answer, models)}
    return {"description": inspect.getdoc(answer) or "", "content": {"application/json": {"schema": reference}}}


def _model(model: type[BaseModel], models: dict[str, Any]) -> str:
    schema = model.model_json_schema(ref_template=REFERENCE, mode="serialization")
    models.update(schema.pop("$defs", {}))
    models[model.__name__] = schema
    return REFERENCE.format(model=model.__name__)
