"""The worker: every job ends exactly once, in the order of its document, and a bad one stops nobody."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest
import sqlalchemy
import structlog
from sqlalchemy import Engine, text

import mdv.mdp.work
from mdv.db.jobs import JobStatus, add_job, claim_jobs, read_job
from mdv.mdp.work import MAX_ATTEMPTS, Worker

if TYPE_CHECKING:
    from conftest import Mdp

MAX_BYTES = 1_000_000


@pytest.fixture(autouse=True)
def log() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as entries:
        yield entries


@pytest.fixture
def store(mdp: Mdp) -> Mdp:
    mdp.put_schema("<> mdv:world mdv:open .")
    return mdp


def add(store: Mdp, uri: str, turtle: str | None, **options: Any) -> UUID:
    kind, body = ("delete", None) if turtle is None else ("register", (store.PREFIXES + turtle).encode())
    with store.engine.begin() as connection:
        return add_job(connection, kind, uri, "me", body, "text/turtle" if body else None, options)


def status(store: Mdp, job_id: UUID) -> JobStatus:
    with store.engine.connect() as connection:
        found = read_job(connection, job_id)
    assert found is not None
    return found


def states(store: Mdp, *job_ids: UUID) -> list[str]:
    return [status(store, job_id).state for job_id in job_ids]


def poison(store: Mdp, uri: str) -> None:
    """The database refuses whatever is said in one document."""
    store.run(f"""
        create function poison() returns trigger language plpgsql as $$ begin
            if new.uri = '{uri}' then raise exception 'this one is poison'; end if; return new;
        end $$""")
    store.run("create trigger poison before insert on documents for each row execute function poison()")


def test_jobs_become_results(store: Mdp) -> None:
    ended: list[UUID] = []
    worker = Worker(store.engine, MAX_BYTES, ended.append)
    jobs = [add(store, "http://d/1", "<#a> :p 1 ."), add(store, "http://d/2", "<#b> :p 1 .")]
    later = [add(store, "http://d/1", "<#a> :p 2 ."), add(store, "http://d/2", None)]
    assert worker.work() == 4
    assert ended == jobs + later
    results = [status(store, job).result for job in jobs + later]
    assert [(r["document"], r["version"], r["position"]) for r in results if r] == [
        ("http://d/1", 1, 2), ("http://d/2", 1, 2), ("http://d/1", 2, 3), ("http://d/2", 2, 3),
    ]  # fmt: skip
    assert worker.work() == 0


def test_one_bad_document_among_many_fails_alone_with_its_reasons(store: Mdp) -> None:
    good = [add(store, f"http://d/{n}", f"<#a> :p {n} .") for n in range(5)]
    bad = [add(store, "http://d/bad", "<#a> :p"), add(store, "http://d/none", None)]
    assert Worker(store.engine, MAX_BYTES).work() == 7
    assert states(store, *good) == ["done"] * 5
    problems = [status(store, job).problem or {} for job in bad]
    assert [problem["status"] for problem in problems] == [400, 404]
    assert problems[0]["errors"][0]["line"] == 2
    assert store.one("select count(*) from documents where present") == 5


def test_conditions_and_dry_runs_travel_with_the_job(store: Mdp) -> None:
    store.put_one("http://d/1", "<#a> :p 1 .")
    dry = add(store, "http://d/1", "<#a> :p 2 . <#b> :p 2 .", dry_run=True)
    match = add(store, "http://d/2", "<#a> :p 2 .", conditions={"if_match": ["3"], "resource_prefixes": None})
    foreign = add(store, "http://d/3", "<http://r> :p 2 .", conditions={"resource_prefixes": ["http://d/3"]})
    gone = add(store, "http://d/4", None, dry_run=True)
    assert Worker(store.engine, MAX_BYTES).work() == 4
    result = status(store, dry).result or {}
    assert (result["dry_run"], result["inserted"], result["updated"]) == (True, 1, 1)
    assert [(status(store, job).problem or {})["status"] for job in (match, foreign, gone)] == [412, 403, 404]
    assert store.one("select position from mdp_state") == 2
    assert store.one("select value from filter_data") == "1"


def test_a_body_over_the_limit_fails(store: Mdp) -> None:
    job = add(store, "http://d/1", f"<#a> :p '{'x' * 1000}' .")
    Worker(store.engine, 500).work()
    assert (status(store, job).problem or {})["status"] == 413


def test_a_poison_job_stops_nobody_and_ends_with_its_reason(store: Mdp) -> None:
    ended: list[UUID] = []
    worker = Worker(store.engine, MAX_BYTES, ended.append)
    poison(store, "http://d/3")
    jobs = [add(store, f"http://d/{n}", "<#a> :p 1 .") for n in range(7)]
    waiting = add(store, "http://d/3", "<#a> :p 2 .")
    assert worker.work() == 6
    others = [job for job in jobs if job != jobs[3]]
    assert states(store, *others) == ["done"] * 6
    assert states(store, jobs[3], waiting) == ["queued", "queued"]
    for attempt in range(1, MAX_ATTEMPTS):
        assert status(store, jobs[3]).attempts == attempt
        worker.work()
    failed = status(store, jobs[3])
    assert (failed.state, failed.attempts) == ("failed", MAX_ATTEMPTS)
    assert "this one is poison" in (failed.problem or {})["detail"]
    assert Counter(ended)[jobs[3]] == 1
    store.run("drop trigger poison on documents")
    worker.work()
    assert states(store, waiting) == ["done"]
    assert Counter(ended) == Counter([*jobs, waiting])


def test_many_poison_jobs_do_not_hide_those_behind_them(store: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mdv.mdp.work.MAX_BATCH", 3)
    store.run("""create function poison() returns trigger language plpgsql as $$ begin
                 if new.uri like '%bad%' then raise exception 'no'; end if; return new; end $$""")
    store.run("create trigger poison before insert on documents for each row execute function poison()")
    bad = [add(store, f"http://bad/{n}", "<#a> :p 1 .") for n in range(7)]
    good = add(store, "http://good", "<#a> :p 1 .")
    assert Worker(store.engine, MAX_BYTES).work() == 1
    assert states(store, good, *bad) == ["done"] + ["queued"] * 7


def test_a_bug_in_prepare_is_like_poison(store: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    real = mdv.mdp.work.prepare

    def buggy(uri: str, *rest: Any) -> Any:
        if uri == "http://d/bad":
            raise ZeroDivisionError("a bug")
        return real(uri, *rest)

    monkeypatch.setattr("mdv.mdp.work.prepare", buggy)
    ended: list[UUID] = []
    worker = Worker(store.engine, MAX_BYTES, ended.append)
    bad, good = add(store, "http://d/bad", "<#a> :p 1 ."), add(store, "http://d/good", "<#a> :p 1 .")
    assert worker.work() == 1
    assert states(store, bad, good) == ["queued", "done"]
    for _ in range(MAX_ATTEMPTS):
        worker.work()
    failed = status(store, bad)
    assert (failed.state, failed.attempts) == ("failed", MAX_ATTEMPTS)
    assert "a bug" in (failed.problem or {})["detail"]
    assert ended == [good, bad]


def test_a_bug_in_register_is_like_poison(store: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    real = mdv.mdp.work.register

    def buggy(connection: Any, batch: Any, *rest: Any) -> Any:
        if any(item.uri == "http://d/bad" for item in batch):
            raise KeyError("http://d/bad")
        return real(connection, batch, *rest)

    monkeypatch.setattr("mdv.mdp.work.register", buggy)
    bad, good = add(store, "http://d/bad", "<#a> :p 1 ."), add(store, "http://d/good", "<#a> :p 1 .")
    worker = Worker(store.engine, MAX_BYTES)
    for _ in range(MAX_ATTEMPTS):
        worker.work()
    assert states(store, bad, good) == ["failed", "done"]


def test_when_the_database_goes_away_no_job_is_blamed(store: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    real = mdv.mdp.work.register

    def cut(connection: Any, *rest: Any) -> Any:
        number = connection.execute(text("select pg_backend_pid()")).scalar_one()
        store.run(f"select pg_terminate_backend({number}, 5000)")
        return real(connection, *rest)

    job = add(store, "http://d/1", "<#a> :p 1 .")
    worker = Worker(store.engine, MAX_BYTES)
    with monkeypatch.context() as patch:
        patch.setattr("mdv.mdp.work.register", cut)
        with pytest.raises(sqlalchemy.exc.DBAPIError):
            worker.work()
    assert (status(store, job).state, status(store, job).attempts) == ("queued", 0)
    assert worker.work() == 1
    assert states(store, job) == ["done"]


def test_a_job_that_another_worker_ended_meanwhile_is_left_alone(store: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first worker's batch dies; before it can try again, a second one has done the job."""
    job = add(store, "http://d/1", "<#a> :p 1 .")
    first, second = [], []  # type: ignore[var-annotated]
    other = Worker(store.engine, MAX_BYTES, second.append)
    real = mdv.mdp.work.claim_jobs

    def claim(connection: Any, limit: int, only: UUID | None = None, without: Any = (), **which: Any) -> Any:
        if only is not None:
            with monkeypatch.context() as patch:
                patch.setattr("mdv.mdp.work.claim_jobs", real)
                patch.setattr("mdv.mdp.work.register", register)
                other.work()
        return real(connection, limit, only, without, **which)

    register = mdv.mdp.work.register

    def fail(*_: Any) -> Any:
        raise KeyError("once")

    monkeypatch.setattr("mdv.mdp.work.claim_jobs", claim)
    monkeypatch.setattr("mdv.mdp.work.register", fail)
    assert Worker(store.engine, MAX_BYTES, first.append).work() == 0
    assert (first, second) == ([], [job])
    assert (status(store, job).state, status(store, job).attempts) == ("done", 1)


