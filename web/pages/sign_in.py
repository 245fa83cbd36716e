"""Sign-in with a token, or with a name and a password."""

from __future__ import annotations

from flask import Response, make_response, redirect, request

from mdv.accounts.sessions import SESSION_MAX_SECONDS, WINDOW_SECONDS, end_session, start_session
from mdv.errors import MdvError, TooMany
from web.negotiate import run_in_thread
from web.pages.base import pages, redirect_to, render_page, safe_target, session
from web.services import SESSION_COOKIE, services


@pages.get("/sign-in")
def sign_in_form() -> Response:
    if session() is not None:
        return make_response(redirect(safe_target(request.args.get("to")), 303))
    return render_page("sign_in.html", to=request.args.get("to", ""), problem=None)


@pages.post("/sign-in")
def sign_in() -> Response:
    name, secret = request.form.get("name", "").strip(), request.form.get("secret", "").strip()
    try:
        address, own = request.remote_addr or "somewhere", services().config.admin_token
        cookie = start_session(services().engine, name, secret, address, own, run_in_thread)
    except MdvError as error:
        problem = error.problem()
        response = render_page(
            "sign_in.html", problem["status"], to=request.form.get("to", ""), problem=problem, name=name
        )
        if isinstance(error, TooMany):
            response.headers["Retry-After"] = str(round(WINDOW_SECONDS))
        return response
    response = make_response(redirect(safe_target(request.form.get("to")), 303))
    response.set_cookie(
        SESSION_COOKIE,
        cookie,
        max_age=round(SESSION_MAX_SECONDS),
        httponly=True,
        samesite="Lax",
        secure=request.is_secure,
    )
    return response


@pages.post("/sign-out")
def sign_out() -> Response:
    end_session(services().engine, request.cookies.get(SESSION_COOKIE, ""))
    response = redirect_to("sign_in_form")
    response.delete_cookie(SESSION_COOKIE)
    return response
