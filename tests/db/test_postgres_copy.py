"""COPY in a background thread: no error is lost, and no COPY continues after the caller has left."""

from __future__ import annotations

import psycopg
import pytest
from sqlalchemy import Connection

from mdv.db.engine import driver
from mdv.db.postgres_copy import BackgroundCopy


def test_a_failed_background_copy_is_raised_in_wait(connection: Connection) -> None:
    session = driver(connection)
    with pytest.raises(psycopg.errors.InvalidTextRepresentation), BackgroundCopy(session) as copying:
        copying.put("rules (id, owner, text, position)", ["1\t1\ta\t1\n", "one\t1\tb\t1\n"])
        copying.put("rule_ends (rule_id, end_id, owner)", ["1\t1\t1\n"])
        copying.wait()
    session.rollback()
    with BackgroundCopy(session) as copying:
        copying.put("rules (id, owner, text, position)", ["1\t1\ta\t1\n"])
    assert session.execute("select count(*) from rules").fetchall() == [(1,)]


def test_an_exception_leaves_no_running_copy(connection: Connection) -> None:
    session = driver(connection)
    with pytest.raises(ZeroDivisionError), BackgroundCopy(session) as copying:
        for first in range(0, 100_000, 10_000):
            lines = [f"{number}\t1\ttext\t1\n" for number in range(first, first + 10_000)]
            copying.put("rules (id, owner, text, position)", lines)
        _ = 1 / 0
    session.rollback()
    assert session.execute("select count(*) from rules").fetchall() == [(0,)]
