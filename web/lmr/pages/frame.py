"""The pages of an LMR: who may see them, and who may change something there.

Whoever has shown its token, or the admin's, may do everything.
"""

from __future__ import annotations

from mdv.errors import Unauthenticated
from web.frame import failure, go, is_part, make_pages, page, part, person, target
from web.lmr.services import lmr

__all__ = ["editor", "failure", "go", "is_part", "may_change", "page", "pages", "part", "target", "visitor"]

pages = make_pages(bring_text=("local_put",))


def visitor() -> None:
    """Whoever may look."""
    if person() is None and not lmr().config.public_read:
        raise Unauthenticated("Sign in to see this page.")


def editor() -> None:
    """Whoever may change things."""
    if person() is None:
        raise Unauthenticated("Sign in to change anything.")


def may_change() -> bool:
    """Whether who is there may change things: forms are for those alone."""
    return person() is not None
