"""`mdv conflicts`: what concurrent changes left to be decided."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import click

from mdv.cli.command import ExampleGroup, connect, data_option, json_option
from mdv.cli.output import Item, print_line, write_json, write_table


@click.group(cls=ExampleGroup, invoke_without_command=True, example="mdv conflicts")
@click.option("--document", metavar="URI", help="Only those of a document.")
@json_option
@data_option
@click.pass_context
def conflicts(context: click.Context, document: str | None, as_json: bool) -> None:
    """List what concurrent changes left to be decided. They are equal at all members of the backbone."""
    if context.invoked_subcommand is not None:
        return
    items: list[dict[str, Any]] = list(connect().items("/backbone/conflicts", uri=document))
    if as_json:
        write_json({"items": items})
        return
    if not items:
        print_line("There are no conflicts.")
        return
    rows = (
        [one["id"], one["kind"], one["document"], " ".join(one.get("about", ())), _values(one)] for one in items
    )  # fmt: skip
    write_table(("id", "kind", "document", "about", "values"), rows)


def _values(conflict: Item) -> str:
    return " | ".join(str(value["value"]) for value in conflict.get("values", ()))


@conflicts.command("resolve", example="mdv conflicts resolve 1f0c9a2e5b7d8c40 5874")
@click.argument("identity", metavar="ID")
@click.argument("values", metavar="[VALUE]...", nargs=-1)
@json_option
@data_option
def resolve(identity: str, values: tuple[str, ...], as_json: bool) -> None:
    """Keep these values of a conflict and remove the others. Without a value, remove all of them.

    A VALUE is the text of a value, or its JSON if two values have the same text. To keep what remains of a deleted
    document, give its URI.
    """
    body = {"keep": [_read_value(value) for value in values]}
    done = connect().change("POST", f"/backbone/conflicts/{quote(identity, safe='')}", body)
    if as_json:
        write_json(done)
    else:
        print_line(f"{done['document']} has version {done.get('version', '?')}. The conflict is resolved.")


def _read_value(text: str) -> Any:
    """Return a value as JSON if it is an object, else the text itself.

    >>> _read_value('{"type": "literal", "value": "x", "lang": "en"}')["lang"], _read_value("7")
    ('en', '7')
    """
    with suppress(ValueError):
        given = json.loads(text)
        if isinstance(given, dict):
            return given
    return text
