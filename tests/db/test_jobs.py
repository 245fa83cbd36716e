"""The job queue: order of arrival, one job per document at a time, nothing lost with a transaction."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from psycopg.errors import UniqueViolation
from sqlalchemy import Connection, Engine, text

from mdv.db.jobs import (
    JobOutcome,
    add_job,
    claim_jobs,
    claim_jobs_by_id,
    clear_jobs_started,
    delete_old_jobs,
    find_idempotent_job,
    finish_jobs,
    has_newer_job,
    mark_jobs_started,
    postpone_job,
    raise_aged_priorities,
    read_job,
    retry_job,
    summarize_queue,
)
from mdv.inspect.sql.jobs import count_dead_letters, list_jobs


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


def test_priority_takes_precedence_over_arrival(engine: Engine) -> None:
    first, second = add(engine, "http://a", "http://b")
    with engine.begin() as connection:
        connection.execute(text("update jobs set priority = 5 where id = :id"), {"id": first})
        assert claimed(connection) == [second, first]
        assert claimed(connection, priorities=(4, 5, 6)) == [first]
        assert claimed(connection, priorities=(4, 5, 6), otherwise=(0, 3)) == [first]
        assert claimed(connection, priorities=(0, 1, 2), otherwise=(3,)) == [second]
        assert claimed(connection, priorities=(0, 1, 2)) == []


def test_an_earlier_job_of_the_same_document_inherits_the_higher_priority(engine: Engine) -> None:
    """An interactive change of a document waits behind a bulk-load change of the same document."""
    with engine.begin() as connection:
        bulk = [add_job(connection, "register", f"http://{n}", "me", b"", priority=5) for n in range(3)]
        urgent = add_job(connection, "register", "http://2", "me", b"", priority=2)
    with engine.connect() as connection:
        assert claimed(connection) == [bulk[2], bulk[0], bulk[1]]
        assert urgent not in claimed(connection)


def test_a_postponed_job_blocks_only_its_own_document(engine: Engine) -> None:
    first, second, other = add(engine, "http://a", "http://a", "http://b")
    with engine.begin() as connection:
        (job,) = claim_jobs_by_id(connection, [first])
        postpone_job(connection, job, {"title": "no luck"}, 3600)
    with engine.begin() as connection:
        assert claimed(connection) == [other]
        status = read_job(connection, first)
        assert status is not None
        assert (status.state, status.attempts, status.problem) == ("queued", 1, {"title": "no luck"})
        connection.execute(text("update jobs set not_before = now() where id = :id"), {"id": first})
        assert claimed(connection) == [first, other]
        assert second not in claimed(connection)


def test_jobs_in_progress_are_recorded_when_a_worker_dies(engine: Engine) -> None:
    first, second = add(engine, "http://a", "http://b")
    for _ in range(2):
        with engine.begin() as connection:
            mark_jobs_started(connection, [first])
    with engine.begin() as connection:
        assert [job.deaths for job in claim_jobs(connection, 2)] == [2, 0]
        assert [job.deaths for job in claim_jobs_by_id(connection, [first, second])] == [2, 0]
        clear_jobs_started(connection, [first])
        assert connection.execute(text("select count(*) from begun_jobs")).scalar_one() == 0
        mark_jobs_started(connection, [first, second])
        finish_jobs(connection, [JobOutcome(claim_jobs_by_id(connection, [first])[0], {}, None)])
        assert connection.execute(text("select count(*) from begun_jobs")).scalar_one() == 1


def test_a_dead_letter_keeps_its_body_and_can_be_retried(engine: Engine) -> None:
    (job_id, other) = add(engine, "http://a", "http://b")
    with engine.begin() as connection:
        finish_jobs(
            connection, [JobOutcome(claim_jobs_by_id(connection, [job_id])[0], None, {"status": 500}, dead=True)]
        )
    with engine.begin() as connection:
        status = read_job(connection, job_id)
        assert status is not None and (status.state, status.dead) == ("failed", True)
        assert count_dead_letters(connection) == 1
        assert [job.id for job in list_jobs(connection, "dead", 2**62, 5)] == [job_id]
        assert [job.id for job in list_jobs(connection, "failed", 2**62, 5)] == [job_id]
        assert not has_newer_job(connection, job_id)
        assert retry_job(connection, job_id) and not retry_job(connection, job_id) and not retry_job(connection, other)
        (again, _) = claim_jobs(connection, 5)
        assert (again.id, again.body, again.attempts) == (job_id, b"body", 0)


def test_a_newer_job_of_the_same_document_is_detected(engine: Engine) -> None:
    first, second, third = add(engine, "http://a", "http://a", "http://a")
    with engine.begin() as connection:
        assert (
            has_newer_job(connection, first)
            and has_newer_job(connection, second)
            and not has_newer_job(connection, third)
        )
        finish_jobs(connection, [JobOutcome(job, {}, None) for job in claim_jobs_by_id(connection, [first, second])])
        finish_jobs(connection, [JobOutcome(job, None, {}) for job in claim_jobs_by_id(connection, [third])])
        # Earlier or failed jobs are not newer, whenever they ended.
        assert has_newer_job(connection, first) and not has_newer_job(connection, second)


def test_long_waiting_jobs_gain_priority_within_their_half(engine: Engine) -> None:
    with engine.begin() as connection:
        for priority in range(8):
            add_job(connection, "register", f"http://{priority}", "me", priority=priority)
        assert raise_aged_priorities(connection) == 0
        connection.execute(text("update jobs set created_at = now() - interval '2 minutes'"))
        for _ in range(3):
            raise_aged_priorities(connection)
        assert [job.priority for job in claim_jobs(connection, 8)] == [0, 0, 0, 0, 4, 4, 4, 4]


def test_waiting_jobs_are_counted_up_to_a_limit(engine: Engine) -> None:
    add(engine, "http://a", "http://b", "http://c")
    with engine.connect() as connection:
        assert summarize_queue(connection, 10)[:2] == (3, 12)
        assert summarize_queue(connection, 2)[:2] == (2, 8)


def test_ended_jobs_are_deleted_after_a_time_and_dead_letters_later(engine: Engine) -> None:
    done, dead, waits = add(engine, "http://a", "http://b", "http://c")
    with engine.begin() as connection:
        first, second = claim_jobs_by_id(connection, [done, dead])
        finish_jobs(connection, [JobOutcome(first, {}, None), JobOutcome(second, None, {"status": 500}, dead=True)])
        connection.execute(text("update jobs set ended_at = now() - interval '2 hours' where ended_at is not null"))
    with engine.begin() as connection:
        assert delete_old_jobs(connection, 3 * 3600, 10) == 0
        assert delete_old_jobs(connection, 3600, 10) == 1
        assert read_job(connection, done) is None
        assert delete_old_jobs(connection, 1800 - 1, 10) == 1
        assert read_job(connection, waits) is not None


def test_jobs_are_listed_newest_first(engine: Engine) -> None:
    ids = add(engine, "http://a", "http://b", "http://c")
    with engine.begin() as connection:
        newest = list_jobs(connection, None, 2**62, 2)
        assert [job.id for job in newest] == [ids[2], ids[1]]
        assert [job.id for job in list_jobs(connection, "queued", newest[-1].number, 2)] == [ids[0]]
        assert list_jobs(connection, "done", 2**62, 2) == []
        claim_jobs_by_id(connection, ids[:1])
        assert [job.state for job in list_jobs(connection, "queued", 2**62, 3)] == ["queued", "queued", "running"]


def test_a_claimed_job_has_all_its_fields(engine: Engine) -> None:
    with engine.begin() as connection:
        add_job(connection, "register", "http://a", "me", b"\x00\xff", "text/turtle", {"dry_run": True})
        (job,) = claim_jobs(connection, 1)
        assert (job.kind, job.uri, job.body, job.media_type, job.options, job.attempts) == (
            "register", "http://a", b"\x00\xff", "text/turtle", {"dry_run": True}, 0,
        )  # fmt: skip


def test_only_the_first_job_of_a_document_is_claimed(engine: Engine) -> None:
    first, second, other = add(engine, "http://a", "http://a", "http://b")
    with engine.connect() as one, engine.connect() as two:
        assert claimed(one) == [first, other]
        assert claimed(two) == []
        finish_jobs(one, [JobOutcome(claim_jobs_by_id(one, [first])[0], {}, None)])
        one.commit()
        assert claimed(two) == [second, other]


def test_a_second_worker_skips_claimed_jobs(engine: Engine) -> None:
    first, second, third = add(engine, "http://a", "http://b", "http://c")
    with engine.connect() as one, engine.connect() as two:
        assert claimed(one, 1) == [first]
        assert claimed(two) == [second, third]
        assert claim_jobs_by_id(two, [first]) == []


def test_a_terminated_transaction_releases_its_jobs(engine: Engine) -> None:
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
        finish_jobs(connection, [JobOutcome(job, {"version": 1}, None)])
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
        finish_jobs(connection, [JobOutcome(claim_jobs(connection, 1)[0], {}, None)])
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
        finish_jobs(connection, [JobOutcome(claim_jobs(connection, 1)[0], None, {"status": 422})])
        assert connection.execute(text("select body from jobs")).scalar_one() is None
        assert connection.execute(text("select state from jobs")).scalar_one() == "failed"
        assert summarize_queue(connection, 10).jobs == 0
        assert claim_jobs_by_id(connection, [job_id]) == []


def test_an_unknown_job_is_none(connection: Connection) -> None:
    assert read_job(connection, uuid4()) is None


def test_an_idempotency_key_identifies_one_job_per_caller(engine: Engine) -> None:
    def queue(caller: str, key: str | None) -> UUID:
        with engine.begin() as connection:
            return add_job(
                connection, "register", "http://a", caller, b"", None, None, idempotency_key=key, request_hash=b"h"
            )

    job = queue("me", "k")
    queue("you", "k")
    queue("me", None)
    queue("me", None)
    with pytest.raises(UniqueViolation, match="jobs_idempotency_key"):
        queue("me", "k")
    with engine.connect() as connection:
        assert find_idempotent_job(connection, "me", "k") == (job, b"h")
        assert find_idempotent_job(connection, "me", "other") is None


def test_a_claim_is_limited_by_the_size_of_its_texts(engine: Engine) -> None:
    with engine.begin() as connection:
        for number, size in enumerate((10, 10, 10, 100, 5)):
            add_job(connection, "register", f"urn:doc:{number}", "me", b"x" * 1000 * size, "text/turtle")
    taken = []
    for _ in range(4):
        with engine.begin() as connection:
            claimed = claim_jobs(connection, 10, most_bytes=25_000)
            taken.append([job.uri[-1] for job in claimed])
            for job in claimed:
                finish_jobs(connection, [JobOutcome(job, {}, None)])
    assert taken == [["0", "1"], ["2"], ["3"], ["4"]]
