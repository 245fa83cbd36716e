"""`mdv resources`: what is known, whoever said it."""

from __future__ import annotations

import click

from mdv.cli.frame import Verb, connect, data_option, syntax_option
from mdv.cli.output import Columns, Item, Listing, list_options, on_terminal, say, write_bytes, write_json, write_table
from mdv.rdf.syntax import syntax_of_name

RESOURCE: Columns = {"resource": lambda item: item["uri"], "classes": lambda item: item["classes"]}


@click.command(cls=Verb, example="mdv resources --class CycleProvider\nmdv resources http://mdv.example/doc.rdf#host")
@click.argument("uri", required=False)
@click.option("--class", "class_", metavar="C", help="Only the instances of this class, subclasses included.")
@syntax_option("Write the one resource as RDF")
@list_options
@data_option
def resources(
    uri: str | None, class_: str | None, syntax: str | None, limit: int | None, everything: bool, as_json: bool
) -> None:
    """Show the resource URI, or list the resources (of a class)."""
    if uri is not None and class_ is not None:
        raise click.UsageError("Name one resource, or a --class of them, not both.")
    if uri is None and syntax is not None:
        raise click.UsageError("--syntax writes one resource: name its URI.")
    mdp = connect()
    if uri is None:
        listing = Listing(limit, everything, as_json)
        listing.show(mdp.items("/resources", listing.page, **{"class": class_}), RESOURCE, "There is no such resource.")
    elif syntax is not None:
        write_bytes(mdp.rdf("/resources", syntax_of_name(syntax).media_type, uri=uri))
    else:
        _show(mdp.get("/resources", uri=uri), as_json)


def _show(resource: Item, as_json: bool) -> None:
    if as_json:
        write_json(resource)
        return
    if on_terminal():
        say(f"{resource['uri']}: {', '.join(resource['classes'])}")
    rows = [(property_, term["value"], _kind(term)) for property_, term in resource["statements"]]
    write_table(("property", "value", "kind"), rows)
    if on_terminal():
        say(f"Said by {', '.join(resource['documents'])}.")


def _kind(term: Item) -> str:
    """What a value is besides its text: `uri`, `@en`, a datatype, or nothing."""
    if term["type"] == "uri":
        return "uri"
    return f"@{term['lang']}" if term.get("lang") else str(term.get("datatype") or "")
