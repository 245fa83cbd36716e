"""`mdv token` and `mdv user` on a database: expiry, last use, roles, and warnings before a lock-out."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from sqlalchemy import Engine, text

from mdv.accounts.callers import find_caller
from mdv.accounts.token_uses import TokenUses
from tests.support.command import Ran
from tests.support.eventually import eventually
from tests.support.whole_system import MDV, environment

PASSWORD = "correct horse battery"
NOBODY_IS_LEFT = "No user and no token can administer now"


@pytest.fixture
def on(mdv: Callable[..., Ran], database_url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run a command on the database."""
    monkeypatch.setenv("MDV_DATABASE_URL", database_url)

    def run(*arguments: object, given: str = "") -> Ran:
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        return mdv(*arguments)

    return run


def listed(on: Callable[..., Ran]) -> dict[str, dict]:
    return {item["name"]: item for item in json.loads(on("token", "list", "--json").out)["items"]}


@pytest.mark.parametrize(
    ("given", "expected"),
    [("9999-12-24", "9999-12-24T00:00:00+00:00"), ("9999-12-24T18:30+02:00", "9999-12-24T16:30:00+00:00")],
)
def test_a_token_expires_at_a_date_or_time(on: Callable[..., Ran], given: str, expected: str) -> None:
    made = json.loads(on("token", "create", "crawler", "--expires", given, "--json").out)
    assert made["expires_at"] == expected and made["state"] == "valid" and made["created_by"] == "command line"
    token = listed(on)["crawler"]
    assert token == {name: value for name, value in made.items() if name != "token"}


def test_a_token_expires_after_a_duration_and_never_without_one(on: Callable[..., Ran]) -> None:
    for name, options in (("short", ("--expires", "90d")), ("endless", ())):
        assert on("token", "create", name, *options).code == 0
    tokens = listed(on)
    lifetime = datetime.fromisoformat(tokens["short"]["expires_at"]) - datetime.now(UTC)
    assert lifetime.days == 89 and tokens["endless"]["expires_at"] is None


@pytest.mark.parametrize(
    "options",
    [("--expires", "tomorrow"), ("--expires", "2031-02-30"), ("--expires", "1999-01-01"), ("--expires", ""),
     ("--expires", "-1d"), ("--resources", "http://a/../b"), ("--role", "viewer", "--documents", "http://a/")],
)  # fmt: skip
def test_an_invalid_expiry_or_limit_creates_no_token(on: Callable[..., Ran], options: tuple[str, ...]) -> None:
    ran = on("token", "create", "crawler", *options)
    assert ran.code == 2 and not listed(on), ran.err


@pytest.mark.parametrize("name", ["", " a", "a\nb", "x" * 101])
def test_an_invalid_name_creates_no_token(on: Callable[..., Ran], name: str) -> None:
    ran = on("token", "create", name)
    assert ran.code == 2 and "1 to 100 printable characters" in ran.err and not listed(on)


def test_the_last_use_and_the_state_of_tokens_are_listed(on: Callable[..., Ran], engine: Engine) -> None:
    secret = on("token", "create", "used").out.strip()
    for name in ("expired", "revoked"):
        on("token", "create", name, "--role", "viewer")
    find_caller(engine, secret, None, TokenUses(engine.execution_options(isolation_level="AUTOCOMMIT")))
    eventually(lambda: listed(on)["used"]["used_at"])
    with engine.begin() as connection:
        connection.execute(text("update tokens set expires_at = now() where name = 'expired'"))
    assert on("token", "revoke", listed(on)["revoked"]["id"]).code == 0
    tokens = listed(on)
    assert {name: token["state"] for name, token in tokens.items()} == {
        "used": "valid", "expired": "expired", "revoked": "revoked",
    }  # fmt: skip
    assert tokens["expired"]["used_at"] is None
    lines = [line.split("\t") for line in on("token", "list").out.splitlines()]
    assert [line[-3:-1] for line in lines] == [
        [tokens[line[1]]["used_at"] or "", tokens[line[1]]["state"]] for line in lines
    ]


def test_the_list_of_tokens_fits_a_terminal_of_80_columns(on: Callable[..., Ran], database_url: str) -> None:
    on("token", "create", "nightly-import", "--documents", "http://example.org/catalogue/", "--expires", "9999-12-24")
    master, slave = pty.openpty()
    argv = [str(MDV), "token", "list"]
    env = environment(MDV_DATABASE_URL=database_url, COLUMNS="80", TERM="xterm")
    process = subprocess.Popen(argv, stdout=slave, stderr=slave, stdin=slave, env=env, start_new_session=True)
    os.close(slave)
    written = b""
    try:
        while chunk := os.read(master, 4096):
            written += chunk
    except OSError:  # the other end was closed
        pass
    os.close(master)
    assert process.wait(60) == 0
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", written.decode()).splitlines() if line.strip()]
    assert max(map(len, lines)) <= 80
    heading, _, row, *_ = [re.split(r"\s\s+", line.strip()) for line in lines]
    assert heading == ["id", "name", "role", "limits", "expires", "last use"]
    assert row[:3] == ["1", "nightly-import", "admin"] and row[-2:] == ["9999-12-24", "never"]


def test_a_role_is_changed(on: Callable[..., Ran]) -> None:
    for name in ("ada", "grace"):
        on("user", "create", name, "--role", "admin", "--password-stdin", given=PASSWORD)
    changed = on("user", "role", "grace", "viewer")
    assert (changed.code, changed.out, changed.err) == (0, "grace has the role viewer.\n", "")
    users = {item["name"]: item for item in json.loads(on("user", "list", "--json").out)["items"]}
    assert [users[name]["role"] for name in ("ada", "grace")] == ["admin", "viewer"]
    assert users["ada"]["sessions"] == 0 and users["ada"]["seen_at"] is None
    assert on("user", "role", "nobody", "admin").code == 1
    assert on("user", "role", "ada", "king").code == 2


def test_removing_the_last_administrator_is_warned_about(on: Callable[..., Ran]) -> None:
    for name, role in (("ada", "admin"), ("grace", "viewer")):
        on("user", "create", name, "--role", role, "--password-stdin", given=PASSWORD)
    assert on("user", "delete", "grace").err == ""
    demoted = on("user", "role", "ada", "viewer")
    assert demoted.code == 0 and NOBODY_IS_LEFT in demoted.err
    assert on("user", "role", "ada", "admin").err == ""
    number = json.loads(on("token", "create", "spare", "--json").out)["id"]
    assert on("user", "delete", "ada").err == "", "the token can administer"
    assert NOBODY_IS_LEFT in on("token", "revoke", number).err


def test_a_password_with_a_space_at_its_end_is_refused(on: Callable[..., Ran]) -> None:
    ran = on("user", "create", "ada", "--password-stdin", given=f"{PASSWORD} \n")
    assert ran.code == 1 and "begin or end with a space" in ran.err
