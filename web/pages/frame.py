"""The frame of every page: who is there, what a form must show, how a failure looks, what a browser may do.

    request → session of the cookie → form shown to be ours (CSRF) → handler → page or part → policy of its content

Handlers take what they need from `visitor()` and `editor()`; a page's own calls never go over /api.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from flask import Blueprint, Flask, Response, g, make_response, redirect, render_template, request, url_for
from werkzeug.exceptions import HTTPException

from mdv.db.people import Session, find_session
from mdv.errors import BadRequest, Forbidden, MdvError, NotFound, Unauthenticated
from web.auth import Caller
from web.negotiate import in_time
from web.services import services

COOKIE = "mdv_session"
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

pages = Blueprint("pages", __name__)


# Who is there


def session() -> Session | None:
    """Who has signed in, if anybody."""
    if "session" not in g:
        secret = request.cookies.get(COOKIE, "")
        g.session = None
        if secret:
            with services().single.connect() as connection:
                g.session = find_session(connection, secret, services().config.admin_token)
    found: Session | None = g.session
    return found


def visitor() -> Caller:
    """Whoever may look."""
    found = session()
    if found is not None:
        return Caller(found.name, found.role, found.document_prefixes, found.resource_prefixes)
    if services().config.public_read:
        return Caller("anyone", "viewer")
    raise Unauthenticated("Sign in to see this page.")


def member() -> Caller:
    """Whoever has signed in, also where reading is public."""
    if session() is None:
        raise Unauthenticated("Sign in to see this page.")
    return visitor()


def editor() -> Caller:
    """Whoever may change things."""
    caller = visitor()
    if session() is None:
        raise Unauthenticated("Sign in to change anything.")
    if caller.role != "admin":
        raise Forbidden(f"{caller.name} may look, and change nothing: that takes the role admin.")
    return caller


def whole_editor() -> Caller:
    """An editor who is not limited to some URIs: for what concerns everybody."""
    caller = editor()
    if caller.is_limited:
        raise Forbidden(f"{caller.name} is limited to some URIs; this concerns all of them.")
    return caller


@pages.before_request
def _check_form() -> None:
    """A change comes from one of our own pages: the browser says so, and the form shows what only they know.

    Nothing of a form is read before it is known that somebody has signed in, and of most forms only a little.
    """
    if request.method in SAFE:
        return
    if not _is_from_here():
        raise Forbidden("This form was sent from another site.")
    found, signs_in = session(), request.endpoint == "pages.sign_in"
    if found is None and not signs_in:
        raise Unauthenticated("Your session has ended. Sign in, and send the form again.")
    brings_text = request.endpoint in ("pages.register", "pages.register_each")
    is_multipart = request.mimetype == "multipart/form-data"
    request.max_form_parts = MOST_PARTS
    request.max_form_memory_size = TEXT_BYTES if brings_text and is_multipart else FORM_BYTES
    if not (brings_text and is_multipart):
        request.max_content_length = FORM_BYTES
    form = in_time(services().config.body_seconds, lambda: request.form)
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
    text = render_template(f"pages/{template}", session=session(), nonce=g.nonce, **values)
    return make_response(text, code)


def part(template: str, code: int = 200, /, **values: Any) -> Response:
    """A part of a page, for a browser that puts it into its place."""
    response = make_response(render_template(f"pages/{template}", session=session(), **values), code)
    response.headers["X-Part"] = "yes"
    return response


def go(endpoint: str, **values: Any) -> Response:
    """Go on at another page, after a form was sent."""
    return make_response(redirect(url_for(f"pages.{endpoint}", **values), 303))


@pages.after_request
def _protect(response: Response) -> Response:
    response.headers["Content-Security-Policy"] = POLICY.format(nonce=g.get("nonce", secrets.token_urlsafe(16)))
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
    response.headers["Referrer-Policy"] = "same-origin"  # with none at all, browsers do not say where a form is from
    return response


@pages.errorhandler(MdvError)
def _refused(error: MdvError) -> Response:
    return failure(error.problem())


@pages.errorhandler(HTTPException)
def _http(error: HTTPException) -> Response:
    if isinstance(error.response, Response):
        return error.response
    return failure({"title": error.name, "status": error.code or 500, "detail": error.description or error.name})


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
