"""Administration of users: create, list and remove them, and change their roles and passwords."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from flask import Response, request, url_for

from mdv.accounts import users as accounts
from mdv.accounts.callers import Caller
from mdv.accounts.users import MAX_NAME_LENGTH, MIN_PASSWORD_LENGTH, ROLES, User
from mdv.errors import BadRequest, MdvError
from web.negotiate import run_in_thread
from web.pages.base import pages, redirect_to, render_page, require_administrator
from web.services import services

log = structlog.get_logger()

PAGE_SIZE = 50


# List


@pages.get("/admin/users")
def users() -> Response:
    require_administrator()
    return _render_list()


@pages.post("/admin/users")
def create_user() -> Response:
    caller = require_administrator()
    name, role = request.form.get("name", "").strip(), request.form.get("role", "")
    try:
        password = _typed_password()
        with services().engine.begin() as connection:
            accounts.add_user(connection, name, role, password, run_in_thread)
    except MdvError as error:
        return _render_list(error.problem(), name, role)
    log.info("user created", user=name, role=role, by=caller.by)
    return redirect_to("user", name=name, said="user_created")


def _render_list(problem: Mapping[str, Any] | None = None, name: str = "", role: str = "") -> Response:
    after = request.args.get("after", "")
    with services().single.connect() as connection:
        found = accounts.list_users(connection, after, PAGE_SIZE + 1)
        admins = accounts.count_administrators(connection)
    shown = found[:PAGE_SIZE]
    return render_page(
        "admin_users.html",
        problem["status"] if problem else 200,
        users=shown,
        more=url_for("pages.users", after=shown[-1].name) if len(found) > PAGE_SIZE else None,
        first=url_for("pages.users") if after else None,
        admins=admins,
        roles=ROLES,
        longest=MAX_NAME_LENGTH,
        shortest=MIN_PASSWORD_LENGTH,
        problem=problem,
        name=name,
        role=role,
    )


# One user. Names can contain slashes, so the name is a parameter and no part of the path.


@pages.get("/admin/user")
def user() -> Response:
    caller = require_administrator()
    return _render_user(caller, _given_name())


@pages.post("/admin/user/role")
def change_user_role() -> Response:
    caller, name, role = require_administrator(), _given_name(), request.form.get("role", "")
    try:
        with services().engine.begin() as connection:
            before = accounts.set_role(connection, name, role, knows_last=_knows_last())
    except MdvError as error:
        return _render_user(caller, name, error.problem(), "role", role)
    log.info("role changed", user=name, role=role, before=before.role, by=caller.by)
    if _is_self(caller, name) and role != "admin":
        return redirect_to("overview", said="own_role_changed")
    return redirect_to("user", name=name, said="role_changed")


@pages.post("/admin/user/password")
def change_user_password() -> Response:
    caller, name = require_administrator(), _given_name()
    try:
        password = _typed_password()
        with services().engine.begin() as connection:
            accounts.set_password(connection, name, password, run_in_thread)
    except MdvError as error:
        return _render_user(caller, name, error.problem(), "password")
    log.info("password changed", user=name, by=caller.by)
    if _is_self(caller, name):
        return redirect_to("sign_in_form", said="own_password_changed")
    return redirect_to("user", name=name, said="password_changed")


@pages.get("/admin/user/remove")
def ask_to_remove_user() -> Response:
    caller = require_administrator()
    return _render_removal(caller, _given_name())


@pages.post("/admin/user/remove")
def remove_user() -> Response:
    caller, name = require_administrator(), _given_name()
    try:
        with services().engine.begin() as connection:
            accounts.remove_user(connection, name, knows_last=_knows_last())
    except MdvError as error:
        return _render_removal(caller, name, error.problem())
    log.info("user removed", user=name, by=caller.by)
    if _is_self(caller, name):
        return redirect_to("sign_in_form", said="own_user_removed")
    return redirect_to("users", said="user_removed")


def _render_user(
    caller: Caller, name: str, problem: Mapping[str, Any] | None = None, about: str = "", role: str = ""
) -> Response:
    """Render the page of a user. `about`: the form that the problem is about."""
    found, is_last = _read_user(name)
    return render_page(
        "admin_user.html",
        problem["status"] if problem else 200,
        user=found,
        is_last=is_last,
        is_self=_is_self(caller, name),
        roles=ROLES,
        role=role if role in ROLES else found.role,
        shortest=MIN_PASSWORD_LENGTH,
        problem=problem,
        about=about,
    )


def _render_removal(caller: Caller, name: str, problem: Mapping[str, Any] | None = None) -> Response:
    found, is_last = _read_user(name)
    return render_page(
        "admin_user_remove.html",
        problem["status"] if problem else 200,
        user=found,
        is_last=is_last,
        is_self=_is_self(caller, name),
        problem=problem,
    )


def _read_user(name: str) -> tuple[User, bool]:
    with services().single.connect() as connection:
        found = accounts.get_user(connection, name)
        return found, accounts.is_last_administrator(connection, found)


def _given_name() -> str:
    return request.values.get("name", "")


def _is_self(caller: Caller, name: str) -> bool:
    return caller.kind == "user" and caller.name == name


def _knows_last() -> bool:
    return request.form.get("last") == "yes"


def _typed_password() -> str:
    """Return the password of a form, which contains it twice."""
    password = request.form.get("password", "")
    if password != request.form.get("repeated", ""):
        raise BadRequest("The two passwords differ. Type the same password twice.")
    return password
