"""The pages of an MDP: who may see them, and who may change something there.

Handlers take what they need from `visitor()` and `editor()`; a page's own calls never go over /api.
"""

from __future__ import annotations

from typing import cast

from mdv.db.people import Session
from mdv.errors import Forbidden, Unauthenticated
from web.auth import Caller
from web.frame import failure, go, is_part, make_pages, page, part, person, target
from web.services import services

__all__ = [
    "editor", "failure", "go", "is_part", "member", "page", "pages", "part", "session", "target", "visitor",
    "whole_editor",
]  # fmt: skip

pages = make_pages(bring_text=("register", "register_each", "schema_change"))


# Who is there


def session() -> Session | None:
    """Who has signed in, if anybody."""
    return cast("Session | None", person())


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
