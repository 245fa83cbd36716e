"""`mdv schema`: what documents may say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from mdv.cli.files import STDIN, Source, find_sources
from mdv.cli.frame import Noun, connect, data_option, json_option, syntax_option
from mdv.cli.output import Item, say, write_bytes, write_json
from mdv.rdf.syntax import syntax_of_name


@click.group(cls=Noun, example="mdv schema put schema.ttl")
def schema() -> None:
    """What documents may say: read it, replace it, draft one."""


@schema.command("put", example="mdv schema put schema.ttl")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@syntax_option("The syntax of FILE  [default: by its suffix]")
@click.option("--dry-run", is_flag=True, help="Tell what would happen, and change nothing.")
@json_option
@data_option
def put(file: Path, syntax: str | None, dry_run: bool, as_json: bool) -> None:
    """Replace the schema by FILE (- is standard input)."""
    if file == STDIN and syntax is None:
        raise click.UsageError("Standard input has no suffix: say its --syntax.")
    source = Source(file, file.name)
    answer = connect().put_schema(source.read(), source.syntax(syntax).media_type, dry_run=dry_run)
    if as_json:
        write_json(answer)
        return
    if dry_run:
        for line in _changes(answer):
            say(line)
    would = "Nothing was changed; this would be: " if dry_run else ""
    say(
        f"{would}Schema version {answer['version']}"
        + ("" if answer["changed"] else ", as before")
        + f": {answer['classes']} classes, {answer['properties']} properties."
    )
    if dry_run and answer["changed"]:
        say(_consequences(answer))
    for concerned in answer["concerned"] if dry_run else ():
        say(f"  {concerned['lmr']}: {_of_resources(concerned)}.")


_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def _changes(answer: Item) -> Iterator[str]:
    """What a schema would change, a line each.

    >>> range_ = {"aspect": "range", "before": ["xsd:string"], "after": ["xsd:integer"]}
    >>> change = {"what": "property", "name": "ex:n", "change": "changed", "aspects": [range_]}
    >>> list(_changes({"changes": [change], "changes_left_out": 2}))
    ['~ property ex:n: range xsd:string -> xsd:integer', 'and 2 more changes']
    """
    for change in answer["changes"]:
        aspects = "; ".join(_aspect(aspect, change["change"]) for aspect in change["aspects"])
        what = change["name"] if change["what"] == "world" else f"{change['what']} {change['name']}"
        yield f"{_SIGNS[change['change']]} {what}" + (f": {aspects}" if aspects else "")
    if answer["changes_left_out"]:
        yield f"and {answer['changes_left_out']:,} more changes"


def _aspect(aspect: Item, change: str) -> str:
    before, after = (", ".join(aspect[when]) or "none" for when in ("before", "after"))
    if change != "changed":
        return f"{aspect['aspect']} {after if change == 'added' else before}"
    became = f"{before} -> {after}"
    return became if aspect["aspect"] == "world" else f"{aspect['aspect']} {became}"


def _consequences(answer: Item) -> str:
    """What would come of a schema, in a sentence.

    >>> _consequences({"rules_anew": 1, "matched": 2, "unmatched": 0, "sent": 3, "left": 1, "lmrs": 1})
    'Rules taken apart anew: 1. LMRs told: 1; resources: 2 come to match, 0 cease to, 3 sent, 1 leave.'
    """
    anew = f"Rules taken apart anew: {answer['rules_anew']:,}."
    return f"{anew} LMRs told: {answer['lmrs']:,}; resources: {_of_resources(answer)}."


def _of_resources(told: Item) -> str:
    matching = f"{told['matched']:,} come to match, {told['unmatched']:,} cease to"
    return f"{matching}, {told['sent']:,} sent, {told['left']:,} leave"


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
