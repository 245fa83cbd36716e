"""`mdv bench batch` measures the registration of very many documents."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mdv.cli.bench.options import (
    bench,
    command_line,
    json_file_option,
    latency_cells,
    lmrs_option,
    parse_sizes,
    print_progress,
    print_table,
)

if TYPE_CHECKING:
    from mdv.bench.batch import BatchBenchResult


@bench.command(
    example="mdv bench batch --sizes 10000,100000 --interactive 5 --json figures.json\n"
    "mdv bench batch --archive 2014.tar.xz --uri 'http://books.example/{1}.rdf' --schema books.ttl --rule …"
)
@click.option("--documents", type=click.IntRange(min=1), default=10_000, show_default=True,
              help="Documents in the generated catalogue, about 50 statements each.")  # fmt: skip
@click.option("--sizes", metavar="N,N", default=None, callback=parse_sizes,
              help="Measure catalogues of several sizes instead, each in its own system.")  # fmt: skip
@click.option("--rules", type=click.IntRange(min=0), default=1_000, show_default=True,
              help="Rules of an LMR that is not running, of four types.")  # fmt: skip
@lmrs_option
@click.option("--http", type=click.IntRange(min=2), default=300, show_default=True,
              help="Documents to register over HTTP for comparison, by one client and by eight clients.")  # fmt: skip
@click.option("--interactive", type=click.FloatRange(min=0, min_open=True), metavar="RATE",
              help="Registrations per second over HTTP, before and during the batch.")  # fmt: skip
@click.option("--folder", "folders", type=click.Path(exists=True, file_okay=False, path_type=Path), multiple=True,
              help="Use your own catalogue instead. Each folder is a separate batch.")  # fmt: skip
@click.option("--archive", "archives", type=click.Path(exists=True, dir_okay=False, path_type=Path), multiple=True,
              help="Use your own catalogue in a .tar file, compressed or not.")  # fmt: skip
@click.option("--uri", metavar="PATTERN", help="URIs of your own catalogue, as for `mdv batch`.")
@click.option(
    "--schema",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Schema of your own catalogue, in Turtle.",
)
@click.option(
    "--rule",
    "followed",
    metavar="RULE",
    multiple=True,
    help="Rule that the running LMRs subscribe to in your own catalogue.",
)
@json_file_option
def batch(
    documents: int,
    sizes: tuple[int, ...],
    rules: int,
    lmrs: int,
    http: int,
    interactive: float | None,
    folders: tuple[Path, ...],
    archives: tuple[Path, ...],
    uri: str | None,
    schema: Path | None,
    followed: tuple[str, ...],
    json_file: Path | None,
) -> None:
    """Measure `mdv batch` with very many documents: speed, memory, and the latency of other registrations meanwhile.

    The same run measures HTTP with one and with eight clients, and the bare COPY of the same number of statements into
    a table with the same indexes. At the end, every document must be stored, a repeated batch must change nothing, and
    each LMR must hold what its rules select.
    """
    from mdv.bench.batch import BatchPlan, measure_batch
    from mdv.bench.catalogue import existing_catalogue, generate_catalogue
    from mdv.bench.report import write_json
    from mdv.cli.bench.temporary_system import temporary_system

    paths = (*folders, *archives)
    if paths and (uri is None or schema is None or not followed):
        raise click.UsageError("--folder and --archive need --uri, --schema and at least one --rule for the LMRs.")
    found = []
    for size in sizes or (documents,):
        with tempfile.TemporaryDirectory(prefix="mdv-bench-") as name:
            folder = Path(name)
            if uri is not None and schema is not None and paths:
                catalogue = existing_catalogue(paths, uri, schema.read_bytes(), followed)
            else:
                catalogue = generate_catalogue(size, rules, folder, print_progress)
            print_progress("Starting a system.")
            with temporary_system(lmrs) as target:
                found.append(measure_batch(target, catalogue, BatchPlan(http, interactive), folder, print_progress))
        _show_batches(found[-1])
    if len(found) > 1:
        print_table(
            ("documents", "seconds", "seconds per 1,000", "relative to the first"),
            ((f"{f.documents:,}", f"{f.seconds:,.1f}", f"{f.seconds_per_thousand:.2f}",
              f"{f.seconds_per_thousand / found[0].seconds_per_thousand:.2f}") for f in found),
        )  # fmt: skip
    if json_file is not None:
        results = [result for f in found for result in f.results()]
        write_json(
            json_file, command_line(), results, runs=[f.as_dict() for f in found], lmrs=lmrs, interactive=interactive
        )
    problems = [problem for f in found for problem in f.problems]
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        raise click.exceptions.Exit(1)


def _show_batches(found: BatchBenchResult) -> None:
    from mdv.bench.batch_usage import PARTS_SHOWN

    one_by_one, copied = found.one_by_one, found.copied
    print_table(
        ("way", "documents/s", "statements/s", "documents", "seconds", "relative to HTTP, one client",
         "time relative to COPY"),
        ((way.name, f"{way.documents_per_second:,.1f}", f"{way.statements_per_second:,.0f}", f"{way.documents:,}",
          f"{way.seconds:,.2f}", f"{way.documents_per_second / one_by_one.documents_per_second:.2f}",
          f"{way.us / copied.us:.2f}") for way in found.ways),
    )  # fmt: skip
    click.echo()
    headings = [f"batch {number}" for number in range(1, len(found.batches) + 1)]
    shares = [
        {
            name: f"{spent:,.2f} s, {100 * spent / batch.seconds_without_startup:.0f} %"
            for name, spent in batch.stages.items()
        }
        for batch in found.batches
    ]
    print_table(("stage", *headings), ((name, *(share[name] for share in shares)) for name in shares[0]))
    click.echo()
    for title, uses in (
        ("peak MiB", [batch.memory for batch in found.batches]),
        ("CPU seconds", [batch.processor for batch in found.batches]),
    ):
        print_table(
            (title, *headings), ((part, *(f"{use.get(part, 0.0):,.0f}" for use in uses)) for part in PARTS_SHOWN)
        )
        click.echo()
    latencies = (
        ("without a batch", found.quiet),
        *zip(headings, (batch.beside for batch in found.batches), strict=True),
    )
    print_table(
        ("registrations meanwhile", "number", "p50, ms", "p90, ms", "p99, ms", "max, ms"),
        ((name, spread.count, *latency_cells(spread)) for name, spread in latencies if spread is not None),
    )
    click.echo()
