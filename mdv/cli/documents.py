"""`mdv documents` and `mdv delete`: list and delete documents."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import datetime

import click

from mdv.cli.command import ExampleCommand, ExampleGroup, connect, data_option, json_option
from mdv.cli.errors import EXIT_FAILED, format_error
from mdv.cli.output import Columns, Item, Listing, list_options, print_line, write_json
from mdv.client import Client
from mdv.errors import Forbidden, NotFound
from mdv.rdf.parse import check_document_uri
from mdv.rdf.snippet import read_prefixes, read_snippet
from mdv.rdf.syntax import TURTLE
from mdv.rdf.term_json import write_statement

DOCUMENT: Columns = {
    "document": lambda item: item["uri"],
    "version": lambda item: item["version"],
    "position": lambda item: item["position"],
}
VERSION: Columns = {
    "version": lambda item: item["version"],
    "at": lambda item: datetime.fromisoformat(item["at"]).strftime("%Y-%m-%d %H:%M:%S"),
    "cause": lambda item: " ".join(filter(None, (item["cause"], item["agent"]))),
    "by": lambda item: item["by"] or "unknown",
    "resources": lambda item: _changes(item),
}


def _changes(item: Item) -> str:
    if not item["present"]:
        return "document deleted"
    counts = [f"{item[name]:,} {name}" for name in ("inserted", "updated", "deleted") if item[name]]
    return ", ".join(counts) or "no visible change"


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
    """List the versions of the document URI, newest first.

    Each has a cause (a registration, an update, a rule, …), and the user, token or batch that caused it. --json prints
    all fields.
    """
    listing = Listing(limit, everything, as_json)
    listing.show(connect().items("/documents/history", listing.page, uri=uri), VERSION, "The document has no versions.")


@documents.command(
    "edit",
    example="mdv documents edit http://mdv.example/doc.rdf --remove '<#host> :serverPort \"5874\"'"
    " --add '<#host> :serverPort \"5875\"'",
)
@click.argument("uri")
@click.option("--add", "added", metavar="TURTLE", multiple=True, help="Statements to add. Can be repeated.")
@click.option("--remove", "removed", metavar="TURTLE", multiple=True, help="Statements to remove. Can be repeated.")
@click.option("--dry-run", is_flag=True, help="Report what would change, and change nothing.")
@click.option("--if-match", metavar="V", help="Only if the stored version is V.")
@json_option
@data_option
def edit(
    uri: str, added: tuple[str, ...], removed: tuple[str, ...], dry_run: bool, if_match: str | None, as_json: bool
) -> None:
    """Add statements to the document URI, or remove some.

    Statements are Turtle, with the prefixes of the schema. Relative URIs such as <#host> are relative to the document.
    Removals come before additions. A document that loses its last statement is deleted; its history is kept.
    """
    if not added and not removed:
        raise click.UsageError("Give at least one --add or --remove.")
    check_document_uri(uri)
    mdp = connect()
    prefixes = read_prefixes(mdp.rdf("/schema", TURTLE.media_type))
    edits = [
        [write_statement(one) for text in texts for one in read_snippet(text, uri, prefixes)]
        for texts in (added, removed)
    ]
    done = mdp.edit(uri, *edits, dry_run=dry_run, if_match=if_match)
    if as_json:
        write_json(done)
        return
    state = f"{uri} {'would be' if dry_run else 'is'} at version {done['version']}"
    counts = ", ".join(f"{done[name]:,} {name}" for name in ("inserted", "updated", "deleted") if done[name])
    if counts:
        print_line(f"{state}; resources: {counts}.")
    else:
        print_line(f"{state}, without a visible change.{_reasons_for_no_change(uri, added, removed)}")
    if not done["present"]:
        print_line(
            f"It {'would have' if dry_run else 'has'} no statements, so it {'would be' if dry_run else 'is'} deleted."
        )


def _reasons_for_no_change(uri: str, added: tuple[str, ...], removed: tuple[str, ...]) -> str:
    reasons = ""
    if added:
        reasons += " Some document contains the added statements already."
    if removed:
        reasons += (
            " A statement is removed only if its value, language and datatype are equal:"
            f" `mdv export {uri} --syntax turtle` shows them."
        )
    return reasons


MAX_DOCUMENTS_CHECKED = 20
"""Maximum number of documents whose deletion is tried before the confirmation."""
MAX_REFERENCES_PRINTED = 10


def _warn_of_references(mdp: Client, uris: tuple[str, ...]) -> None:
    """Print the references of other documents to resources that would be deleted."""
    for uri in list(dict.fromkeys(uris))[:MAX_DOCUMENTS_CHECKED]:
        with suppress(NotFound, Forbidden):  # reported when the document is deleted
            _print_references(mdp.delete(uri, dry_run=True), err=True)


def _print_references(tried: Item, err: bool) -> None:
    references = tried.get("references", [])
    if references:
        click.echo(f"Other documents refer to resources of {tried['document']} that only it describes:", err=err)
    for reference in references[:MAX_REFERENCES_PRINTED]:
        line = (
            f"  <{reference['resource']}> <{reference['property']}> <{reference['target']}> in {reference['document']}"
        )
        click.echo(line, err=err)
    if len(references) > MAX_REFERENCES_PRINTED:
        click.echo("  and others.", err=err)


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
        _warn_of_references(mdp, uris)
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
            _print_references(answers[-1], err=False)
    if as_json:
        write_json({"deleted": answers, "failed": failed})
    if failed:
        raise click.exceptions.Exit(EXIT_FAILED)
