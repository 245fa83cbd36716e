"""Assemble: what every application of MDV has, whatever it serves: errors, traces, figures, its own description."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flask_openapi3_swagger
from flask import Blueprint, Flask, Response, render_template, request

from mdv.config import Config
from mdv.errors import BadRequest
from mdv.logs import configure_logs
from web.calls import Calls, describe
from web.errors import answer_errors
from web.metrics import measure
from web.trace import trace


def assemble(config: Config, services: object, nouns: list[Calls], health: Blueprint, pages: Blueprint) -> Flask:
    """An application with these calls and pages; its handlers find `services` by `web.services.services`."""
    configure_logs(config.log_level)
    app = Flask("web")
    app.config["MAX_CONTENT_LENGTH"] = config.max_document_bytes
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.extensions["mdv"] = services
    answer_errors(app)
    trace(app)
    measure(app)
    app.before_request(_refuse_unstorable)
    app.after_request(_protect)
    for noun in nouns:
        app.register_blueprint(noun.blueprint)
    app.register_blueprint(health)
    app.register_blueprint(pages)
    app.register_blueprint(_documentation(nouns))
    return app


def _refuse_unstorable() -> None:
    """NUL is in no name and no value; refused here, it reaches no handler."""
    if "\0" in request.path:
        raise BadRequest("The address contains a NUL character.")
    for name, value in request.args.items(multi=True):
        if "\0" in name or "\0" in value:
            raise BadRequest(f"The parameter {name!r} contains a NUL character.")


def _protect(response: Response) -> Response:
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers.setdefault("Referrer-Policy", "no-referrer")
    response.headers.setdefault("X-Frame-Options", "DENY")
    response.headers.setdefault(
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    )
    return response


def _documentation(nouns: list[Calls]) -> Blueprint:
    """/openapi.json and /docs; Swagger UI comes out of its package, from no other host."""
    swagger = Path(flask_openapi3_swagger.__file__).parent / "templates" / "swagger"
    pages = Blueprint("docs", __name__, static_folder=str(swagger), static_url_path="/docs/swagger")
    description = describe(nouns)

    @pages.get("/openapi.json")
    def openapi() -> dict[str, Any]:
        return description

    @pages.get("/docs")
    def docs() -> str:
        return render_template("docs.html")

    return pages
