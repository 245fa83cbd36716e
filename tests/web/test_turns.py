"""Admission control of a web process: concurrency slots, and limits of the queue."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import Engine

from mdv.db.jobs import add_job
from mdv.errors import TooMany
from mdv.mdp.admission import Admission
from web.submit_limit import SubmitLimit


def test_concurrent_submits_are_limited_and_the_next_starts_when_one_ends() -> None:
    turns, inside, leave = SubmitLimit(2), threading.Semaphore(0), threading.Event()
    most = [0, 0]

    def come() -> None:
        with turns.slot():
            most[0] += 1
            most[1] = max(most)
            inside.release()
            leave.wait(60)
            most[0] -= 1

    threads = [threading.Thread(target=come) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert inside.acquire(timeout=60) and inside.acquire(timeout=60)
    assert not inside.acquire(timeout=0.1)
    leave.set()
    for thread in threads:
        thread.join(60)
    assert most == [0, 2]


def test_if_no_slot_becomes_free_others_proceed_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("web.submit_limit.MAX_WAIT_SECONDS", 0.01)
    turns = SubmitLimit(1)
    with turns.slot(), turns.slot():
        pass
    with turns.slot():  # an additional slot is not returned twice
        assert not turns._free.acquire(blocking=False)


@pytest.fixture(autouse=True)
def one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine, too, admitted requests are still counted after the next look at the queue."""
    monkeypatch.setattr("mdv.mdp.admission.QUEUE_STATS_TTL_SECONDS", 1e9)
    monkeypatch.setattr("mdv.mdp.admission.REFUSAL_STATS_TTL_SECONDS", 1e9)


def test_completed_requests_do_not_count_against_the_limit(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.mdp.admission.REFUSAL_STATS_TTL_SECONDS", 0)
    admission = Admission(engine, 4, 100_000)
    assert [admits(admission) for _ in range(10)] == [True] * 10


def admits(admission: Admission, caller: str = "me", waits: bool = False, size: int = 0) -> bool:
    try:
        admission.check(caller, waits, size)
    except TooMany:
        return False
    return True


def test_the_number_of_waiting_bytes_is_limited(engine: Engine) -> None:
    with engine.begin() as connection:
        add_job(connection, "register", "http://a", "me", b"x" * 1000)
    assert admits(Admission(engine, 10, 1001))
    assert not admits(Admission(engine, 10, 1000))
    assert admits(Admission(engine, 10, 1000), waits=True)


def test_requests_admitted_since_the_last_count_are_included(engine: Engine) -> None:
    admission = Admission(engine, 4, 100_000)
    assert [admits(admission) for _ in range(3)] == [True, True, False]
    heavy = Admission(engine, 100, 10_000)
    assert [admits(heavy, size=6_000) for _ in range(3)] == [True, True, False]


def test_one_caller_cannot_use_the_whole_queue(engine: Engine) -> None:
    admission = Admission(engine, 10, 100_000)
    assert sum(admits(admission, "greedy") for _ in range(20)) == 5
    assert sum(admits(admission, "modest") for _ in range(3)) == 3
    assert sum(admits(admission, "greedy", waits=True) for _ in range(20)) == 5
    assert sum(admits(admission, "patient", waits=True) for _ in range(3)) == 3


def test_waiting_jobs_are_counted_per_caller(engine: Engine) -> None:
    with engine.begin() as connection:
        for number in range(5):
            add_job(connection, "register", f"http://{number}", "greedy")
    admission = Admission(engine, 10, 100_000)
    assert (admits(admission, "greedy"), admits(admission, "modest")) == (False, True)
