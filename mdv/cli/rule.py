"""`mdv rule`: check and explain rules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from mdv.cli.command import ExampleGroup, connect, data_option, json_option
from mdv.cli.output import escape_controls, write_json
from mdv.cli.source_files import SourceFile
from mdv.errors import BadRequest

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def rule_options(function: AnyFunction) -> AnyFunction:
    """Add the argument FILE (- is standard input) and the option --text, which give the rule."""
    file = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
    for option in (
        click.option("--text", metavar="RULE", help="The text of the rule, instead of FILE."),
        click.argument("file", required=False, type=file),
    ):
        function = option(function)
    return function


def read_rule(file: Path | None, text: str | None) -> str:
    return read_text(file, text, "rule", "--text RULE")


def read_text(file: Path | None, text: str | None, what: str, option: str) -> str:
    """Return a text that is given as a file or with an option."""
    if (file is None) == (text is None):
        raise click.UsageError(f"Give the {what} as FILE (- is standard input) or with {option}.")
    if file is None:
        return text or ""
    try:
        return SourceFile(file, file.name).read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file}: byte {error.start + 1} is not UTF-8.") from None


def _write(text: str) -> None:
    for line in text.split("\n"):
        click.echo(escape_controls(line))


@click.group(cls=ExampleGroup, example="mdv rule explain my.rule")
def rule() -> None:
    """Check and explain rules, and manage the rules of the provider.

    A rule is: search CLASS v, … register v where v.path = 'text' and v.path > 5 or not (v.path contains 'x' and v.path
    = w). A path is v.property.property; property? is any value of a set-valued property. Constants are 'text', numbers,
    true, false, <uri>, and dates as text.
    """


@rule.command("check", example="mdv rule check my.rule")
@rule_options
@data_option
def check(file: Path | None, text: str | None) -> None:
    """Check a rule against the current schema, and print its normal form. FILE - is standard input."""
    given = read_rule(file, text)
    answer = connect().explain(given)
    click.echo("ok")
    _write(answer["normal"])


@rule.command(
    "explain", example='mdv rule explain --text "search CycleProvider c register c where c.serverPort = 5874"'
)
@rule_options
@click.option("--sql", is_flag=True, help="Also show the SQL.")
@json_option
@data_option
def explain(file: Path | None, text: str | None, sql: bool, as_json: bool) -> None:
    """Show the decomposition of a rule, and which parts exist already. FILE - is standard input.

    Also shows how many resources match now, and the worst-case cost of a change.
    """
    from mdv.inspect.rule_explanation import render_explanation

    given = read_rule(file, text)
    answer = connect().explain(given, sql=sql)
    if as_json:
        write_json(answer)
    else:
        _write(render_explanation(answer))
