"""`mdv real lock`: manage locks, the statements that programs must not change."""

from __future__ import annotations

import click

from mdv.cli.command import ExampleGroup, connect, data_option, json_option
from mdv.cli.output import Columns, Item, Listing, list_options, print_line, write_json
from mdv.cli.real_programs import read_term_argument

LOCK: Columns = {
    name: lambda item, name=name: item[name] if item[name] is not None else "any"
    for name in ("id", "document_prefix", "subject", "property")
} | {
    "object": lambda item: "any" if item["object"] is None else item["object"]["value"],
    "by": lambda item: item["by"],
}


@click.group("lock", cls=ExampleGroup, example="mdv real lock add --property http://mdv.example/schema#serverPort")
def lock() -> None:
    """Manage locks: statements that programs must not add or remove.

    Registrations, edits and event rules are not concerned.
    """


@lock.command(
    "add", example="mdv real lock add --document http://mdv.example/ --subject http://mdv.example/doc.rdf#host"
)
@click.option("--document", "prefix", metavar="PREFIX", help="Only in documents whose URI begins with PREFIX.")
@click.option("--subject", metavar="URI", help="Only statements with this subject.")
@click.option("--property", "name", metavar="URI", help="Only statements with this property.")
@click.option(
    "--object", "term", metavar="TERM", help="Only statements with this object: a URI, a text in quotes, or JSON."
)
@json_option
@data_option
def add(prefix: str | None, subject: str | None, name: str | None, term: str | None, as_json: bool) -> None:
    """Lock the statements that match all options against programs."""
    given = {"document_prefix": prefix, "subject": subject, "property": name}
    body: Item = {key: value for key, value in given.items() if value is not None}
    if term is not None:
        body["object"] = read_term_argument(term)
    _show(connect().change("POST", "/real/locks", body), as_json, "added")


@lock.command("list", example="mdv real lock list")
@list_options
@data_option
def list_(limit: int | None, everything: bool, as_json: bool) -> None:
    """List the locks."""
    listing = Listing(limit, everything, as_json)
    empty = "There are no locks: `mdv real lock add` adds one."
    listing.show(connect().items("/real/locks", listing.page), LOCK, empty)


@lock.command("remove", example="mdv real lock remove 3")
@click.argument("number", metavar="ID", type=click.IntRange(min=1))
@json_option
@data_option
def remove(number: int, as_json: bool) -> None:
    """Remove the lock ID."""
    _show(connect().change("DELETE", f"/real/locks/{number}"), as_json, "removed")


def _show(found: Item, as_json: bool, done: str) -> None:
    if as_json:
        write_json(found)
    else:
        print_line(f"Lock {found['id']} was {done}.")
