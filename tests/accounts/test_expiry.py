"""Expiries are read from dates, times and durations; everything else is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy import Connection, text

from mdv.accounts.expiry import parse_expiry
from mdv.db.tokens import create_token, get_token
from mdv.errors import BadRequest

NOW = datetime(2031, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2031-02-01", "2031-02-01T00:00:00+00:00"),
        (" 2031-02-01 ", "2031-02-01T00:00:00+00:00"),
        ("2031-02-01T08:30", "2031-02-01T08:30:00+00:00"),
        ("2031-02-01 08:30Z", "2031-02-01T08:30:00+00:00"),
        ("2031-01-31T23:30-05:00", "2031-02-01T04:30:00+00:00"),
        ("9999-12-31", "9999-12-31T00:00:00+00:00"),
        ("12h", "2031-02-01T00:00:00+00:00"),
        ("1d", "2031-02-01T12:00:00+00:00"),
        ("2w", "2031-02-14T12:00:00+00:00"),
    ],
)
def test_an_expiry_is_a_date_a_time_or_a_duration(text: str, at: str) -> None:
    assert parse_expiry(text, NOW).isoformat() == at


@pytest.mark.parametrize(
    "text",
    ["", "tomorrow", "2031-02-30", "2031-13-01", "20310201", "2031-W06-1", "2031-2-1", "0000-01-01", "-1d", "1.5d", "d",
     "99999w999", "123456d", "1y", "٣d", "２031-02-01", "2031-02-01T", "2031-02-01T25:00", "9999-12-31T23:00-05:00",
     "2031-02-01\0", "2031-02-01T00:00:00+99:00", "x" * 10_000, "'; drop table tokens"],
)  # fmt: skip
def test_other_texts_are_refused_with_examples(text: str) -> None:
    with pytest.raises(BadRequest, match="2031-12-24"):
        parse_expiry(text, NOW)


@pytest.mark.parametrize("text", ["2031-01-31", "2031-01-31T12:00", "0h", "0d", "1999-01-01", "2031-01-31T14:00+02:00"])
def test_an_expiry_is_in_the_future(text: str) -> None:
    with pytest.raises(BadRequest, match="not in the future"):
        parse_expiry(text, NOW)


def test_a_duration_beyond_the_calendar_is_refused() -> None:
    with pytest.raises(BadRequest, match="is not an expiry"):
        parse_expiry("99999w", datetime(9000, 1, 1, tzinfo=UTC))


def test_the_latest_expiry_can_be_read_in_all_time_zones(connection: Connection) -> None:
    with pytest.raises(BadRequest, match="is not an expiry"):
        parse_expiry("9999-12-31T12:00", NOW)
    _, token = create_token(connection, "ci", expires_at=parse_expiry("9999-12-31", NOW))
    for zone in ("Etc/GMT-14", "Etc/GMT+12", "UTC"):
        connection.execute(text(f"set timezone to '{zone}'"))
        assert get_token(connection, token.id) is not None
