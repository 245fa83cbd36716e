"""`mdv resources`: list and show resources."""

from __future__ import annotations

import click

from mdv.cli.command import ExampleCommand, connect, data_option, syntax_option
from mdv.cli.output import (
    Columns,
    Item,
    Listing,
    list_options,
    on_terminal,
    print_line,
    write_bytes,
    write_json,
    write_table,
)
from mdv.rdf.syntax import syntax_of_name

MAX_ORIGINS_PRINTED = 20
"""Statements that were inserted by rules and updates, of which the reason is printed."""
RESOURCE: Columns = {"resource": lambda item: item["uri"], "classes": lambda item: item["classes"]}


@click.command(
    cls=ExampleCommand, example="mdv resources --class CycleProvider\nmdv resources http://mdv.example/doc.rdf#host"
)
@click.argument("uri", required=False)
@click.option("--class", "class_", metavar="C", help="Only instances of this class and its subclasses.")
@syntax_option("Print the resource as RDF in this syntax")
@list_options
@data_option
def resources(
    uri: str | None, class_: str | None, syntax: str | None, limit: int | None, everything: bool, as_json: bool
) -> None:
    """Show the resource URI, or list all resources or those of a class."""
    if uri is not None and class_ is not None:
        raise click.UsageError("Give a URI or --class, not both.")
    if uri is None and syntax is not None:
        raise click.UsageError("--syntax requires the URI of a resource.")
    mdp = connect()
    if uri is None:
        listing = Listing(limit, everything, as_json)
        listing.show(mdp.items("/resources", listing.page, **{"class": class_}), RESOURCE, "There are no resources.")
    elif syntax is not None:
        write_bytes(mdp.rdf("/resources", syntax_of_name(syntax).media_type, uri=uri))
    else:
        _show(mdp.get("/resources", uri=uri), as_json)


def _show(resource: Item, as_json: bool) -> None:
    if as_json:
        write_json(resource)
        return
    if on_terminal():
        print_line(f"{resource['uri']}: {', '.join(resource['classes'])}")
    rows = [(property_, term["value"], _kind(term)) for property_, term in resource["statements"]]
    write_table(("property", "value", "kind"), rows)
    if on_terminal():
        print_line(f"Documents: {', '.join(resource['documents'])}.")
        print_origins(resource["origins"])


def print_origins(origins: list[Item]) -> None:
    """Print which statements of a resource were inserted by rules and updates, and why."""
    for origin in origins[:MAX_ORIGINS_PRINTED]:
        name, term = origin["statement"]
        print_line(f"{name} {term['value']!r} in {origin['document']}: {origin['text']}.")
    if len(origins) > MAX_ORIGINS_PRINTED:
        print_line(f"… and {len(origins) - MAX_ORIGINS_PRINTED:,} more statements by rules and updates.")


def _kind(term: Item) -> str:
    """Return `uri`, the language as `@en`, the datatype, or an empty string."""
    if term["type"] == "uri":
        return "uri"
    return f"@{term['lang']}" if term.get("lang") else str(term.get("datatype") or "")
