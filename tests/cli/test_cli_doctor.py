"""`mdv doctor` names each problem and its remedy; every fault here is a real one."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy

from mdv.cli.server_commands import lmr_command, web_command
from mdv.db.engine import make_engine
from mdv.db.migrate import downgrade, migrate
from mdv.embedded import Postgres, Valkey, start_postgres, start_valkey
from mdv.free_port import free_port
from mdv.supervise import start_child, stop_process
from tests.support.eventually import eventually
from tests.support.whole_system import Up, command_line, environment

pytestmark = pytest.mark.full

Look = Callable[..., tuple[int, dict[str, dict[str, str]]]]


@pytest.fixture
def look(mdv: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Look:
    """Return the exit code of `mdv doctor` and its output by name of the check."""

    def run(*arguments: object, **environment: str) -> tuple[int, dict[str, dict[str, str]]]:
        monkeypatch.chdir(tmp_path)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        ran = mdv("doctor", "--json", *arguments)
        assert ran.err == "", ran.err
        found: dict[str, Any] = json.loads(ran.out)
        verdicts = [check["verdict"] for check in found["checks"]]
        assert (found["failures"], found["warnings"]) == (verdicts.count("failure"), verdicts.count("warning"))
        assert ran.code == (1 if found["failures"] else 0)
        assert all(check["advice"] for check in found["checks"] if check["verdict"] != "ok")
        return ran.code, {check["check"]: check for check in found["checks"]}

    return run


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A Postgres with the recommended, durable settings."""
    with start_postgres(
        tmp_path_factory.mktemp("safe") / "data", {"max_connections": "30", "max_prepared_transactions": "5"}
    ) as running:
        engine = make_engine(running.url)
        migrate(engine)
        engine.dispose()
        yield running


@pytest.fixture
def database(safe: Postgres) -> Iterator[str]:
    """A migrated database for this test."""
    with psycopg.connect(safe.url, dbname="postgres", autocommit=True) as connection:
        connection.execute("create database own template mdv")
        yield sqlalchemy.make_url(safe.url).set(database="own").render_as_string(hide_password=False)
        connection.execute("drop database own with (force)")


@pytest.fixture
def parts(database: str, new_queue: Callable[[], str]) -> dict[str, str]:
    """The addresses of the parts, for a doctor configured by the environment."""
    return {"MDV_DATABASE_URL": database, "MDV_REDIS_URL": new_queue()}