def test_ended_is_told_after_the_commit(store: Mdp) -> None:
    seen: list[str] = []
    worker = Worker(store.engine, MAX_BYTES, lambda job: seen.append(status(store, job).state))
    add(store, "http://d/1", "<#a> :p 1 .")
    add(store, "http://d/2", "<#a> :p")
    worker.work()
    assert seen == ["done", "failed"] or seen == ["failed", "done"]


def test_two_workers_keep_the_order_of_each_document_and_end_every_job_once(
    store: Mdp, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mdv.mdp.work.MAX_BATCH", 4)
    jobs = [(f"http://d/{n % 5}", n) for n in range(40)]
    ids = {add(store, uri, f"<#a> :p {n} ."): (uri, n) for uri, n in jobs}
    ended: list[UUID] = []
    engines = [sqlalchemy.create_engine(store.engine.url) for _ in range(2)]

    def run(engine: Engine) -> None:
        worker = Worker(engine, MAX_BYTES, ended.append)
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


def test_a_job_that_another_worker_holds_is_passed_by(store: Mdp) -> None:
    job = add(store, "http://d/1", "<#a> :p 1 .")
    with store.engine.begin() as connection:
        claim_jobs(connection, 1)
        assert Worker(store.engine, MAX_BYTES).work() == 0
        assert states(store, job) == ["running"]
    assert Worker(store.engine, MAX_BYTES).work() == 1


def test_a_problem_that_quotes_what_cannot_be_stored_ends_its_job(engine: Engine) -> None:
    body = rb'<http://x/\u0000> <http://e/q> "1" .'
    with engine.begin() as connection:
        job = add_job(connection, "register", "http://d/nul", "me", body, "text/turtle")
    assert Worker(engine, 10**6).work() == 1
    with engine.connect() as connection:
        status = read_job(connection, job)
    assert status is not None and status.problem is not None and status.problem["status"] == 400


@pytest.mark.parametrize(("error", "away"), [
    (psycopg.errors.QueryCanceled, False),
    (psycopg.errors.AdminShutdown, True),
    (psycopg.errors.CannotConnectNow, True),
    (psycopg.errors.ConnectionFailure, True),
])  # fmt: skip
def test_a_cancelled_statement_does_not_mean_that_the_database_is_away(error: type[psycopg.Error], away: bool) -> None:
    assert mdv.mdp.work._is_away(error()) is away
