"""Access checks of the pages of an MDP. Page handlers call them first; pages do not use the HTTP API."""

from __future__ import annotations

from typing import cast

from mdv.accounts.callers import Caller
from mdv.accounts.sessions import Session
from mdv.errors import Forbidden, Unauthenticated
from web.page_base import (
    current_user,
    is_fragment_request,
    make_pages_blueprint,
    redirect_to,
    render_error,
    render_fragment,
    render_page,
    safe_target,
)
from web.services import services

__all__ = [
    "is_fragment_request", "pages", "redirect_to", "render_error", "render_fragment", "render_page",
    "require_administrator", "require_editor", "require_signed_in", "require_unlimited_editor", "require_viewer",
    "safe_target", "session",
]  # fmt: skip

pages = make_pages_blueprint(bring_text=("register", "register_each", "schema_change"))


# Access checks


def session() -> Session | None:
    """Return the session of the signed-in user, or None."""
    return cast("Session | None", current_user())


def require_viewer() -> Caller:
    """Return the caller if it may read, or raise Unauthenticated."""
    found = session()
    if found is not None:
        kind = "user" if found.is_user else "token"
        return Caller(
            found.name, found.role, found.document_prefixes, found.resource_prefixes, kind=kind, token_id=found.token_id
        )
    if services().config.public_read:
        return Caller("anyone", "viewer")
    raise Unauthenticated("Sign in to see this page.")


def require_signed_in() -> Caller:
    """Return the caller if it has signed in, even if reading is public."""
    if session() is None:
        raise Unauthenticated("Sign in to see this page.")
    return require_viewer()


def require_editor() -> Caller:
    """Return the caller if it may make changes."""
    caller = require_viewer()
    if session() is None:
        raise Unauthenticated("Sign in to make changes.")
    if caller.role != "admin":
        raise Forbidden(f"{caller.name} has read-only access. Changes require the admin role.")
    return caller


def require_administrator() -> Caller:
    """Return the caller if it may see and change users, tokens and webhooks: an admin without URI limits."""
    caller = require_signed_in()
    if caller.role != "admin":
        raise Forbidden(f"{caller.name} has read-only access. Administration requires the admin role.")
    if caller.is_limited:
        raise Forbidden(f"{caller.name} is limited to URI prefixes. Administration requires an unlimited admin.")
    return caller


def require_unlimited_editor() -> Caller:
    """Return the caller if it may make changes that affect all users: an admin without URI limits."""
    caller = require_editor()
    if caller.is_limited:
        raise Forbidden(f"{caller.name} is limited to URI prefixes. This change requires an unlimited admin.")
    return caller
