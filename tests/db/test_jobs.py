"""The queue: order of arrival, one job a document at a time, nothing lost with a transaction."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import IntegrityError

from mdv.db.jobs import Ending, add_job, claim_jobs, count_attempt, count_waiting, end_jobs, find_key, read_job


def add(engine: Engine, *uris: str) -> list[UUID]:
    with engine.begin() as connection:
        return [add_job(connection, "register", uri, "me", b"body", "text/turtle") for uri in uris]


def claimed(connection: Connection, limit: int = 10, **options: object) -> list[UUID]:
    return [job.id for job in claim_jobs(connection, limit, **options)]  # type: ignore[arg-type]


def state(engine: Engine, job_id: UUID) -> str | None:
    with engine.connect() as connection:
        status = read_job(connection, job_id)
        return status and status.state


def test_jobs_are_claimed_in_the_order_of_their_arrival(engine: Engine) -> None:
    ids = add(engine, "http://c", "http://a", "http://b")
    with engine.begin() as connection:
        assert claimed(connection, 2) == ids[:2]


def test_priority_goes_before_arrival(engine: Engine) -> None:
    first, second = add(engine, "http://a", "http://b")
    with engine.begin() as connection:
        connection.execute(text("update jobs set priority = 1 where id = :id"), {"id": first})
        assert claimed(connection) == [second, first]


def test_a_job_arrives_whole(engine: Engine) -> None:
    with engine.begin() as connection:
        add_job(connection, "register", "http://a", "me", b"\x00\xff", "text/turtle", {"dry_run": True})
        (job,) = claim_jobs(connection, 1)
        assert (job.kind, job.uri, job.body, job.media_type, job.options, job.attempts) == (
            "register", "http://a", b"\x00\xff", "text/turtle", {"dry_run": True}, 0,
        )  # fmt: skip


def test_of_one_document_only_the_first_job_is_claimed(engine: Engine) -> None:
    first, second, other = add(engine, "http://a", "http://a", "http://b")
    with engine.connect() as one, engine.connect() as two:
        assert claimed(one) == [first, other]
        assert claimed(two) == []
        end_jobs(one, [Ending(claim_jobs(one, 1, only=first)[0], {}, None)])
        one.commit()
        assert claimed(two) == [second, other]


def test_a_second_worker_passes_by_what_is_claimed(engine: Engine) -> None:
    first, second, third = add(engine, "http://a", "http://b", "http://c")
    with engine.connect() as one, engine.connect() as two:
        assert claimed(one, 1) == [first]
        assert claimed(two) == [second, third]
        assert claimed(two, only=first) == []


def test_what_is_left_out_is_not_claimed(engine: Engine) -> None:
    first, second = add(engine, "http://a", "http://b")
    with engine.connect() as connection:
        assert claimed(connection, without=[first]) == [second]


def test_a_transaction_that_dies_gives_its_jobs_back(engine: Engine) -> None:
    (job,) = add(engine, "http://a")
    with engine.connect() as one:
        assert claimed(one) == [job]
        number = one.execute(text("select pg_backend_pid()")).scalar_one()
        with engine.connect() as other:
            other.execute(text("select pg_terminate_backend(:n, 5000)"), {"n": number})
            assert claimed(other) == [job]
        one.invalidate()


def test_a_claimed_job_is_running_and_an_ended_one_is_not(engine: Engine) -> None:
    first, second = add(engine, "http://a", "http://b")
    with engine.connect() as connection:
        job = claim_jobs(connection, 1)[0]
        assert [state(engine, first), state(engine, second)] == ["running", "queued"]
        end_jobs(connection, [Ending(job, {"version": 1}, None)])
        assert state(engine, first) == "running"
        connection.commit()
    with engine.connect() as connection:
        status = read_job(connection, first)
    assert status is not None
    assert (status.state, status.result, status.problem, status.attempts) == ("done", {"version": 1}, None, 1)
    assert status.ended_at is not None
    assert status.ended_at >= status.created_at


def test_a_job_whose_transaction_was_rolled_back_is_queued_again(engine: Engine) -> None:
    (job,) = add(engine, "http://a")
    with engine.connect() as connection:
        end_jobs(connection, [Ending(claim_jobs(connection, 1)[0], {}, None)])
        connection.rollback()
    assert state(engine, job) == "queued"


def test_a_reader_does_not_hide_a_job_from_the_workers(engine: Engine) -> None:
    (job,) = add(engine, "http://a")
    with engine.connect() as reader, engine.connect() as worker:
        assert read_job(reader, job) is not None
        assert claimed(worker) == [job]


def test_an_ended_job_keeps_no_body(engine: Engine) -> None:
    (job_id,) = add(engine, "http://a")
    with engine.begin() as connection:
        end_jobs(connection, [Ending(claim_jobs(connection, 1)[0], None, {"status": 422})])
        assert connection.execute(text("select body from jobs")).scalar_one() is None
        assert connection.execute(text("select state from jobs")).scalar_one() == "failed"
        assert count_waiting(connection) == 0
        assert claimed(connection, only=job_id) == []


def test_attempts_are_counted(engine: Engine) -> None:
    add(engine, "http://a")
    for number in (1, 2):
        with engine.begin() as connection:
            assert count_attempt(connection, claim_jobs(connection, 1)[0]) == number
    with engine.begin() as connection:
        assert count_waiting(connection) == 1


def test_an_unknown_job_is_none(connection: Connection) -> None:
    assert read_job(connection, uuid4()) is None


def test_an_idempotency_key_stands_for_one_job_of_its_caller(engine: Engine) -> None:
    def queue(caller: str, key: str | None) -> UUID:
        with engine.begin() as connection:
            return add_job(
                connection, "register", "http://a", caller, b"", None, None, idempotency_key=key, request_hash=b"h"
            )

    job = queue("me", "k")
    queue("you", "k")
    queue("me", None)
    queue("me", None)
    with pytest.raises(IntegrityError, match="jobs_idempotency_key"):
        queue("me", "k")
    with engine.connect() as connection:
        assert find_key(connection, "me", "k") == (job, b"h")
        assert find_key(connection, "me", "other") is None


def test_a_claim_takes_no_more_text_than_fits_into_memory(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.db.jobs.MAX_CLAIMED_BYTES", 25)
    with engine.begin() as connection:
        for number, size in enumerate((10, 10, 10, 100, 5)):
            add_job(connection, "register", f"urn:doc:{number}", "me", b"x" * size, "text/turtle")
    taken = []
    for _ in range(4):
        with engine.begin() as connection:
            claimed = claim_jobs(connection, 10)
            taken.append([job.uri[-1] for job in claimed])
            for job in claimed:
                end_jobs(connection, [Ending(job, {}, None)])
    assert taken == [["0", "1"], ["2"], ["3"], ["4"]]
