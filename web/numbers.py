"""Numbers that callers write: in addresses, and as the `next` of a page."""

from __future__ import annotations

from mdv.errors import BadRequest, NotFound


def after_number(text: str | None) -> int:
    """The number that a page begins after.

    >>> after_number(None), after_number("7")
    (0, 7)
    """
    if text is None:
        return 0
    if not _is_number(text):
        raise BadRequest("`after` takes the `next` of the page before.")
    return int(text)


def subscription_number(text: str) -> int:
    """The number of a subscription, as an address has it."""
    if not _is_number(text):
        raise NotFound(f"{text!r} is not the id of a subscription.")
    return int(text)


def webhook_number(text: str) -> int:
    """The number of a webhook, as an address has it."""
    if not _is_number(text):
        raise NotFound(f"{text!r} is not the id of a webhook.")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19
