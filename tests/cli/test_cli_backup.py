"""`mdv backup` and `mdv restore` on a database: equal content, a new epoch, all or nothing, and refusals that help."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy

from mdv.cli.serve import downgrade_database, upgrade_database
from mdv.db.engine import EXIT_RESTORED, make_engine
from mdv.db.table_copies import LEFT_OUT
from mdv.db.tables import metadata
from mdv.db.tokens import create_token
from mdv.db.users import create_user
from mdv.embedded import Postgres
from mdv.errors import MustRefetch
from mdv.mdp.lmrs import get_lmr
from mdv.mdp.saved_queries import save_query
from mdv.mdp.webhooks import add_webhook
from tests.support.catalogues import BASE, RULES, SCHEMA, catalogue
from tests.support.command import Ran
from tests.support.listed_documents import register_one_by_one
from tests.support.mdp import Mdp
from tests.support.mdp_content import assert_alike
from tests.support.whole_system import MDV, environment

Mdv = Callable[..., Ran]


def content(url: str, *, without: frozenset[str] = LEFT_OUT) -> dict[str, list[str]]:
    """Return the rows of all tables as texts; the epoch and the identity of the database aside."""
    with psycopg.connect(url) as connection:
        rows = {
            name: sorted(str(row[0]) for row in connection.execute(f'select t::text from "{name}" t'))
            for name, table in metadata.tables.items()
            if name not in without and "UNLOGGED" not in table._prefixes and name != "mdp_state"
        }
        state = connection.execute("select to_jsonb(s) - 'epoch' - 'home' from mdp_state s").fetchone()
    return rows | {"mdp_state": [json.dumps(state, sort_keys=True)]}


def epoch(url: str) -> str:
    with psycopg.connect(url) as connection:
        row = connection.execute("select epoch::text from mdp_state").fetchone()
    assert row is not None
    return str(row[0])


@pytest.fixture
def filled(mdp: Mdp) -> Mdp:
    """Everything that a backup has to keep."""
    mdp.put_schema(SCHEMA)
    mdp.subscribe(mdp.create_lmr("reader"), *RULES)
    register_one_by_one(mdp, catalogue(12))
    register_one_by_one(mdp, catalogue(8, edition=2))
    mdp.put({BASE + "00001.ttl": None})
    mdp.put_schema(SCHEMA + ":added a rdf:Property .\n")
    with mdp.engine.begin() as connection:
        create_user(connection, "ada", "admin", "correct horse")
        create_token(connection, "limited", "admin", ["http://a/"], None)
        save_query(connection, "books", "search Book b return b", "ada")
        add_webhook(connection, get_lmr(connection, "reader"), "https://hooks.example/mdv", datetime.now(UTC))
    return mdp


@pytest.fixture
def empty(postgres: Postgres) -> Iterator[Callable[[], str]]:
    """Makes databases without tables."""
    made: list[str] = []
    with psycopg.connect(postgres.url, autocommit=True) as connection:

        def make() -> str:
            name = f"restored_{os.getpid()}_{len(made)}"
            connection.execute(f"create database {name}")
            made.append(name)
            return sqlalchemy.make_url(postgres.url).set(database=name).render_as_string(hide_password=False)

        yield make
        for name in made:
            connection.execute(f"drop database {name} with (force)")


def url_of(mdp: Mdp) -> str:
    return mdp.engine.url.render_as_string(hide_password=False).replace("+psycopg", "")


@pytest.fixture
def on(mdv: Mdv, monkeypatch: pytest.MonkeyPatch) -> Mdv:
    """Run a command on the database of a URL."""

    def run(url: str, *arguments: object) -> Ran:
        monkeypatch.setenv("MDV_DATABASE_URL", url)
        return mdv(*arguments)

    return run


def test_a_restored_database_has_the_same_rows_and_another_epoch(
    filled: Mdp, empty: Callable[[], str], on: Mdv, tmp_path: Path
) -> None:
    url, folder = empty(), tmp_path / "backup"
    made = on(url_of(filled), "backup", folder, "--json")
    assert made.code == 0, made.err
    told = json.loads(made.out)
    assert (told["position"], told["documents"], told["local_documents"]) == (
        filled.one("select position from mdp_state"), filled.one("select count(*) from documents"), None,
    )  # fmt: skip
    ran = on(url, "restore", folder)
    assert ran.code == 0 and "The database has a new epoch" in ran.out, ran.err
    assert content(url) == content(url_of(filled))
    assert epoch(url) != epoch(url_of(filled))


def test_work_continues_after_a_restore_and_cursors_are_invalid(
    filled: Mdp, empty: Callable[[], str], on: Mdv, tmp_path: Path
) -> None:
    with filled.engine.connect() as connection:
        reader = get_lmr(connection, "reader")
    cursor = filled.feed(reader).cursor
    url = empty()
    assert on(url_of(filled), "backup", tmp_path / "backup").code == 0
    assert on(url, "restore", tmp_path / "backup").code == 0
    engine = make_engine(url)
    restored = Mdp(engine)
    with pytest.raises(MustRefetch):
        restored.feed(reader, cursor)
    assert restored.feed(reader).events
    for mdp in (filled, restored):  # sequences and IDs continue where they were
        register_one_by_one(mdp, catalogue(22, edition=3))
        mdp.subscribe(mdp.create_lmr("second"), *RULES)
    assert_alike(filled.engine, engine)
    engine.dispose()


@pytest.mark.full
def test_a_backup_of_older_tables_is_migrated(filled: Mdp, empty: Callable[[], str], on: Mdv, tmp_path: Path) -> None:
    downgrade_database(url_of(filled), "0012")
    assert on(url_of(filled), "backup", tmp_path / "backup").code == 0
    url = empty()
    ran = on(url, "restore", tmp_path / "backup")
    assert ran.code == 0, ran.err
    upgrade_database(url_of(filled))
    assert content(url) == content(url_of(filled))


def test_files_are_private(filled: Mdp, on: Mdv, tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir(mode=0o755)
    assert on(url_of(filled), "backup", tmp_path / "backup").code == 0
    for path in [tmp_path / "backup", *(tmp_path / "backup").rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    assert {path.name for path in (tmp_path / "backup").iterdir()} == {"manifest.json", "tables"}


def test_sessions_are_not_restored(filled: Mdp, empty: Callable[[], str], on: Mdv, tmp_path: Path) -> None:
    filled.run("insert into web_sessions (hash, user_name, csrf) values ('\\x01', 'ada', 'x')")
    url = empty()
    assert on(url_of(filled), "backup", tmp_path / "backup").code == 0
    assert on(url, "restore", tmp_path / "backup").code == 0
    with psycopg.connect(url) as connection:
        assert connection.execute("select count(*) from web_sessions").fetchone() == (0,)
        assert connection.execute("select name from users").fetchall() == [("ada",)]


# Refusals


def test_a_backup_needs_a_folder_of_its_own(filled: Mdp, on: Mdv, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    ran = on(url_of(filled), "backup", folder)
    assert ran.code == 1 and "is not empty" in ran.err
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]
    assert on(url_of(filled), "backup", folder / "thesis.txt").code == 1
    assert on(url_of(filled), "backup", folder / "new").code == 0
    ran = on(url_of(filled), "backup", folder / "new")
    assert ran.code == 1 and "contains a backup" in ran.err


@pytest.mark.full
def test_a_database_that_is_not_empty_is_replaced_only_on_request(
    filled: Mdp, postgres: Postgres, template: str, on: Mdv, tmp_path: Path, empty: Callable[[], str]
) -> None:
    assert on(url_of(filled), "backup", tmp_path / "backup").code == 0
    other = empty()
    upgrade_database(other)
    engine = make_engine(other)
    mdp = Mdp(engine)
    mdp.put_schema(SCHEMA)
    register_one_by_one(mdp, catalogue(3, edition=4))
    engine.dispose()
    before = content(other), epoch(other)
    ran = on(other, "restore", tmp_path / "backup")
    assert ran.code == 1 and "The database is not empty" in ran.err and "--replace" in ran.err
    assert (content(other), epoch(other)) == before
    ran = on(other, "restore", tmp_path / "backup", "--replace", "--json")
    assert ran.code == 0 and json.loads(ran.out)["position"] > 0, ran.err
    assert content(other) == content(url_of(filled))


def test_a_migrated_database_without_content_is_empty(
    filled: Mdp, on: Mdv, tmp_path: Path, empty: Callable[[], str]
) -> None:
    assert on(url_of(filled), "backup", tmp_path / "backup").code == 0
    url = empty()
    upgrade_database(url)
    assert on(url, "restore", tmp_path / "backup").code == 0
    assert content(url) == content(url_of(filled))


@pytest.mark.full
def test_a_table_that_is_not_mdvs_is_never_dropped(
    filled: Mdp, on: Mdv, tmp_path: Path, empty: Callable[[], str]
) -> None:
    assert on(url_of(filled), "backup", tmp_path / "backup").code == 0
    url = empty()
    with psycopg.connect(url) as connection:
        connection.execute("create table accounts (id int)")
    ran = on(url, "restore", tmp_path / "backup", "--replace")
    assert ran.code == 1 and "the table accounts, which is not MDV's" in ran.err


@pytest.mark.full
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("flip", "its checksum is wrong"),
        ("truncate", "bytes instead of"),
        ("remove", "it is missing"),
        ("manifest", "its checksum is wrong"),
        ("text", "it is not JSON"),
        ("interrupted", "is not a complete backup"),
        ("other", "is not the manifest of a backup"),
        ("format", "this MDV reads format 1"),
        ("newer", "does not know that revision"),
        ("absent", "There is no folder"),
    ],
)
def test_a_damaged_backup_is_refused_and_changes_nothing(
    filled: Mdp, on: Mdv, tmp_path: Path, empty: Callable[[], str], damage: str, words: str
) -> None:
    folder = tmp_path / "backup"
    assert on(url_of(filled), "backup", folder).code == 0
    table, manifest = folder / "tables" / "filter_data.copy.gz", folder / "manifest.json"
    match damage:
        case "flip":
            body = bytearray(table.read_bytes())
            body[len(body) // 2] ^= 1
            table.write_bytes(body)
        case "truncate":
            os.truncate(table, table.stat().st_size - 1)
        case "remove":
            table.unlink()
        case "manifest":
            manifest.write_text(manifest.read_text().replace('"position": ', '"position": 1'))
        case "text":
            manifest.write_text(manifest.read_text()[:-2])
        case "interrupted":
            manifest.unlink()
        case "other":
            manifest.write_text("[]")
        case "format" | "newer":
            change_manifest(manifest, {"format": 2} if damage == "format" else {"revision": "9999"})
        case "absent":
            folder = tmp_path / "nowhere"
    url = empty()
    upgrade_database(url)
    before = content(url), epoch(url)
    ran = on(url, "restore", folder)
    assert ran.code == 1 and words in ran.err and "Traceback" not in ran.err
    assert (content(url), epoch(url)) == before


@pytest.mark.full
@pytest.mark.parametrize(
    ("forgery", "words"),
    [
        ("fewer", "The backup lacks the table mdp_state"),
        ("twice", "The backup has a table twice"),
        ("sequence", "is not consistent: relation"),
        ("cut", "it cannot be unpacked"),
        ("rows", "is not consistent: invalid input"),
    ],
)
def test_a_forged_backup_is_refused_and_changes_nothing(
    filled: Mdp, on: Mdv, tmp_path: Path, empty: Callable[[], str], forgery: str, words: str
) -> None:
    folder = tmp_path / "backup"
    assert on(url_of(filled), "backup", folder).code == 0
    known = json.loads((folder / "manifest.json").read_text())
    tables, first = known["tables"], known["tables"][0]
    file = folder / first["file"]["path"]
    match forgery:
        case "fewer":
            known["tables"] = [table for table in tables if table["name"] != "mdp_state"]
        case "twice":
            tables.append(first)
        case "sequence":
            known["sequences"]["x; drop table users"] = 1
        case "cut":
            first["file"] |= replaced(file, file.read_bytes()[:-9])
        case "rows":
            first["file"] |= replaced(file, gzip.compress(b"x\n" * first["file"]["rows"]))
    del known["sha256"]
    change_manifest(folder / "manifest.json", known)
    url = empty()
    upgrade_database(url)
    before = content(url), epoch(url)
    ran = on(url, "restore", folder)
    assert ran.code == 1 and words in ran.err, ran.err
    assert (content(url), epoch(url)) == before


def replaced(file: Path, content: bytes) -> dict[str, Any]:
    """Replace the content of a file. Return what the manifest says about it."""
    file.write_bytes(content)
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def change_manifest(path: Path, change: dict[str, Any]) -> None:
    """Change a manifest, with a right checksum, as another version would write it."""
    from mdv.backup.manifest import _digest

    known = json.loads(path.read_text())
    del known["sha256"]
    known |= change
    path.write_text(json.dumps(known | {"sha256": _digest(known)}))


# Kills


def run_and_die(url: str, point: str, *arguments: object) -> int:
    argv = [str(MDV), *map(str, arguments)]
    more = {"MDV_DATABASE_URL": url, "MDV_DIE_AT": point}
    return subprocess.run(argv, env=environment(**more), capture_output=True, timeout=120).returncode


@pytest.mark.full
@pytest.mark.parametrize("point", ["after a table:9", "before the commit:1"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_killed_restore_changes_nothing_and_can_be_repeated(
    filled: Mdp, on: Mdv, tmp_path: Path, empty: Callable[[], str], point: str, replaced: bool
) -> None:
    folder, url = tmp_path / "backup", empty()
    assert on(url_of(filled), "backup", folder).code == 0
    more = ["--replace"] if replaced else []
    before = None
    if replaced:
        upgrade_database(url)
        engine = make_engine(url)
        Mdp(engine).put_schema(SCHEMA)
        engine.dispose()
        before = content(url), epoch(url)
    assert run_and_die(url, point, "restore", folder, *more) == -signal.SIGKILL
    if before is not None:
        assert (content(url), epoch(url)) == before
    ran = on(url, "restore", folder, *more)
    assert ran.code == 0, ran.err
    assert content(url) == content(url_of(filled))


@pytest.mark.full
def test_a_killed_backup_is_no_backup(filled: Mdp, on: Mdv, tmp_path: Path, empty: Callable[[], str]) -> None:
    folder = tmp_path / "backup"
    assert run_and_die(url_of(filled), "before the manifest:1", "backup", folder) == -signal.SIGKILL
    ran = on(empty(), "restore", folder)
    assert ran.code == 1 and "is not a complete backup" in ran.err


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Writes over 8 KB into one file fail, as on a full disk."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.full
def test_a_backup_that_cannot_be_written_leaves_nothing(
    filled: Mdp, on: Mdv, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url, folder = url_of(filled), tmp_path / "backup"
    request.getfixturevalue("small_files")
    ran = on(url, "backup", folder)
    assert ran.code == 1 and f"{folder}: File too large" in ran.err
    assert not folder.exists()


# Processes that run meanwhile

CLIENT = """
import sys, time
from sqlalchemy import text
from mdv.db.engine import make_engine
engine = make_engine(sys.argv[1], exits_if_restored=True)
while True:
    try:
        with engine.begin() as connection:
            connection.execute(text("select count(*) from documents"))
        print("answered", flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
    time.sleep(0.1)
"""


def test_a_process_with_caches_of_the_replaced_content_ends(filled: Mdp, on: Mdv, tmp_path: Path) -> None:
    url = url_of(filled)
    assert on(url, "backup", tmp_path / "backup").code == 0
    process = subprocess.Popen([sys.executable, "-c", CLIENT, url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None and process.stdout.readline() == b"answered\n"
    ran = on(url, "restore", tmp_path / "backup", "--replace")
    assert ran.code == 0, ran.err
    process.stdout.read()
    assert process.wait(60) == EXIT_RESTORED
