"""A real Postgres and a real Valkey: they answer, keep their data, and recover."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from mdv.embedded import Postgres, start_postgres, start_valkey
from mdv.errors import MdvError
from mdv.free_port import free_port
from mdv.supervise import prctl
from tests.support.eventually import eventually
from tests.support.whole_system import alive

pytestmark = pytest.mark.full

FAST = {"fsync": "off", "shared_buffers": "16MB", "max_connections": "20"}

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def query(server: Postgres, sql: str) -> object:
    with psycopg.connect(server.url) as connection:
        cursor = connection.execute(sql)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def status(pid: int, name: str) -> str:
    """Return one line of a process's status from the kernel."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.partition(":")[2].strip().split("\t")[0] for line in lines if line.startswith(name + ":"))


@contextmanager
def script(code: str, *arguments: object, before: Callable[[], None] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A separate parent process, which can be killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True, preexec_fn=before
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> dict[str, object]:
    assert process.stdout is not None
    return dict(json.loads(process.stdout.readline() or "{}"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cluster for the tests that do not depend on its content. Each leaves it stopped."""
    folder = tmp_path_factory.mktemp("shared") / "postgres"
    with start_postgres(folder, FAST) as server:
        query(server, "create table kept as select 42 as answer")
    return folder


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


# Normal operation


def test_data_survive_a_restart_under_the_same_password(folder: Path) -> None:
    password = (folder / "password").read_text()
    with start_postgres(folder, FAST) as server:
        assert query(server, "select answer from kept") == 42
        assert server.url == f"postgresql://mdv:{password}@127.0.0.1:{server.port}/mdv"
    assert server.process.returncode == 0, "a fast shutdown is orderly"
    assert password not in repr(server)


def test_stop_is_idempotent_and_releases_the_folder(folder: Path) -> None:
    server = start_postgres(folder, FAST)
    server.stop()
    server.stop()
    assert not alive(server.process.pid)
    start_postgres(folder, FAST).stop()


def test_a_new_cluster_uses_unicode_code_point_order_checksums_and_durable_settings(tmp_path: Path) -> None:
    with start_postgres(tmp_path / "postgres") as server:
        facts = {
            name: query(server, f"show {name}")
            for name in ("server_encoding", "data_checksums", "fsync", "synchronous_commit", "full_page_writes")
        }
        assert facts == {
            "server_encoding": "UTF8",
            "data_checksums": "on",
            "fsync": "on",
            "synchronous_commit": "on",
            "full_page_writes": "on",
        }
        assert query(server, "select string_agg(t, '' order by t) from unnest('{b,é,a,B,😀,ﬀ}'::text[]) t") == "Babéﬀ😀"
        assert query(server, "select upper('é')") == "É"
        assert query(server, "select rolsuper from pg_roles where rolname = current_user") is True


def test_given_settings_override_the_defaults(folder: Path) -> None:
    with start_postgres(folder, FAST | {"work_mem": "7MB"}) as server:
        assert query(server, "show work_mem") == "7MB"
        assert query(server, "show wal_compression") == "pglz"


def test_postgres_listens_only_on_the_loopback_and_on_no_socket_file(folder: Path) -> None:
    with start_postgres(folder, FAST) as server:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        assert [row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{server.port:04X}")] == [
            f"0100007F:{server.port:04X}"
        ]
        assert query(server, "show unix_socket_directories") == ""


def test_secrets_are_readable_only_by_the_owner(folder: Path, tmp_path: Path) -> None:
    with start_valkey(tmp_path / "valkey"):
        files = [folder / "password", *(tmp_path / "valkey" / name for name in ("password", "valkey.conf"))]
        assert [stat.S_IMODE(file.stat().st_mode) for file in files] == [0o600] * 3
    assert not list(folder.rglob("*initdb-*")), "nothing is left of the creation or its password"


def test_a_wrong_password_is_refused_by_postgres_and_valkey(folder: Path, tmp_path: Path) -> None:
    once = Retry(NoBackoff(), 0)
    with start_postgres(folder, FAST) as postgres, start_valkey(tmp_path / "valkey") as valkey:
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(f"postgresql://mdv:wrong@127.0.0.1:{postgres.port}/mdv")
        with pytest.raises(psycopg.OperationalError, match="no password supplied"):
            psycopg.connect(f"postgresql://mdv@127.0.0.1:{postgres.port}/mdv", passfile=os.devnull)
        with pytest.raises(redis.AuthenticationError):
            redis.Redis("127.0.0.1", valkey.port, password="wrong", retry=once).ping()
        with pytest.raises(redis.AuthenticationError):
            redis.Redis("127.0.0.1", valkey.port, retry=once).ping()


def test_the_password_is_in_no_command_line(folder: Path, tmp_path: Path) -> None:
    with start_postgres(folder, FAST) as postgres, start_valkey(tmp_path / "valkey") as valkey:
        for server, program in ((postgres, b"postgres"), (valkey, b"valkey-server")):
            words = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
            assert server.url.split(":")[2].split("@")[0].encode() not in words
            assert program in words


def test_two_instances_are_independent(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "a name with spaces, and an é"
    with start_postgres(folder, FAST) as first, start_postgres(other, FAST) as second:
        assert query(second, "select to_regclass('kept') is null") is True
        assert query(first, "select answer from kept") == 42
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(first.url.replace(f":{first.port}/", f":{second.port}/"))
    with start_valkey(tmp_path / "v 1") as one, start_valkey(tmp_path / "v 2") as two:
        redis.Redis.from_url(one.url).set("name", "one")
        assert redis.Redis.from_url(two.url).get("name") is None
        assert redis.Redis.from_url(one.url).get("name") == b"one"


def test_a_folder_is_used_by_one_server_at_a_time(folder: Path, tmp_path: Path) -> None:
    with start_postgres(folder, FAST) as server, start_valkey(tmp_path):
        with pytest.raises(MdvError, match=f"in use by process {os.getpid()}"):
            start_postgres(folder, FAST)
        with pytest.raises(MdvError, match=f"in use by process {os.getpid()}"):
            start_valkey(tmp_path)
        assert query(server, "select 1") == 1, "the refused start did no harm"


def test_servers_have_their_own_sessions(folder: Path, tmp_path: Path) -> None:
    with start_postgres(folder, FAST) as postgres, start_valkey(tmp_path) as valkey:
        for process in (postgres.process, valkey.process):
            assert os.getsid(process.pid) == process.pid


def test_valkey_persists_nothing(tmp_path: Path) -> None:
    with start_valkey(tmp_path, {"maxmemory": "64mb"}) as server:
        client = redis.Redis.from_url(server.url, decode_responses=True)
        client.set("a", "b")
        wanted = {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction", "maxmemory": "67108864"}
        assert client.config_get(*wanted) == wanted
    assert server.process.returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"lock", "password", "valkey.conf", "valkey.log"}


# Ports


@pytest.mark.parametrize("name", ["postgres", "valkey"])
def test_a_port_taken_in_the_meantime_is_replaced_by_another(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mdv import embedded

    with socket.socket() as rival:
        rival.bind(("127.0.0.1", 0))
        rival.listen()
        taken = rival.getsockname()[1]
        free = embedded.free_port()
        ports = iter([taken, free])
        monkeypatch.setattr(embedded, "free_port", lambda: next(ports))
        if name == "postgres":
            with start_postgres(folder, FAST) as server:
                assert server.port == free
        else:
            rival.close()  # a rival that speaks the protocol and is not the started server
            with start_valkey(tmp_path / "rival", port=taken), start_valkey(tmp_path / "valkey") as valkey:
                assert valkey.port == free


def test_a_restarted_server_can_keep_its_address(folder: Path) -> None:
    with start_postgres(folder, FAST) as server:
        query(server, "select 1")
    with start_postgres(folder, FAST, port=server.port) as again:
        assert again.url == server.url


# Error messages


def test_a_failed_start_shows_the_log_and_a_remedy_and_leaves_no_process(folder: Path) -> None:
    with pytest.raises(MdvError, match="unrecognized configuration parameter") as caught:
        start_postgres(folder, FAST | {"nonsense": "1"})
    assert "postgres.log" in caught.value.detail
    assert "--data" in caught.value.detail
    start_postgres(folder, FAST).stop()


def test_a_failed_start_of_valkey_shows_the_log(tmp_path: Path) -> None:
    with pytest.raises(MdvError, match=r"(?s)Valkey did not start.*Bad directive"):
        start_valkey(tmp_path, {"nonsense": "1"})


def test_a_missing_password_file_is_named(folder: Path) -> None:
    password = (folder / "password").read_text()
    (folder / "password").unlink()
    try:
        with pytest.raises(MdvError, match=f"(?s)password authentication failed.*{folder / 'password'}"):
            start_postgres(folder, FAST)
    finally:
        (folder / "password").write_text(password)
        (folder / "password").chmod(0o600)
    start_postgres(folder, FAST).stop()


# Crashes


@contextmanager
def busy(server: Postgres) -> Iterator[int]:
    """Return the process of a query that does not notice the end of its postmaster."""
    connection = psycopg.connect(server.url)

    def work() -> None:
        with suppress(psycopg.Error):
            connection.execute("select count(*) from generate_series(1, 1000000) a, generate_series(1, 1000000) b")

    pid = connection.info.backend_pid
    thread = threading.Thread(target=work)
    thread.start()
    try:
        eventually(lambda: query(server, f"select state from pg_stat_activity where pid = {pid}") == "active")
        yield pid
    finally:
        thread.join(60)
        connection.close()


def test_postgres_recovers_from_kill_9_of_the_postmaster_with_a_running_query(folder: Path) -> None:
    server = start_postgres(folder, FAST)
    query(server, "create table crashed as select 1 as one")
    with busy(server) as orphan:
        server.process.kill()
        server.process.wait()
        time.sleep(0.3)
        assert alive(orphan), "the test needs an orphan"
        server.stop()
        with start_postgres(folder, FAST) as again:
            assert query(again, "select one from crashed") == 1
            assert not alive(orphan)
            query(again, "drop table crashed")


def test_postgres_recovers_from_kill_9_of_the_postmaster_and_its_children(folder: Path) -> None:
    server = start_postgres(folder, FAST)
    query(server, "create table crashed as select 2 as two")
    for pid in [server.process.pid, *children(server.process.pid)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    server.stop()
    assert (folder / "cluster" / "postmaster.pid").exists()
    with start_postgres(folder, FAST) as again:
        assert query(again, "select two from crashed") == 2
        query(again, "drop table crashed")


BOTH = """
import json, sys, time
from pathlib import Path
import psycopg
from mdv.embedded import start_postgres, start_valkey
folder = Path(sys.argv[1])
postgres = start_postgres(folder, json.loads(sys.argv[3]))
valkey = start_valkey(Path(sys.argv[2]))
connection = psycopg.connect(postgres.url)
print(json.dumps({"postgres": postgres.process.pid, "valkey": valkey.process.pid}), flush=True)
time.sleep(99)
"""


def test_kill_9_of_the_parent_leaves_no_process_and_a_startable_folder(folder: Path, tmp_path: Path) -> None:
    with script(BOTH, folder, tmp_path, json.dumps(FAST)) as parent:
        pids = [int(str(pid)) for pid in said(parent).values()]
        pids += children(pids[0])
        assert len(pids) > 5
        assert all(map(alive, pids))
        parent.kill()
        parent.wait()
        eventually(lambda: not any(map(alive, pids)))
    assert "received fast shutdown request" in (folder / "postgres.log").read_text().split("starting PostgreSQL")[-1]
    start_postgres(folder, FAST).stop()
    start_valkey(tmp_path).stop()


def test_an_orphaned_postmaster_is_shut_down_first(folder: Path) -> None:
    from mdv.embedded import _postgres_program, _start_as, _user_for

    cluster = folder / "cluster"
    argv = [str(_postgres_program("postgres")), "-D", str(cluster), "-p", str(free_port())]
    argv += ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
    log = folder / "orphan.log"
    orphan = _start_as(_user_for(cluster), argv, log=log, death_signal=signal.SIGKILL)
    try:
        eventually(lambda: "ready to accept connections" in log.read_text())
        with start_postgres(folder, FAST) as server:
            assert query(server, "select answer from kept") == 42
            assert orphan.wait(60) == 0
        assert "received fast shutdown request" in log.read_text()
    finally:
        orphan.kill()
        orphan.wait()


def owner_of(cluster: Path) -> dict[str, object]:
    """Return arguments that start a foreign process under the user of the cluster."""
    facts = cluster.stat()
    return {"user": facts.st_uid, "group": facts.st_gid, "extra_groups": []} if os.geteuid() == 0 else {}


def test_a_stale_pid_file_with_the_pid_of_another_process_is_removed_and_that_process_spared(folder: Path) -> None:
    cluster = folder / "cluster"
    server = start_postgres(folder, FAST)
    lines = (cluster / "postmaster.pid").read_text().splitlines()
    server.process.kill()
    server.stop()
    # Under the same user: for another user, Postgres itself sees that it cannot be a Postgres.
    stranger = subprocess.Popen(["sleep", "99"], **owner_of(cluster))  # type: ignore[call-overload]
    try:
        (cluster / "postmaster.pid").write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        with start_postgres(folder, FAST) as again:
            assert query(again, "select answer from kept") == 42
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_another_cluster_named_in_the_pid_file_is_not_stopped(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "cluster", tmp_path / "postgres" / "cluster", copy_function=shutil.copy2)
    shutil.copy2(folder / "password", tmp_path / "postgres" / "password")
    if os.geteuid() == 0:
        facts = (folder / "cluster").stat()
        for path in [tmp_path / "postgres" / "cluster", *(tmp_path / "postgres" / "cluster").rglob("*")]:
            os.chown(path, facts.st_uid, facts.st_gid)
    with start_postgres(folder, FAST) as first:
        shutil.copy2(folder / "cluster" / "postmaster.pid", tmp_path / "postgres" / "cluster" / "postmaster.pid")
        lines = (tmp_path / "postgres" / "cluster" / "postmaster.pid").read_text().splitlines()
        lines[6] = "0 0"  # its shared memory is not that of the other
        (tmp_path / "postgres" / "cluster" / "postmaster.pid").write_text("\n".join(lines) + "\n")
        with start_postgres(tmp_path / "postgres", FAST) as second:
            assert query(second, "select answer from kept") == 42
        assert query(first, "select answer from kept") == 42


def test_an_empty_pid_file_is_ignored(folder: Path) -> None:
    (folder / "cluster" / "postmaster.pid").touch()
    with start_postgres(folder, FAST) as server:
        assert query(server, "select answer from kept") == 42


def test_an_interrupted_creation_of_the_cluster_is_repeated(tmp_path: Path) -> None:
    folder = tmp_path / "postgres"
    with script(BOTH, folder, tmp_path / "valkey", json.dumps(FAST)) as parent:
        eventually(lambda: list(folder.glob("initdb-*/cluster/base/1/*")))
        parent.kill()
        parent.wait()
        assert not (folder / "cluster").exists(), "the test needs to stop it before"
    with start_postgres(folder, FAST) as server:
        assert query(server, "select current_database()") == "mdv"
    assert {path.name for path in folder.iterdir()} == {"cluster", "lock", "password", "postgres.log"}


def test_a_creation_interrupted_before_the_database_existed_is_completed(folder: Path) -> None:
    with start_postgres(folder, FAST) as server:
        other = server.url.removesuffix("mdv") + "postgres"
        with psycopg.connect(other, autocommit=True) as connection:
            connection.execute("alter database mdv rename to away")
    with start_postgres(folder, FAST) as server:
        assert query(server, "select to_regclass('kept') is null") is True
        other = server.url.removesuffix("mdv") + "postgres"
        with psycopg.connect(other, autocommit=True) as connection:
            connection.execute("drop database mdv")
            connection.execute("alter database away rename to mdv")


# Users


@as_root
def test_below_a_private_folder_postgres_runs_as_nobody_with_one_capability(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    above = [closed, *closed.parents]
    before = [(path.stat().st_mode, path.stat().st_uid) for path in above]
    for _ in range(2):
        with start_postgres(closed / "data" / "postgres", FAST) as server:
            pid = server.process.pid
            assert int(status(pid, "Uid")) == pwd.getpwnam("nobody").pw_uid
            assert int(status(pid, "CapEff"), 16).bit_count() == 1
            assert status(pid, "CapPrm") == status(pid, "CapEff")
            assert status(pid, "Groups") == ""
            query(server, "create table if not exists t (a int)")
    assert [(path.stat().st_mode, path.stat().st_uid) for path in above] == before


WITHOUT_ROOT = """
import json, os, sys
from pathlib import Path
import psycopg, redis
from mdv.embedded import start_postgres, start_valkey
"".encode("idna")  # loaded while the library may still be read
os.setgroups([]); os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[2]))
folder, settings = Path(sys.argv[1]), json.loads(sys.argv[4])
with start_postgres(folder / "postgres", settings) as postgres, start_valkey(folder / "valkey") as valkey:
    with psycopg.connect(postgres.url) as connection:
        connection.execute("create table mine as select 7 as seven")
    print(json.dumps({"redis": redis.Redis.from_url(valkey.url).ping()}), flush=True)
"""


@as_root
def test_without_root_postgres_runs_as_the_user_and_root_then_runs_it_as_its_owner(open_folder: Path) -> None:
    someone = pwd.getpwnam("daemon")
    os.chown(open_folder, someone.pw_uid, someone.pw_gid)
    with script(WITHOUT_ROOT, open_folder, someone.pw_uid, someone.pw_gid, json.dumps(FAST)) as process:
        assert said(process) == {"redis": True}
        assert process.wait(60) == 0
    with start_postgres(open_folder / "postgres", FAST) as server:
        assert query(server, "select seven from mine") == 7
        assert int(status(server.process.pid, "Uid")) == someone.pw_uid
        assert int(status(server.process.pid, "CapEff"), 16) == 0, "the folders are accessible: it needs no capability"


REFUSED = """
import json, os, sys
from pathlib import Path
import psycopg
from mdv.embedded import start_postgres
from mdv.errors import MdvError
if sys.argv[2] != "0":
    os.setuid(int(sys.argv[2]))
try:
    start_postgres(Path(sys.argv[1]))
except MdvError as error:
    print(json.dumps({"detail": error.detail}))
"""


@as_root
def test_a_cluster_of_another_user_is_refused_with_a_message(open_folder: Path) -> None:
    open_folder.chmod(0o777)
    (open_folder / "cluster").mkdir()
    with script(REFUSED, open_folder, pwd.getpwnam("daemon").pw_uid) as process:
        assert "belongs to user 0: start MDV as that user" in str(said(process)["detail"])


@as_root
def test_without_capabilities_the_error_suggests_another_folder(tmp_path: Path) -> None:
    def without_rights() -> None:
        for capability in (1, 2):
            prctl(24, capability)  # PR_CAPBSET_DROP

    tmp_path.chmod(0o700)
    with script(REFUSED, tmp_path / "postgres", 0, before=without_rights) as process:
        detail = str(said(process)["detail"])
    assert "choose a --data folder" in detail
    assert "capset failed" in detail
