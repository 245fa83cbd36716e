"""The base of all pages of MDP and LMR: sessions, CSRF protection, rendering, error pages, security headers.

    request → session cookie → form check (CSRF) → handler → page or fragment → Content-Security-Policy

Each application has its own blueprint named `pages`, created here, and does its own access checks.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

from flask import Blueprint, Flask, Response, current_app, g, make_response, redirect, render_template, request, url_for
from werkzeug.exceptions import ClientDisconnected, HTTPException, RequestEntityTooLarge

import mdv
from mdv.config import Config
from mdv.errors import BadRequest, Forbidden, MdvError, NotFound, TooLarge, Unauthenticated, Unavailable
from mdv.rules.parse import KEYWORDS
from web.errors import unexpected
from web.labels import LABEL_FILTERS, discard_labels, fill_labels
from web.negotiate import read_within
from web.oversized_forms import FormTooLarge, refuse_oversized_form, renderer_of_form, short_size
from web.template_filters import FILTERS

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
MAX_FORM_BYTES = 128 * 1024
"""Maximum size of a form without document text."""
MAX_FORM_TEXT_BYTES = 4 * 2**20
MAX_FORM_PARTS = 200
"""Maximum number of fields and files of a form."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class SignedInUser(Protocol):
    """A user who has signed in."""

    @property
    def name(self) -> str: ...

    @property
    def role(self) -> str: ...

    @property
    def csrf(self) -> str:
        """The CSRF token that the forms of this session contain."""


class PageServices(Protocol):
    """The services that pages need from their application."""

    @property
    def config(self) -> Config: ...

    def cookie_name(self) -> str: ...

    def find_user(self, secret: str) -> SignedInUser | None:
        """Return the user of a session cookie, or None."""

    def read_labels(self, uris: Sequence[str], languages: Sequence[str]) -> Mapping[str, str]:
        """Return the labels of resources, by URI."""


def page_services() -> PageServices:
    return cast(PageServices, current_app.extensions["mdv"])


def current_user() -> SignedInUser | None:
    """Return the signed-in user, or None."""
    if "person" not in g:
        secret = request.cookies.get(page_services().cookie_name(), "")
        g.person = page_services().find_user(secret) if secret else None
    return cast("SignedInUser | None", g.person)


def make_pages_blueprint(bring_text: Collection[str]) -> Blueprint:
    """Return a blueprint for pages. `bring_text`: endpoints whose forms contain the text of a document."""
    pages = Blueprint("pages", __name__)
    endpoints = {f"pages.{name}" for name in bring_text}

    @pages.before_request
    def _check_form() -> None:
        check_form(request.endpoint in endpoints)

    pages.after_request(_protect)

    @pages.after_request  # runs before `_protect`
    def _let_back_return(response: Response) -> Response:
        """Let browsers keep the answer to a form with a text: Back shows the text again instead of an error."""
        if request.method not in SAFE_METHODS and request.endpoint in endpoints:
            response.headers.setdefault("Cache-Control", "private, no-cache")
        return response

    pages.register_error_handler(MdvError, _refused)
    pages.register_error_handler(FormTooLarge, _too_large)
    pages.register_error_handler(HTTPException, _http)
    pages.register_error_handler(Exception, _failed)
    return pages


def configure_pages(app: Flask, config: Config, **more: Any) -> None:
    """Configure template globals and filters, and the page for unknown paths."""
    app.jinja_env.globals.update(
        mdv_version=mdv.__version__,
        public=config.public_read,
        rule_keywords=" ".join(sorted(KEYWORDS)),
        max_upload_bytes=config.max_document_bytes,
        max_upload=short_size(config.max_document_bytes),
        **more,
    )
    app.jinja_env.filters.update(FILTERS | LABEL_FILTERS)
    answer_unknown_paths(app)


def check_form(brings_text: bool) -> None:
    """Check that a form was sent from a page of this application: by Origin and Sec-Fetch-Site, and by CSRF token.

    The form is read only if the user has signed in, and most forms only up to `MAX_FORM_BYTES`.
    """
    if request.method in SAFE_METHODS:
        return
    if not _is_from_here():
        raise Forbidden("This form was sent from another site. Open the page here and send it again.")
    user, signs_in = current_user(), request.endpoint == "pages.sign_in"
    if user is None and not signs_in:
        raise Unauthenticated("Your session has expired. Sign in and send the form again.")
    is_multipart = request.mimetype == "multipart/form-data"
    request.max_form_parts = MAX_FORM_PARTS
    request.max_form_memory_size = MAX_FORM_TEXT_BYTES if brings_text and is_multipart else MAX_FORM_BYTES
    if not (brings_text and is_multipart):
        request.max_content_length = MAX_FORM_BYTES
    seconds = page_services().config.body_seconds
    try:
        form = read_within(seconds, lambda: request.form)
    except RequestEntityTooLarge:
        raise read_within(seconds, lambda: refuse_oversized_form(MAX_FORM_BYTES)) from None
    except TooLarge as error:  # the worker has read the body (web/lmr/worker.py)
        raise FormTooLarge(error.detail) from None
    except ClientDisconnected:
        raise BadRequest("The form is incomplete. Nothing was changed. Send it again.") from None
    # No name or value can contain NUL. Document text is checked by the parser, which reports the position.
    if any("\0" in value for name, value in form.items(multi=True) if name != "text"):
        raise BadRequest("The form contains a NUL character. Remove it.")
    if user is None or signs_in:
        return
    token = request.headers.get("X-CSRF-Token") or form.get("csrf", "")
    if not hmac.compare_digest(token.encode("utf-8", "replace"), user.csrf.encode()):
        raise Forbidden("This form does not belong to your session. Reload the page and send the form again.")


