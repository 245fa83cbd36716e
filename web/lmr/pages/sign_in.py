"""Sign-in at an LMR with its token or the admin token."""

from __future__ import annotations

from flask import Response, make_response, redirect, request

from mdv.errors import MdvError, TooMany, Unauthenticated
from web.lmr.pages.base import pages, redirect_to, render_page, safe_target
from web.lmr.services import lmr
from web.lmr.sessions import MAX_SESSION_SECONDS, WINDOW_SECONDS, begin_session
from web.page_base import current_user


@pages.get("/sign-in")
def sign_in_form() -> Response:
    if current_user() is not None:
        return make_response(redirect(safe_target(request.args.get("to")), 303))
    return render_page("sign_in.html", to=request.args.get("to", ""), problem=None, by_token=True)


@pages.post("/sign-in")
def sign_in() -> Response:
    try:
        cookie = _start_session(request.form.get("secret", "").strip())
    except MdvError as error:
        problem = error.problem()
        response = render_page(
            "sign_in.html", problem["status"], to=request.form.get("to", ""), problem=problem, by_token=True
        )
        if isinstance(error, TooMany):
            response.headers["Retry-After"] = str(round(WINDOW_SECONDS))
        return response
    response = make_response(redirect(safe_target(request.form.get("to")), 303))
    response.set_cookie(lmr().cookie_name(), cookie, max_age=MAX_SESSION_SECONDS, httponly=True, samesite="Lax",
                        secure=request.is_secure)  # fmt: skip
    return response


@pages.post("/sign-out")
def sign_out() -> Response:
    if found := lmr().find_user(request.cookies.get(lmr().cookie_name(), "")):
        lmr().ended.end(found.session_id)
    response = redirect_to("sign_in_form")
    response.delete_cookie(lmr().cookie_name())
    return response


def _start_session(secret: str) -> str:
    """Start a session and return its cookie."""
    address = request.remote_addr or "somewhere"
    if not lmr().attempts.allow_attempt(address):
        raise TooMany(f"Too many failed attempts. Try again in {round(WINDOW_SECONDS / 60)} minutes.")
    if not lmr().accepts(secret):
        raise Unauthenticated("The token is not valid for this LMR.")
    lmr().attempts.forgive(address)
    return begin_session(secret)
