"""`mdv batch`: very many documents, through Spark."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

import mdv
from mdv.cli.failures import FAILED
from mdv.cli.frame import Verb, data_folder, data_option, json_option, syntax_option
from mdv.cli.output import Item, clean, say, write_json
from mdv.config import Config
from mdv.errors import BadCommand, SystemNotFound, Unavailable
from mdv.system import System, find_database

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from mdv.batch.run import Summary, Watch
    from mdv.db.batch import Progress

SHOWN = 10


def _show_script(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(Path(mdv.__file__).parent / "submit" / "mdv_batch.py")
        context.exit()


@click.command(
    cls=Verb,
    example="mdv batch books.tar.gz --uri-base http://example.org/ --rejects rejects\n"
    "mdv batch 'epub/*.rdf' --uri 'http://www.gutenberg.org/cache/epub/{1}/pg{1}.rdf'\n"
    "mdv batch dump.nq.gz --master spark://host:7077",
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@click.option("--master", metavar="URL", help="Where Spark runs  [default: all cores of this machine]")
@click.option("--uri-base", metavar="BASE", help="URIs are BASE with the path below the folder or in the archive.")
@click.option("--uri", metavar="PATTERN", help="URIs by a pattern: {1}, {2} are the numbers in the file's name.")
@click.option("--match", metavar="REGEX", help="What {1}, {name} of --uri are: groups found in the path.")
@click.option("--manifest", metavar="FILE", help="A table of paths and URIs: CSV, TSV or lines of JSON.")
@click.option("--by", metavar="REGEX", help="In dumps without graphs: the part of a subject that names its document.")
@syntax_option("The syntax of every document  [default: by their suffixes]")
@click.option("--rejects", metavar="DIR", help="Put what is refused there, as Parquet, with the reasons.")
@click.option("--dry-run", is_flag=True, help="Read and check everything, tell what would happen, change nothing.")
@click.option("--match-in", type=click.Choice(["postgres", "spark"]), default="postgres", show_default=True,
              help="Where texts and numbers are compared with the constants of rules.")  # fmt: skip
@click.option("--watch", is_flag=True, help="Go on registering what arrives in the folder PATH, until Ctrl-C.")
@click.option("--conf", "settings", metavar="NAME=VALUE", multiple=True, help="A setting of Spark; many may be given.")
@click.option("--script", is_flag=True, is_eager=True, expose_value=False, callback=_show_script,
              help="Show the path of the script to give to spark-submit.")  # fmt: skip
@json_option
@data_option
def batch(
    paths: tuple[str, ...],
    master: str | None,
    uri_base: str | None,
    uri: str | None,
    match: str | None,
    manifest: str | None,
    by: str | None,
    syntax: str | None,
    rejects: str | None,
    dry_run: bool,
    match_in: str,
    watch: bool,
    settings: tuple[str, ...],
    as_json: bool,
) -> None:
    """Register very many documents, on Spark: folders, globs, archives (.tar, .tar.gz, .tar.xz, .zip), or dumps of
    N-Triples and N-Quads. PATH may be any URL that Spark can read.

    The result is that of registering each by itself. A document that is refused stops no other. The same command
    again changes nothing; after a run that was killed it goes on. Of documents with the same URI the last counts.

    Ends with 0 when all is registered, or refused and put into --rejects; with 1 otherwise.
    """
    from mdv.batch.inputs import find_incoming
    from mdv.batch.names import Naming
    from mdv.batch.run import Order, run_batch
    from mdv.batch.session import session
    from mdv.batch.warm import start_in_background
    from mdv.batch.watch import watch_folder

    naming = Naming(uri_base, uri, match, manifest)
    if rejects is not None and not rejects.strip():
        raise click.UsageError("--rejects takes a folder.")
    if watch and len(paths) != 1:
        raise click.UsageError("--watch takes one folder.")
    if watch and dry_run:
        raise click.UsageError("--watch registers what arrives: it has no --dry-run.")
    options = _settings(settings)
    system = find_database(data_folder())
    config = Config.from_environment()
    engine = _connect(system)
    order = Order(" ".join(paths), config.max_document_bytes, rejects, dry_run, match_in == "spark", add_rejects=watch)
    _check_local([*paths, *([manifest] if manifest else [])])
    _tell("Starting Spark …")
    with session(master, options) as spark, _quietly_interrupted():

        def register(found: list[str], below: str | None = None) -> Summary:
            incoming = find_incoming(spark, found, naming, syntax, by, order.max_bytes, below)
            with _progress(dry_run, quiet=watch) as shown:
                return run_batch(spark, engine, system.database_url, incoming, order, shown)

        if watch:
            _tell(f"Watching {paths[0]}; Ctrl-C stops it.")
            watch_folder(spark, engine, paths[0], register, lambda summary: _report(summary, as_json), _complain)
        else:
            summary = register(list(paths))
            if sys.stderr.isatty():
                start_in_background()
            _report(summary, as_json)
            if summary.refused and rejects is None:
                raise click.exceptions.Exit(FAILED)


def _tell(words: str) -> None:
    """What takes a while, to people."""
    if sys.stderr.isatty():
        click.echo(words, err=True)


def _check_local(paths: list[str]) -> None:
    """What is not there can be told before Spark is started."""
    for path in paths:
        is_url, is_glob = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path), set("*?[{") & set(path)
        if not is_url and not is_glob and not Path(path).exists():
            raise BadCommand(f"There is no file or folder {path}.")


@contextmanager
def _quietly_interrupted() -> Iterator[None]:
    """Ctrl-C as anywhere else, and errors of Spark in our words, while Spark can still tell them."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from mdv.batch.packages import last_words

    signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's own speaks to Java amid another call
    if os.environ.get("MDV_DEBUG") != "1":
        logging.disable(logging.CRITICAL)
    try:
        yield
    except KeyboardInterrupt:
        _tell("Stopped. What was registered so far stays; the same command goes on from there.")
        raise
    except (PySparkException, Py4JError) as error:
        raise Unavailable(f"Spark gave up: {last_words(error)}.") from None


