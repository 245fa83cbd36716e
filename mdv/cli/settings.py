"""`mdv settings`: every variable of the environment that MDV reads, what it means, and whether it is set."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from mdv.cli.frame import Verb, json_option
from mdv.cli.output import Item, on_terminal, say, write_json, write_table
from mdv.config import COMMAND_SETTINGS, SETTINGS, Setting
from mdv.errors import BadRequest

BEGIN, END = "<!-- settings -->", "<!-- /settings -->"


@click.command(cls=Verb, example="mdv settings")
@click.option("--markdown", is_flag=True, help="As tables in Markdown.")
@click.option("--into", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help=f"Write those tables into FILE, between the lines {BEGIN} and {END}.")  # fmt: skip
@json_option
def settings(markdown: bool, into: Path | None, as_json: bool) -> None:
    """List the settings: what the environment tells the servers and the commands.

    What is set here, in the environment of this command, is marked; servers have environments of their own. The value
    is shown only of settings that can hold no secret.
    """
    shown = [_shown(setting, os.environ) for setting in (*SETTINGS.values(), *COMMAND_SETTINGS)]
    if into is not None:
        before = into.read_text(encoding="utf-8")
        after = put_between(before, as_markdown())
        if after != before:
            into.write_text(after, encoding="utf-8")
        say(f"{into} {'has the present tables now' if after != before else 'had the present tables already'}.")
    elif markdown:
        click.echo(as_markdown(), nl=False)
    elif as_json:
        write_json({"items": shown})
    else:
        if on_terminal():
            say("As this command finds them in its own environment; that of a running server may be another.")
        columns = ("variable", "default", "now", "meaning")
        write_table(columns, ([item[name] for name in columns] for item in shown))
        if on_terminal():
            say("Any of them can be kept in a file: with _FILE after its name, the variable says where.")


def _shown(setting: Setting, environment: Mapping[str, str]) -> Item:
    given = environment.get(setting.variable, "").strip()
    from_file = environment.get(f"{setting.variable}_FILE", "").strip()
    # What has a default is a number, a choice or a folder; a secret has none.
    now = (given if setting.default != "" else "set") if given else "set, in a file" if from_file else ""
    return {
        "variable": setting.variable,
        "default": _default(setting),
        "set": bool(given or from_file),
        "now": now,
        "meaning": setting.help,
    }


def _default(setting: Setting) -> str:
    return str(setting.default).lower() if isinstance(setting.default, bool) else str(setting.default)


def as_markdown() -> str:
    """The two tables: of the servers, and of the command line."""
    return (
        _table(SETTINGS.values())
        + "\nAny of them can be kept in a file instead: `MDV_ADMIN_TOKEN_FILE=/run/secrets/token` names one. "
        "The command line reads besides:\n\n" + _table(COMMAND_SETTINGS)
    )


def _table(some: Iterable[Setting]) -> str:
    rows = [f"| `{setting.variable}` |{_marked(_default(setting))} | {_readable(setting.help)} |" for setting in some]
    return "\n".join(["| variable | default | meaning |", "| --- | --- | --- |", *rows]) + "\n"


def _marked(default: str) -> str:
    return "" if default == "" else f" {default}" if default.isdecimal() else f" `{default}`"


def _readable(help_: str) -> str:
    """Addresses as code, since a page would make links of them.

    >>> _readable("Postgres, as postgresql://host/name; or none")
    'Postgres, as `postgresql://host/name`; or none'
    """
    return re.sub(r"[a-z]+://[^\s`]*[^\s`:;,.]", r"`\g<0>`", help_).replace("|", "\\|")


def put_between(text: str, tables: str) -> str:
    """`text` with other tables between its marks.

    >>> put_between(f"a\\n{BEGIN}\\nold\\n{END}\\nb", "new\\n") == f"a\\n{BEGIN}\\nnew\\n{END}\\nb"
    True
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise BadRequest(f"There are no lines {BEGIN} and {END}, once each and in this order.")
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n{tables}{END}{rest.partition(END)[2]}"
