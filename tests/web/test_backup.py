"""A backup of the running system, restored elsewhere or in place: a consistent state, from which work continues."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

from mdv.cli.serve import upgrade_database
from mdv.db.engine import make_engine
from mdv.embedded import Postgres, _postgres_program, start_postgres
from tests.support.eventually import eventually
from tests.support.lmr_server import Backbone, Lmr, create, hosts, rule, start_lmr_server
from tests.support.mdp import Mdp
from tests.support.server import ROOT, SCHEMA, TURTLE, start_server, start_worker, stopping, turtle

pytestmark = pytest.mark.full

MARK = "kept.example"
LOCAL = "http://me.example/notes"

STATE_AT = """
    select d.uri, r.uri, p.uri, t.uri, s.value, s.lang, y.uri
    from (select document_id, resource_id, property_id, target_id, value, lang, datatype_id from filter_data
          where position <= %(position)s
          union all
          select document_id, resource_id, property_id, target_id, value, lang, datatype_id from filter_data_history
          where position <= %(position)s and until_position > %(position)s) s
    join documents d on d.id = s.document_id join resources r on r.id = s.resource_id
    join vocabulary p on p.id = s.property_id left join resources t on t.id = s.target_id
    left join vocabulary y on y.id = s.datatype_id
    order by 1, 2, 3, 4, 5, 6, 7
"""
"""The content of every document by position."""
VERSIONS_AT = """
    select d.uri, v.version, v.position, v.present from document_versions v join documents d on d.id = v.document_id
    where v.position <= %(position)s order by 1, 2
"""


def rows(url: str, statement: str, position: int) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(statement, {"position": position}).fetchall()


def stand(url: str) -> tuple[int, str]:
    """Return position and epoch."""
    with psycopg.connect(url) as connection:
        row = connection.execute("select position, epoch::text from mdp_state").fetchone()
    assert row is not None
    return row[0], row[1]


@pytest.fixture
def mdp(folder: Path, new_database: Callable[[], str], new_queue: Callable[[], str]) -> Iterator[Backbone]:
    database, queue = new_database(), new_queue()
    upgrade_database(database)
    worker = start_worker(folder, database, queue)
    backbone = Backbone(folder, database, queue, worker, start_server(folder, database, queue))
    try:
        assert backbone.api.put_schema(SCHEMA).status_code == 200
        yield backbone
    finally:
        stop(backbone)


@pytest.fixture
def lmr(mdp: Backbone, folder: Path, tmp_path: Path) -> Iterator[Lmr]:
    """An LMR with local metadata."""
    number, token = create(mdp.api, "branch")
    store = f"sqlite:///{tmp_path / 'cache.db'}"
    found = Lmr(number, "branch", token, store, start_lmr_server(folder, mdp.server.url, token, store))
    try:
        found.subscribe(rule(MARK))
        note = turtle("<http://kept.example/0#h0> ex:note 'mine' .")
        assert found.put_local(LOCAL, note, TURTLE).status_code in (200, 201)
        yield found
    finally:
        found.kill()


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """Another Postgres server."""
    with start_postgres(tmp_path_factory.mktemp("elsewhere") / "data", {"fsync": "off"}) as running:
        yield running


@contextmanager
def registrations_going_on(mdp: Backbone) -> Iterator[list[int]]:
    """Register, change and delete documents; return the positions."""
    positions: list[int] = []
    enough = threading.Event()

    def go_on() -> None:
        api, number = mdp.api, 0
        while not enough.is_set():
            number += 1
            uri = f"http://kept.example/{number % 9}"
            gone = number % 18 == 17  # put nine iterations earlier
            answer = api.delete(uri) if gone else api.put(uri, hosts(MARK, 1 + number % 4, memory=number))
            assert answer.status_code in (200, 201), answer.text
            positions.append(answer.json()["position"])

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        eventually(lambda: len(positions) > 20)
        yield positions
    finally:
        enough.set()
        thread.join()


def dump(mdp: Backbone, file: Path) -> tuple[int, int]:
    """Back up the running system; return the positions just before and just after."""
    with registrations_going_on(mdp) as positions:
        before = positions[-1]
        argv = [_postgres_program("pg_dump"), "--format=custom", f"--file={file}", f"--dbname={mdp.database_url}"]
        subprocess.run(argv, check=True)
        after = positions[-1]
        count = len(positions)
        eventually(lambda: len(positions) > count + 5)
    return before, after


def restore(file: Path, url: str, *options: str) -> None:
    argv = [_postgres_program("pg_restore"), "--no-owner", "--single-transaction", "--exit-on-error", *options]
    subprocess.run([*argv, f"--dbname={url}", str(file)], check=True)


def stop(mdp: Backbone) -> None:
    with stopping(mdp.worker, mdp.server):
        pass


def begin_again(mdp: Backbone, url: str) -> None:
    """The same system on another database, at the same address."""
    mdp.database_url = url
    mdp.worker = start_worker(mdp.folder, url, mdp.redis_url)
    mdp.start_web()


def assert_all_goes_on(mdp: Backbone, lmr: Lmr, epoch: str, position: int) -> None:
    """The LMR is ahead of the MDP, notices it, and gets the MDP's state; its local metadata stay."""
    assert stand(mdp.database_url)[1] != epoch
    begun = mdp.put("http://kept.example/after", hosts(MARK, 2))
    assert begun > position  # jobs that waited in the backup are executed, too
    eventually(lambda: lmr.has("http://kept.example/after#h1"))
    lmr.is_at(begun)
    lmr.assert_like_the_mdp()
    found = lmr.get("/local/documents", uri=LOCAL, headers={"Accept": "application/n-triples"})
    assert '"mine"' in found.text
    answer = lmr.query("search CycleProvider c where c.note? = 'mine' return c")
    assert [row[0]["value"] for row in answer.json()["rows"]] == ["http://kept.example/0#h0"], answer.text


