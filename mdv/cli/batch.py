"""`mdv batch`: register very many documents, large inputs with Spark."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

import mdv
from mdv.cli.command import ExampleCommand, data_folder, data_option, json_option, syntax_option
from mdv.cli.errors import EXIT_FAILED
from mdv.cli.output import Item, escape_controls, print_line, write_json
from mdv.config import Config
from mdv.errors import BadCommand, SystemNotFound, Unavailable, replace_unstorable
from mdv.system import System, find_database

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from mdv.batch.local_source import LocalSource
    from mdv.batch.run import BatchOptions, BatchSummary, ProgressCallback
    from mdv.db.batch import BatchProgress

MAX_REJECTS_SHOWN = 10
STOPPED_MESSAGE = "Stopped. The documents registered so far are kept; run the same command again to continue."


def _show_script(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(Path(mdv.__file__).parent / "submit" / "mdv_batch.py")
        context.exit()


@click.command(
    cls=ExampleCommand,
    example="mdv batch books.tar.gz --uri-base http://example.org/ --rejects rejects\n"
    "mdv batch 'epub/*.rdf' --uri 'http://www.gutenberg.org/cache/epub/{1}/pg{1}.rdf'\n"
    "mdv batch dump.nq.gz --master spark://host:7077",
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@click.option("--master", metavar="URL", help="Spark master URL  [default: all cores of this machine]")
@click.option("--uri-base", metavar="BASE", help="URIs are BASE followed by the path in the folder or archive.")
@click.option("--uri", metavar="PATTERN", help="URIs from a pattern: {1}, {2} are the numbers in the file name.")
@click.option("--match", metavar="REGEX", help="Defines {1}, {name} for --uri: groups matched in the path.")
@click.option("--manifest", metavar="FILE", help="A table of paths and URIs: CSV, TSV or JSON lines.")
@click.option("--by", metavar="REGEX", help="For dumps without graphs: the part of a subject that is its document.")
@syntax_option("Syntax of all documents  [default: from the file suffix]")
@click.option("--rejects", metavar="DIR", help="Write refused documents to DIR, as Parquet, with the reasons.")
@click.option("--dry-run", is_flag=True, help="Read and check everything, report the result, change nothing.")
@click.option("--match-in", type=click.Choice(["postgres", "spark"]), default="postgres", show_default=True,
              help="Where values are compared with the constants of rules.")  # fmt: skip
@click.option("--watch", is_flag=True, help="Keep registering new files in the folder PATH until Ctrl-C.")
@click.option("--no-eca", is_flag=True, help="Run no event-condition-action rules. The history says so.")
@click.option("--conf", "settings", metavar="NAME=VALUE", multiple=True, help="A Spark setting. Repeatable.")
@click.option("--spark", "on_spark", is_flag=True, help="Use Spark also for small inputs.")
@click.option("--script", is_flag=True, is_eager=True, expose_value=False, callback=_show_script,
              help="Print the path of the script for spark-submit.")  # fmt: skip
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
    no_eca: bool,
    settings: tuple[str, ...],
    on_spark: bool,
    as_json: bool,
) -> None:
    """Register very many documents with Spark: folders, globs, archives (.tar, .tar.gz, .tar.xz, .zip), or dumps in
    N-Triples or N-Quads. PATH can be any URL that Spark can read. A few documents are registered without Spark, by the
    same code, because its start takes longer.

    The result is the same as registering each document separately. A refused document does not stop the others.
    Running the same command again changes nothing; after an interrupted run it continues. If several documents have the
    same URI, the last one is used.

    Exits with 0 if all documents were registered, or refused and written to --rejects; with 1 otherwise.
    """
    from mdv.batch.choose_way import BatchInput, choose_way
    from mdv.batch.document_naming import Naming
    from mdv.batch.run import BatchOptions
    from mdv.mdp.eca.run import RunLimits

    naming = Naming(uri_base, uri, match, manifest)
    if rejects is not None and not rejects.strip():
        raise click.UsageError("--rejects requires a folder.")
    if watch and len(paths) != 1:
        raise click.UsageError("--watch requires exactly one folder.")
    if watch and dry_run:
        raise click.UsageError("--watch and --dry-run cannot be combined.")
    options = _settings(settings)
    system = find_database(data_folder())
    config = Config.from_environment()
    engine = _connect(system)
    order = BatchOptions(
        replace_unstorable(" ".join(paths)), config.max_document_bytes, rejects, dry_run, match_in == "spark",
        add_rejects=watch, rule_seconds=config.rule_seconds, reacts=not no_eca,
        run_limits=RunLimits(config.eca_steps, config.eca_depth, config.eca_seconds, config.rule_seconds),
    )  # fmt: skip
    _check_local([*paths, *([manifest] if manifest else [])])
    only_spark = {
        "--spark": on_spark, "--master": master, "--conf": options, "--match-in spark": order.match_in_spark,
        "--watch": watch,
    }  # fmt: skip
    needs_spark = [f"{name} was given" for name, value in only_spark.items() if value]
    chosen = choose_way(BatchInput(paths, naming, syntax, by, rejects, order.max_bytes, needs_spark))
    if chosen.source is not None:
        _run_locally(chosen.source, chosen.reason, engine, system, order, as_json)
        return
    from mdv.batch.document_source import find_document_source
    from mdv.batch.jvm_cds import build_in_background
    from mdv.batch.run import run_batch
    from mdv.batch.session import spark_session
    from mdv.batch.spark_preparation import SparkPreparation
    from mdv.batch.watch_folder import watch_folder

    _print_progress(f"Starting Spark ({chosen.reason}) …")
    with spark_session(master, options) as spark, _translated_errors():

        def register(found: list[str], below: str | None = None) -> BatchSummary:
            incoming = find_document_source(spark, found, naming, syntax, by, order.max_bytes, below)
            with _progress(dry_run, quiet=watch) as shown:
                return run_batch(SparkPreparation(spark, incoming), engine, system.database_url, order, shown)

        if watch:
            _print_progress(f"Watching {paths[0]}; press Ctrl-C to stop.")
            watch_folder(spark, engine, paths[0], register, lambda summary: _report(summary, as_json), _print_skipped)
        else:
            summary = register(list(paths))
            if sys.stderr.isatty():
                build_in_background()
            _finish(summary, as_json)


def _run_locally(
    source: LocalSource, reason: str, engine: Engine, system: System, order: BatchOptions, as_json: bool
) -> None:
    """Prepare the documents in this process."""
    from mdv.batch.local_preparation import LocalPreparation
    from mdv.batch.run import run_batch

    _print_progress(f"Registering without Spark ({reason}).")
    try:
        with _progress(order.dry_run, quiet=False) as shown:
            summary = run_batch(LocalPreparation(source), engine, system.database_url, order, shown)
    except KeyboardInterrupt:
        _print_progress(STOPPED_MESSAGE)
        raise
    _finish(summary, as_json)


def _finish(summary: BatchSummary, as_json: bool) -> None:
    _report(summary, as_json)
    if summary.refused and summary.rejects is None:
        raise click.exceptions.Exit(EXIT_FAILED)


def _print_progress(message: str) -> None:
    """Print a message to standard error if that is a terminal."""
    if sys.stderr.isatty():
        click.echo(message, err=True)


def _check_local(paths: list[str]) -> None:
    """Report missing files before Spark is started."""
    for path in paths:
        if not path.strip():
            raise BadCommand("A path is empty. Name a file or folder; . is the current folder.")
        is_url, is_glob = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path), set("*?[{") & set(path)
        if not is_url and not is_glob and not Path(path).exists():
            raise BadCommand(f"No such file or folder: {path}.")


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Handle Ctrl-C as other commands do, and translate errors of Spark while its session is still open."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from mdv.batch.executor_packages import spark_error_message

    interrupted = False

    def interrupt(_: int, __: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)  # Spark's own handler calls Java in the middle of another call
    if os.environ.get("MDV_DEBUG") != "1":
        logging.disable(logging.CRITICAL)
    try:
        yield
    except KeyboardInterrupt:
        _print_progress(STOPPED_MESSAGE)
        raise
    except (PySparkException, Py4JError) as error:
        if interrupted:  # Py4J turned the KeyboardInterrupt into an error of its connection
            _print_progress(STOPPED_MESSAGE)
            raise KeyboardInterrupt from None
        raise Unavailable(f"Spark failed: {spark_error_message(error)}.") from None


def _connect(system: System) -> Engine:
    """Return an engine for the database. Errors are reported before Spark is started."""
    from psycopg import Error
    from sqlalchemy.exc import SQLAlchemyError

    from mdv.db.engine import make_engine
    from mdv.db.migrate import is_migrated

    try:
        engine = make_engine(system.database_url)
        with engine.connect() as connection:
            migrated = is_migrated(connection)
    except (SQLAlchemyError, Error, ValueError) as error:
        raise SystemNotFound(f"The database of the MDV (from {system.source}) does not answer.") from error
    if not migrated:
        raise SystemNotFound("The database has the tables of another version of MDV: run `mdv migrate`.")
    return engine


def _settings(given: tuple[str, ...]) -> Mapping[str, str]:
    settings = dict(setting.partition("=")[::2] for setting in given)
    for name, value in settings.items():
        if not name.startswith("spark.") or not value:
            raise click.UsageError(f"--conf {name}: use NAME=VALUE, for example spark.executor.memory=4g.")
    return settings


# The report


def _report(summary: BatchSummary, as_json: bool) -> None:
    if as_json:
        write_json(summary.as_dict())
        return
    for example in summary.examples[:MAX_REJECTS_SHOWN]:
        click.echo(escape_controls(f"refused {_where(example)}: {example['reason']}"), err=True)
    if summary.refused > MAX_REJECTS_SHOWN:
        rest = f"All of them are in {summary.rejects}." if summary.rejects else "--rejects DIR stores all of them."
        click.echo(escape_controls(f"… and {summary.refused - MAX_REJECTS_SHOWN:,} more. {rest}"), err=True)
    print_line(format_summary(summary))
    if summary.refused == summary.documents > 0:
        click.echo("All documents were refused: check the schema with `mdv schema show`.", err=True)


def _print_skipped(error: BadCommand) -> None:
    click.echo(escape_controls(f"skipped: {error.detail}"), err=True)


def _where(example: Item) -> str:
    place = f", line {example['line']}" if example.get("line") else ""
    document = example.get("document") or ""
    return f"{example['source']}{place}" + (f" ({document})" if document and document not in example["reason"] else "")


def format_summary(summary: BatchSummary) -> str:
    """Return the summary as a sentence."""
    prefix = "Dry run, nothing was changed: " if summary.dry_run else ""
    counts = ", ".join(f"{getattr(summary, name):,} {name}" for name in ("registered", "changed", "unchanged"))
    duplicates = f", {summary.duplicates:,} skipped because a later one has the same URI" if summary.duplicates else ""
    rate = summary.documents / summary.seconds
    return (
        f"{prefix}{counts}, {summary.refused:,} refused{duplicates}; {summary.statements:,} statements read"
        f" in {_time(summary.seconds)}, {rate:,.0f} documents/s."
    )


def _time(seconds: float) -> str:
    """Format a duration.

    >>> _time(3.21), _time(75), _time(7300)
    ('3.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes} min {left} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def _progress(dry_run: bool, quiet: bool) -> Iterator[ProgressCallback]:
    """Show a progress bar on a terminal."""
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
        task = bar.add_task("listing files", total=None, rate="", refused=0)

        def show(progress: BatchProgress | None) -> None:
            if progress is not None:
                bar.update(task, description="documents", total=progress.documents,
                           completed=count_done(progress, dry_run),
                           refused=progress.rejected + progress.refused)  # fmt: skip
                bar.update(task, rate=f"{bar.tasks[0].speed or 0:,.0f}/s")

        yield show


def count_done(progress: BatchProgress, dry_run: bool) -> int:
    """Return the number of documents that are done."""
    if dry_run:
        return progress.prepared + progress.skipped + progress.rejected
    return progress.promoted + progress.skipped + progress.rejected
