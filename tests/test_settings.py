"""Settings: one table, shown the same everywhere, and no setting read that is not in it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mdv.cli.settings import BEGIN, END, as_markdown
from mdv.config import COMMAND_SETTINGS, SETTINGS, Config

ROOT = Path(__file__).parents[1]
MDV = Path(sys.executable).with_name("mdv")
SERVERS = {setting.variable for setting in SETTINGS.values()}
COMMANDS = {setting.variable for setting in COMMAND_SETTINGS}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {"PATH": "/usr/bin:/bin"} | environment
    return subprocess.run([MDV, "settings", *arguments], env=own, capture_output=True, text=True)


def test_the_documentation_has_the_present_tables() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
    written = page.partition(BEGIN + "\n")[2].partition(END)[0]
    assert written == as_markdown(), "run `make settings`"


def test_every_variable_that_is_read_is_in_one_of_the_tables() -> None:
    """A variable is a string of its own in the code; a name within a sentence is only a mention."""
    read: dict[str, str] = {}
    sources = [path for folder in ("mdv", "web", "workers") for path in (ROOT / folder).rglob("*.py")]
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if re.fullmatch(r"MDV_[A-Z_]+", text) and path != ROOT / "mdv" / "config.py":
                read[text] = f"{path.relative_to(ROOT)}:{node.lineno}"
    assert {"MDV_DATABASE_URL", "MDV_DIE_AT", "MDV_DEBUG", "MDV_UP_WORKERS", "MDV_DATA", "MDV_LMR_URL"} <= read.keys()
    assert {variable: place for variable, place in read.items() if variable not in SERVERS | COMMANDS} == {}
    assert not SERVERS & COMMANDS
    assert read.keys() >= COMMANDS, "a setting that is never read"


def test_settings_in_use_are_marked_and_no_secret_is_shown() -> None:
    secrets = {"MDV_DATABASE_URL": "postgresql://u:hush@h/d", "MDV_ADMIN_TOKEN": "hush", "MDV_LMR_TOKEN": "hush",
               "MDV_REDIS_URL": "redis://:hush@h/0", "MDV_TOKEN": "hush"}  # fmt: skip
    for form in ((), ("--json",), ("--markdown",)):
        ran = run(*form, **secrets, MDV_FEED_SECONDS="77")
        assert ran.returncode == 0 and "hush" not in ran.stdout + ran.stderr
    items = {
        item["variable"]: item for item in json.loads(run("--json", **secrets, MDV_FEED_SECONDS="77").stdout)["items"]
    }
    assert items.keys() == SERVERS | COMMANDS
    assert items["MDV_FEED_SECONDS"]["now"] == "77"
    assert {name for name, item in items.items() if item["set"]} == {*secrets, "MDV_FEED_SECONDS"}
    assert items["MDV_ADMIN_TOKEN"]["now"] == "set"


def test_settings_that_may_hold_a_secret_have_no_default() -> None:
    """The values of settings with a default are shown."""
    for setting in (*SETTINGS.values(), *COMMAND_SETTINGS):
        if re.search(r"TOKEN$|SECRET|PASSWORD|KEY$|_URL$|STORE$", setting.variable):
            assert setting.default == "", setting.variable


def test_tables_are_written_only_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    assert run("--into", str(page)).returncode == 0
    assert page.read_text() == f"before\n{BEGIN}\n{as_markdown()}{END}\nafter\n"
    page.write_text("no marks\n")
    ran = run("--into", str(page))
    assert (ran.returncode, page.read_text()) == (1, "no marks\n") and BEGIN in ran.stderr


def test_a_setting_can_be_read_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("from a file\n")
    kept = {"MDV_ADMIN_TOKEN_FILE": str(secret)}
    assert Config.from_environment(kept).admin_token == "from a file"
    assert Config.from_environment(kept | {"MDV_ADMIN_TOKEN": "given"}).admin_token == "given"
    with pytest.raises(SystemExit, match=r"MDV_ADMIN_TOKEN_FILE is .*cannot be read"):
        Config.from_environment({"MDV_ADMIN_TOKEN_FILE": str(tmp_path / "none")})
    secret.write_text("soon")
    with pytest.raises(SystemExit, match="MDV_FEED_SECONDS is 'soon'; it must be a whole number"):
        Config.from_environment({"MDV_FEED_SECONDS_FILE": str(secret)})


def test_special_and_oversized_files_are_not_read(tmp_path: Path) -> None:
    pipe, long = tmp_path / "pipe", tmp_path / "long"
    os.mkfifo(pipe)
    for path in (Path("/dev/zero"), pipe, tmp_path):
        with pytest.raises(SystemExit, match=r"MDV_ADMIN_TOKEN_FILE is .*: it is not a regular file"):
            Config.from_environment({"MDV_ADMIN_TOKEN_FILE": str(path)})
    long.write_text("x" * 65_536)
    assert len(Config.from_environment({"MDV_ADMIN_TOKEN_FILE": str(long)}).admin_token) == 65_536
    long.write_text("x" * 65_537)
    with pytest.raises(SystemExit, match="it is larger than 64 KiB"):
        Config.from_environment({"MDV_ADMIN_TOKEN_FILE": str(long)})


NUMBERS = {name: setting for name, setting in SETTINGS.items() if type(setting.default) is int}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_out_of_range_is_refused_with_the_bounds(name: str) -> None:
    setting = NUMBERS[name]
    for number in (setting.minimum, setting.default, setting.maximum):
        assert getattr(Config.from_environment({setting.variable: str(number)}), name) == number
    for number in (-1, setting.minimum - 1, setting.maximum + 1, 2**63 - 1, 10**30):
        sentence = f"{setting.variable} is {number}; it must be a number from {setting.minimum} to {setting.maximum}."
        with pytest.raises(SystemExit, match=re.escape(sentence)):
            Config.from_environment({setting.variable: str(number)})


def test_the_maximum_of_every_duration_is_within_the_range_of_dates() -> None:
    for name, setting in NUMBERS.items():
        if name.endswith("_seconds"):
            assert datetime.now(UTC) - timedelta(seconds=setting.maximum) < datetime.now(UTC), name
