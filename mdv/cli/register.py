"""`mdv register`: register files as documents."""

from __future__ import annotations

import queue
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import click

from mdv.cli.command import ExampleCommand, connect, data_option, json_option, syntax_option
from mdv.cli.errors import EXIT_FAILED, as_mdv_error, format_error
from mdv.cli.output import Item, print_line, write_json
from mdv.cli.source_files import STDIN, SourceFile, find_sources
from mdv.errors import BadRequest, Forbidden, MdvError, NotAllowed, SystemNotFound, Unavailable

MAX_CONCURRENT_REQUESTS = 8
MIN_FILES_FOR_BAR = 4
COUNTS = ("inserted", "updated", "deleted", "unchanged")

T = TypeVar("T")
Answer = Item | Exception


@click.command(
    cls=ExampleCommand,
    example="mdv register doc.rdf --uri http://mdv.example/doc.rdf\nmdv register books/ --uri-base http://example.org/",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, allow_dash=True, path_type=Path))
@click.option("--uri", help="URI of the document. Requires exactly one file.")
@click.option(
    "--uri-base", metavar="BASE", help="URIs are BASE followed by the path in the folder, or by the file name."
)
@click.option("--uri-from-name", is_flag=True, help="URIs are the decoded file names that `mdv export --to` wrote.")
@syntax_option("Syntax of all files  [default: from the file suffix]")
@click.option("--dry-run", is_flag=True, help="Report what would change, and change nothing.")
@click.option("--if-match", metavar="V", help="Only if the stored version is V. Requires exactly one file.")
@json_option
@data_option
def register(
    files: tuple[Path, ...],
    uri: str | None,
    uri_base: str | None,
    uri_from_name: bool,
    syntax: str | None,
    dry_run: bool,
    if_match: str | None,
    as_json: bool,
) -> None:
    """Register FILES: files, folders, or - for standard input.

    The URI of a document is given by --uri, --uri-base or --uri-from-name. Refused documents are listed with their
    errors and do not stop the others.
    """
    if (uri is not None) + (uri_base is not None) + uri_from_name > 1:
        raise click.UsageError("Use only one of --uri, --uri-base and --uri-from-name.")
    if uri is None and uri_base is None and not uri_from_name:
        raise click.UsageError(
            "Documents need URIs: use --uri URI for one file, --uri-base BASE for several, or --uri-from-name for files"
            " of `mdv export --to`."
        )
    if STDIN in files and (len(files) > 1 or uri is None or syntax is None):
        raise click.UsageError("Standard input is one document: give its --uri and its --syntax, and no other file.")
    sources = find_sources(files)
    if (uri is not None or if_match is not None) and len(sources) != 1:
        raise click.UsageError(f"--uri and --if-match require exactly one file, not {len(sources)}.")
    named = _name(sources, uri, uri_base)
    mdp = connect()

    def send(document: str) -> Item:
        source = named[document]
        media_type = source.syntax(syntax).media_type
        return mdp.register(document, source.read(), media_type, dry_run=dry_run, if_match=if_match)

    tally = RegisterSummary()
    with _progress(len(named), tally) as shown:
        for document, answer in run_concurrently(send, named, min(MAX_CONCURRENT_REQUESTS, len(named))):
            if isinstance(answer, Exception):
                shown(_refusal(tally, named[document], document, answer))
            else:
                tally.count(answer)
                shown("")
    _report(tally, dry_run, as_json)


def _name(sources: list[SourceFile], uri: str | None, base: str | None) -> dict[str, SourceFile]:
    """Return the file for each document URI. Two files with the same URI are an error."""
    named: dict[str, SourceFile] = {}
    for source in sources:
        own = uri if uri is not None else source.exported_uri() if base is None else source.uri(base)
        if own in named and named[own].path.resolve() != source.path.resolve():
            raise BadRequest(f"{named[own].path} and {source.path} have the same URI {own}: register them separately.")
        named.setdefault(own, source)
    return named


# Concurrent requests


