"""`mdv documents` and `mdv delete`: list and delete documents."""

from __future__ import annotations

import sys

import click

from mdv.cli.command import ExampleCommand, ExampleGroup, connect, data_option, json_option
from mdv.cli.errors import EXIT_FAILED, format_error
from mdv.cli.output import Columns, Listing, list_options, print_line, write_json
from mdv.errors import Forbidden, NotFound

DOCUMENT: Columns = {
    "document": lambda item: item["uri"],
    "version": lambda item: item["version"],
    "position": lambda item: item["position"],
}
VERSION: Columns = {
    "version": lambda item: item["version"],
    "position": lambda item: item["position"],
    "at": lambda item: item["at"],
    "present": lambda item: item["present"],
    "inserted": lambda item: item["inserted"],
    "updated": lambda item: item["updated"],
    "deleted": lambda item: item["deleted"],
    "unchanged": lambda item: item["unchanged"],
}


@click.group(cls=ExampleGroup, invoke_without_command=True, example="mdv documents --limit 10")
@list_options
@data_option
@click.pass_context
def documents(context: click.Context, limit: int | None, everything: bool, as_json: bool) -> None:
    """List the registered documents."""
    if context.invoked_subcommand is None:
        listing = Listing(limit, everything, as_json)
        listing.show(connect().items("/documents", listing.page), DOCUMENT, "There are no documents.")


@documents.command("history", example="mdv documents history http://mdv.example/doc.rdf")
@click.argument("uri")
@list_options
@data_option
def history(uri: str, limit: int | None, everything: bool, as_json: bool) -> None:
    """List the versions of the document URI, newest first."""
    listing = Listing(limit, everything, as_json)
    listing.show(connect().items("/documents/history", listing.page, uri=uri), VERSION, "The document has no versions.")


@click.command(cls=ExampleCommand, example="mdv delete http://mdv.example/doc.rdf")
@click.argument("uris", metavar="URI...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation. Required without a terminal.")
@click.option("--dry-run", is_flag=True, help="Report what would change, and change nothing.")
@json_option
@data_option
def delete(uris: tuple[str, ...], yes: bool, dry_run: bool, as_json: bool) -> None:
    """Delete documents. Their history is kept."""
    mdp = connect()
    what = uris[0] if len(uris) == 1 else f"{len(uris)} documents"
    if not (yes or dry_run):
        if not sys.stdin.isatty():
            raise click.UsageError(f"There is no terminal to confirm that {what} will be deleted: use --yes.")
        if not click.confirm(f"Delete {what}?", err=True):
            raise click.exceptions.Exit(EXIT_FAILED)
    answers, failed = [], 0
    for uri in dict.fromkeys(uris):
        try:
            answers.append(mdp.delete(uri, dry_run=dry_run))
        except (NotFound, Forbidden) as error:
            failed += 1
            click.echo("\n".join(format_error(error)), err=True)
            continue
        if not as_json:
            would = "Would delete" if dry_run else "Deleted"
            print_line(f"{would} {uri}: {answers[-1]['deleted']} resources deleted, {answers[-1]['updated']} updated.")
    if as_json:
        write_json({"deleted": answers, "failed": failed})
    if failed:
        raise click.exceptions.Exit(EXIT_FAILED)
