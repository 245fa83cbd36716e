"""Signing in at an LMR: with its token, or the admin's."""

from __future__ import annotations

from flask import Response, make_response, redirect, request

from mdv.errors import MdvError, TooMany, Unauthenticated
from web.frame import person
from web.lmr.pages.frame import go, page, pages, target
from web.lmr.services import lmr
from web.lmr.sessions import LONGEST_SECONDS, WINDOW_SECONDS, begin_session


@pages.get("/sign-in")
def sign_in_form() -> Response:
    if person() is not None:
        return make_response(redirect(target(request.args.get("to")), 303))
    return page("sign_in.html", to=request.args.get("to", ""), problem=None, by_token=True)


@pages.post("/sign-in")
def sign_in() -> Response:
    try:
        cookie = _let_in(request.form.get("secret", "").strip())
    except MdvError as error:
        problem = error.problem()
        response = page("sign_in.html", problem["status"], to=request.form.get("to", ""), problem=problem,
                        by_token=True)  # fmt: skip
        if isinstance(error, TooMany):
            response.headers["Retry-After"] = str(round(WINDOW_SECONDS))
        return response
    response = make_response(redirect(target(request.form.get("to")), 303))
    response.set_cookie(lmr().cookie_name(), cookie, max_age=round(LONGEST_SECONDS), httponly=True, samesite="Lax",
                        secure=request.is_secure)  # fmt: skip
    return response


@pages.post("/sign-out")
def sign_out() -> Response:
    if person() is not None:  # only what was one of ours is remembered
        lmr().ended.end(request.cookies.get(lmr().cookie_name(), ""))
    response = go("sign_in_form")
    response.delete_cookie(lmr().cookie_name())
    return response


def _let_in(secret: str) -> str:
    """Begin a session; what its cookie holds."""
    address = request.remote_addr or "somewhere"
    if not lmr().attempts.may_try(address):
        raise TooMany(f"Too many attempts failed. Try again in {round(WINDOW_SECONDS / 60)} minutes.")
    if not lmr().opens(secret):
        raise Unauthenticated("This token does not open this LMR.")
    lmr().attempts.forgive(address)
    return begin_session(secret)
