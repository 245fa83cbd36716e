"""`mdv register`: files become documents."""

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

from mdv.cli.failures import FAILED, as_mdv_error, sentences
from mdv.cli.files import STDIN, Source, find_sources
from mdv.cli.frame import Verb, connect, data_option, json_option, syntax_option
from mdv.cli.output import Item, say, write_json
from mdv.errors import BadRequest, Forbidden, MdvError, NotAllowed, SystemNotFound, Unavailable

IN_FLIGHT = 8
BAR_FROM = 4
COUNTS = ("inserted", "updated", "deleted", "unchanged")

T = TypeVar("T")
Answer = Item | Exception


@click.command(
    cls=Verb,
    example="mdv register doc.rdf --uri http://mdv.example/doc.rdf\nmdv register books/ --uri-base http://example.org/",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, allow_dash=True, path_type=Path))
@click.option("--uri", help="The document's URI, for exactly one file.")
@click.option(
    "--uri-base", metavar="BASE", help="URIs are BASE with the path below the folder, or with the file's name."
)
@click.option("--uri-from-name", is_flag=True, help="URIs are the file names that `mdv export --to` gave.")
@syntax_option("The syntax of every file  [default: by their suffixes]")
@click.option("--dry-run", is_flag=True, help="Tell what would happen, and change nothing.")
@click.option("--if-match", metavar="V", help="Only if the stored version is V; for exactly one file.")
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
    """Register FILES: files, folders of them, or - for standard input.

    A document's URI is --uri, or made with --uri-base or --uri-from-name, else the file's own (file://…). A document
    that is refused is listed with its errors and stops no other.
    """
    if (uri is not None) + (uri_base is not None) + uri_from_name > 1:
        raise click.UsageError("--uri names one document, --uri-base and --uri-from-name many: say one of them.")
    if STDIN in files and (len(files) > 1 or uri is None or syntax is None):
        raise click.UsageError("Standard input is one document: say its --uri and its --syntax.")
    sources = find_sources(files)
    if (uri is not None or if_match is not None) and len(sources) != 1:
        raise click.UsageError(f"--uri and --if-match are for exactly one file; these are {len(sources)}.")
    named = _name(sources, uri, uri_base, uri_from_name)
    mdp = connect()

    def send(document: str) -> Item:
        source = named[document]
        media_type = source.syntax(syntax).media_type
        return mdp.register(document, source.read(), media_type, dry_run=dry_run, if_match=if_match)

    tally = Tally()
    with _progress(len(named), tally) as shown:
        for document, answer in in_flight(send, named, min(IN_FLIGHT, len(named))):
            if isinstance(answer, Exception):
                shown(_refusal(tally, named[document], document, answer))
            else:
                tally.count(answer)
                shown("")
    _report(tally, dry_run, as_json)


def _name(sources: list[Source], uri: str | None, base: str | None, from_name: bool) -> dict[str, Source]:
    """The file of each document's URI; two files for one URI cannot be meant."""
    named: dict[str, Source] = {}
    for source in sources:
        own = uri if uri is not None else source.exported_uri() if from_name else source.uri(base)
        if own in named and named[own].path.resolve() != source.path.resolve():
            raise BadRequest(f"{named[own].path} and {source.path} would both be {own}: register them one by one.")
        named.setdefault(own, source)
    return named


# Many at once


def in_flight(work: Callable[[T], Item], items: Iterable[T], most: int) -> Iterator[tuple[T, Answer]]:
    """What `work` gives for each item, or how it failed, in the order of their ends; `most` at a time.

    The threads end with the process, so that Ctrl-C waits for no answer.
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


# What came of it


@dataclass(slots=True)
class Tally:
    """What came of the documents so far."""

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
        """The summary.

        >>> tally = Tally()
        >>> tally.count({"created": True, "inserted": 2, "updated": 0, "deleted": 0, "unchanged": 0})
        >>> tally.sentence()
        '1 registered, 0 changed, 0 unchanged, 0 refused; resources: 2 inserted, 0 updated, 0 deleted, 0 unchanged.'
        """
        documents = ", ".join(f"{self.documents[name]:,} {name}" for name in ("registered", "changed", "unchanged"))
        resources = ", ".join(f"{self.resources[name]:,} {name}" for name in COUNTS)
        would = "Nothing was changed; this would be: " if dry_run else ""
        matched = f"; {self.matched:,} came to match a rule" if self.matched else ""
        return f"{would}{documents}, {len(self.refusals):,} refused; resources: {resources}{matched}."


def _refusal(tally: Tally, source: Source, document: str, error: Exception) -> str:
    """The words for a document that was refused. Where no other could do better, the error ends the command."""
    known = as_mdv_error(error)
    hopeless = isinstance(known, SystemNotFound | Unavailable) or (
        isinstance(known, NotAllowed) and not isinstance(known, Forbidden)
    )
    if hopeless or not isinstance(error, MdvError | OSError):
        raise error
    tally.refusals.append({"file": str(source.path), "document": document, "problem": known.problem()})
    return "\n".join(sentences(known, f"refused {source.path}"))


def _report(tally: Tally, dry_run: bool, as_json: bool) -> None:
    if as_json:
        counts = {name: tally.documents[name] for name in ("registered", "changed", "unchanged")}
        summary = counts | {"refused": len(tally.refusals), "resources": {n: tally.resources[n] for n in COUNTS}}
        write_json({"documents": tally.answers, "refused": tally.refusals, "summary": summary})
    else:
        if len(tally.answers) == 1 and not tally.refusals and not dry_run:
            say(f"{tally.answers[0]['document']} is at version {tally.answers[0]['version']}.")
        say(tally.sentence(dry_run))
    if tally.refusals:
        raise click.exceptions.Exit(FAILED)


@contextmanager
def _progress(total: int, tally: Tally) -> Iterator[Callable[[str], None]]:
    """A bar for many documents on a terminal; what it yields is called at each end, with words to show or none."""
    if total < BAR_FROM or not sys.stderr.isatty():
        yield lambda words: click.echo(words, err=True) if words else None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("documents"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}/s"),
        TimeRemainingColumn(), TextColumn("refused {task.fields[refused]}"),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True, highlight=False)) as bar:
        task = bar.add_task("documents", total=total, rate="0", refused=0)

        def advance(words: str) -> None:
            if words:
                bar.console.print(words, markup=False)
            speed = bar.tasks[0].finished_speed or bar.tasks[0].speed or 0.0
            bar.update(task, advance=1, rate=f"{speed:,.0f}", refused=len(tally.refusals))

        yield advance
