"""`mdv update`: change statements with the actions of RDFTL."""

from __future__ import annotations

from pathlib import Path

import click

from mdv.cli.command import ExampleCommand, connect, data_option, json_option
from mdv.cli.eca_tree import print_tree, print_warnings
from mdv.cli.output import print_line, write_json
from mdv.cli.rule import read_text


@click.command(
    cls=ExampleCommand,
    example='mdv update -e "UPDATE (resource(http://mdv.example/doc.rdf#host), serverPort, _ -> 5875)"',
)
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("-e", "text", metavar="TEXT", help="The text of the update, instead of FILE.")
@click.option("--graph", metavar="URI", help="The document that insertions go to  [default: urn:mdv:updates]")
@click.option("--dry-run", is_flag=True, help="Report what would change, and change nothing.")
@json_option
@data_option
def update(file: Path | None, text: str | None, graph: str | None, dry_run: bool, as_json: bool) -> None:
    """Execute actions in one transaction, with the rules that they trigger. FILE - is standard input.

    Actions are INSERT, DELETE and UPDATE of nodes and of triples (source, property, target), separated by semicolons.
    Deletions and updates change every document that contains the statement.
    """
    given = read_text(file, text, "update", "-e TEXT")
    done = connect().update(given, graph=graph, dry_run=dry_run)
    if as_json:
        write_json(done)
        return
    print_warnings(done["warnings"])
    counts = ", ".join(f"{done[name]:,} {name}" for name in ("inserted", "deleted", "updated"))
    fired = f" {_times(done['fired'])}" if done["fired"] else ""
    prefix = "Dry run, nothing was changed: statements" if dry_run else "Statements"
    print_line(f"{prefix}: {counts}.{fired}")
    if dry_run and done["run"]:
        print_tree(done["run"])
    elif done["fired"]:
        print_line(f"`mdv eca trace {done['run']}` shows the run.")


def _times(number: int) -> str:
    return f"Rules fired {number:,} time{'s' if number != 1 else ''}."
