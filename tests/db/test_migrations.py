"""Migrations: forward, back to base and forward again, also with stored data."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, text

import migrations
from mdv.db.engine import make_engine
from mdv.db.lmrs import Lmr, list_lmrs
from mdv.db.migrate import downgrade, is_migrated, migrate, table_differences
from mdv.db.tables import FILTER_RULES_TABLES, jobs, metadata
from mdv.db.tokens import create_token
from mdv.errors import SystemNotFound
from mdv.inspect.sql.documents import read_document, read_document_statements
from tests.support.mdp import Mdp

pytestmark = pytest.mark.full

REVISIONS = [script.revision for script in ScriptDirectory(str(Path(migrations.__file__).parent)).walk_revisions()][
    ::-1
]
"""In order, from the first to the last."""


def tables(engine: Engine) -> set[str]:
    inspector = sqlalchemy.inspect(engine)
    return {*inspector.get_table_names(), *inspector.get_view_names()} - {"alembic_version"}


def test_a_migrated_database_has_the_tables_of_the_code(connection: Connection) -> None:
    assert table_differences(connection) == []
    assert is_migrated(connection)


def test_a_missing_column_is_noticed(connection: Connection) -> None:
    connection.execute(text("alter table tokens drop column revoked_at"))
    assert len(table_differences(connection)) == 1


def test_the_view_of_constants_covers_the_table_of_every_operator(connection: Connection) -> None:
    used = text("select table_name from information_schema.view_table_usage where view_name = 'rule_constants'")
    assert set(connection.scalars(used)) == {table.name for table in FILTER_RULES_TABLES.values()}


def test_downgrading_to_base_and_upgrading_again_restores_the_tables(engine: Engine) -> None:
    before = tables(engine)
    assert before == {*metadata.tables, "filter_data_view", "filter_rules_view", "rule_constants", "statement_log"}
    downgrade(engine, "base")
    assert tables(engine) == set()
    with engine.connect() as connection:
        assert not is_migrated(connection)
    migrate(engine)
    assert tables(engine) == before
    with engine.connect() as connection:
        assert table_differences(connection) == []


def test_migrating_twice_changes_nothing(engine: Engine) -> None:
    with engine.connect() as connection:
        epoch = connection.execute(text("select epoch from mdp_state")).scalar_one()
    migrate(engine)
    with engine.connect() as connection:
        assert connection.execute(text("select epoch from mdp_state")).scalar_one() == epoch


def test_a_filled_store_can_be_removed_and_rebuilt(mdp: Mdp) -> None:
    mdp.put_schema("<> mdv:world mdv:open .")
    mdp.put({"http://d/1": "<#a> :p 'one' .", "http://d/2": "<#b> :p 'two' ."})
    mdp.put({"http://d/1": "<#a> :p 'three' .", "http://d/2": None})
    downgrade(mdp.engine, "base")
    migrate(mdp.engine)
    fresh = type(mdp)(mdp.engine)
    fresh.put_schema("<> mdv:world mdv:open .")
    assert fresh.put_one("http://d/1", "<#a> :p 'one' .").position == 2
    assert fresh.one("select count(*) from statement_log") == 1


def test_without_a_database_url_the_error_names_the_setting() -> None:
    with pytest.raises(SystemNotFound, match="MDV_DATABASE_URL"):
        make_engine("")


def test_a_filled_store_is_downgraded_and_upgraded(mdp: Mdp) -> None:
    mdp.put_schema("<> mdv:world mdv:open . :C a rdfs:Class . :n rdfs:range xsd:integer .")
    mdp.put_one("http://d/1", "<#a> a :C ; :n 1 .")
    mdp.put_one("http://d/1", "<#a> a :C ; :n 2 .")
    mdp.add_rules(["search C c register c where c.n = 3"])
    downgrade(mdp.engine, "0001")
    migrate(mdp.engine)
    # Rules came with 0002: they are gone, and the stored documents remain.
    assert mdp.one("select count(*) from rules") == 0
    again = type(mdp)(mdp.engine)
    (rule,) = again.add_rules(["search C c register c where c.n = 2"])
    assert again.results_of(rule.id) == {"http://d/1#a"}
    again.put_one("http://d/1", "<#a> a :C ; :n 3 .")
    assert [(uri, matched) for _, uri, matched in again.changes()] == [("http://d/1#a", False)]


def test_rules_with_newer_operators_are_not_lost_by_a_downgrade(mdp: Mdp) -> None:
    mdp.put_schema("<> mdv:world mdv:open . :C a rdfs:Class . :s rdfs:range xsd:string .")
    (rule,) = mdp.add_rules(["search C c register c where not c.s startswith 'a'"])
    with pytest.raises(CommandError, match="startswith"):
        downgrade(mdp.engine, "0011")
    mdp.remove_rules([rule.id])
    downgrade(mdp.engine, "0011")
    migrate(mdp.engine)


# A filled store, down to every revision and up again

Rows = dict[str, dict[str, list[Any]]]

FLEETING = {"result_objects", "result_ranges", "news", "alembic_version"}
"""Results of the last run, which do not affect the next."""

JOBS = [
    *(("register", "queued"), ("delete", "queued"), ("subscribe", "queued")),
    *(("register", "done"), ("register", "failed"), ("register", "dead")),
]


def fill(mdp: Mdp) -> dict[str, str]:
    """Fill a store with rows in every table; return the position that its LMR has read."""
    mdp.put_schema(
        "<> mdv:world mdv:open . :C a rdfs:Class . :n rdfs:range xsd:integer . :s rdfs:range xsd:string ."
        " :to mdv:reference mdv:strong ; mdv:setValued true ."
    )
    first = "<#a> a :C ; :n 1 ; :to <#b> . <#b> :s 'b' ."
    mdp.put({"http://d/1": first, "http://d/2": "<#c> a :C ; :n 5 ; :to [ :s 'x' ] ."})
    mdp.put({"http://d/1": first.replace("1", "2").replace("'b'", "'bb'"), "http://d/3": "<http://d/1#a> :s 'also' ."})
    mdp.put_one("http://d/4", "<#gone> a :C ; :n 7 .")
    mdp.put_one("http://d/4", None)
    mdp.add_rules([("small", "search C c register c where c.n < 4")], owner=0)
    lmr, slow = mdp.create_lmr("near"), mdp.create_lmr("slow")
    mdp.subscribe(lmr, ("all", "search C c register c"))
    mdp.subscribe(lmr, "search all c register c where c.n > 1", "search C c register c where c.n > 3")
    mdp.subscribe(slow, "search C c register c where c.s contains 'also'")
    page = mdp.feed(lmr)
    mdp.put_one("http://d/5", "<#e> a :C ; :n 9 .")
    with mdp.engine.begin() as connection:
        create_token(connection, "crawler", "admin", ["http://d/"], None)
        for number, (kind, state) in enumerate(JOBS):
            job = {"kind": kind, "state": state, "uri": f"http://j/{number}", "attempts": 2, "caller": "me",
                   "media_type": "text/turtle", "idempotency_key": f"key {number}", "request_hash": b"1",
                   "body": None if state in ("done", "failed") else b"<a:a> <a:b> 1 .",
                   "result": {"position": 3} if state == "done" else None,
                   "problem": {"title": "why"} if state in ("failed", "dead") else None,
                   "ended_at": None if state == "queued" else datetime.now(UTC)}  # fmt: skip
            connection.execute(jobs.insert().values(job))
        connection.execute(text("insert into begun_jobs select id, 1 from jobs where uri = 'http://j/0'"))
        connection.execute(
            text("insert into webhooks (lmr_id, url, secret, told_offset, made_offset)"
                 " select id, 'http://w/', 'hush', 0, 0 from lmrs")
        )  # fmt: skip
    return {"near": page.cursor}


def everything(engine: Engine) -> Rows:
    """Return all tables: by column their values, row by row in text order."""
    inspector = sqlalchemy.inspect(engine)
    found: Rows = {}
    with engine.connect() as connection:
        for table in inspector.get_table_names():
            if table in FLEETING:
                continue
            columns = [column["name"] for column in inspector.get_columns(table)]
            key = inspector.get_pk_constraint(table)["constrained_columns"] or [
                name for name in ("document_id", "position", "hash") if name in columns
            ]
            order = ", ".join(f'"{name}"::text' for name in key) or "1"
            rows = connection.execute(text(f'select * from "{table}" order by {order}')).all()
            found[table] = {name: [row[place] for row in rows] for place, name in enumerate(columns)}
    return found


def assert_kept(before: Rows, after: Rows) -> None:
    """Every table and column that both know holds the same, except for data that could not be kept."""
    for table in before.keys() & after.keys():
        for column in before[table].keys() & after[table].keys():
            assert before[table][column] == after[table][column], f"{table}.{column}"


def without(rows: Rows, table: str, goes: list[bool]) -> None:
    """Remove rows from the expected content."""
    for column, values in rows[table].items():
        rows[table][column] = [value for value, gone in zip(values, goes, strict=True) if not gone]


def as_known_to(revision: str, rows: Rows) -> Rows:
    """Return the part of a filled store that a revision can represent."""
    queue = rows["jobs"]
    if revision < "0004":
        dead = [state == "dead" for state in queue["state"]]
        queue["body"] = [None if gone else body for gone, body in zip(dead, queue["body"], strict=True)]
        queue["state"] = ["failed" if gone else state for gone, state in zip(dead, queue["state"], strict=True)]
        pairs = zip(queue["state"], queue["priority"], strict=True)
        queue["priority"] = [0 if state == "queued" else priority for state, priority in pairs]
    if revision < "0003":
        without(rows, "tokens", [role == "lmr" for role in rows["tokens"]["role"]])
        lmrs = {rule for rule, owner in zip(rows["rules"]["id"], rows["rules"]["owner"], strict=True) if owner != 0}
        for table, column in (("rule_searches", "rule_id"), ("rule_ends", "rule_id"), ("rules", "id")):
            without(rows, table, [number in lmrs for number in rows[table][column]])
    return rows


@pytest.mark.parametrize("revision", REVISIONS[:-1])
def test_data_of_a_revision_survive_a_downgrade_to_it_and_an_upgrade(mdp: Mdp, revision: str) -> None:
    cursor = fill(mdp)["near"]
    full = everything(mdp.engine)
    downgrade(mdp.engine, revision)
    down = everything(mdp.engine)
    assert_kept(as_known_to(revision, full), down)
    migrate(mdp.engine)
    up = everything(mdp.engine)
    for rows in (down, up):
        rows["jobs"].pop("priority")  # waiting jobs restart at the middle priority
    assert_kept(down, up)
    with mdp.engine.connect() as connection:
        assert table_differences(connection) == []

    again = type(mdp)(mdp.engine)
    assert_history(again)
    assert_all_goes_on(again, revision, cursor)


def assert_history(mdp: Mdp) -> None:
    """Return the versions and the visible statements."""
    versions = mdp.rows(
        "select d.uri, v.version, v.present from document_versions v join documents d on d.id = v.document_id"
        " order by 1, 2"
    )
    assert [row for row in versions if row[0] in ("http://d/1", "http://d/4")] == [
        ("http://d/1", 1, True), ("http://d/1", 2, True), ("http://d/4", 1, True), ("http://d/4", 2, False),
    ]  # fmt: skip
    with mdp.engine.connect() as connection:
        first = read_document(connection, "http://d/1", 1)
        assert first is not None
        said = {statement.object.value for statement in read_document_statements(connection, first)}
    assert {"1", "b"} <= said and not {"2", "bb"} & said


def lmrs_of(mdp: Mdp) -> list[Lmr]:
    with mdp.engine.connect() as connection:
        return list_lmrs(connection, 0, 10)


def assert_all_goes_on(mdp: Mdp, revision: str, cursor: str) -> None:
    """Check that documents, rules and feeds work on the restored data."""
    assert mdp.put_one("http://d/1", "<#a> a :C ; :n 3 ; :to <#b> . <#b> :s 'bb' .").version == 3
    if revision < "0002":
        (rule,) = mdp.add_rules(["search C c register c where c.n < 4"], owner=0)
        assert mdp.results_of(rule.id) == {"http://d/1#a"}
    else:
        own = mdp.one("select id from rules where name = 'small'")
        assert mdp.results_of(own) == {"http://d/1#a"}
    if revision >= "0003":
        near = next(lmr for lmr in lmrs_of(mdp) if lmr.name == "near")
        told = mdp.feed(near, cursor)
        assert told.up_to_date and {event.resource for event in told.events} >= {"http://d/5#e", "http://d/1#a"}
        assert not mdp.feed(near, cursor).snapshot
    else:
        assert lmrs_of(mdp) == [] and mdp.one("select count(*) from rules where owner <> 0") == 0
    fresh = mdp.create_lmr("fresh")
    mdp.subscribe(fresh, "search C c register c where c.n >= 9")
    held = {event.resource for event in mdp.feed(fresh).events if event.kind == "put"}
    assert held == {"http://d/5#e"}
    mdp.put_one("http://d/6", "<#f> a :C ; :n 1 .")
    assert "http://d/6#f" not in {event.resource for event in mdp.feed(fresh).events}


def test_jobs_unknown_to_an_older_version_fail_with_a_message(mdp: Mdp) -> None:
    mdp.run("insert into jobs (kind, uri, caller) values ('schema', 'urn:mdv:schema', 'me'), ('register', 'a:b', 'me')")
    downgrade(mdp.engine, "0003")
    assert mdp.rows("select kind, state, problem ->> 'detail' from jobs order by kind") == [
        ("register", "queued", None),
        ("schema", "failed", "The version of MDV that was gone back to does not know this kind of job."),
    ]
