"""When a token expires: read from a date, a time, or a duration."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from mdv.errors import BadRequest, Unauthenticated

FORMS = "a date such as 2031-12-24, a time such as 2031-12-24T18:00Z, or a duration such as 90d, 12h or 8w"
MAX_EXPIRY_CHARACTERS = 40
LAST_EXPIRY = datetime(9999, 12, 31, tzinfo=UTC)
"""Python cannot read a later time from a database whose time zone is east of UTC."""

_DURATION = re.compile(r"([0-9]{1,5})([hdw])")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].+)?")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def parse_expiry(text: str, now: datetime) -> datetime:
    """Return the time that `text` names. A date is its first moment in UTC; a time without a zone is in UTC.

    >>> now = datetime(2031, 1, 31, 12, tzinfo=UTC)
    >>> str(parse_expiry("2031-02-01", now)), str(parse_expiry("2031-02-01T12:00+02:00", now))
    ('2031-02-01 00:00:00+00:00', '2031-02-01 10:00:00+00:00')
    >>> str(parse_expiry("90d", now))
    '2031-05-01 12:00:00+00:00'
    """
    wanted = text.strip()
    if len(wanted) > MAX_EXPIRY_CHARACTERS:
        raise BadRequest(f"The expiry is too long. Give {FORMS}.")
    try:
        at = _parse(wanted, now)
    except (ValueError, OverflowError):
        at = None
    if at is None or at > LAST_EXPIRY:
        raise BadRequest(f"{wanted!r} is not an expiry. Give {FORMS}.")
    if at <= now:
        raise BadRequest(f"The expiry {format_expiry(at)} is not in the future. Give a later one, or none.")
    return at


def _parse(text: str, now: datetime) -> datetime | None:
    if duration := _DURATION.fullmatch(text):
        return now + int(duration[1]) * _UNITS[duration[2]]
    if not text.isascii() or not _DATE.fullmatch(text):
        return None
    at = datetime.fromisoformat(text)
    return (at.replace(tzinfo=UTC) if at.tzinfo is None else at).astimezone(UTC)


def format_expiry(at: datetime) -> str:
    """
    >>> format_expiry(datetime(2031, 12, 24, 18, tzinfo=UTC))
    '2031-12-24 18:00 UTC'
    """
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def expired_error(expires_at: datetime | None) -> Unauthenticated:
    """Return the error for a token that has expired."""
    when = f" on {format_expiry(expires_at)}" if expires_at is not None else ""
    return Unauthenticated(f"The token expired{when}. Ask an administrator for a new one.")
