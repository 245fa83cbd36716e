"""`mdv settings`: list the environment variables that MDV reads, with their meaning and whether they are set."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from mdv.cli.command import ExampleCommand, json_option
from mdv.cli.output import Item, on_terminal, print_line, write_json, write_table
from mdv.config import COMMAND_SETTINGS, SETTINGS, Setting
from mdv.errors import BadRequest

BEGIN, END = "<!-- settings -->", "<!-- /settings -->"


@click.command(cls=ExampleCommand, example="mdv settings")
@click.option("--markdown", is_flag=True, help="Print Markdown tables.")
@click.option("--into", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help=f"Write the Markdown tables into FILE, between the lines {BEGIN} and {END}.")  # fmt: skip
@json_option
def settings(markdown: bool, into: Path | None, as_json: bool) -> None:
    """List the settings: environment variables of the servers and the commands.

    The column "now" is for the environment of this command; servers have their own. Values are shown only for settings
    that cannot contain a secret.
    """
    shown = [_shown(setting, os.environ) for setting in (*SETTINGS.values(), *COMMAND_SETTINGS)]
    if into is not None:
        before = into.read_text(encoding="utf-8")
        after = replace_tables(before, as_markdown())
        if after != before:
            into.write_text(after, encoding="utf-8")
        print_line(f"{into} {'is updated' if after != before else 'is up to date'}.")
    elif markdown:
        click.echo(as_markdown(), nl=False)
    elif as_json:
        write_json({"items": shown})
    else:
        if on_terminal():
            print_line("These are the settings of this command. A running server may have others.")
        columns = ("variable", "default", "now", "meaning")
        write_table(columns, ([item[name] for name in columns] for item in shown))
        if on_terminal():
            print_line("Any setting can be read from a file: append _FILE to its name, and set that to the path.")


def _shown(setting: Setting, environment: Mapping[str, str]) -> Item:
    given = environment.get(setting.variable, "").strip()
    from_file = environment.get(f"{setting.variable}_FILE", "").strip()
    # A setting with a default is a number, a choice or a folder; a secret has no default.
    now = (given if setting.default != "" else "set") if given else "set, in a file" if from_file else ""
    return {
        "variable": setting.variable,
        "default": _default(setting),
        "set": bool(given or from_file),
        "now": now,
        "meaning": setting.help,
    }


def _default(setting: Setting) -> str:
    if isinstance(setting.default, bool):
        return str(setting.default).lower()
    return ", ".join(setting.default) if isinstance(setting.default, tuple) else str(setting.default)


def as_markdown() -> str:
    """Return the two tables: settings of the servers, and of the command line."""
    return (
        _table(SETTINGS.values())
        + "\nAny setting can be read from a file, for example with `MDV_ADMIN_TOKEN_FILE=/run/secrets/token`. "
        "The command line also reads:\n\n" + _table(COMMAND_SETTINGS)
    )


def _table(some: Iterable[Setting]) -> str:
    rows = [f"| `{setting.variable}` |{_marked(_default(setting))} | {_readable(setting.help)} |" for setting in some]
    return "\n".join(["| variable | default | meaning |", "| --- | --- | --- |", *rows]) + "\n"


def _marked(default: str) -> str:
    return "" if default == "" else f" {default}" if default.isdecimal() else f" `{default}`"


def _readable(help_: str) -> str:
    """Return the description with URLs as code, so that Markdown does not make links of them.

    >>> _readable("URL of Postgres: postgresql://host/name; or none")
    'URL of Postgres: `postgresql://host/name`; or none'
    """
    return re.sub(r"[a-z]+://[^\s`]*[^\s`:;,.]", r"`\g<0>`", help_).replace("|", "\\|")


def replace_tables(text: str, tables: str) -> str:
    """Return `text` with the tables between the marks replaced.

    >>> replace_tables(f"a\\n{BEGIN}\\nold\\n{END}\\nb", "new\\n") == f"a\\n{BEGIN}\\nnew\\n{END}\\nb"
    True
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise BadRequest(f"The file must contain the lines {BEGIN} and {END}, once each and in this order.")
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n{tables}{END}{rest.partition(END)[2]}"
