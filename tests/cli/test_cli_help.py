"""Help and errors: every command has an example, and every error is a sentence with an exit code."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from mdv.cli import cli
from mdv.cli.command import walk_commands
from mdv.cli.errors import run_for_exit_code
from tests.support.whole_system import MDV, environment


def tree(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from tree(below, (*path, name))


@pytest.mark.parametrize("path", list(tree(cli)), ids=" ".join)
def test_help_of_every_command_has_an_example(path: tuple[str, ...], mdv: Callable) -> None:
    ran = mdv(*path, "--help")
    assert ran.code == 0
    assert "Example:\n  $ " in ran.out
    assert "mdv" in ran.out.split("Example:")[1]


def test_the_overview_shows_every_command_with_its_example(mdv: Callable) -> None:
    text = mdv("--help").out
    for name, verb in walk_commands(cli):
        assert f"  {name} " in text
        assert f"$ {verb.example.splitlines()[0]}" in text


def test_every_example_names_an_existing_command() -> None:
    names = {name for name, _ in walk_commands(cli)}
    for _, verb in walk_commands(cli):
        for line in verb.example.splitlines():
            words = line[line.rindex("mdv ") + 4 :].split()
            assert words[0] in names or " ".join(words[:2]) in names


def test_the_entry_point_is_installed() -> None:
    ran = subprocess.run([MDV, "--version"], capture_output=True, text=True, env=environment(), check=True)
    assert ran.stdout.startswith("mdv, version ")


@pytest.mark.parametrize(
    "line",
    ["nonsense", "search", "register", "register none.rdf", "export", "export --all", "documents --limit 0", "delete",
     "token create x --role king", "register / --uri http://a/ --uri-base http://b/", "schema put -"],
)  # fmt: skip
def test_invalid_arguments_exit_with_2(line: str, mdv: Callable) -> None:
    ran = mdv(*line.split())
    assert ran.code == 2
    assert "Error:" in ran.err
    assert "Traceback" not in ran.err


def test_without_a_system_every_command_says_how_to_start_one(mdv: Callable, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in (
        "documents",
        "resources",
        "search x",
        "atoms http://a/d",
        "export http://a/d",
        "job 1",
        "token list",
        "schema show",
    ):
        ran = mdv(*line.split())
        assert ran.code == 1
        assert ran.err.startswith("mdv: No running MDV: No MDV is running in .mdv")
        assert "`make up`" in ran.err


def test_ctrl_c_exits_130() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    assert run_for_exit_code(interrupted) == 130


def test_an_unexpected_error_is_one_sentence_unless_debugging(capsys, monkeypatch) -> None:
    def broken() -> None:
        raise RuntimeError("wheels came off")

    monkeypatch.delenv("MDV_DEBUG", raising=False)
    assert run_for_exit_code(broken) == 1
    err = capsys.readouterr().err
    assert "wheels came off" in err and "Traceback" not in err
    monkeypatch.setenv("MDV_DEBUG", "1")
    assert run_for_exit_code(broken) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "worker", "migrate"])
def test_production_commands_name_the_missing_setting(command: str, mdv: Callable) -> None:
    ran = mdv(command)
    assert ran.code == 1
    assert ran.err.startswith("mdv: Invalid command: MDV_DATABASE_URL is not set")


def test_infer_drafts_a_schema_without_any_server(mdv: Callable, tmp_path: Path) -> None:
    demo = Path(__file__).parents[2] / "mdv" / "demo"
    ran = mdv("schema", "infer", demo / "doc.rdf", demo / "orion.ttl")
    assert ran.code == 0
    assert ":serverPort a rdf:Property" in ran.out
    broken = tmp_path / "broken.ttl"
    broken.write_text("<a> <b> .")
    ran = mdv("schema", "infer", broken)
    assert ran.code == 1
    assert ran.out == ""
    assert f"mdv: Not well-formed: {broken}" in ran.err
    assert "line 1" in ran.err


def test_the_help_of_settings_names_the_environment_that_is_shown(mdv: Callable) -> None:
    assert "for the environment of this command" in " ".join(mdv("settings", "--help").out.split())
