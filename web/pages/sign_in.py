"""Signing in: with a token, or with a name and a password."""

from __future__ import annotations

import hmac

from flask import Response, make_response, redirect, request
from sqlalchemy import Connection

from mdv.db.people import (
    LONGEST_NAME,
    LONGEST_SECONDS,
    begin_session,
    count_failures,
    end_session,
    fits,
    forgive,
    note_attempt,
    one_at_a_time,
    password_of,
)
from mdv.db.tokens import find_token
from mdv.errors import MdvError, TooMany, Unauthenticated
from web.negotiate import in_thread
from web.pages.frame import go, page, pages, session, target
from web.services import COOKIE, services

WINDOW_SECONDS = 900.0
MOST_OF_A_NAME = 10
"""Failures of one name from one address, within the window;"""
MOST_OF_AN_ADDRESS = 50
"""and of one address, whatever the names."""


@pages.get("/sign-in")
def sign_in_form() -> Response:
    if session() is not None:
        return make_response(redirect(target(request.args.get("to")), 303))
    return page("sign_in.html", to=request.args.get("to", ""), problem=None)


@pages.post("/sign-in")
def sign_in() -> Response:
    name, secret = request.form.get("name", "").strip(), request.form.get("secret", "").strip()
    try:
        cookie = _let_in(name, secret)
    except MdvError as error:
        problem = error.problem()
        response = page("sign_in.html", problem["status"], to=request.form.get("to", ""), problem=problem, name=name)
        if isinstance(error, TooMany):
            response.headers["Retry-After"] = str(round(WINDOW_SECONDS))
        return response
    response = make_response(redirect(target(request.form.get("to")), 303))
    response.set_cookie(
        COOKIE, cookie, max_age=round(LONGEST_SECONDS), httponly=True, samesite="Lax", secure=request.is_secure
    )
    return response


@pages.post("/sign-out")
def sign_out() -> Response:
    with services().engine.begin() as connection:
        end_session(connection, request.cookies.get(COOKIE, ""))
    response = go("sign_in_form")
    response.delete_cookie(COOKIE)
    return response


def _let_in(name: str, secret: str) -> str:
    """Begin a session; what its cookie holds."""
    address = request.remote_addr or "somewhere"
    both = f"{address} {name}"
    refused = Unauthenticated("This name and password do not fit." if name else "This token is unknown or was revoked.")
    if len(name) > LONGEST_NAME:
        raise refused
    with services().engine.begin() as connection:
        one_at_a_time(connection, address)
        tried = count_failures(connection, both, WINDOW_SECONDS), count_failures(connection, address, WINDOW_SECONDS)
        if tried[0] >= MOST_OF_A_NAME or tried[1] >= MOST_OF_AN_ADDRESS:
            raise TooMany(f"Too many attempts failed. Try again in {round(WINDOW_SECONDS / 60)} minutes.")
        attempts = note_attempt(connection, both, address)
    with services().engine.begin() as connection:
        cookie = _by_password(connection, name, secret) if name else _by_token(connection, secret)
        if cookie is None:
            raise refused
        forgive(connection, both, attempts)
    return cookie


def _by_password(connection: Connection, name: str, password: str) -> str | None:
    kept = password_of(connection, name)
    return begin_session(connection, user=name) if in_thread(fits, password, kept) else None


def _by_token(connection: Connection, secret: str) -> str | None:
    own = services().config.admin_token
    if own and hmac.compare_digest(secret.encode("utf-8", "replace"), own.encode()):
        return begin_session(connection, admin_token=own)
    token = find_token(connection, secret) if secret else None
    if token is None or token.lmr_id is not None:
        return None
    return begin_session(connection, token_id=token.id)
