"""`mdv rule`: what a rule means, before anybody subscribes to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from mdv.cli.files import Source
from mdv.cli.frame import Noun, connect, data_option, json_option
from mdv.cli.output import clean, write_json
from mdv.errors import BadRequest

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def rule_options(function: AnyFunction) -> AnyFunction:
    """FILE (- is standard input) or --text: the rule."""
    file = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
    for option in (
        click.option("--text", metavar="RULE", help="The rule itself, in place of FILE."),
        click.argument("file", required=False, type=file),
    ):
        function = option(function)
    return function


def text_of(file: Path | None, text: str | None) -> str:
    if (file is None) == (text is None):
        raise click.UsageError("Give the rule as FILE (- is standard input) or with --text RULE.")
    if file is None:
        return text or ""
    try:
        return Source(file, file.name).read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file}: byte {error.start + 1} is not UTF-8.") from None


def _write(text: str) -> None:
    for line in text.split("\n"):
        click.echo(clean(line))


@click.group(cls=Noun, example="mdv rule explain my.rule")
def rule() -> None:
    """Rules: what one means, how it is taken apart, and those of the provider's own.

    search CLASS v, … register v where v.path = 'text' and v.path > 5 or not (v.path contains 'x' and v.path = w). A
    path is v.property.property; property? is any of several values; <uri> and dates as text are constants, too.
    """


@rule.command("check", example="mdv rule check my.rule")
@rule_options
@data_option
def check(file: Path | None, text: str | None) -> None:
    """Check a rule by the schema in force, and show its normal form. FILE - is standard input."""
    given = text_of(file, text)
    answer = connect().explain(given)
    click.echo("ok")
    _write(answer["normal"])


@rule.command(
    "explain", example='mdv rule explain --text "search CycleProvider c register c where c.serverPort = 5874"'
)
@rule_options
@click.option("--sql", is_flag=True, help="Show the SQL, too.")
@json_option
@data_option
def explain(file: Path | None, text: str | None, sql: bool, as_json: bool) -> None:
    """Show how a rule is taken apart, and what of it exists already. FILE - is standard input.

    Also how many resources match now, and what a change may cost at worst.
    """
    from mdv.mdp.explanation import render

    given = text_of(file, text)
    answer = connect().explain(given, sql=sql)
    if as_json:
        write_json(answer)
    else:
        _write(render(answer))
