"""The worker: every job ends exactly once, in the order of its document, and a failing job blocks no other."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import psycopg
import pytest
import sqlalchemy
import structlog
from sqlalchemy import Engine, text

import mdv.mdp.worker
from mdv.db.engine import make_engine
from mdv.db.jobs import JobOutcome, JobStatus, add_job, claim_jobs, mark_jobs_started, read_job
from mdv.db.state import lock_state
from mdv.mdp.worker import MAX_ATTEMPTS, Worker, back_off
from tests.support.mdp import Mdp

MAX_BYTES = 1_000_000


@pytest.fixture(autouse=True)
def log() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as entries:
        yield entries


@pytest.fixture
def store(mdp: Mdp) -> Mdp:
    mdp.put_schema("<> mdv:world mdv:open .")
    return mdp


def add(store: Mdp, uri: str, turtle: str | None, priority: int = 3, **options: Any) -> UUID:
    kind, body = ("delete", None) if turtle is None else ("register", (store.PREFIXES + turtle).encode())
    with store.engine.begin() as connection:
        return add_job(connection, kind, uri, "me", body, "text/turtle" if body else None, options, priority=priority)


def status(store: Mdp, job_id: UUID) -> JobStatus:
    with store.engine.connect() as connection:
        found = read_job(connection, job_id)
    assert found is not None
    return found


def worker_of(engine: Engine, ended: Callable[[Sequence[UUID]], object] = lambda jobs: None) -> Worker:
    """A worker that retries failed attempts when the test advances the clock by an hour."""

    def tell(endings: Sequence[JobOutcome]) -> None:
        ended([ending.job.id for ending in endings])

    return Worker(engine, MAX_BYTES, tell, back_off=lambda attempts: 3600)


def an_hour_passes(store: Mdp) -> None:
    store.run("update jobs set not_before = not_before - interval '1 hour'")


def states(store: Mdp, *job_ids: UUID) -> list[str]:
    return [status(store, job_id).state for job_id in job_ids]


def poison(store: Mdp, uri: str) -> None:
    """Make the database refuse all statements of one document."""
    store.run(f"""
        create function poison() returns trigger language plpgsql as $$ begin
            if new.uri = '{uri}' then raise exception 'this one is poison'; end if; return new;
        end $$""")
    store.run("create trigger poison before insert on documents for each row execute function poison()")


def test_jobs_are_executed_in_order_and_get_results(store: Mdp) -> None:
    ended: list[UUID] = []
    worker = worker_of(store.engine, ended.extend)
    jobs = [add(store, "http://d/1", "<#a> :p 1 ."), add(store, "http://d/2", "<#b> :p 1 .")]
    later = [add(store, "http://d/1", "<#a> :p 2 ."), add(store, "http://d/2", None)]
    assert worker.work() == 4
    assert ended == jobs + later
    results = [status(store, job).result for job in jobs + later]
    assert [(r["document"], r["version"], r["position"]) for r in results if r] == [
        ("http://d/1", 1, 2), ("http://d/2", 1, 2), ("http://d/1", 2, 3), ("http://d/2", 2, 3),
    ]  # fmt: skip
    assert worker.work() == 0


def test_an_invalid_document_among_many_fails_alone_with_its_errors(store: Mdp) -> None:
    good = [add(store, f"http://d/{n}", f"<#a> :p {n} .") for n in range(5)]
    bad = [add(store, "http://d/bad", "<#a> :p"), add(store, "http://d/none", None)]
    assert worker_of(store.engine).work() == 7
    assert states(store, *good) == ["done"] * 5
    problems = [status(store, job).problem or {} for job in bad]
    assert [problem["status"] for problem in problems] == [400, 404]
    assert problems[0]["errors"][0]["line"] == 2
    assert store.one("select count(*) from documents where present") == 5


def test_preconditions_and_dry_runs_are_options_of_a_job(store: Mdp) -> None:
    store.put_one("http://d/1", "<#a> :p 1 .")
    dry = add(store, "http://d/1", "<#a> :p 2 . <#b> :p 2 .", dry_run=True)
    match = add(store, "http://d/2", "<#a> :p 2 .", conditions={"if_match": ["3"], "resource_prefixes": None})
    foreign = add(store, "http://d/3", "<http://r> :p 2 .", conditions={"resource_prefixes": ["http://d/3"]})
    gone = add(store, "http://d/4", None, dry_run=True)
    assert worker_of(store.engine).work() == 4
    result = status(store, dry).result or {}
    assert (result["dry_run"], result["inserted"], result["updated"]) == (True, 1, 1)
    assert [(status(store, job).problem or {})["status"] for job in (match, foreign, gone)] == [412, 403, 404]
    assert store.one("select position from mdp_state") == 2
    assert store.one("select value from filter_data") == "1"


def test_a_body_over_the_limit_fails(store: Mdp) -> None:
    job = add(store, "http://d/1", f"<#a> :p '{'x' * 1000}' .")
    Worker(store.engine, 500).work()
    assert (status(store, job).problem or {})["status"] == 413


def test_a_poison_job_blocks_no_other_and_fails_with_its_reason(store: Mdp) -> None:
    ended: list[UUID] = []
    worker = worker_of(store.engine, ended.extend)
    poison(store, "http://d/3")
    jobs = [add(store, f"http://d/{n}", "<#a> :p 1 .") for n in range(7)]
    waiting = add(store, "http://d/3", "<#a> :p 2 .")
    assert worker.work() == 6
    others = [job for job in jobs if job != jobs[3]]
    assert states(store, *others) == ["done"] * 6
    assert states(store, jobs[3], waiting) == ["queued", "queued"]
    assert "this one is poison" in (status(store, jobs[3]).problem or {})["detail"]
    for attempt in range(1, MAX_ATTEMPTS):
        assert status(store, jobs[3]).attempts == attempt
        assert worker.work() == 0
        an_hour_passes(store)
        assert worker.work() == (attempt == MAX_ATTEMPTS - 1)
    failed = status(store, jobs[3])
    assert (failed.state, failed.dead, failed.attempts) == ("failed", True, MAX_ATTEMPTS)
    assert "this one is poison" in (failed.problem or {})["detail"]
    assert Counter(ended)[jobs[3]] == 1
    an_hour_passes(store)
    store.run("drop trigger poison on documents")
    worker.work()
    assert states(store, waiting) == ["done"]
    assert Counter(ended) == Counter([*jobs, waiting])


def test_many_poison_jobs_do_not_block_the_jobs_behind_them(store: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.mdp.worker.MAX_DOCUMENTS_PER_BATCH", 3)
    store.run("""create function poison() returns trigger language plpgsql as $$ begin
                 if new.uri like '%bad%' then raise exception 'no'; end if; return new; end $$""")
    store.run("create trigger poison before insert on documents for each row execute function poison()")
    bad = [add(store, f"http://bad/{n}", "<#a> :p 1 .") for n in range(7)]
    good = add(store, "http://good", "<#a> :p 1 .")
    assert worker_of(store.engine).work() == 1
    assert states(store, good, *bad) == ["done"] + ["queued"] * 7


def test_an_exception_in_prepare_is_retried_and_ends_as_a_dead_letter(
    store: Mdp, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = mdv.mdp.worker.prepare

    def buggy(uri: str, *rest: Any) -> Any:
        if uri == "http://d/bad":
            raise ZeroDivisionError("a bug")
        return real(uri, *rest)

    monkeypatch.setattr("mdv.mdp.worker.prepare", buggy)
    ended: list[UUID] = []
    worker = worker_of(store.engine, ended.extend)
    bad, good = add(store, "http://d/bad", "<#a> :p 1 ."), add(store, "http://d/good", "<#a> :p 1 .")
    assert worker.work() == 1
    assert states(store, bad, good) == ["queued", "done"]
    for _ in range(MAX_ATTEMPTS):
        an_hour_passes(store)
        worker.work()
    failed = status(store, bad)
    assert (failed.state, failed.dead, failed.attempts) == ("failed", True, MAX_ATTEMPTS)
    assert "a bug" in (failed.problem or {})["detail"]
    assert ended == [good, bad]


def test_an_exception_in_register_is_retried_and_ends_as_a_failure(store: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    real = mdv.mdp.worker.register

    def buggy(connection: Any, batch: Any, *rest: Any) -> Any:
        if any(item.uri == "http://d/bad" for item in batch):
            raise KeyError("http://d/bad")
        return real(connection, batch, *rest)

    monkeypatch.setattr("mdv.mdp.worker.register", buggy)
    bad, good = add(store, "http://d/bad", "<#a> :p 1 ."), add(store, "http://d/good", "<#a> :p 1 .")
    worker = worker_of(store.engine)
    for _ in range(MAX_ATTEMPTS):
        worker.work()
        an_hour_passes(store)
    assert states(store, bad, good) == ["failed", "done"]


def test_a_database_outage_counts_no_attempt(store: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    real = mdv.mdp.worker.register

    def cut(connection: Any, *rest: Any) -> Any:
        number = connection.execute(text("select pg_backend_pid()")).scalar_one()
        store.run(f"select pg_terminate_backend({number}, 5000)")
        return real(connection, *rest)

    job = add(store, "http://d/1", "<#a> :p 1 .")
    worker = worker_of(store.engine)
    with monkeypatch.context() as patch:
        patch.setattr("mdv.mdp.worker.register", cut)
        with pytest.raises(sqlalchemy.exc.DBAPIError):
            worker.work()
    assert (status(store, job).state, status(store, job).attempts) == ("queued", 0)
    assert worker.work() == 1
    assert states(store, job) == ["done"]


def test_a_job_completed_by_another_worker_is_left_unchanged(store: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first worker's attempt dies; before it can count that, a second worker has completed the job."""
    job = add(store, "http://d/1", "<#a> :p 1 .")
    first, second = [], []  # type: ignore[var-annotated]
    other = worker_of(store.engine, second.extend)
    claim_known, register = mdv.mdp.worker.claim_jobs_by_id, mdv.mdp.worker.register

    def claim(connection: Any, ids: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr("mdv.mdp.worker.claim_jobs_by_id", claim_known)
            patch.setattr("mdv.mdp.worker.register", register)
            other.work()
        return claim_known(connection, ids)

    def fail(*_: Any) -> Any:
        raise KeyError("once")

    monkeypatch.setattr("mdv.mdp.worker.claim_jobs_by_id", claim)
    monkeypatch.setattr("mdv.mdp.worker.register", fail)
    assert worker_of(store.engine, first.extend).work() == 0
    assert (first, second) == ([], [job])
    assert (status(store, job).state, status(store, job).attempts) == ("done", 1)


def test_interactive_jobs_are_not_blocked_by_bulk_loads(store: Mdp) -> None:
    batches: list[int] = []
    worker = worker_of(store.engine, lambda jobs: batches.append(len(jobs)))
    for n in range(20):
        add(store, f"http://bulk/{n}", "<#a> :p 1 .", priority=5)
    urgent = add(store, "http://d/1", "<#a> :p 1 .")
    assert worker.work() == 21
    assert batches[0] == 1
    result = status(store, urgent).result
    assert result is not None and result["position"] == 2


def test_bulk_jobs_get_their_turn_among_interactive_jobs(store: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.mdp.worker.MAX_DOCUMENTS_PER_BATCH", 1)
    patient = add(store, "http://bulk", "<#a> :p 1 .", priority=7)
    for n in range(15):
        add(store, f"http://d/{n}", "<#a> :p 1 .")
    assert worker_of(store.engine).work() == 16
    result = status(store, patient).result
    assert result is not None and result["position"] == 11


def test_other_workers_are_woken_if_many_jobs_wait(store: Mdp) -> None:
    calls: list[str] = []
    worker = worker_of(store.engine)
    add(store, "http://d/1", "<#a> :p 1 .")
    assert worker.work(more=lambda: calls.append("more")) == 1
    assert calls == []
    for n in range(3):
        add(store, f"http://d/{n}", f"<#a> :p '{'x' * 40_000}' .")
    assert worker.work(more=lambda: calls.append("more")) == 3
    assert calls


def test_a_worker_at_its_time_limit_leaves_the_rest_to_others(store: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.mdp.worker.MAX_DOCUMENTS_PER_BATCH", 1)
    calls: list[str] = []
    jobs = [add(store, f"http://d/{n}", "<#a> :p 1 .") for n in range(3)]
    assert worker_of(store.engine).work(0, lambda: calls.append("more")) == 1
    assert states(store, *jobs) == ["done", "queued", "queued"]
    assert "more" in calls


def test_a_job_that_kills_its_workers_becomes_a_dead_letter_and_the_others_are_completed(store: Mdp) -> None:
    """After each death the jobs in progress are taken in smaller batches, down to the one that causes it."""
    batches: list[int] = []
    worker = worker_of(store.engine, lambda jobs: batches.append(len(jobs)))
    jobs = [add(store, f"http://d/{n}", "<#a> :p 1 .") for n in range(30)]
    with store.engine.begin() as connection:
        for many in (jobs, jobs[:20], jobs[:2], *[jobs[:1]] * 5):
            mark_jobs_started(connection, many)
    assert worker.work() == 30
    assert batches[:2] == [1, 1] and max(batches[2:4]) <= 10
    dead = status(store, jobs[0])
    assert (dead.state, dead.dead) == ("failed", True)
    assert "8 workers died" in (dead.problem or {})["detail"]
    assert states(store, *jobs[1:]) == ["done"] * 29
    assert store.one("select count(*) from begun_jobs") == 0


def test_a_full_disk_counts_neither_an_attempt_nor_a_worker_death(store: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    job = add(store, "http://d/1", "<#a> :p 1 .")
    worker = worker_of(store.engine)

    def fail(*_: Any) -> Any:
        raise psycopg.errors.DiskFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr("mdv.mdp.worker.register", fail)
        with pytest.raises(psycopg.errors.DiskFull):
            worker.work()
    assert store.one("select times from begun_jobs") == 1
    assert worker.work() == 1
    assert (status(store, job).state, status(store, job).attempts) == ("done", 1)
    assert store.one("select count(*) from begun_jobs") == 0


def test_a_job_that_exceeds_the_transaction_timeout_counts_an_attempt(
    store: Mdp, database_url: str, log: list[Any]
) -> None:
    """It takes longer than the limit of a transaction; the other jobs of its batch are completed."""
    store.run("""create function slow() returns trigger language plpgsql as $$ begin
                 if new.uri like '%slow%' then perform pg_sleep(30); end if; return new; end $$""")
    store.run("create trigger slow before insert on documents for each row execute function slow()")
    slow, good = add(store, "http://slow", "<#a> :p 1 ."), add(store, "http://good", "<#a> :p 1 .")
    engine = make_engine(database_url, longest=1)
    worker = Worker(engine, MAX_BYTES, back_off=lambda attempts: 3600, longest=1)
    assert worker.work() == 1
    engine.dispose()
    assert states(store, slow, good) == ["queued", "done"]
    assert status(store, slow).attempts == 1


def test_waiting_for_the_lock_counts_no_attempt(store: Mdp, database_url: str) -> None:
    job = add(store, "http://d/1", "<#a> :p 1 .")
    engine = make_engine(database_url, longest=1)
    worker = Worker(engine, MAX_BYTES, longest=1)
    with store.engine.begin() as connection:
        lock_state(connection)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            worker.work()
    assert status(store, job).attempts == 0
    assert worker.work() == 1
    engine.dispose()


def test_the_delay_between_attempts_grows_exponentially() -> None:
    for attempt, seconds in enumerate((1, 4, 16, 64), start=1):
        assert all(0.8 * seconds <= back_off(attempt) <= 1.2 * seconds for _ in range(20))


def test_schema_changes_and_deletions_of_lmrs_are_jobs(store: Mdp) -> None:
    lmr = store.create_lmr("short-lived")
    body = (store.PREFIXES + "<> mdv:world mdv:open . :C a rdfs:Class .").encode()
    with store.engine.begin() as connection:
        schema = add_job(connection, "schema", "urn:mdv:schema", "me", body, "text/turtle", {})
        stale = add_job(connection, "schema", "urn:mdv:schema", "me", body, "text/turtle", {"if_match": ["77"]})
        gone = add_job(connection, "forget", f"urn:mdv:lmr:{lmr.id}", "me", b"{}", None, {"lmr": lmr.id})
        again = add_job(connection, "forget", f"urn:mdv:lmr:{lmr.id}", "me", b"{}", None, {"lmr": lmr.id})
    assert worker_of(store.engine).work() == 0
    assert worker_of(store.engine).work_rules() == 4
    assert states(store, schema, stale, gone, again) == ["done", "failed", "done", "failed"]
    assert [(status(store, job).problem or {})["status"] for job in (stale, again)] == [412, 404]
    assert store.one("select count(*) from lmrs where name = 'short-lived'") == 0


def test_the_end_of_a_job_is_notified_after_the_commit(store: Mdp) -> None:
    seen: list[str] = []
    worker = worker_of(store.engine, lambda jobs: seen.extend(states(store, *jobs)))
    add(store, "http://d/1", "<#a> :p 1 .")
    add(store, "http://d/2", "<#a> :p")
    worker.work()
    assert sorted(seen) == ["done", "failed"]


def test_two_workers_keep_the_order_per_document_and_complete_every_job_once(
    store: Mdp, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdv.mdp.worker.MAX_DOCUMENTS_PER_BATCH", 4)
    jobs = [(f"http://d/{n % 5}", n) for n in range(40)]
    ids = {add(store, uri, f"<#a> :p {n} ."): (uri, n) for uri, n in jobs}
    ended: list[UUID] = []
    engines = [sqlalchemy.create_engine(store.engine.url) for _ in range(2)]

    def run(engine: Engine) -> None:
        worker = worker_of(engine, ended.extend)
        while True:
            worker.work()
            with engine.connect() as connection:
                if connection.execute(text("select count(*) from jobs where state = 'queued'")).scalar_one() == 0:
                    return

    threads = [threading.Thread(target=run, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert Counter(ended) == Counter(list(ids))
    for uri in {uri for uri, _ in jobs}:
        versions = {n: (status(store, job).result or {})["version"] for job, (u, n) in ids.items() if u == uri}
        assert [versions[n] for n in sorted(versions)] == list(range(1, 9))
    for engine in engines:
        engine.dispose()


def test_a_job_being_read_is_not_skipped(store: Mdp) -> None:
    job = add(store, "http://d/1", "<#a> :p 1 .")
    with store.engine.connect() as looker, looker.begin():
        found = read_job(looker, job)
        assert found is not None and found.state == "queued"
        assert worker_of(store.engine).work() == 1
    assert states(store, job) == ["done"]


def test_a_job_claimed_by_another_worker_is_skipped(store: Mdp) -> None:
    job = add(store, "http://d/1", "<#a> :p 1 .")
    with store.engine.begin() as connection:
        claim_jobs(connection, 1)
        assert worker_of(store.engine).work() == 0
        assert states(store, job) == ["running"]
    assert worker_of(store.engine).work() == 1


def test_a_problem_that_quotes_characters_postgres_cannot_store_ends_its_job(engine: Engine) -> None:
    body = rb'<http://x/\u0000> <http://e/q> "1" .'
    with engine.begin() as connection:
        job = add_job(connection, "register", "http://d/nul", "me", body, "text/turtle")
    assert worker_of(engine).work() == 1
    with engine.connect() as connection:
        status = read_job(connection, job)
    assert status is not None and status.problem is not None and status.problem["status"] == 400


@pytest.mark.parametrize(("error", "away"), [
    (psycopg.errors.QueryCanceled, False),
    (psycopg.errors.AdminShutdown, True),
    (psycopg.errors.CannotConnectNow, True),
    (psycopg.errors.ConnectionFailure, True),
])  # fmt: skip
def test_a_cancelled_statement_is_no_database_outage(error: type[psycopg.Error], away: bool) -> None:
    assert mdv.mdp.worker.is_database_outage(error()) is away
