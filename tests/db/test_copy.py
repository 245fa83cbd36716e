"""COPYs beside the caller's own work: none is lost, and none goes on when the caller has left."""

from __future__ import annotations

import psycopg
import pytest
from sqlalchemy import Connection

from mdv.db.copy import Copying
from mdv.db.engine import driver


def test_a_copy_that_fails_beside_is_told_by_who_waits_for_it(connection: Connection) -> None:
    session = driver(connection)
    with pytest.raises(psycopg.errors.InvalidTextRepresentation), Copying(session) as copying:
        copying.put("rules (id, owner, text, position)", ["1\t1\ta\t1\n", "one\t1\tb\t1\n"])
        copying.put("rule_ends (rule_id, end_id, owner)", ["1\t1\t1\n"])
        copying.wait()
    session.rollback()
    with Copying(session) as copying:
        copying.put("rules (id, owner, text, position)", ["1\t1\ta\t1\n"])
    assert session.execute("select count(*) from rules").fetchall() == [(1,)]


def test_who_gives_up_leaves_no_copy_behind(connection: Connection) -> None:
    session = driver(connection)
    with pytest.raises(ZeroDivisionError), Copying(session) as copying:
        for first in range(0, 100_000, 10_000):
            lines = [f"{number}\t1\ttext\t1\n" for number in range(first, first + 10_000)]
            copying.put("rules (id, owner, text, position)", lines)
        _ = 1 / 0
    session.rollback()
    assert session.execute("select count(*) from rules").fetchall() == [(0,)]
