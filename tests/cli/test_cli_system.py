"""A command finds the intended system, and reports an error if there is none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from mdv.errors import SystemNotFound
from mdv.system import System, find_database, find_system, read_system, remove_system, write_system

RUNNING = System("http://127.0.0.1:1234", "secret", "postgresql://db", "redis://q", 77)


def test_the_system_file_is_private_and_reads_back(tmp_path: Path) -> None:
    write_system(tmp_path, RUNNING)
    assert (tmp_path / "system.json").stat().st_mode & 0o777 == 0o600
    found = read_system(tmp_path)
    assert found is not None
    assert (found.url, found.token, found.database_url, found.pid) == (RUNNING.url, "secret", "postgresql://db", 77)
    assert [path.name for path in tmp_path.iterdir()] == ["system.json"]
    remove_system(tmp_path)
    assert read_system(tmp_path) is None


def test_secrets_of_a_system_are_not_in_its_repr() -> None:
    assert "secret" not in repr(RUNNING) and "postgresql" not in repr(RUNNING)


def test_the_environment_overrides_the_default_folder_and_data_overrides_both(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".mdv").mkdir()
    write_system(tmp_path / ".mdv", RUNNING)
    remote = {"MDV_URL": "https://mdp.example/", "MDV_TOKEN": "t", "MDV_DATABASE_URL": "postgresql://far"}
    assert find_system(None, {}).url == RUNNING.url
    assert find_system(None, remote).url == "https://mdp.example"
    assert find_system(None, remote).token == "t"
    assert find_system(Path(".mdv"), remote).token == "secret"
    assert find_database(None, {}).database_url == "postgresql://db"
    assert find_database(None, remote).database_url == "postgresql://far"
    assert find_database(Path(".mdv"), remote).database_url == "postgresql://db"
    assert find_system(None, {"MDV_TOKEN": "mine"}).token == "mine"


def test_the_folder_can_be_named_by_the_environment(tmp_path: Path) -> None:
    write_system(tmp_path, RUNNING)
    assert find_system(None, {"MDV_DATA": str(tmp_path)}).url == RUNNING.url


def test_the_admin_token_is_used_if_there_is_no_other() -> None:
    assert find_system(None, {"MDV_URL": "http://a", "MDV_ADMIN_TOKEN": "a"}).token == "a"


def test_the_database_of_a_remote_system_is_not_guessed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".mdv").mkdir()
    write_system(tmp_path / ".mdv", RUNNING)
    with pytest.raises(SystemNotFound, match="set MDV_DATABASE_URL too"):
        find_database(None, {"MDV_URL": "http://mdp.example"})


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 1}', "\0"])
def test_an_unreadable_system_file_is_reported_in_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "system.json").write_text(text)
    with pytest.raises(SystemNotFound, match=r"system\.json cannot be read"):
        find_system(tmp_path, {})


def test_an_invalid_url_is_refused() -> None:
    with pytest.raises(SystemNotFound, match="must be a URL"):
        find_system(None, {"MDV_URL": "localhost:8080"})


def test_an_unreachable_database_is_distinguished_from_a_stopped_system(mdv: Callable, tmp_path: Path) -> None:
    url, away = "http://127.0.0.1:1234", "postgresql://mdv@127.0.0.1:9/mdv"
    write_system(tmp_path, System(url, "secret", away, "redis://q", os.getpid()))
    ran = mdv("token", "list", "--data", tmp_path)
    sentence = f"The database of the MDV at {url} does not answer; `mdv doctor` shows the reason."
    assert (ran.code, ran.err) == (1, f"mdv: Unavailable: {sentence}\n")
    with subprocess.Popen(["true"]) as ended:
        pass
    write_system(tmp_path, System(url, "secret", away, "redis://q", ended.pid))
    assert "is not running; start it with `make up`" in mdv("token", "list", "--data", tmp_path).err