def run(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


def test_a_healthy_system_has_no_failures(running: Up, mdv: Callable) -> None:
    eventually(lambda: mdv("doctor", "--data", running.folder).code == 0)  # its worker may just have started
    ran = mdv("doctor", "--data", running.folder)
    assert ran.code == 0, ran.out
    lines = ran.out.splitlines()
    assert "0 failed" in lines[-1]
    marks = {line.split(":")[0].split("  ")[1]: line.split("  ")[0] for line in lines[:-1] if not line.startswith(" ")}
    looked_at = ("settings", "pages", "secrets", "database", "migrated", "encoding", "durable", "autovacuum",
                 "transactions", "connections", "dead rows", "waiting jobs", "dead letters", "LMRs", "Redis",
                 "Redis memory", "workers", "web", "token", "web clock", "database clock", "LMR")  # fmt: skip
    assert {name: marks.get(name) for name in looked_at} == dict.fromkeys(looked_at, "ok")
    assert running.system.token not in ran.out and "password" not in ran.out
    assert re.search(r"Workers are alive: \S+ \(last heartbeat \d+ s ago\)", ran.out)


def test_with_only_a_url_the_token_is_checked_and_the_database_is_not(running: Up, look: Look) -> None:
    code, found = look(MDV_URL=running.system.url, MDV_TOKEN=running.system.token)
    assert code == 0
    assert found["token"]["verdict"] == found["web"]["verdict"] == "ok"
    assert (found["database"]["verdict"], found["Redis"]["verdict"]) == ("warning", "warning")
    assert found["database"]["says"] == "Not checked: MDV_DATABASE_URL is not set."
    code, found = look(MDV_TOKEN="wrong")
    assert code == 1
    assert found["token"]["says"] == "The token is refused: The token is unknown or was revoked."
    code, found = look(MDV_TOKEN="höher")
    assert code == 1 and found["token"]["says"] == "MDV_TOKEN contains invalid characters."
    code, found = look(MDV_TOKEN="")
    assert (code, found["token"]["verdict"], found["token"]["advice"]) == (0, "warning", "Set MDV_TOKEN.")
    code, found = look(MDV_URL="http://127.0.0.1:9")
    assert code == 1 and found["web"]["advice"].startswith("Check MDV_URL.") and "token" not in found


def test_secrets_readable_by_others_are_a_failure(running: Up, look: Look) -> None:
    token = running.folder / "admin.token"
    token.chmod(0o644)
    try:
        code, found = look("--data", running.folder)
        assert code == 1
        assert found["secrets"]["says"].startswith("Other users can read admin.token")
        assert f"chmod 600 {token}" in found["secrets"]["advice"]
    finally:
        token.chmod(0o600)
    assert look("--data", running.folder)[1]["secrets"]["verdict"] == "ok"


def test_without_any_configuration_the_doctor_says_so(look: Look) -> None:
    code, found = look()
    assert code == 1
    assert "No MDV is running in .mdv" in found["database"]["says"]
    assert found["Redis"]["says"] == "No Redis is configured."


def test_an_invalid_setting_is_a_failure_and_an_unknown_one_is_a_warning(look: Look, parts: dict[str, str]) -> None:
    code, found = look(**parts, MDV_FEED_SECONDS="soon")
    assert code == 1
    assert found["settings"]["says"] == "MDV_FEED_SECONDS is 'soon'; it must be a whole number."
    _, found = look(MDV_FEED_SECONDS="9", MDV_PUBLIC_REED="true")
    assert (found["settings"]["verdict"], "MDV_PUBLIC_REED" in found["settings"]["says"]) == ("warning", True)


def test_a_system_of_the_environment_is_not_mixed_with_that_of_the_folder(
    running: Up, look: Look, parts: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / ".mdv").symlink_to(running.folder)
    _, found = look()
    assert found["web"]["says"] == f"The web server is ready at {running.system.url}." and "secrets" in found
    _, found = look(**parts)
    assert not {"web", "LMR", "secrets", "disk"} & found.keys()
    assert found["database"]["says"].endswith("database own.")


def test_an_unreadable_secret_is_reported_and_the_other_checks_run(look: Look, parts: dict[str, str]) -> None:
    redis_url = {"MDV_REDIS_URL_FILE": "/nowhere", "MDV_DATABASE_URL": parts["MDV_DATABASE_URL"]}
    code, found = look(**redis_url)
    assert code == 1 and "MDV_REDIS_URL_FILE is '/nowhere'. The file cannot be read" in found["settings"]["says"]
    assert found["database"]["verdict"] == "ok" and found["Redis"]["says"] == "No Redis is configured."


def test_an_invalid_redis_url_does_not_reveal_its_password(look: Look, parts: dict[str, str]) -> None:
    code, found = look(**parts | {"MDV_REDIS_URL": "redis://:S3CRET/x@127.0.0.1:1/0"})
    assert code == 1 and found["Redis"]["verdict"] == "failure"
    assert "%2F" in found["Redis"]["advice"] and "S3CRET" not in str(found)


def test_a_waiting_job_without_a_worker_is_a_failure(look: Look, parts: dict[str, str]) -> None:
    job = "insert into jobs (kind, uri, caller, created_at, not_before) values ('delete', 'http://d/1', 'me',"
    run(parts["MDV_DATABASE_URL"], f"{job} now() - interval '70 s', now() - interval '70 s')")
    run(parts["MDV_DATABASE_URL"], f"{job} now(), now() + interval '1 hour')")
    code, found = look(**parts)
    assert code == 1
    assert found["waiting jobs"]["says"].startswith("1 job waited longer than 30 s, the oldest for 7")
    assert "mdv worker" in found["waiting jobs"]["advice"]
    assert found["workers"]["says"] == "No worker is alive: no jobs are executed."
    _, found = look("--patience", 3600)
    assert found["waiting jobs"]["verdict"] == "ok"


def test_dead_letters_and_repeatedly_started_jobs_are_warnings(look: Look, parts: dict[str, str]) -> None:
    url = parts["MDV_DATABASE_URL"]
    run(
        url,
        "insert into jobs (kind, uri, caller, state, ended_at) values ('register', 'http://d/1', 'me', 'dead', now())",
    )
    run(url, "insert into begun_jobs values ('00000000-0000-0000-0000-000000000001', 3)")
    _, found = look(**parts)
    assert (found["dead letters"]["verdict"], found["dead letters"]["says"][:14]) == ("warning", "1 dead letter:")
    assert "mdv jobs" in found["dead letters"]["advice"]
    assert "(3 times)" in found["begun jobs"]["says"]


def test_an_idle_transaction_is_a_warning_and_a_failure_if_it_blocks_others(look: Look, parts: dict[str, str]) -> None:
    url = parts["MDV_DATABASE_URL"]
    with closing(psycopg.connect(url, application_name="forgetful")) as idle, closing(psycopg.connect(url)) as other:
        idle.execute("select from mdp_state for update")
        _, found = look("--patience", 0, **parts)
        assert (found["transactions"]["verdict"], "forgetful" in found["transactions"]["says"]) == ("warning", True)
        assert f"pg_terminate_backend({idle.info.backend_pid})" in found["transactions"]["advice"]
        assert look("--patience", 3600)[1]["transactions"]["verdict"] == "ok"
        other.pgconn.send_query(b"select from mdp_state for update")

        def waits() -> bool:
            with psycopg.connect(url, autocommit=True) as third:
                row = third.execute("select cardinality(pg_blocking_pids(%s))", [other.info.backend_pid]).fetchone()
            return row == (1,)

        eventually(waits)
        code, found = look("--patience", 0)
        assert code == 1
        assert found["transactions"]["says"].startswith("An open transaction blocks others: process ")


def test_an_abandoned_prepared_transaction_is_a_warning(look: Look, parts: dict[str, str]) -> None:
    with psycopg.connect(parts["MDV_DATABASE_URL"], autocommit=True) as connection:
        connection.execute("begin")
        connection.execute("select from mdp_state for update")
        connection.execute("prepare transaction 'left behind'")
        _, found = look(**parts)
        connection.execute("rollback prepared 'left behind'")
    assert found["prepared"]["says"] == "Prepared transactions were not finished: left behind."
    assert "prepared" not in look()[1]


def test_many_dead_rows_in_the_feed_are_a_warning(look: Look, parts: dict[str, str]) -> None:
    with psycopg.connect(parts["MDV_DATABASE_URL"], autocommit=True) as connection:
        connection.execute("alter table feed set (autovacuum_enabled = false)")
        connection.execute("insert into feed select 1, n, 1, 0 from generate_series(1, 60000) n")
        connection.execute("delete from feed")
        connection.execute("select pg_stat_force_next_flush()")
        eventually(lambda: look(**parts)[1]["dead rows"]["verdict"] == "warning")
        assert "feed (60,000 dead rows to 0)" in look()[1]["dead rows"]["says"]
        connection.execute("vacuum feed")
    assert look()[1]["dead rows"]["verdict"] == "ok"


def test_nearly_exhausted_connections_are_a_warning(look: Look, parts: dict[str, str]) -> None:
    url = parts["MDV_DATABASE_URL"]
    taken = [psycopg.connect(url) for _ in range(22)]
    try:
        _, found = look(**parts)
        assert found["connections"]["verdict"] == "warning"
        assert "of 27 connections are in use" in found["connections"]["says"]
    finally:
        for connection in taken:
            connection.close()


def test_a_database_that_is_not_crash_safe_is_a_failure(look: Look, database_url: str, valkey: Valkey) -> None:
    code, found = look(MDV_DATABASE_URL=database_url, MDV_REDIS_URL=valkey.url)
    assert code == 1
    says = "fsync and full_page_writes off: a crash of the machine can corrupt the database."
    assert found["durable"]["says"] == says
    assert found["encoding"]["verdict"] == found["migrated"]["verdict"] == "ok"


def test_a_database_that_may_lose_the_last_commits_is_a_warning(look: Look, parts: dict[str, str]) -> None:
    run(parts["MDV_DATABASE_URL"], "alter database own set synchronous_commit = off")
    _, found = look(**parts)
    assert (found["durable"]["verdict"], found["durable"]["says"][:25]) == ("warning", "synchronous_commit is off")


def test_a_database_that_is_not_migrated_is_a_failure_and_the_other_checks_run(
    look: Look, parts: dict[str, str]
) -> None:
    engine = make_engine(parts["MDV_DATABASE_URL"])
    downgrade(engine, "0003")
    assert look(**parts)[1]["migrated"]["advice"] == "Run `mdv migrate`."
    downgrade(engine, "base")
    engine.dispose()
    code, found = look(**parts)
    assert code == 1
    assert found["migrated"]["verdict"] == "failure"
    assert found["durable"]["verdict"] == found["Redis"]["verdict"] == "ok"


def test_an_encoding_other_than_unicode_is_a_failure(look: Look, safe: Postgres, valkey: Valkey) -> None:
    make = "create database latin template template0 encoding 'LATIN1' locale_provider libc locale 'C'"
    with psycopg.connect(safe.url, autocommit=True) as connection:
        connection.execute(make)
        url = sqlalchemy.make_url(safe.url).set(database="latin").render_as_string(hide_password=False)
        _, found = look(MDV_DATABASE_URL=url, MDV_REDIS_URL=valkey.url)
        connection.execute("drop database latin with (force)")
    assert found["encoding"]["says"] == "The database encoding is LATIN1."


def test_a_stopped_postgres_is_a_failure(look: Look, tmp_path: Path, valkey: Valkey) -> None:
    with start_postgres(tmp_path / "pg", {"fsync": "off"}) as postgres:
        url = postgres.url
    code, found = look(MDV_DATABASE_URL=url, MDV_REDIS_URL=valkey.url)
    assert code == 1
    assert found["database"]["says"].startswith("The database does not answer: connection")
    assert found["database"]["advice"] == "Start Postgres, or correct MDV_DATABASE_URL."
    assert found["Redis"]["verdict"] == "ok"
    assert sqlalchemy.make_url(url).password not in json.dumps(found)


def test_a_database_that_never_answers_is_a_failure(look: Look, valkey: Valkey) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://mdv:secret@127.0.0.1:{silent.getsockname()[1]}/mdv"
        code, found = look(MDV_DATABASE_URL=url, MDV_REDIS_URL=valkey.url)
    assert code == 1
    assert found["database"]["verdict"] == "failure"


def test_a_stopped_valkey_is_a_failure_and_one_that_evicts_keys_is_a_warning(
    look: Look, parts: dict[str, str], tmp_path: Path
) -> None:
    with start_valkey(tmp_path / "vk", {"maxmemory-policy": "allkeys-lru"}) as valkey:
        url = valkey.url
        _, found = look(**parts | {"MDV_REDIS_URL": url})
        assert found["Redis"]["verdict"] == "ok"
        assert found["Redis memory"]["says"].startswith("Redis evicts keys when it is full (allkeys-lru)")
    code, found = look(MDV_REDIS_URL=url)
    assert code == 1
    assert found["Redis"]["says"].startswith("Redis does not answer: ")
    assert "Redis memory" not in found and found["database"]["verdict"] == "ok"
    assert (found["workers"]["verdict"], found["workers"]["says"]) == ("warning", "Unknown: Redis does not answer.")


def test_lmrs_that_stopped_reading_or_whose_events_expire_are_reported(look: Look, parts: dict[str, str]) -> None:
    url = parts["MDV_DATABASE_URL"]
    run(url, "update mdp_state set lmrs = 4, last_offset = 100")
    run(url, "insert into lmrs (name, cursor, kept_after, asked_at) values"
             " ('here', 100, 0, now()), ('away', 100, 0, now() - interval '2 days'),"
             " ('slow', 7, 0, now()), ('lost', 7, 9, now())")  # fmt: skip
    run(url, "insert into publications (tx, last_offset, lmrs, at) values (1, 8, '{3}', now() - interval '6 days')")
    run(url, "insert into feed (lmr_id, \"offset\", tx, kind) select id, 8, 1, 0 from lmrs where name = 'slow'")
    _, found = look(**parts)
    assert found["LMRs"]["says"] == "LMRs have not read their feeds for a day: away."
    assert found["feeds"]["says"] == "LMRs have not read events before they expired: lost."
    run(url, "delete from lmrs where name = 'lost'")
    assert look()[1]["feeds"]["says"] == "Unread events of LMRs will soon expire: slow."
    assert "feeds" not in look(MDV_FEED_SECONDS=str(30 * 86400))[1]
    many = 'insert into feed (lmr_id, "offset", tx, kind) select id, n, 1, 0 from lmrs, generate_series(9, 50) n'
    run(url, f"{many} where name = 'slow'")
    assert "slow" in look(MDV_FEED_EVENTS="50")[1]["feeds"]["says"]


def test_a_failing_webhook_is_a_warning_and_one_paused_by_hand_is_not(look: Look, parts: dict[str, str]) -> None:
    url = parts["MDV_DATABASE_URL"]
    assert look(**parts)[1]["webhooks"]["verdict"] == "ok"
    run(url, "insert into lmrs (name, asked_at) values ('here', now())")
    run(url, "insert into webhooks (lmr_id, url, secret, state, reason, told_offset, made_offset)"
             " select id, 'http://w/', 'hush', 'paused', 'it answered 500 for a day', 0, 0 from lmrs")  # fmt: skip
    found = look()[1]["webhooks"]
    paused = "Webhooks are failing: webhook 1 of LMR here (paused: it answered 500 for a day)."
    assert (found["verdict"], found["says"]) == ("warning", paused)
    run(url, "update webhooks set reason = 'Paused manually.', failing_since = now()")
    found = look()[1]["webhooks"]
    assert (found["verdict"], found["says"]) == ("ok", "Paused manually: webhook 1 of LMR here.")
    run(url, "update webhooks set state = 'active', reason = null")
    found = look()[1]["webhooks"]
    assert (found["verdict"], "webhook 1 of LMR here (failing since 20" in found["says"]) == ("warning", True)


def test_a_web_server_that_is_not_ready_or_not_running_is_a_failure(
    look: Look, parts: dict[str, str], tmp_path: Path
) -> None:
    port = free_port()
    engine = make_engine(parts["MDV_DATABASE_URL"])
    downgrade(engine, "base")
    web = start_child(web_command("127.0.0.1", port), env=environment(**parts), log=tmp_path / "web.log", cwd=tmp_path)
    try:
        _, found = look(**parts, MDV_URL=f"http://127.0.0.1:{port}")
        eventually(
            lambda: "is not ready" in look()[1]["web"]["says"], detail=lambda: (tmp_path / "web.log").read_text()
        )
        found = look()[1]
        assert (found["web"]["verdict"], "not migrated" in found["web"]["says"]) == ("failure", True)
        assert found["web clock"]["verdict"] == "ok"
        migrate(engine)
        assert look()[1]["web"]["says"] == f"The web server is ready at http://127.0.0.1:{port}."
    finally:
        engine.dispose()
        stop_process(web, ((signal.SIGTERM, 10.0),))
    found = look()[1]
    assert found["web"]["verdict"] == "failure"
    assert "does not answer" in found["web"]["says"] and "mdv serve" in found["web"]["advice"]


def test_a_hanging_web_server_does_not_block_the_doctor(new_up: Callable[..., Up], look: Look) -> None:
    up = new_up("hanging").start()
    web = [pid for pid in up.known if b"web.wsgi" in command_line(pid)]
    for pid in web:
        os.kill(pid, signal.SIGSTOP)
    try:
        code, found = look("--data", up.folder)
        assert web and code == 1
        assert found["web"]["says"].startswith(f"The web server at {up.system.url} does not answer: ")
        assert found["database"]["verdict"] == "ok"
    finally:
        for pid in web:
            os.kill(pid, signal.SIGCONT)
    assert up.end(signal.SIGTERM) == 0


def test_an_lmr_without_its_mdp_is_a_warning(look: Look, parts: dict[str, str], tmp_path: Path) -> None:
    port, token = free_port(), "of-an-lmr-0123456789"
    own = {"MDV_URL": f"http://127.0.0.1:{free_port()}", "MDV_LMR_TOKEN": token}
    own["MDV_LMR_STORE"] = f"sqlite:///{tmp_path / 'cache.db'}"
    lmr = start_child(lmr_command("127.0.0.1", port), env=environment(**own), log=tmp_path / "lmr.log", cwd=tmp_path)
    asked = {"MDV_LMR_URL": f"http://127.0.0.1:{port}", "MDV_LMR_TOKEN": token}
    try:
        _, found = look(**parts, **asked)
        eventually(
            lambda: "is disconnected" in look()[1]["LMR"]["says"], detail=lambda: (tmp_path / "lmr.log").read_text()
        )
        assert look()[1]["LMR"]["verdict"] == "warning"
        _, found = look(MDV_LMR_TOKEN="another")
        assert (found["LMR"]["verdict"], "MDV_LMR_TOKEN" in found["LMR"]["advice"]) == ("failure", True)
    finally:
        stop_process(lmr, ((signal.SIGTERM, 10.0),))
    assert look()[1]["LMR"]["verdict"] == "failure"


def test_quarantined_rules_and_dead_compensations_are_warnings(look: Look, parts: dict[str, str]) -> None:
    url = parts["MDV_DATABASE_URL"]
    run(url, "insert into eca_templates (text, digest) values ('', 'digest')")
    run(
        url,
        "insert into eca_rules (id, rule_set, name, text, normal, state, reason, template_id, constants, rank,"
        " position) select 1, 'main', 'mark', '', '', 'quarantined', 'It failed in 5 transactions in a row.', id, '{}',"
        " '{1}', 1"
        " from eca_templates",
    )
    run(
        url,
        "insert into jobs (kind, uri, caller, state, ended_at)"
        " values ('compensate', 'urn:mdv:eca:run:1', 'me', 'dead', now())",
    )
    _, found = look(**parts)
    assert found["reactions"]["verdict"] == "warning"
    assert "mark (It failed in 5 transactions in a row)" in found["reactions"]["says"]
    assert found["compensations"]["verdict"] == "warning"
    assert "mdv jobs retry" in found["compensations"]["advice"]
    run(url, "delete from jobs where kind = 'compensate'")
    run(url, "update eca_rules set state = 'active'")
    _, found = look(**parts)
    assert (found["reactions"]["verdict"], "compensations" in found) == ("ok", False)
