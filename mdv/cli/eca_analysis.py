"""`mdv eca check`, `mdv eca graph` and `mdv eca analysis`: the static analysis of event-condition-action rules."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from mdv.cli.command import ExampleCommand, connect, data_option, json_option
from mdv.cli.output import escape_controls, write_json
from mdv.cli.rule import read_rule, rule_options

mode_option = click.option(
    "--mode",
    type=click.Choice(["strict", "paper"]),
    default="strict",
    show_default=True,
    help="The tests of the paper, or tests that miss no dependency.",
)


@click.command(cls=ExampleCommand, example="mdv eca check my.eca")
@rule_options
@click.option("--replaces", metavar="R", help="Name or ID of the rule that the text replaces.")
@json_option
@data_option
def check(file: Path | None, text: str | None, replaces: str | None, as_json: bool) -> None:
    """Check event-condition-action rules, and analyse them among the active ones. FILE - is standard input.

    Shows the normal form, warnings, what the rule may trigger and what may trigger it. Nothing is registered.
    """
    from mdv.inspect.eca_check import render_check

    answer = connect().post("/eca/check", {"text": read_rule(file, text), "replaces": replaces})
    if as_json:
        write_json(answer)
    else:
        _write(render_check(answer))


@click.command(cls=ExampleCommand, example="mdv eca graph")
@mode_option
@json_option
@data_option
def graph(mode: str, as_json: bool) -> None:
    """Show which active rules may trigger which others, and the cycles."""
    from mdv.inspect.eca_graph import render_graph

    pages = list(connect().pages("/eca/graph", 1000, mode=mode))
    answer = pages[0] | {"items": [unit for page in pages for unit in page["items"]], "next": None}
    if as_json:
        write_json(answer)
    else:
        _write(render_graph(answer))


@click.command(cls=ExampleCommand, example="mdv eca analysis --mode paper")
@mode_option
@json_option
@data_option
def analysis(mode: str, as_json: bool) -> None:
    """Show where the order of rules matters: I1 and I2 within a rule, C1 and C2 between two."""
    from mdv.inspect.eca_graph import render_analysis

    answer = connect().get("/eca/analysis", mode=mode)
    if as_json:
        write_json(answer)
    else:
        _write(render_analysis(answer))


def _write(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(escape_controls(line))
