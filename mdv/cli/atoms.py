"""`mdv atoms`: the atoms of a document, as in Figure 4 of the paper."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from mdv.cli.command import ExampleCommand, connect, data_option
from mdv.cli.output import Columns, Item, Listing, list_options

ATOM: Columns = {
    "uri_reference": lambda item: item["uri_reference"],
    "class": lambda item: item["class"],
    "property": lambda item: item["property"],
    "value": lambda item: item["value"],
}


@click.command(cls=ExampleCommand, example="mdv atoms http://mdv.example/doc.rdf --short")
@click.argument("uri")
@click.option("--short", is_flag=True, help="Show local names, as in the paper.")
@list_options
@data_option
def atoms(uri: str, short: bool, limit: int | None, everything: bool, as_json: bool) -> None:
    """Show the atoms of the document URI: one row for each resource and each statement."""
    listing = Listing(limit, everything, as_json)
    rows = connect().items("/documents/atoms", listing.page, uri=uri)
    listing.show(shorten(rows, uri) if short else rows, ATOM, "The document has no atoms.")


def shorten(rows: Iterator[Item], document: str) -> Iterator[Item]:
    """Yield the atoms of `document` with short names, as in the paper.

    >>> row = {"uri_reference": "http://a/doc.rdf#host", "class": "http://v#CycleProvider",
    ...        "property": "http://v#serverInformation", "value": "http://a/doc.rdf#info"}
    >>> list(next(shorten(iter([row]), "http://a/doc.rdf")).values())
    ['doc.rdf#host', 'CycleProvider', 'serverInformation', 'doc.rdf#info']
    """
    for row in rows:
        yield {
            "uri_reference": reference_of(row["uri_reference"], document),
            "class": local_name(row["class"]),
            "property": local_name(row["property"]),
            "value": reference_of(row["value"], document),
        }


def reference_of(uri: str, document: str) -> str:
    """Return a URI within `document` relative to the last part of its path; another URI unchanged.

    >>> reference_of("http://a/doc.rdf#host", "http://a/doc.rdf"), reference_of("http://a/x", "http://a/doc.rdf")
    ('doc.rdf#host', 'http://a/x')
    """
    own = document.rstrip("/")
    name = re.split("[/:]", own)[-1] or own
    return name + uri[len(document) :] if uri == document or uri.startswith(document + "#") else uri


def local_name(uri: str) -> str:
    """Return the part after the last # or /. The paper's `rdf#subject` is not a URI and stays unchanged.

    >>> local_name("http://mdv.example/schema#memory"), local_name("rdf#subject")
    ('memory', 'rdf#subject')
    """
    return (re.split("[#/]", uri)[-1] or uri) if ":" in uri else uri
