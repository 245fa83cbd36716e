"""The frame of every page, at an MDP and at an LMR: what a form must show, how a failure looks, what a browser may do.

    request → session of the cookie → form shown to be ours (CSRF) → handler → page or part → policy of its content

Both have a blueprint named `pages` of their own, made here; who may see what, they say themselves.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection, Mapping
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

from flask import Blueprint, Flask, Response, current_app, g, make_response, redirect, render_template, request, url_for
from werkzeug.exceptions import HTTPException

import mdv
from mdv.config import Config
from mdv.errors import BadRequest, Forbidden, MdvError, NotFound, Unauthenticated, Unavailable
from web.errors import unexpected
from web.negotiate import in_time
from web.words import FILTERS

SAFE = ("GET", "HEAD", "OPTIONS")
FORM_BYTES = 128 * 1024
"""The most that a form holds, but for the text of a document:"""
TEXT_BYTES = 4 * 2**20
MOST_PARTS = 200
"""The most fields and files of one form."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class Person(Protocol):
    """Somebody who has signed in."""

    @property
    def name(self) -> str: ...

    @property
    def role(self) -> str: ...

    @property
    def csrf(self) -> str:
        """What the forms of their pages show."""


class House(Protocol):
    """What a frame needs of the services of its application."""

    @property
    def config(self) -> Config: ...

    def cookie_name(self) -> str: ...

    def find_person(self, secret: str) -> Person | None:
        """Who has signed in, by what their cookie holds."""


def house() -> House:
    return cast(House, current_app.extensions["mdv"])


def person() -> Person | None:
    """Who has signed in, if anybody."""
    if "person" not in g:
        secret = request.cookies.get(house().cookie_name(), "")
        g.person = house().find_person(secret) if secret else None
    return cast("Person | None", g.person)


def make_pages(bring_text: Collection[str]) -> Blueprint:
    """A blueprint for pages; the forms of some endpoints bring the text of a document."""
    pages = Blueprint("pages", __name__)

    @pages.before_request
    def _check_form() -> None:
        check_form(request.endpoint in {f"pages.{name}" for name in bring_text})

    pages.after_request(_protect)
    pages.register_error_handler(MdvError, _refused)
    pages.register_error_handler(HTTPException, _http)
    pages.register_error_handler(Exception, _failed)
    return pages


def furnish(app: Flask, config: Config, **more: Any) -> None:
    """What the templates of every page use."""
    app.jinja_env.globals.update(mdv_version=mdv.__version__, public=config.public_read, **more)
    app.jinja_env.filters.update(FILTERS)
    answer_lost_people(app)


def check_form(brings_text: bool) -> None:
    """A change comes from one of our own pages: the browser says so, and the form shows what only they know.

    Nothing of a form is read before it is known that somebody has signed in, and of most forms only a little.
    """
    if request.method in SAFE:
        return
    if not _is_from_here():
        raise Forbidden("This form was sent from another site.")
    found, signs_in = person(), request.endpoint == "pages.sign_in"
    if found is None and not signs_in:
        raise Unauthenticated("Your session has ended. Sign in, and send the form again.")
    is_multipart = request.mimetype == "multipart/form-data"
    request.max_form_parts = MOST_PARTS
    request.max_form_memory_size = TEXT_BYTES if brings_text and is_multipart else FORM_BYTES
    if not (brings_text and is_multipart):
        request.max_content_length = FORM_BYTES
    form = in_time(house().config.body_seconds, lambda: request.form)
    # NUL is in no name and no value. A document's own text is looked at by the gate, which tells the place.
    if any("\0" in value for name, value in form.items(multi=True) if name != "text"):
        raise BadRequest("The form contains a NUL character.")
    if found is None or signs_in:
        return
    shown = request.headers.get("X-CSRF-Token") or form.get("csrf", "")
    if not hmac.compare_digest(shown.encode("utf-8", "replace"), found.csrf.encode()):
        raise Forbidden("This form is not one of your session's. Load the page again, and send it from there.")


def _is_from_here() -> bool:
    """Whether the browser says that a form is from one of our pages, or says nothing."""
    origin = request.headers.get("Origin")
    try:
        is_ours = origin is None or urlsplit(origin).netloc == request.host
    except ValueError:
        return False
    return is_ours and request.headers.get("Sec-Fetch-Site", "same-origin") in ("same-origin", "none")


# How it looks


def is_part() -> bool:
    """Whether only a part of a page was asked for."""
    asked = request.headers
    is_whole = "HX-Boosted" in asked or "HX-History-Restore-Request" in asked
    return asked.get("HX-Request") == "true" and not is_whole


def page(template: str, code: int = 200, /, **values: Any) -> Response:
    """A page, whole."""
    g.nonce = secrets.token_urlsafe(16)
    text = render_template(f"pages/{template}", session=person(), nonce=g.nonce, **values)
    return make_response(text, code)


def part(template: str, code: int = 200, /, **values: Any) -> Response:
    """A part of a page, for a browser that puts it into its place."""
    response = make_response(render_template(f"pages/{template}", session=person(), **values), code)
    response.headers["X-Part"] = "yes"
    return response


def target(to: str | None) -> str:
    """Where to go on after signing in: a page of ours, and nothing that a browser takes for another place."""
    if to and to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable():
        return to
    return url_for("pages.overview")


def go(endpoint: str, **values: Any) -> Response:
    """Go on at another page, after a form was sent."""
    return make_response(redirect(url_for(f"pages.{endpoint}", **values), 303))


def _protect(response: Response) -> Response:
    response.headers["Content-Security-Policy"] = POLICY.format(nonce=g.get("nonce", secrets.token_urlsafe(16)))
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
    response.headers["Referrer-Policy"] = "same-origin"  # with none at all, browsers do not say where a form is from
    return response


def _refused(error: MdvError) -> Response:
    return failure(error.problem())


def _http(error: HTTPException) -> Response:
    if isinstance(error.response, Response):
        return error.response
    return failure({"title": error.name, "status": error.code or 500, "detail": error.description or error.name})


def _failed(error: Exception) -> Response:
    """What nobody foresaw: the request's name finds it in the log. Who is there may be just what cannot be known."""
    g.setdefault("person", None)
    problem = unexpected(error).problem()
    response = failure(problem | {"request": g.get("request_id")})
    if problem["status"] == Unavailable.status:
        response.headers["Retry-After"] = "2"
    return response


def failure(problem: Mapping[str, Any]) -> Response:
    """A failure in words, on a page or in a part; who is not signed in is asked to."""
    status = int(problem["status"])
    if is_part():
        return part("problem_part.html", status, problem=problem)
    if status == Unauthenticated.status and request.method in SAFE:
        return make_response(redirect(url_for("pages.sign_in", to=request.full_path.rstrip("?")), 303))
    title = "Not allowed" if status == Forbidden.status else problem["title"]
    return page("problem.html", status, problem={**problem, "title": title})


def answer_lost_people(app: Flask) -> None:
    """Who looks with a browser for a page that is not there gets a page that says so."""

    @app.before_request
    def _lost() -> Response | None:
        wants_page = request.accept_mimetypes.best_match(["application/json", "text/html"]) == "text/html"
        if request.url_rule is not None or not wants_page or request.path.startswith("/api/"):
            return None
        return failure(NotFound(f"There is no page {request.path[:200]}.").problem())
