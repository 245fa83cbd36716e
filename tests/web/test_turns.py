"""At the door of a web process: whose turn it is, and when it is too much."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import Engine

from mdv.db.jobs import add_job
from mdv.errors import TooMany
from web.admission import Admission
from web.turns import Turns


def test_so_many_have_a_turn_at_once_and_the_next_when_one_ends() -> None:
    turns, inside, leave = Turns(2), threading.Semaphore(0), threading.Event()
    most = [0, 0]

    def come() -> None:
        with turns.turn():
            most[0] += 1
            most[1] = max(most)
            inside.release()
            leave.wait(20)
            most[0] -= 1

    threads = [threading.Thread(target=come) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert inside.acquire(timeout=20) and inside.acquire(timeout=20)
    assert not inside.acquire(timeout=0.1)
    leave.set()
    for thread in threads:
        thread.join(20)
    assert most == [0, 2]


def test_where_no_turn_ends_others_go_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("web.turns.LONGEST", 0.01)
    turns = Turns(1)
    with turns.turn(), turns.turn():
        pass
    with turns.turn():  # what was taken beyond is not given back twice
        assert not turns._free.acquire(blocking=False)


def test_too_many_bytes_are_too_much_as_well(engine: Engine) -> None:
    with engine.begin() as connection:
        add_job(connection, "register", "http://a", "me", b"x" * 1000)
    Admission(engine, 10, 1001).check(5)
    with pytest.raises(TooMany, match="1 changes wait already"):
        Admission(engine, 10, 1000).check(5)
    Admission(engine, 10, 1000).check(3)


def test_what_was_let_in_since_the_last_look_counts(engine: Engine) -> None:
    admission = Admission(engine, 2, 1000)
    admission.check(5)
    admission.check(5)
    with pytest.raises(TooMany):
        admission.check(5)
