"""The queue: order of arrival, one job a document at a time, nothing lost with a transaction."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from psycopg.errors import UniqueViolation
from sqlalchemy import Connection, Engine, text

from mdv.db.jobs import (
    Ending,
    add_job,
    age_jobs,
    begin_jobs,
    claim_jobs,
    claim_known,
    count_dead,
    end_jobs,
    find_key,
    forget_jobs,
    has_newer,
    let_go,
    list_jobs,
    look_at_waiting,
    postpone_job,
    read_job,
    retry_job,
)


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
        connection.execute(text("update jobs set priority = 5 where id = :id"), {"id": first})
        assert claimed(connection) == [second, first]
        assert claimed(connection, priorities=(4, 5, 6)) == [first]
        assert claimed(connection, priorities=(4, 5, 6), otherwise=(0, 3)) == [first]
        assert claimed(connection, priorities=(0, 1, 2), otherwise=(3,)) == [second]
        assert claimed(connection, priorities=(0, 1, 2)) == []


def test_what_cannot_be_overtaken_becomes_as_urgent(engine: Engine) -> None:
    """Somebody waits for a change of a document of which an earlier change is part of a bulk load."""
    with engine.begin() as connection:
        bulk = [add_job(connection, "register", f"http://{n}", "me", b"", priority=5) for n in range(3)]
        urgent = add_job(connection, "register", "http://2", "me", b"", priority=2)
    with engine.connect() as connection:
        assert claimed(connection) == [bulk[2], bulk[0], bulk[1]]
        assert urgent not in claimed(connection)


def test_a_job_that_waits_for_its_next_attempt_holds_up_its_document_alone(engine: Engine) -> None:
    first, second, other = add(engine, "http://a", "http://a", "http://b")
    with engine.begin() as connection:
        (job,) = claim_known(connection, [first])
        postpone_job(connection, job, {"title": "no luck"}, 3600)
    with engine.begin() as connection:
        assert claimed(connection) == [other]
        status = read_job(connection, first)
        assert status is not None
        assert (status.state, status.attempts, status.problem) == ("queued", 1, {"title": "no luck"})
        connection.execute(text("update jobs set not_before = now() where id = :id"), {"id": first})
        assert claimed(connection) == [first, other]
        assert second not in claimed(connection)


def test_a_worker_that_dies_leaves_a_trace_of_what_it_had_in_hand(engine: Engine) -> None:
    first, second = add(engine, "http://a", "http://b")
    for _ in range(2):
        with engine.begin() as connection:
            begin_jobs(connection, [first])
    with engine.begin() as connection:
        assert [job.deaths for job in claim_jobs(connection, 2)] == [2, 0]
        assert [job.deaths for job in claim_known(connection, [first, second])] == [2, 0]
        let_go(connection, [first])
        assert connection.execute(text("select count(*) from begun_jobs")).scalar_one() == 0
        begin_jobs(connection, [first, second])
        end_jobs(connection, [Ending(claim_known(connection, [first])[0], {}, None)])
        assert connection.execute(text("select count(*) from begun_jobs")).scalar_one() == 1


def test_a_dead_letter_keeps_its_body_and_can_wait_again(engine: Engine) -> None:
    (job_id, other) = add(engine, "http://a", "http://b")
    with engine.begin() as connection:
        end_jobs(connection, [Ending(claim_known(connection, [job_id])[0], None, {"status": 500}, dead=True)])
    with engine.begin() as connection:
        status = read_job(connection, job_id)
        assert status is not None and (status.state, status.dead) == ("failed", True)
        assert count_dead(connection) == 1
        assert [job.id for job in list_jobs(connection, "dead", 2**62, 5)] == [job_id]
        assert [job.id for job in list_jobs(connection, "failed", 2**62, 5)] == [job_id]
        assert not has_newer(connection, job_id)
        assert retry_job(connection, job_id) and not retry_job(connection, job_id) and not retry_job(connection, other)
        (again, _) = claim_jobs(connection, 5)
        assert (again.id, again.body, again.attempts) == (job_id, b"body", 0)


def test_whether_a_later_job_has_come_is_known(engine: Engine) -> None:
    first, second, third = add(engine, "http://a", "http://a", "http://a")
    with engine.begin() as connection:
        assert has_newer(connection, first) and has_newer(connection, second) and not has_newer(connection, third)
        end_jobs(connection, [Ending(job, {}, None) for job in claim_known(connection, [first, second])])
        end_jobs(connection, [Ending(job, None, {}) for job in claim_known(connection, [third])])
        # What came earlier, or failed, is nothing newer, whenever it ended.
        assert has_newer(connection, first) and not has_newer(connection, second)


def test_who_waits_for_long_becomes_more_urgent_within_its_half(engine: Engine) -> None:
    with engine.begin() as connection:
        for priority in range(8):
            add_job(connection, "register", f"http://{priority}", "me", priority=priority)
        assert age_jobs(connection) == 0
        connection.execute(text("update jobs set created_at = now() - interval '2 minutes'"))
        for _ in range(3):
            age_jobs(connection)
        assert [job.priority for job in claim_jobs(connection, 8)] == [0, 0, 0, 0, 4, 4, 4, 4]


def test_what_waits_is_counted_up_to_a_limit(engine: Engine) -> None:
    add(engine, "http://a", "http://b", "http://c")
    with engine.connect() as connection:
        assert look_at_waiting(connection, 10)[:2] == (3, 12)
        assert look_at_waiting(connection, 2)[:2] == (2, 8)


def test_ended_jobs_are_forgotten_in_time_and_dead_letters_later(engine: Engine) -> None:
    done, dead, waits = add(engine, "http://a", "http://b", "http://c")
    with engine.begin() as connection:
        first, second = claim_known(connection, [done, dead])
        end_jobs(connection, [Ending(first, {}, None), Ending(second, None, {"status": 500}, dead=True)])
        connection.execute(text("update jobs set ended_at = now() - interval '2 hours' where ended_at is not null"))
    with engine.begin() as connection:
        assert forget_jobs(connection, 3 * 3600, 10) == 0
        assert forget_jobs(connection, 3600, 10) == 1
        assert read_job(connection, done) is None
        assert forget_jobs(connection, 1800 - 1, 10) == 1
        assert read_job(connection, waits) is not None


def test_jobs_are_listed_from_the_newest_on(engine: Engine) -> None:
    ids = add(engine, "http://a", "http://b", "http://c")
    with engine.begin() as connection:
        newest = list_jobs(connection, None, 2**62, 2)
        assert [job.id for job in newest] == [ids[2], ids[1]]
        assert [job.id for job in list_jobs(connection, "queued", newest[-1].number, 2)] == [ids[0]]
        assert list_jobs(connection, "done", 2**62, 2) == []
        claim_known(connection, ids[:1])
        assert [job.state for job in list_jobs(connection, "queued", 2**62, 3)] == ["queued", "queued", "running"]


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
        end_jobs(one, [Ending(claim_known(one, [first])[0], {}, None)])
        one.commit()
        assert claimed(two) == [second, other]


def test_a_second_worker_passes_by_what_is_claimed(engine: Engine) -> None:
    first, second, third = add(engine, "http://a", "http://b", "http://c")
    with engine.connect() as one, engine.connect() as two:
        assert claimed(one, 1) == [first]
        assert claimed(two) == [second, third]
        assert claim_known(two, [first]) == []


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
        assert look_at_waiting(connection, 10).jobs == 0
        assert claim_known(connection, [job_id]) == []


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
    with pytest.raises(UniqueViolation, match="jobs_idempotency_key"):
        queue("me", "k")
    with engine.connect() as connection:
        assert find_key(connection, "me", "k") == (job, b"h")
        assert find_key(connection, "me", "other") is None


def test_a_claim_takes_no_more_text_than_was_asked_for(engine: Engine) -> None:
    with engine.begin() as connection:
        for number, size in enumerate((10, 10, 10, 100, 5)):
            add_job(connection, "register", f"urn:doc:{number}", "me", b"x" * 1000 * size, "text/turtle")
    taken = []
    for _ in range(4):
        with engine.begin() as connection:
            claimed = claim_jobs(connection, 10, most_bytes=25_000)
            taken.append([job.uri[-1] for job in claimed])
            for job in claimed:
                end_jobs(connection, [Ending(job, {}, None)])
    assert taken == [["0", "1"], ["2"], ["3"], ["4"]]
