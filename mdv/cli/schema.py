"""`mdv schema`: what documents may say."""

from __future__ import annotations

from pathlib import Path

import click

from mdv.cli.files import STDIN, Source, find_sources
from mdv.cli.frame import Noun, connect, data_option, json_option, syntax_option
from mdv.cli.output import say, write_bytes, write_json
from mdv.rdf.syntax import syntax_of_name


@click.group(cls=Noun, example="mdv schema put schema.ttl")
def schema() -> None:
    """What documents may say: read it, replace it, draft one."""


@schema.command("put", example="mdv schema put schema.ttl")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@syntax_option("The syntax of FILE  [default: by its suffix]")
@json_option
@data_option
def put(file: Path, syntax: str | None, as_json: bool) -> None:
    """Replace the schema by FILE (- is standard input)."""
    if file == STDIN and syntax is None:
        raise click.UsageError("Standard input has no suffix: say its --syntax.")
    source = Source(file, file.name)
    answer = connect().put_schema(source.read(), source.syntax(syntax).media_type)
    if as_json:
        write_json(answer)
        return
    say(
        f"Schema version {answer['version']}"
        + ("" if answer["changed"] else ", as before")
        + f": {answer['classes']} classes, {answer['properties']} properties."
    )


@schema.command("show", example="mdv schema show --syntax turtle")
@syntax_option("How to write it", default="turtle")
@json_option
@data_option
def show(syntax: str, as_json: bool) -> None:
    """Write the schema to standard output."""
    wanted = syntax_of_name("jsonld" if as_json else syntax)
    write_bytes(connect().rdf("/schema", wanted.media_type))


@schema.command("infer", example="mdv schema infer documents/ > schema.ttl")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@syntax_option("The syntax of every file  [default: by their suffixes]")
def infer(files: tuple[Path, ...], syntax: str | None) -> None:
    """Draft a schema from sample documents: files, and folders of them. Asks no server."""
    from mdv.errors import Refused
    from mdv.model import Document
    from mdv.rdf.blank import name_blank_nodes
    from mdv.rdf.gate import gate
    from mdv.rdf.infer import infer_schema
    from mdv.rdf.parse import parse

    def read(source: Source) -> Document:
        try:
            return name_blank_nodes(parse(gate(source.read(), source.syntax(syntax)), source.uri()))
        except Refused as error:
            raise type(error)(f"{source.path}: {error.detail}", error.flaws) from None

    click.echo(infer_schema([read(source) for source in find_sources(files)]), nl=False)
