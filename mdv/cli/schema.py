"""`mdv schema`: read, replace and draft the schema."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from mdv.cli.command import ExampleGroup, connect, data_option, json_option, syntax_option
from mdv.cli.output import Item, print_line, write_bytes, write_json
from mdv.cli.source_files import STDIN, SourceFile, find_sources
from mdv.rdf.syntax import syntax_of_name


@click.group(cls=ExampleGroup, example="mdv schema put schema.ttl")
def schema() -> None:
    """Read or replace the schema, or draft one."""


@schema.command("put", example="mdv schema put schema.ttl")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@syntax_option("Syntax of FILE  [default: from its suffix]")
@click.option("--dry-run", is_flag=True, help="Report what would change, and change nothing.")
@click.option("--force", is_flag=True, help="In a backbone: also if a member is away.")
@json_option
@data_option
def put(file: Path, syntax: str | None, dry_run: bool, force: bool, as_json: bool) -> None:
    """Replace the schema with FILE (- is standard input)."""
    if file == STDIN and syntax is None:
        raise click.UsageError("Standard input has no suffix: give its --syntax.")
    source = SourceFile(file, file.name)
    answer = connect().put_schema(source.read(), source.syntax(syntax).media_type, dry_run=dry_run, force=force)
    if as_json:
        write_json(answer)
        return
    if dry_run:
        for line in _changes(answer):
            print_line(line)
    prefix = "Dry run, nothing was changed: " if dry_run else ""
    print_line(
        f"{prefix}Schema version {answer['version']}"
        + ("" if answer["changed"] else ", unchanged")
        + f": {answer['classes']} classes, {answer['properties']} properties."
    )
    if dry_run and answer["changed"]:
        print_line(_consequences(answer))
    for concerned in answer["concerned"] if dry_run else ():
        print_line(f"  {concerned['lmr']}: {_resource_counts(concerned)}.")


_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def _changes(answer: Item) -> Iterator[str]:
    """Yield one line for each change of a schema.

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
    """Return the consequences of a schema as a sentence.

    >>> _consequences({"rules_anew": 1, "matched": 2, "unmatched": 0, "sent": 3, "left": 1, "lmrs": 1})
    'Rules recompiled: 1. LMRs notified: 1; resources: 2 new matches, 0 lost matches, 3 sent, 1 removed.'
    """
    recompiled = f"Rules recompiled: {answer['rules_anew']:,}."
    return f"{recompiled} LMRs notified: {answer['lmrs']:,}; resources: {_resource_counts(answer)}."


def _resource_counts(answer: Item) -> str:
    matches = f"{answer['matched']:,} new matches, {answer['unmatched']:,} lost matches"
    return f"{matches}, {answer['sent']:,} sent, {answer['left']:,} removed"


@schema.command("show", example="mdv schema show --syntax turtle")
@syntax_option("Syntax of the output", default="turtle")
@json_option
@data_option
def show(syntax: str, as_json: bool) -> None:
    """Print the schema."""
    wanted = syntax_of_name("jsonld" if as_json else syntax)
    write_bytes(connect().rdf("/schema", wanted.media_type))


@schema.command("infer", example="mdv schema infer documents/ > schema.ttl")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@syntax_option("Syntax of all files  [default: from the file suffix]")
def infer(files: tuple[Path, ...], syntax: str | None) -> None:
    """Draft a schema from sample documents: files and folders. Needs no server."""
    from mdv.errors import Refused
    from mdv.model import Document
    from mdv.rdf.infer import infer_schema, read_sample

    def read(source: SourceFile) -> Document:
        try:
            return read_sample(source.read(), source.syntax(syntax), source.path.resolve().as_uri())
        except Refused as error:
            raise type(error)(f"{source.path}: {error.detail}", error.flaws) from None

    click.echo(infer_schema([read(source) for source in find_sources(files)]), nl=False)
