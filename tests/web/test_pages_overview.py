"""The overview: time ranges, lines for many changes, and tiles that lead to pages with as many rows."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy
from sqlalchemy import Engine

from mdv.db.batch import (
    PartitionAttempt,
    PartitionCounts,
    PromotionCounts,
    begin_attempt,
    begin_run,
    caller_of_run,
    end_run,
    finish_chunks,
    stage,
)
from mdv.db.engine import make_engine
from mdv.db.jobs import add_job
from mdv.db.metrics import METRICS_RETENTION_SECONDS
from mdv.db.tokens import create_token
from mdv.inspect.sql.jobs import BURST_WINDOWS, MIN_BURST_JOBS
from mdv.inspect.sql.minute_metrics import TIME_RANGES
from mdv.mdp.provider import Provider
from mdv.mdp.register import prepare, register
from mdv.mdp.rules.suspend import suspend_rules
from tests.support.in_process_server import serve_in_process
from tests.support.local_http import local_client
from tests.support.page_visitor import Page, Visitor
from tests.support.server import ADMIN, SCHEMA, Api, WebAddress, provider

RULE = "search CycleProvider c register c where c.serverPort = 1"


@pytest.fixture(scope="module")
def database(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture(scope="module")
def engine(database: str) -> Iterator[Engine]:
    made = make_engine(database)
    yield made
    made.dispose()


@pytest.fixture(scope="module")
def home(database: str, new_queue: Callable[[], str]) -> Iterator[WebAddress]:
    """A system for this file, since all of it is counted."""
    with serve_in_process(database, new_queue()) as server:
        assert server.api().put_schema(SCHEMA).status_code == 200
        yield server


@pytest.fixture(scope="module")
def admin(home: WebAddress) -> Api:
    return home.api(ADMIN)


@pytest.fixture
def user(home: WebAddress) -> Iterator[Visitor]:
    with local_client(base_url=home.url, timeout=60, follow_redirects=True) as client:
        yield Visitor(client).sign_in(ADMIN)


@pytest.fixture
def make(home: WebAddress, engine: Engine) -> Callable[[str], Api]:
    """Create callers with a token of their own."""

    def made(name: str) -> Api:
        with engine.begin() as connection:
            secret, _ = create_token(connection, name, "admin")
        return home.api(secret)

    return made


def tiles(page: Page) -> dict[str, tuple[int, str]]:
    """Return the number and the link of each tile by its name."""
    return {
        tile.xpath("string(.//span)"): (int(tile.xpath("string(.//data/@value)")), tile.get("href"))
        for tile in page.tree.xpath("//ul[@class='tiles']//a")
    }


def all_rows(user: Visitor, link: str) -> list[list[str]]:
    """Return the rows of all pages of a list."""
    rows: list[list[str]] = []
    page = user.get(link)
    while True:
        assert page.status == 200, page.words
        rows += page.rows()
        more = page.tree.xpath("//a[@rel='next']/@href")
        if not more:
            return rows
        page = user.get(str(more[0]))


def lines(page: Page) -> list[str]:
    return [" ".join(line.text_content().split()) for line in page.tree.xpath("//*[@id='activity']//li")]


def links_of(page: Page, line: str) -> list[str]:
    """Return the links of the line that contains a text."""
    (found,) = [item for item in page.tree.xpath("//*[@id='activity']//li") if line in item.text_content()]
    return [str(link) for link in found.xpath(".//a/@href")]


def test_every_tile_leads_to_a_page_with_as_many_rows(user: Visitor, admin: Api, engine: Engine) -> None:
    before = {name: tiles(user.get("/", range=name)) for name in ("1h", "24h")}
    for number in range(60):
        assert admin.put(f"http://tiles.example/{number}", provider(1, f"p{number}")).status_code == 201
    for number in range(53):
        assert admin.put(f"http://tiles.example/bad/{number}", "<#x> nonsense").status_code == 400
    for name in ("read", "lagging", "lagging too"):
        made = admin.http.post("/api/v1/lmrs", json={"name": name}).json()
        rules = [{"rule": RULE}, {"rule": f"{RULE} and c.serverHost = 'h'"}]
        added = admin.http.post(f"/api/v1/lmrs/{name}/subscriptions", json=rules)
        assert added.status_code == 201, added.text
        assert made["token"]
    with engine.begin() as connection:
        suspend_rules(connection, [added.json()["items"][0]["id"]], "It took 9 s.", 9.0, Provider(engine))
        connection.execute(sqlalchemy.text("update transactions set at = at - interval '1 minute'"))
        read = "update lmrs set cursor = (select max(\"offset\") from feed), asked_at = now() where name = 'read'"
        connection.execute(sqlalchemy.text(read))
        for number in range(3):  # no worker looks at them
            later = "update jobs set not_before = now() + interval '1 hour' where id = :id"
            connection.execute(sqlalchemy.text(later), {"id": add_job(connection, "delete", f"urn:x:{number}", "ci")})
        old = "update jobs set ended_at = ended_at - interval '2 hours' where uri like '%bad/5_'"
        connection.execute(sqlalchemy.text(old))
    expected = {"documents": 60, "resources": 60, "rules": 6, "rules suspended": 1, "LMRs": 3, "LMRs behind": 2,
                "jobs waiting": 3}  # fmt: skip
    for time_range, failed in (("1h", 50), ("24h", 53)):
        shown = tiles(user.get("/", range=time_range))
        label = f"jobs failed in {TIME_RANGES[time_range].label}"
        more = {name: count - before[time_range][name][0] for name, (count, _) in shown.items()}
        assert more == expected | {label: failed}
        for name, (count, link) in shown.items():
            assert len(all_rows(user, link)) == count, f"{name}: {link}"
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("delete from jobs where uri like 'urn:x:%'"))


def test_an_lmr_that_has_just_received_an_event_is_not_behind(user: Visitor, admin: Api) -> None:
    assert admin.put("http://behind.example/", provider()).is_success
    admin.http.post("/api/v1/lmrs", json={"name": "just now"})
    before = tiles(user.get("/"))["LMRs behind"][0]
    assert admin.http.post("/api/v1/lmrs/just now/subscriptions", json={"rule": RULE}).status_code == 201
    assert admin.get("/lmrs/just now").json()["behind"] > 0
    assert tiles(user.get("/"))["LMRs behind"][0] == before
    assert admin.http.delete("/api/v1/lmrs/just now").is_success


def test_an_alert_counts_unread_events(user: Visitor, admin: Api, engine: Engine) -> None:
    admin.http.post("/api/v1/lmrs", json={"name": "one behind"})
    rule = RULE.replace("= 1", "= 4711")
    assert admin.http.post("/api/v1/lmrs/one behind/subscriptions", json={"rule": rule}).status_code == 201
    for host, events in (("before", None), ("after", "1 unread event."), ("later", "2 unread events.")):
        assert admin.put("http://unread.example/", provider(4711).replace("'h'", f"'{host}'")).is_success
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("update publications set at = at - interval '1 minute'"))
            if events is None:
                read = 'update lmrs set cursor = (select max("offset") from feed), asked_at = now()'
                connection.execute(sqlalchemy.text(read))
        alerts = user.get("/").tree.xpath("//*[contains(@class, 'note')]//text()")
        assert events is None or any(f"The LMR one behind has {events}" in alert for alert in alerts), alerts
    assert admin.http.delete("/api/v1/lmrs/one behind").is_success


def test_a_burst_of_one_caller_is_one_line_that_leads_to_its_jobs(user: Visitor, make: Callable[[str], Api]) -> None:
    ci, other = make("ci"), make("other")
    for number in range(60):
        assert ci.put(f"http://burst.example/{number}", provider()).status_code == 201
        if number % 30 == 0:
            assert other.put(f"http://burst.example/other/{number}", provider()).status_code == 201
    for number in range(3):
        assert ci.put(f"http://burst.example/bad/{number}", "<#x> nonsense").status_code == 400
    page = user.get("/")
    (line,) = [line for line in lines(page) if "token ci#" in line]
    assert "register × 63 by" in line and "60 done, 3 refused" in line and " from 20" in line and " to 20" in line
    every, refused, last = links_of(page, "token ci#")
    assert last == "/document?uri=http://burst.example/bad/2"
    assert len(all_rows(user, every)) == 63
    assert {row[0] for row in all_rows(user, refused)} == {"refused"} and len(all_rows(user, refused)) == 3
    single = [line for line in lines(page) if "/other/" in line]
    assert len(single) == 2, "fewer than five are listed one by one"
    listed = user.get(every)
    assert "by token ci#" in listed.words and "/jobs" in listed.links()


def test_a_pause_starts_another_burst_and_dry_runs_are_apart(
    user: Visitor, make: Callable[[str], Api], engine: Engine
) -> None:
    ci = make("pausing")
    for _ in range(2):
        for number in range(MIN_BURST_JOBS):
            assert ci.put(f"http://pause.example/{number}", provider()).is_success
        with engine.begin() as connection:
            before = "update jobs set created_at = created_at - interval '5 minutes' where uri like 'http://pause.%'"
            connection.execute(sqlalchemy.text(before))
    for number in range(MIN_BURST_JOBS):
        assert ci.put(f"http://pause.example/{number}", provider(), dry_run="true").is_success
    found = [line for line in lines(user.get("/")) if "token pausing#" in line]
    assert [line.partition(" × ")[0] for line in found] == ["dry run register", "done register", "done register"]
    assert all(f" × {MIN_BURST_JOBS} by" in line for line in found)
    (dry, *_) = [links_of(user.get("/"), "dry run")[0]]
    assert len(all_rows(user, dry)) == MIN_BURST_JOBS


def test_a_large_burst_is_counted_up_to_a_limit_and_hides_nothing_newer(user: Visitor, engine: Engine) -> None:
    many = BURST_WINDOWS[-1] + 100
    insert = """insert into jobs (kind, state, uri, caller, created_at, ended_at)
                select 'register', 'done', 'http://large.example/' || n, :caller, now(), now()
                from generate_series(1, :many) n"""
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(insert), {"many": many, "caller": "bulk"})
        connection.execute(sqlalchemy.text(insert), {"many": 1, "caller": "later"})
    shown = lines(user.get("/"))
    (line,) = [line for line in shown if " by bulk" in line]
    assert f"register × {BURST_WINDOWS[-1] - 1:,}+ by" in line
    assert len([line for line in shown if line.startswith("done register http://large.example/1 ")]) == 1
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("delete from jobs where uri like 'http://large.%'"))
    assert not [line for line in lines(user.get("/")) if " by bulk" in line]


def test_a_batch_is_one_line_that_leads_to_its_documents(user: Visitor, admin: Api, engine: Engine) -> None:
    run = run_batch(engine, documents=70, refused=3)
    page = user.get("/")
    (line,) = [line for line in lines(page) if "batch books.tar" in line]
    assert "70 registered, 3 refused" in line and " from 20" in line and " to 20" in line
    assert not [line for line in lines(page) if "http://batch.example/" in line]
    (link,) = links_of(page, "batch books.tar")
    assert link == f"/batches/{run}"
    listed = user.get(link)
    assert "70 registered, 3 refused" in listed.words and "not a valid predicate" in listed.words
    documents = [row for row in all_rows(user, link) if row[0].startswith("http://batch.example/")]
    assert len({row[0] for row in documents}) == 70 and {row[2] for row in documents} == {"1 resource inserted"}
    assert user.get(f"/batches/{uuid.uuid4()}").status == 404 and user.get("/batches/nonsense").status == 404


def run_batch(engine: Engine, documents: int, refused: int) -> uuid.UUID:
    """Register documents as a run of `mdv batch` does."""
    made = Provider(engine)
    with engine.begin() as connection:
        run = begin_run(connection, "books.tar", dry_run=False)
        attempt = PartitionAttempt(run, 0, 1)
        begin_attempt(connection, attempt)
        example = {"document": None, "source": "x.ttl", "line": 1, "reason": "nonsense is not a valid predicate"}
        counts = PartitionCounts(prepared=documents, refused=refused, examples=[example] * refused)
        stage(connection, attempt, 0, 1, None, counts)
        schema = made.schemas.now(connection)
        items = [
            prepare(f"http://batch.example/{number}", provider().encode(), "text/turtle", schema, by=caller_of_run(run))
            for number in range(documents)
        ]
        register(connection, items, made)
        finish_chunks(connection, run, [], [], PromotionCounts(registered=documents))
        end_run(connection, run, "done")
    return run


def points(page: Page) -> list[list[list[float]]]:
    return [json.loads(value) for value in page.tree.xpath("//figure/@data-points")]


def test_every_time_range_is_a_link_and_is_shown_with_few_points(user: Visitor, engine: Engine) -> None:
    fill = """insert into figures (at, transactions, documents, filter_seconds, lag_seconds, waiting)
              select at, 1, 10, 0.05, 3, 2
              from generate_series(date_trunc('minute', now()) - interval '8 days', now(), interval '1 minute') at
              on conflict do nothing"""
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("delete from figures"))
        connection.execute(sqlalchemy.text(fill))
    page = user.get("/")
    links = [str(link) for link in page.tree.xpath("//nav[@aria-label='Time range']/a/@href")]
    assert links == [f"/?range={name}" for name in TIME_RANGES]
    for link, range_ in zip(links, TIME_RANGES.values(), strict=True):
        page = user.get(link)
        assert page.tree.xpath("//a[@aria-current='page'][ancestor::main]/@href") == [link]
        now = datetime.now(UTC)
        documents, per_document, lag, waiting = points(page)
        assert range_.points - 1 <= len(documents[0]) <= range_.points <= 200
        steps = {after - before for before, after in zip(documents[0], documents[0][1:], strict=False)}
        assert steps == {range_.step}
        assert now - datetime.fromtimestamp(documents[0][0], UTC) <= timedelta(seconds=range_.seconds + range_.step)
        assert set(documents[1][:-1]) == {10.0} and set(per_document[1]) == {5.0}
        assert set(lag[1]) == {3.0} and set(waiting[1]) == {2.0}
        refreshed = str(page.tree.xpath("string(//*[@id='charts']/@data-refresh)"))
        assert [len(chart[0]) for chart in points(user.get(refreshed))] == [len(documents[0])] * 4
        live = str(page.tree.xpath("string(//*[@data-live]/@hx-get)"))
        assert f"jobs failed in {range_.label}" in tiles(user.get(live)), "the range survives the live refresh"
    assert user.get("/", range="nonsense").status == 200
    assert max(range_.seconds for range_ in TIME_RANGES.values()) == METRICS_RETENTION_SECONDS


def test_the_live_fragment_replaces_the_activity_as_well(user: Visitor) -> None:
    live = str(user.get("/").tree.xpath("string(//*[@data-live]/@hx-get)"))
    fragment = user.get(live)
    assert fragment.tree.xpath("//*[@id='activity']/@hx-swap-oob") == ["true"]
    assert not user.get("/").tree.xpath("//*[@id='activity']/@hx-swap-oob")


def test_a_burst_with_invalid_numbers_is_refused(user: Visitor) -> None:
    assert user.get("/jobs?kind=register&by=x&first=a&last=2").status == 400
    assert user.get("/jobs?kind=nonsense&by=x&first=1&last=2").rows() == []
