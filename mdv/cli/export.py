"""`mdv export`: documents as RDF, to standard output or into a folder."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import quote

import click

from mdv.cli.frame import Verb, connect, data_option, syntax_option
from mdv.cli.output import say, write_bytes
from mdv.errors import NotAcceptable
from mdv.rdf.syntax import TURTLE, Syntax, syntax_of_name

LONGEST_NAME = 200


@click.command(
    cls=Verb,
    example="mdv export http://mdv.example/doc.rdf --syntax turtle\nmdv export --all --to backup/",
)
@click.argument("uris", metavar="[URI]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every document.")
@click.option(
    "--to",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a file a document into DIR, named by its URI, percent-encoded.",
)
@syntax_option("How to write it", default="rdfxml")
@click.option("--version", type=click.IntRange(min=1), metavar="N", help="An earlier version of the one document.")
@data_option
def export(uris: tuple[str, ...], everything: bool, folder: Path | None, syntax: str, version: int | None) -> None:
    """Write documents as RDF: one to standard output, several into a folder.

    `mdv register DIR --uri-from-name` registers such a folder again, each document under its own URI.
    """
    if bool(uris) == everything:
        raise click.UsageError("Name the documents, or say --all.")
    if folder is None and (everything or len(uris) > 1):
        raise click.UsageError("Several documents go into a folder: say --to DIR.")
    if version is not None and len(uris) != 1:
        raise click.UsageError("--version is that of one document: name it.")
    mdp = connect()
    wanted = syntax_of_name(syntax)
    path = "/documents" if version is None else "/documents/history"

    def text(uri: str, syntax: Syntax) -> bytes:
        return mdp.rdf(path, syntax.media_type, uri=uri, version=version)

    if folder is None:
        write_bytes(text(uris[0], wanted))
        return
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for uri in (item["uri"] for item in mdp.items("/documents")) if everything else dict.fromkeys(uris):
        try:
            (folder / file_name(uri, wanted)).write_bytes(text(uri, wanted))
        except NotAcceptable as error:
            # RDF/XML has no way to write some names and characters; Turtle has one for all of them.
            (folder / file_name(uri, TURTLE)).write_bytes(text(uri, TURTLE))
            click.echo(f"{uri} is written as Turtle: {error.detail}", err=True)
        count += 1
    say(f"Exported {count:,} {'document' if count == 1 else 'documents'} to {folder}.")


def file_name(uri: str, syntax: Syntax) -> str:
    """A name that no other document gets, and that leads out of no folder.

    >>> file_name("http://mdv.example/doc.rdf", syntax_of_name("turtle"))
    'http%3A%2F%2Fmdv.example%2Fdoc.rdf.ttl'
    """
    name, suffix = quote(uri, safe=""), syntax.suffixes[0]
    if len(name) > LONGEST_NAME:
        name = f"{name[:LONGEST_NAME]}-{hashlib.sha256(uri.encode()).hexdigest()[:16]}"
    return name + suffix