def run_concurrently(work: Callable[[T], Item], items: Iterable[T], most: int) -> Iterator[tuple[T, Answer]]:
    """Yield each item with the result of `work` or its exception, in order of completion. At most `most` run at a time.

    The threads are daemons, so Ctrl-C does not wait for responses.
    """
    todo, turn, over = iter(items), threading.Lock(), threading.Event()
    ends: queue.SimpleQueue[tuple[T, Answer] | None] = queue.SimpleQueue()

    def run() -> None:
        while not over.is_set():
            with turn:
                try:
                    item = next(todo)
                except StopIteration:
                    break
            try:
                ends.put((item, work(item)))
            except Exception as error:
                ends.put((item, error))
        ends.put(None)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(most)]
    for thread in threads:
        thread.start()
    try:
        running = len(threads)
        while running:
            end = ends.get()
            if end is None:
                running -= 1
            else:
                yield end
    finally:
        over.set()


# The report


@dataclass(slots=True)
class RegisterSummary:
    """Counts of registered documents and resources, and the refused documents."""

    documents: Counter[str] = field(default_factory=Counter)
    resources: Counter[str] = field(default_factory=Counter)
    matched: int = 0
    answers: list[Item] = field(default_factory=list)
    refusals: list[Item] = field(default_factory=list)

    def count(self, answer: Item) -> None:
        self.answers.append(answer)
        changed = any(answer[name] for name in COUNTS[:-1])
        self.documents["registered" if answer["created"] else "changed" if changed else "unchanged"] += 1
        self.resources.update({name: answer[name] for name in COUNTS})
        self.matched += answer.get("matched", 0)

    def sentence(self, dry_run: bool = False) -> str:
        """Return the summary as a sentence.

        >>> tally = RegisterSummary()
        >>> tally.count({"created": True, "inserted": 2, "updated": 0, "deleted": 0, "unchanged": 0})
        >>> tally.sentence()
        '1 registered, 0 changed, 0 unchanged, 0 refused; resources: 2 inserted, 0 updated, 0 deleted, 0 unchanged.'
        """
        documents = ", ".join(f"{self.documents[name]:,} {name}" for name in ("registered", "changed", "unchanged"))
        resources = ", ".join(f"{self.resources[name]:,} {name}" for name in COUNTS)
        prefix = "Dry run, nothing was changed: " if dry_run else ""
        matched = f"; new matches: {self.matched:,}" if self.matched else ""
        return f"{prefix}{documents}, {len(self.refusals):,} refused; resources: {resources}{matched}."


def _refusal(tally: RegisterSummary, source: SourceFile, document: str, error: Exception) -> str:
    """Record a refused document and return its error message. Errors that concern all documents are raised."""
    known = as_mdv_error(error)
    concerns_all = isinstance(known, SystemNotFound | Unavailable) or (
        isinstance(known, NotAllowed) and not isinstance(known, Forbidden)
    )
    if concerns_all or not isinstance(error, MdvError | OSError):
        raise error
    tally.refusals.append({"file": str(source.path), "document": document, "problem": known.problem()})
    return "\n".join(format_error(known, f"refused {source.path}"))


def _report(tally: RegisterSummary, dry_run: bool, as_json: bool) -> None:
    if as_json:
        counts = {name: tally.documents[name] for name in ("registered", "changed", "unchanged")}
        summary = counts | {"refused": len(tally.refusals), "resources": {n: tally.resources[n] for n in COUNTS}}
        write_json({"documents": tally.answers, "refused": tally.refusals, "summary": summary})
    else:
        if len(tally.answers) == 1 and not tally.refusals and not dry_run:
            print_line(f"{tally.answers[0]['document']} is at version {tally.answers[0]['version']}.")
        print_line(tally.sentence(dry_run))
    if tally.refusals:
        raise click.exceptions.Exit(EXIT_FAILED)


@contextmanager
def _progress(total: int, tally: RegisterSummary) -> Iterator[Callable[[str], None]]:
    """Show a progress bar for many documents on a terminal. The yielded function is called after each document, with a
    message to print or an empty string."""
    if total < MIN_FILES_FOR_BAR or not sys.stderr.isatty():
        yield lambda message: click.echo(message, err=True) if message else None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("documents"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}/s"),
        TimeRemainingColumn(), TextColumn("refused {task.fields[refused]}"),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True, highlight=False)) as bar:
        task = bar.add_task("documents", total=total, rate="0", refused=0)

        def advance(message: str) -> None:
            if message:
                bar.console.print(message, markup=False)
            speed = bar.tasks[0].finished_speed or bar.tasks[0].speed or 0.0
            bar.update(task, advance=1, rate=f"{speed:,.0f}", refused=len(tally.refusals))

        yield advance
