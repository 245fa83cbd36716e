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


@pytest.fixture(autouse=True)
def one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, what was let in is not forgotten by another look."""
    monkeypatch.setattr("web.admission.LOOK_AGAIN", 1e9)
    monkeypatch.setattr("web.admission.BEFORE_REFUSING", 1e9)


def test_nobody_is_refused_for_what_is_done_already(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("web.admission.BEFORE_REFUSING", 0)
    admission = Admission(engine, 4, 100_000)
    assert [admits(admission) for _ in range(10)] == [True] * 10


def admits(admission: Admission, caller: str = "me", waits: bool = False, size: int = 0) -> bool:
    try:
        admission.check(caller, waits, size)
    except TooMany:
        return False
    return True


def test_too_many_bytes_are_too_much_as_well(engine: Engine) -> None:
    with engine.begin() as connection:
        add_job(connection, "register", "http://a", "me", b"x" * 1000)
    assert admits(Admission(engine, 10, 1001))
    assert not admits(Admission(engine, 10, 1000))
    assert admits(Admission(engine, 10, 1000), waits=True)


def test_what_was_let_in_since_the_last_look_counts(engine: Engine) -> None:
    admission = Admission(engine, 4, 100_000)
    assert [admits(admission) for _ in range(3)] == [True, True, False]
    heavy = Admission(engine, 100, 10_000)
    assert [admits(heavy, size=6_000) for _ in range(3)] == [True, True, False]


def test_one_caller_does_not_lock_out_the_others(engine: Engine) -> None:
    admission = Admission(engine, 10, 100_000)
    assert sum(admits(admission, "greedy") for _ in range(20)) == 5
    assert sum(admits(admission, "modest") for _ in range(3)) == 3
    assert sum(admits(admission, "greedy", waits=True) for _ in range(20)) == 5
    assert sum(admits(admission, "patient", waits=True) for _ in range(3)) == 3


def test_who_waits_is_known_by_caller(engine: Engine) -> None:
    with engine.begin() as connection:
        for number in range(5):
            add_job(connection, "register", f"http://{number}", "greedy")
    admission = Admission(engine, 10, 100_000)
    assert (admits(admission, "greedy"), admits(admission, "modest")) == (False, True)
