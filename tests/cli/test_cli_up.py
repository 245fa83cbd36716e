"""`mdv up` starts and stops the whole system and keeps its data."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from mdv.cli.serve import _make_metrics_folder
from mdv.free_port import free_port
from tests.support.eventually import eventually
from tests.support.whole_system import MDV, SCHEMA, Up, command_line, environment

pytestmark = pytest.mark.full

DOC = "http://mdv.example/doc.rdf"


def run_up(folder: Path, port: int, **more: str) -> subprocess.CompletedProcess[str]:
    """Run an `mdv up` that is expected to exit."""
    ports = ["--port", str(port), "--lmr-port", str(free_port())]
    argv = [str(MDV), "up", "--no-demo", *ports, "--data", str(folder)]
    return subprocess.run(argv, capture_output=True, text=True, env=environment(**more), cwd="/", timeout=60)


def test_registered_documents_survive_every_kind_of_stop(new_up: Callable[..., Up], mdv: Callable) -> None:
    up = new_up("data", demo=True).start()
    token = (up.folder / "admin.token").read_text().strip()
    assert token in up.output and f"http://127.0.0.1:{up.port}/docs" in up.output
    lmr = f"http://127.0.0.1:{up.lmr_port}"
    assert f"`local`: {lmr}/ (web UI), {lmr}/api/v1 (API)" in up.output
    assert "\x1b" not in up.output
    assert up.folder.stat().st_mode & 0o777 == 0o700
    for name in ("system.json", "admin.token"):
        assert (up.folder / name).stat().st_mode & 0o777 == 0o600
    atoms = mdv("atoms", DOC, "--short", "--data", up.folder).out
    assert "doc.rdf#host\tCycleProvider\tserverHost\tpirates.uni-passau.de" in atoms

    for number in (signal.SIGINT, signal.SIGKILL, signal.SIGTERM):
        code = up.end(number)
        eventually(lambda: not up.left, detail=lambda: [*map(command_line, up.left)])
        if number == signal.SIGKILL:
            stale = mdv("documents", "--data", up.folder)
            assert stale.code == 1 and "is not running; start it with `make up`" in stale.err
            assert mdv("token", "list", "--data", up.folder).code == 1
        else:
            assert code == 0, up.output
            assert not (up.folder / "system.json").exists()
            stops = [line for line in up.output.splitlines() if line.startswith("Stopping ")]
            assert stops == [
                "Stopping LMR.",
                *(f"Stopping {name}." for name in ("web", "worker", "Valkey", "Postgres")),
            ]
        if number != signal.SIGTERM:
            up.start()
            assert token not in up.output
            assert "demo" not in up.output
            assert mdv("atoms", DOC, "--short", "--data", up.folder).out == atoms
            assert up.system.token == token


def test_two_systems_are_independent_and_dead_processes_are_restarted(
    running: Up, new_up: Callable[..., Up], mdv: Callable
) -> None:
    other = new_up("other").start()
    assert mdv("schema", "put", SCHEMA, "--data", other.folder).code == 0
    assert mdv("register", SCHEMA.parent / "atlas.ttl", "--uri", "http://beside/", "--data", other.folder).code == 0
    assert "http://beside/" in mdv("documents", "--data", other.folder).out
    assert "http://beside/" not in mdv("documents", "--data", running.folder).out
    here, there = running.system, other.system
    assert here.database_url != there.database_url and here.redis_url != there.redis_url and here.token != there.token
    strange = httpx2.get(f"{here.url}/api/v1/documents", headers={"Authorization": f"Bearer {there.token}"})
    assert strange.status_code == 401

    os.kill(int((other.folder / "postgres/cluster/postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    for pid in other.known:
        if b"gunicorn" in command_line(pid):
            with suppress(ProcessLookupError):  # some end with their parent
                os.kill(pid, signal.SIGKILL)
    eventually(lambda: "Postgres is running again." in other.output and "web is running again." in other.output)
    eventually(lambda: "http://beside/" in mdv("documents", "--data", other.folder).out)
    changed = mdv("register", SCHEMA.parent / "orion.ttl", "--uri", "http://beside/", "--data", other.folder)
    assert changed.code == 0, changed.err
    assert other.end(signal.SIGHUP) == 0
    eventually(lambda: not other.left)


def test_a_folder_is_used_by_one_system_at_a_time(running: Up) -> None:
    ran = run_up(running.folder, free_port())
    assert ran.returncode == 1
    assert running.process is not None
    assert f"is in use by process {running.process.pid}" in ran.stderr
    assert httpx2.get(f"{running.system.url}/readyz").status_code == 200


def test_a_port_in_use_is_reported_before_anything_starts(running: Up, tmp_path: Path) -> None:
    ran = run_up(tmp_path / "data", running.port)
    assert ran.returncode == 1
    assert f"Port {running.port} is in use" in ran.stderr
    assert not (tmp_path / "data" / "postgres").exists()
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        assert run_up(tmp_path / "data", bound.getsockname()[1]).returncode == 1


def test_invalid_settings_are_reported_before_anything_starts(tmp_path: Path) -> None:
    ran = run_up(tmp_path / "data", free_port(), MDV_UP_WORKERS="many")
    assert ran.returncode == 1 and "MDV_UP_WORKERS is 'many'" in ran.stderr
    ran = run_up(tmp_path / "data", free_port(), MDV_MAX_DOCUMENT_BYTES="big")
    assert ran.returncode == 1 and "MDV_MAX_DOCUMENT_BYTES is 'big'" in ran.stderr
    (tmp_path / "file").write_text("")
    ran = run_up(tmp_path / "file" / "data", free_port())
    assert ran.returncode == 1 and "cannot be used" in ran.stderr


def test_a_web_server_that_cannot_start_is_reported_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "__init__.py").write_text("raise RuntimeError('no web today')")
    ran = run_up(tmp_path / "data", free_port(), PYTHONPATH=str(tmp_path))
    assert ran.returncode == 1
    assert "mdv: Internal error: web did not start. The end of its log" in ran.stderr
    assert "no web today" in ran.stderr
    assert not (tmp_path / "data" / "system.json").exists()


def test_every_line_of_every_log_is_json(new_up: Callable[..., Up]) -> None:
    up = new_up("data").start()
    up.end(signal.SIGTERM)
    for name, word in (
        ("web", "Listening at: http://127.0.0.1:"),
        ("LMR", "Worker exiting (pid: "),
        ("worker", "worker: Warm shutdown"),
    ):
        lines = [json.loads(line) for line in (up.folder / "logs" / f"{name}.log").read_text().splitlines()]
        assert all({"event", "level", "timestamp"} <= line.keys() for line in lines), name
        assert any(line["event"].startswith(word) for line in lines), (name, lines)


def test_the_system_file_has_address_and_process_id(running: Up) -> None:
    known = json.loads((running.folder / "system.json").read_text())
    assert running.process is not None
    assert known["pid"] == running.process.pid
    assert known["url"] == f"http://127.0.0.1:{running.port}"


def test_the_web_server_runs_alone_configured_by_the_environment(running: Up, tmp_path: Path) -> None:
    port, system = free_port(), running.system
    (tmp_path / "web").mkdir()  # a folder of the same name that must be ignored
    (tmp_path / "web" / "__init__.py").write_text("raise RuntimeError('wrong web')")
    settings = environment(MDV_DATABASE_URL=system.database_url, MDV_REDIS_URL=system.redis_url, MDV_ADMIN_TOKEN="own")
    with subprocess.Popen(
        [MDV, "serve", "--port", str(port)], env=settings, cwd=tmp_path, stderr=subprocess.DEVNULL
    ) as web:
        try:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:

                def answers() -> bool:
                    try:
                        return client.get("/readyz").status_code == 200
                    except httpx2.TransportError:
                        return False

                eventually(answers)
                own = client.get("/api/v1/documents", headers={"Authorization": "Bearer own"})
                assert own.status_code == 200
            web.send_signal(signal.SIGTERM)
            assert web.wait(60) == 0
        finally:
            web.kill()


def _dangling(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def _elsewhere(path: Path) -> None:
    path.symlink_to(path.parent)


@pytest.mark.parametrize("occupy", [Path.touch, _dangling, _elsewhere])
def test_an_occupied_metrics_folder_is_replaced_by_another(
    occupy: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    usual = tmp_path / f"mdv-figures-{os.getuid()}"
    assert _make_metrics_folder() == usual / str(os.getpid())
    shutil.rmtree(usual)
    occupy(usual)
    found = _make_metrics_folder()
    assert found.is_dir() and found.parent == tmp_path and list(found.iterdir()) == []