def _connect(system: System) -> Engine:
    """Before Spark is started in vain."""
    from psycopg import Error
    from sqlalchemy.exc import SQLAlchemyError

    from mdv.db.engine import make_engine
    from mdv.db.migrate import is_migrated

    try:
        engine = make_engine(system.database_url)
        with engine.connect() as connection:
            migrated = is_migrated(connection)
    except (SQLAlchemyError, Error, ValueError) as error:
        raise SystemNotFound(f"The database of the MDV (known by {system.known_by}) does not answer.") from error
    if not migrated:
        raise SystemNotFound("The database is not one of this version of MDV: `mdv migrate` brings it up to date.")
    return engine


def _settings(given: tuple[str, ...]) -> Mapping[str, str]:
    settings = dict(setting.partition("=")[::2] for setting in given)
    for name, value in settings.items():
        if not name.startswith("spark.") or not value:
            raise click.UsageError(f"--conf {name}: it takes a setting of Spark, as spark.executor.memory=4g.")
    return settings


# What came of it


def _report(summary: Summary, as_json: bool) -> None:
    if as_json:
        write_json(summary.as_dict())
        return
    for example in summary.examples[:SHOWN]:
        click.echo(clean(f"refused {_where(example)}: {example['reason']}"), err=True)
    if summary.refused > SHOWN:
        rest = f"They are all in {summary.rejects}." if summary.rejects else "--rejects DIR keeps them all."
        click.echo(clean(f"… and {summary.refused - SHOWN:,} more. {rest}"), err=True)
    say(sentence(summary))
    if summary.refused == summary.documents > 0:
        click.echo("Nothing was accepted: is the right schema in place? `mdv schema show` tells.", err=True)


def _complain(error: BadCommand) -> None:
    click.echo(clean(f"left alone: {error.detail}"), err=True)


def _where(example: Item) -> str:
    place = f", line {example['line']}" if example.get("line") else ""
    document = example.get("document") or ""
    return f"{example['source']}{place}" + (f" ({document})" if document and document not in example["reason"] else "")


def sentence(summary: Summary) -> str:
    """The summary in words."""
    would = "Nothing was changed; this would be: " if summary.dry_run else ""
    counts = ", ".join(f"{getattr(summary, name):,} {name}" for name in ("registered", "changed", "unchanged"))
    twice = f", {summary.duplicates:,} passed over for a later one of the same URI" if summary.duplicates else ""
    rate = summary.documents / summary.seconds
    return (
        f"{would}{counts}, {summary.refused:,} refused{twice}; {summary.statements:,} statements read"
        f" in {_time(summary.seconds)}, {rate:,.0f} documents/s."
    )


def _time(seconds: float) -> str:
    """A length of time.

    >>> _time(3.21), _time(75), _time(7300)
    ('3.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes} min {left} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def _progress(dry_run: bool, quiet: bool) -> Iterator[Watch]:
    """A bar, on a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
        TextColumn("refused {task.fields[refused]}"), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with Bar(*columns, console=Console(stderr=True, highlight=False)) as bar:
        task = bar.add_task("looking at what is there", total=None, rate="", refused=0)

        def show(progress: Progress | None) -> None:
            if progress is not None:
                bar.update(task, description="documents", total=progress.documents, completed=done(progress, dry_run),
                           refused=progress.rejected + progress.refused)  # fmt: skip
                bar.update(task, rate=f"{bar.tasks[0].speed or 0:,.0f}/s")

        yield show


def done(progress: Progress, dry_run: bool) -> int:
    """The documents that are at their end."""
    if dry_run:
        return progress.prepared + progress.skipped + progress.rejected
    return progress.promoted + progress.skipped + progress.rejected