def test_a_backup_of_a_live_system_is_restored_elsewhere_and_lmrs_continue(
    mdp: Backbone, lmr: Lmr, elsewhere: Postgres, tmp_path: Path
) -> None:
    file, original = tmp_path / "mdv.dump", mdp.database_url
    before, after = dump(mdp, file)
    last, epoch = stand(original)
    lmr.is_at(last)
    with psycopg.connect(elsewhere.url, autocommit=True) as connection:
        connection.execute("create database restored")
    url = sqlalchemy.make_url(elsewhere.url).set(database="restored").render_as_string(hide_password=False)
    restore(file, url)
    position, _ = stand(url)
    assert before <= position <= after + 1 < last
    for statement in (STATE_AT, VERSIONS_AT):
        kept = rows(url, statement, position)
        assert kept and kept == rows(original, statement, position)
    with psycopg.connect(url) as connection:
        assert connection.execute("select from filter_data where position > %s", [position]).fetchall() == []
    assert upgrade_database(url), "the restore was not noticed"
    stop(mdp)
    begin_again(mdp, url)
    assert_all_goes_on(mdp, lmr, epoch, position)
    lmr.kill()
    stop(mdp)


def test_a_backup_restored_in_place_must_be_declared_restored(mdp: Backbone, lmr: Lmr, tmp_path: Path) -> None:
    file = tmp_path / "mdv.dump"
    _, after = dump(mdp, file)
    last, epoch = stand(mdp.database_url)
    lmr.is_at(last)
    stop(mdp)
    restore(file, mdp.database_url, "--clean", "--if-exists")
    position, _ = stand(mdp.database_url)
    assert position <= after + 1 < last
    assert not upgrade_database(mdp.database_url), "it is in the same place: the restore is not noticeable"
    assert upgrade_database(mdp.database_url, restored=True)
    begin_again(mdp, mdp.database_url)
    assert_all_goes_on(mdp, lmr, epoch, position)


def test_the_backup_commands_of_the_operations_page_work(
    new_database: Callable[[], str], elsewhere: Postgres, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    back_up, put_back = re.findall(r"```sh\n(pg_dump .*?|createdb .*?)```", page, re.DOTALL)
    database = new_database()
    upgrade_database(database)
    engine = make_engine(database)
    mdp = Mdp(engine)
    mdp.put_schema(SCHEMA)
    mdp.put_one("http://kept.example/1", hosts(MARK, 2))
    engine.dispose()
    programs = f"{_postgres_program('pg_dump').parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"

    def run(script: str, **environment: str) -> str:
        own = {"PATH": programs} | environment
        argv = ["bash", "-euo", "pipefail", "-c", script]
        return subprocess.run(argv, cwd=tmp_path, env=own, check=True, capture_output=True, text=True).stdout

    run(back_up, MDV_DATABASE_URL=database)
    with psycopg.connect(elsewhere.url, dbname="postgres", autocommit=True) as connection:
        connection.execute("drop database mdv")
    url = sqlalchemy.make_url(elsewhere.url)
    server = {"PGHOST": str(url.host), "PGPORT": str(url.port), "PGUSER": str(url.username)}
    told = run(put_back, **server, PGPASSWORD=str(url.password), MDV_DATABASE_URL=elsewhere.url)
    assert "It has a new epoch" in told
    assert stand(elsewhere.url)[0] == stand(database)[0] > 0
