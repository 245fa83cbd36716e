"""The application: its parts put together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flask_openapi3_swagger
from flask import Blueprint, Flask, Response, redirect, render_template, request

from mdv.config import Config
from mdv.db.engine import make_engine
from mdv.errors import BadRequest
from mdv.logs import configure_logs
from web.api import documents, feed, filter, jobs, lmrs, query, resources, rules, schema, why
from web.calls import describe
from web.errors import answer_errors
from web.health import health
from web.metrics import measure
from web.services import Services, make_redis
from web.trace import trace

NOUNS = [noun.calls for noun in (documents, resources, query, schema, rules, lmrs, feed, why, filter, jobs)]


def create_app(config: Config) -> Flask:
    """The web server of one MDP."""
    configure_logs(config.log_level)
    app = Flask("web")
    app.config["MAX_CONTENT_LENGTH"] = config.max_document_bytes
    app.json.sort_keys = False  # type: ignore[attr-defined]
    engine = make_engine(config.database_url, pool_size=20, max_overflow=60, pool_timeout=20, hide_parameters=True)
    app.extensions["mdv"] = Services(config, engine, make_redis(config.redis_url))
    answer_errors(app)
    trace(app)
    measure(app)
    app.before_request(_refuse_unstorable)
    app.after_request(_protect)
    for noun in NOUNS:
        app.register_blueprint(noun.blueprint)
    app.register_blueprint(health)
    app.register_blueprint(_documentation())
    return app


def _refuse_unstorable() -> None:
    """NUL is in no name and no value; refused here, it reaches no handler."""
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


def _documentation() -> Blueprint:
    """/openapi.json and /docs; Swagger UI comes out of its package, from no other host."""
    swagger = Path(flask_openapi3_swagger.__file__).parent / "templates" / "swagger"
    pages = Blueprint("docs", __name__, static_folder=str(swagger), static_url_path="/docs/swagger")
    description = describe(NOUNS)

    @pages.get("/openapi.json")
    def openapi() -> dict[str, Any]:
        return description

    @pages.get("/docs")
    def docs() -> str:
        return render_template("docs.html")

    @pages.get("/")
    def home() -> Any:
        return redirect("/docs")

    return pages