def _is_from_here() -> bool:
    """True if the browser reports that the form comes from a page of this application, or reports nothing."""
    origin = request.headers.get("Origin")
    try:
        is_ours = origin is None or urlsplit(origin).netloc == request.host
    except ValueError:
        return False
    return is_ours and request.headers.get("Sec-Fetch-Site", "same-origin") in ("same-origin", "none")


# Rendering


def is_fragment_request() -> bool:
    """True if the request asks for a page fragment (htmx)."""
    headers = request.headers
    is_whole = "HX-Boosted" in headers or "HX-History-Restore-Request" in headers
    return headers.get("HX-Request") == "true" and not is_whole


def render_page(template: str, code: int = 200, /, **values: Any) -> Response:
    """Render a whole page."""
    g.nonce = secrets.token_urlsafe(16)
    return make_response(_render(template, nonce=g.nonce, **values), code)


def render_fragment(template: str, code: int = 200, /, **values: Any) -> Response:
    """Render a page fragment that htmx inserts into a page."""
    response = make_response(_render(template, **values), code)
    response.headers["X-Part"] = "yes"
    return response


def _render(template: str, **values: Any) -> str:
    discard_labels()  # of a page that failed while it was rendered
    text = render_template(f"pages/{template}", session=current_user(), **values)
    return fill_labels(text, lambda uris, languages: page_services().read_labels(uris, languages))


def safe_target(to: str | None) -> str:
    """Return the path to go to after sign-in. Anything that a browser could take as another site is ignored."""
    if to and to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable():
        return to
    return url_for("pages.overview")


def redirect_to(endpoint: str, **values: Any) -> Response:
    """Redirect to another page after a form was sent."""
    return make_response(redirect(url_for(f"pages.{endpoint}", **values), 303))


def _protect(response: Response) -> Response:
    response.headers["Content-Security-Policy"] = CONTENT_SECURITY_POLICY.format(
        nonce=g.get("nonce", secrets.token_urlsafe(16))
    )
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
    response.headers["Referrer-Policy"] = "same-origin"  # without a referrer, browsers send no Origin with forms
    return response


def _refused(error: MdvError) -> Response:
    return render_error(error.problem())


def _too_large(error: FormTooLarge) -> Response:
    renderer = renderer_of_form(request.endpoint)
    if renderer is None:
        return render_error(error.problem())
    try:
        return renderer(error)
    except MdvError as refused:
        return render_error(refused.problem())


def _http(error: HTTPException) -> Response:
    if isinstance(error.response, Response):
        return error.response
    return render_error({"title": error.name, "status": error.code or 500, "detail": error.description or error.name})


def _failed(error: Exception) -> Response:
    """Answer an unexpected error with the request id. The user is not looked up: that may be what failed."""
    g.setdefault("person", None)
    problem = unexpected(error).problem()
    response = render_error(problem | {"request": g.get("request_id")})
    if problem["status"] == Unavailable.status:
        response.headers["Retry-After"] = "2"
    return response


def render_error(problem: Mapping[str, Any]) -> Response:
    """Render an error as a page or fragment. Users who are not signed in are redirected to the sign-in page."""
    status = int(problem["status"])
    if is_fragment_request():
        return render_fragment("problem_part.html", status, problem=problem)
    if status == Unauthenticated.status and request.method in SAFE_METHODS:
        return make_response(redirect(url_for("pages.sign_in", to=request.full_path.rstrip("?")), 303))
    title = "Not allowed" if status == Forbidden.status else problem["title"]
    return render_page("problem.html", status, problem={**problem, "title": title})


def answer_unknown_paths(app: Flask) -> None:
    """Answer unknown paths with an error page if the client is a browser."""

    @app.before_request
    def _lost() -> Response | None:
        wants_page = request.accept_mimetypes.best_match(["application/json", "text/html"]) == "text/html"
        if request.url_rule is not None or not wants_page or request.path.startswith("/api/"):
            return None
        return render_error(NotFound(f"The page {request.path[:200]} does not exist.").problem())
