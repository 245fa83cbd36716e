"""Users of the pages, created and deleted from the command line."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import uuid
from collections.abc import Callable

import httpx2
import pytest

from tests.support.whole_system import MDV, Up, environment

PASSWORD = "correct horse battery"
OTHER = "another horse, staple"


@pytest.fixture
def on(running: Up, mdv: Callable, monkeypatch: pytest.MonkeyPatch) -> Callable:
    """Run a command on the running system, which has a document."""

    def run(*arguments: object, given: str = "") -> object:
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        return mdv("--data", running.folder, *arguments)

    return run


@pytest.fixture
def name() -> str:
    return f"ada {uuid.uuid4().hex[:8]}"


def signed_in(running: Up, name: str, password: str) -> httpx2.Client | None:
    """Return a session at the pages if the password is accepted."""
    client = httpx2.Client(base_url=running.system.url)
    answer = client.post("/sign-in", data={"name": name, "secret": password})
    assert answer.status_code in (303, 401), answer.text
    return client if answer.status_code == 303 else None


def may_look(client: httpx2.Client) -> bool:
    return client.get("/lmrs").status_code == 200


def test_a_user_signs_in_until_deleted(on: Callable, running: Up, name: str) -> None:
    made = on("user", "create", name, "--role", "viewer", "--password-stdin", given=f"{PASSWORD}\nmore\n")
    assert made.code == 0, made.err
    assert PASSWORD not in made.out
    client = signed_in(running, name, PASSWORD)
    assert client is not None and may_look(client)
    assert f'{name} <span class="quiet">(viewer)</span>' in client.get("/lmrs").text
    assert signed_in(running, name, "something else") is None
    assert on("user", "delete", name).code == 0
    assert not may_look(client)
    assert signed_in(running, name, PASSWORD) is None


def test_users_are_listed_without_their_passwords(on: Callable, name: str) -> None:
    for who, role in ((name, "admin"), (f"{name} II", "viewer")):
        assert on("user", "create", who, "--role", role, "--password-stdin", given=PASSWORD).code == 0
    ran = on("user", "list", "--json")
    found = {item["name"]: item for item in json.loads(ran.out)["items"]}
    assert found[name]["role"] == "admin" and found[f"{name} II"]["role"] == "viewer"
    assert set(found[name]) == {"name", "role", "created_at", "sessions", "seen_at"}
    lines = [line.split("\t") for line in on("user", "list").out.splitlines()]
    assert [name, "admin", found[name]["created_at"], "0", ""] in lines


def test_a_new_password_ends_all_sessions(on: Callable, running: Up, name: str) -> None:
    assert on("user", "create", name, "--role", "admin", "--password-stdin", given=PASSWORD).code == 0
    client = signed_in(running, name, PASSWORD)
    assert client is not None
    assert on("user", "password", name, "--password-stdin", given=OTHER).code == 0
    assert not may_look(client)
    assert signed_in(running, name, PASSWORD) is None
    assert signed_in(running, name, OTHER) is not None


def test_invalid_users_and_passwords_are_refused_with_a_message(on: Callable, name: str) -> None:
    assert "10 to 1,000 characters" in on("user", "create", name, "--password-stdin", given="short").err
    assert "is empty" in on("user", "create", name, "--password-stdin").err
    assert on("user", "create", name, "--role", "king", "--password-stdin", given=PASSWORD).code == 2
    assert on("user", "create", " ", "--password-stdin", given=PASSWORD).code == 1
    alone = on("user", "create", name)
    assert alone.code == 2 and "--password-stdin" in alone.err
    assert name not in on("user", "list").out
    assert on("user", "create", name, "--password-stdin", given=PASSWORD).code == 0
    again = on("user", "create", name, "--password-stdin", given=PASSWORD)
    assert again.code == 1 and "already" in again.err
    for line in (("password", "nobody", "--password-stdin"), ("delete", "nobody")):
        ran = on("user", *line, given=PASSWORD)
        assert ran.code == 1 and "There is no user nobody" in ran.err


def at_a_terminal(running: Up, words: list[str], answers: list[tuple[str, str]]) -> tuple[int, str]:
    """Run a command whose caller sits at a terminal and types each answer after its prompt."""
    argv = [str(MDV), *words, "--data", str(running.folder)]
    master, slave = pty.openpty()
    process = subprocess.Popen(
        argv, stdout=slave, stderr=slave, stdin=slave, env=environment(TERM="xterm"), start_new_session=True
    )
    os.close(slave)
    written, seen = "", 0
    try:
        while chunk := os.read(master, 4096):
            written += chunk.decode()
            if answers and answers[0][0] in written[seen:]:
                seen = len(written)
                os.write(master, answers.pop(0)[1].encode() + b"\n")
    except OSError:  # the other end was closed
        pass
    os.close(master)
    return process.wait(60), written


def test_a_terminal_user_is_prompted_twice_for_a_hidden_password(on: Callable, running: Up, name: str) -> None:
    typed = [
        ("Password: ", PASSWORD),
        ("Repeat the password: ", OTHER),
        ("Password: ", PASSWORD),
        ("Repeat the password: ", PASSWORD),
    ]
    code, written = at_a_terminal(running, ["user", "create", name, "--role", "admin"], typed)
    assert code == 0, written
    assert not typed, "the second did not equal the first, so both are prompted for again"
    assert PASSWORD not in written and OTHER not in written
    assert signed_in(running, name, PASSWORD) is not None


def test_an_lmr_is_paused_resumed_and_refetched_by_command(on: Callable, name: str) -> None:
    assert on("lmr", "create", name).code == 0
    assert on("lmr", "pause", name).out == f"The LMR {name} is paused.\n"
    assert json.loads(on("lmr", "show", name, "--json").out)["paused"] is True
    assert json.loads(on("lmr", "resume", name, "--json").out)["paused"] is False
    assert on("lmr", "refetch", name).code == 0
    assert "There is no LMR" in on("lmr", "pause", f"not {name}").err
    assert on("lmr", "delete", name, "--yes").code == 0
