"""`mdv export`: write documents as RDF to standard output or into a folder."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import quote

import click

from mdv.cli.command import ExampleCommand, connect, data_option, syntax_option
from mdv.cli.output import print_line, write_bytes
from mdv.errors import NotAcceptable
from mdv.rdf.syntax import TURTLE, Syntax, syntax_of_name

MAX_NAME_CHARACTERS = 200


@click.command(
    cls=ExampleCommand,
    example="mdv export http://mdv.example/doc.rdf --syntax turtle\nmdv export --all --to backup/",
)
@click.argument("uris", metavar="[URI]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Export all documents.")
@click.option(
    "--to",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write one file per document into DIR. Its name is the percent-encoded URI.",
)
@syntax_option("Syntax of the output", default="rdfxml")
@click.option("--version", type=click.IntRange(min=1), metavar="N", help="Export version N. Requires exactly one URI.")
@data_option
def export(uris: tuple[str, ...], everything: bool, folder: Path | None, syntax: str, version: int | None) -> None:
    """Write documents as RDF: one to standard output, several into a folder.

    `mdv register DIR --uri-from-name` registers such a folder again, each document with its original URI. --all leaves
    out the documents that MDV itself writes (`urn:mdv:…`), which cannot be registered: name them to export them.
    """
    if bool(uris) == everything:
        raise click.UsageError("Give the URIs of documents, or --all.")
    if folder is None and (everything or len(uris) > 1):
        raise click.UsageError("Several documents need a folder: use --to DIR.")
    if version is not None and len(uris) != 1:
        raise click.UsageError("--version requires exactly one URI.")
    mdp = connect()
    wanted = syntax_of_name(syntax)
    path = "/documents" if version is None else "/documents/history"

    def text(uri: str, syntax: Syntax) -> bytes:
        return mdp.rdf(path, syntax.media_type, uri=uri, version=version)

    if folder is None:
        write_bytes(text(uris[0], wanted))
        return
    folder.mkdir(parents=True, exist_ok=True)
    from mdv.rdf.parse import RESERVED_URI_PREFIX

    count = left_out = 0
    for uri in (item["uri"] for item in mdp.items("/documents")) if everything else dict.fromkeys(uris):
        if everything and uri.startswith(RESERVED_URI_PREFIX):
            left_out += 1
            continue
        try:
            (folder / file_name(uri, wanted)).write_bytes(text(uri, wanted))
        except NotAcceptable as error:
            # RDF/XML cannot express some names and characters; Turtle can express all of them.
            (folder / file_name(uri, TURTLE)).write_bytes(text(uri, TURTLE))
            click.echo(f"{uri} is written as Turtle: {error.detail}", err=True)
        count += 1
    if left_out:
        click.echo(f"Documents that MDV itself writes ({RESERVED_URI_PREFIX}…) were left out: {left_out:,}.", err=True)
    print_line(f"Exported {count:,} {'document' if count == 1 else 'documents'} to {folder}.")


def file_name(uri: str, syntax: Syntax) -> str:
    """Return a file name that is unique for the URI and stays inside the folder.

    >>> file_name("http://mdv.example/doc.rdf", syntax_of_name("turtle"))
    'http%3A%2F%2Fmdv.example%2Fdoc.rdf.ttl'
    """
    name, suffix = quote(uri, safe=""), syntax.suffixes[0]
    if len(name) > MAX_NAME_CHARACTERS:
        name = f"{name[:MAX_NAME_CHARACTERS]}-{hashlib.sha256(uri.encode()).hexdigest()[:16]}"
    return name + suffix
