"""Numbers in URLs and in the `after` parameter."""

from __future__ import annotations

from mdv.errors import BadRequest, NotFound

MAX_NUMBER = 2**63 - 1
MAX_TOKEN_ID = 2**31 - 1
"""Token ids are 32-bit integers."""


def read_after(text: str | None) -> int:
    """Return the number of the `after` parameter; 0 if it is absent.

    >>> read_after(None), read_after("7")
    (0, 7)
    """
    if text is None:
        return 0
    if not _is_number(text):
        raise BadRequest("`after` must be the `next` of the previous page.")
    return int(text)


def read_job_number(text: str) -> int:
    """Return the number of a job of a parameter."""
    if not _is_number(text):
        raise BadRequest(f"{text!r} is not the number of a job.")
    return int(text)


def read_subscription_id(text: str) -> int:
    """Return the subscription id of a URL."""
    if not _is_number(text):
        raise NotFound(f"{text!r} is not the id of a subscription.")
    return int(text)


def read_lock_id(text: str) -> int:
    """Return the id of a lock of a URL."""
    if not _is_number(text):
        raise NotFound(f"{text!r} is not the id of a lock.")
    return int(text)


def read_token_id(text: str) -> int:
    """Return the token id of a URL."""
    if not _is_number(text) or int(text) > MAX_TOKEN_ID:
        raise NotFound(f"{text!r} is not the id of a token.")
    return int(text)


def read_webhook_id(text: str) -> int:
    """Return the webhook id of a URL."""
    if not _is_number(text):
        raise NotFound(f"{text!r} is not the id of a webhook.")
    return int(text)


def read_run_id(text: str) -> int:
    """Return the ID of a run in a URL."""
    if not _is_number(text):
        raise NotFound(f"{text!r} is not the ID of a run.")
    return int(text)


def read_before(text: str | None) -> int:
    """Return the number of the `after` parameter of a list that begins with the newest; the largest if it is absent.

    >>> read_before("7")
    7
    """
    return MAX_NUMBER if text is None else read_after(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19
