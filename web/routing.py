"""API routing: one decorator registers a handler, validates its parameters and describes it for /openapi.json."""

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
from mdv.errors import BadRequest, Flaw, Unauthenticated
from web.current_config import current_config
from web.models import Problem

Handler = Callable[..., Any]

SCHEMA_REF = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class Route:
    """An API call: path, parameters and responses."""

    path: str
    method: str
    tag: str
    summary: str
    description: str
    query: type[BaseModel] | None
    headers: tuple[dict[str, Any], ...]
    body: dict[str, Any] | None
    answers: dict[int, Any]
    needs_code: bool


@dataclass
class RouteGroup:
    """The API calls of one resource type."""

    name: str
    description: str
    routes: list[Route] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.blueprint = Blueprint(self.name, __name__, url_prefix="/api/v1")

    def route(
        self,
        method: str,
        path: str,
        summary: str,
        answers: dict[int, Any],
        query: type[BaseModel] | None = None,
        headers: tuple[dict[str, Any], ...] = (),
        body: dict[str, Any] | None = None,
        reads: bool = False,
        is_for_members: bool = False,
        needs_code: bool = False,
    ) -> Callable[[Handler], Handler]:
        """Register a handler. The validated `query` is its first argument. `reads`: a POST that changes nothing and is
        open to readers. `is_for_members`: members of the backbone may sign the request instead. `needs_code`: the code
        of an invitation takes the place of a token."""

        def decorate(handler: Handler) -> Handler:
            whole = "/api/v1" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", path)
            text = inspect.getdoc(handler) or ""
            self.routes.append(
                Route(whole, method, self.name, summary, text, query, headers, body, answers, needs_code)
            )

            @wraps(handler)
            def handle(**path_values: str) -> Any:
                if not needs_code and not (is_for_members and "Signature" in request.headers):
                    _require_authorization_header(reads or request.method in ("GET", "HEAD"))
                return handler(*_checked(query), **path_values)

            self.blueprint.add_url_rule(path, endpoint=handler.__name__, view_func=handle, methods=[method])
            return handle

        return decorate


def _require_authorization_header(reads: bool) -> None:
    """Raise Unauthenticated if the request has no token. This runs before parameters are checked, so that strangers
    learn nothing about the API. `reads`: the call only reads, which `MDV_PUBLIC_READ` may open."""
    if not (reads and current_config().public_read) and "Authorization" not in request.headers:
        raise Unauthenticated()


def _checked(model: type[BaseModel] | None) -> tuple[BaseModel, ...]:
    given = request.args.to_dict(flat=False)
    repeated = [name for name, values in given.items() if len(values) > 1]
    if repeated:
        raise BadRequest(f"The parameter {repeated[0]!r} is given {len(given[repeated[0]])} times. Give it once.")
    if model is None:
        if given:
            raise BadRequest(f"Unknown parameter {next(iter(given))!r}: this call has no parameters.")
        return ()
    try:
        return (model.model_validate({name: values[0] for name, values in given.items()}),)
    except ValidationError as error:
        raise parameter_error(error) from None


def parameter_error(error: ValidationError, where: str = "") -> BadRequest:
    """Return the error for parameters that failed validation. `where` is a prefix of each message."""
    flaws = [
        Flaw(
            f"{where}{'.'.join(str(part) for part in item['loc']) or 'body'}: {item['msg']}",
            value=_input_text(item.get("input")),
        )
        for item in error.errors()
    ]
    return BadRequest("; ".join(flaw.message for flaw in flaws) + ".", flaws)


def _input_text(value: object) -> str | None:
    return None if value is None or isinstance(value, dict) else str(value)[:200]


def describe_openapi(groups: list[RouteGroup]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 description of all calls."""
    models: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for group in groups:
        for route in group.routes:
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, models)
    _model(Problem, models)
    return {
        "openapi": "3.1.0",
        "info": {"title": "MDV", "version": mdv.__version__, "description": mdv.__doc__},
        "tags": [{"name": group.name, "description": group.description} for group in groups],
        "paths": paths,
        "components": {"schemas": models, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _operation(route: Route, models: dict[str, Any]) -> dict[str, Any]:
    path_values = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}_{re.sub(r'[^a-z]+', '_', route.path.removeprefix('/api/v1/').lower())}",
        "tags": [route.tag],
        "summary": route.summary,
        "description": route.description,
        "parameters": [*path_values, *_parameters(route.query), *route.headers],
        "responses": {str(status): _answer(answer, models) for status, answer in sorted(route.answers.items())},
    }
    if route.body is not None:
        operation["requestBody"] = route.body
    if route.needs_code:
        operation["security"] = []
    return operation


def _parameters(query: type[BaseModel] | None) -> list[dict[str, Any]]:
    if query is None:
        return []
    schema = query.model_json_schema(by_alias=True)
    required = schema.get("required", [])
    parameters = []
    for name, parameter_schema in schema["properties"].items():
        parameter_schema = dict(parameter_schema)
        parameter = {"name": name, "in": "query", "required": name in required}
        for key in ("description", "example"):
            if key in parameter_schema:
                parameter[key] = parameter_schema.pop(key)
        parameters.append(parameter | {"schema": _without_null(parameter_schema)})
    return parameters


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove null from the schema of an optional parameter: a query string cannot contain null."""
    types = [one for one in schema.pop("anyOf", []) if one.get("type") != "null"]
    schema = {key: value for key, value in schema.items() if not (key == "default" and value is None)}
    return schema | (types[0] if types else {})


def _answer(answer: Any, models: dict[str, Any]) -> dict[str, Any]:
    if isinstance(answer, dict):
        return answer
    reference = {"$ref": _model(answer, models)}
    return {"description": inspect.getdoc(answer) or "", "content": {"application/json": {"schema": reference}}}


def _model(model: type[BaseModel], models: dict[str, Any]) -> str:
    schema = model.model_json_schema(ref_template=SCHEMA_REF, mode="serialization")
    models.update(schema.pop("$defs", {}))
    models[model.__name__] = schema
    return SCHEMA_REF.format(model=model.__name__)
