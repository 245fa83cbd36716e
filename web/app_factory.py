"""Build a Flask application with the parts that MDP and LMR share: errors, request ids, metrics, OpenAPI."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Flask, Response, render_template, request

from mdv.config import Config
from mdv.errors import BadRequest
from mdv.logs import configure_logs
from web.client_address import BehindProxies
from web.errors import answer_errors
from web.request_id import assign_request_ids
from web.request_metrics import count_requests
from web.routing import RouteGroup, describe_openapi


def make_app(config: Config, services: object, groups: list[RouteGroup], health: Blueprint, pages: Blueprint) -> Flask:
    """Return an application with these routes and pages. Handlers get `services` from `web.services.services`."""
    configure_logs(config.log_level)
    app = Flask("web")
    app.config["MAX_CONTENT_LENGTH"] = config.max_document_bytes
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.extensions["mdv"] = services
    answer_errors(app)
    assign_request_ids(app)
    count_requests(app)
    app.before_request(_refuse_unstorable)
    app.after_request(_protect)
    for group in groups:
        app.register_blueprint(group.blueprint)
    app.register_blueprint(health)
    app.register_blueprint(pages)
    app.register_blueprint(_documentation(groups))
    if config.trusted_proxies:
        app.wsgi_app = BehindProxies(app.wsgi_app, config.trusted_proxies)  # type: ignore[method-assign]
    return app


def _refuse_unstorable() -> None:
    """Reject NUL characters in the path and the parameters: no name or value can contain one."""
    if "\0" in request.path:
        raise BadRequest("The URL path contains a NUL character. Remove it.")
    for name, value in request.args.items(multi=True):
        if "\0" in name or "\0" in value:
            raise BadRequest(f"The parameter {name!r} contains a NUL character. Remove it.")


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


def _documentation(groups: list[RouteGroup]) -> Blueprint:
    """Return the blueprint of /openapi.json and /docs, which shows it with Swagger UI."""
    pages = Blueprint("docs", __name__)
    description = describe_openapi(groups)

    @pages.get("/openapi.json")
    def openapi() -> dict[str, Any]:
        return description

    @pages.get("/docs")
    def docs() -> str:
        return render_template("docs.html")

    return pages
