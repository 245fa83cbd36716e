"""Access checks of the pages of an LMR. A user who signed in with its token or the admin token may do everything."""

from __future__ import annotations

from mdv.errors import Unauthenticated
from web.lmr.services import lmr
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

__all__ = [
    "is_fragment_request", "may_change", "pages", "redirect_to", "render_error", "render_fragment", "render_page",
    "require_editor", "require_viewer", "safe_target",
]  # fmt: skip

pages = make_pages_blueprint(bring_text=("local_put",))


def require_viewer() -> None:
    """Raise Unauthenticated unless the user may read."""
    if current_user() is None and not lmr().config.public_read:
        raise Unauthenticated("Sign in to see this page.")


def require_editor() -> None:
    """Raise Unauthenticated unless the user may make changes."""
    if current_user() is None:
        raise Unauthenticated("Sign in to make changes.")


def may_change() -> bool:
    """True if the user may make changes. Forms are shown only then."""
    return current_user() is not None
