"""Administration of tokens: create, list and revoke them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from flask import Response, request, url_for

from mdv.accounts import tokens as accounts
from mdv.accounts.callers import Caller
from mdv.accounts.tokens import MAX_TOKEN_NAME_CHARACTERS, Token, TokenDraft
from mdv.errors import MdvError
from web.number_params import read_after, read_token_id
from web.once import redirect_once, take_once
from web.pages.base import pages, redirect_to, render_page, require_administrator, session
from web.services import services
from web.use_cases import tokens as use_cases

PAGE_SIZE = 50


@pages.get("/admin/tokens")
def tokens() -> Response:
    require_administrator()
    return _render_list()


@pages.post("/admin/tokens")
def create_token() -> Response:
    """Create a token. The next page shows its secret, once."""
    caller = require_administrator()
    form = request.form
    draft = TokenDraft(
        form.get("name", "").strip(),
        form.get("role", ""),
        form.get("documents", "").split(),
        form.get("resources", "").split(),
        form.get("expires", ""),
    )
    try:
        secret, made = use_cases.create_token(draft, caller)
    except MdvError as error:
        return _render_list(error.problem(), form)
    return redirect_once(f"token-{made.id}", {"secret": secret}, "token", number=made.id)


def _render_list(problem: Mapping[str, Any] | None = None, draft: Mapping[str, str] | None = None) -> Response:
    every, before = request.args.get("state") == "all", read_after(request.args.get("after"))
    with services().single.connect() as connection:
        found = accounts.list_newest_tokens(connection, before or None, PAGE_SIZE + 1, only_valid=not every)
    shown, state = found[:PAGE_SIZE], "all" if every else None
    return render_page(
        "admin_tokens.html",
        problem["status"] if problem else 200,
        tokens=shown,
        more=url_for("pages.tokens", after=shown[-1].id, state=state) if len(found) > PAGE_SIZE else None,
        first=url_for("pages.tokens", state=state) if before else None,
        every=every,
        has_admin_token=bool(services().config.admin_token),
        tomorrow=(datetime.now(UTC) + timedelta(days=1)).date(),
        longest=MAX_TOKEN_NAME_CHARACTERS,
        problem=problem,
        draft=draft or {},
    )


@pages.get("/admin/tokens/<number>")
def token(number: str) -> Response:
    """Show a token and, directly after it was created, its secret."""
    require_administrator()
    found, _ = _read_token(number)
    once = take_once(f"token-{found.id}")
    return render_page("admin_token.html", token=found, secret=once["secret"] if once else None, is_own=_is_own(found))


@pages.get("/admin/tokens/<number>/revoke")
def ask_to_revoke_token(number: str) -> Response:
    require_administrator()
    return _render_revocation(number)


@pages.post("/admin/tokens/<number>/revoke")
def revoke_token(number: str) -> Response:
    caller: Caller = require_administrator()
    is_own = _is_own(_read_token(number)[0])
    try:
        use_cases.revoke_token(read_token_id(number), caller, knows_last=request.form.get("last") == "yes")
    except MdvError as error:
        return _render_revocation(number, error.problem())
    if is_own:
        return redirect_to("sign_in_form", said="own_token_revoked")
    return redirect_to("tokens", said="token_revoked")


def _render_revocation(number: str, problem: Mapping[str, Any] | None = None) -> Response:
    found, is_last = _read_token(number)
    return render_page(
        "admin_token_revoke.html",
        problem["status"] if problem else 200,
        token=found,
        is_last=is_last,
        is_own=_is_own(found),
        problem=problem,
    )


def _read_token(number: str) -> tuple[Token, bool]:
    """Return a token, and whether it is the last one that can administer."""
    s = services()
    with s.single.connect() as connection:
        found = accounts.get_token(connection, read_token_id(number))
        return found, accounts.is_last_administrator_token(connection, found, s.config.admin_token)


def _is_own(token: Token) -> bool:
    """True if the session was started with this token."""
    found = session()
    return found is not None and found.token_id == token.id
