"""`mdv bench batch`: very many documents."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mdv.cli.bench.options import bench, command, json_file_option, lmrs_option, say, sizes_of, table, times

if TYPE_CHECKING:
    from mdv.bench.batch import Found


@bench.command(
    example="mdv bench batch --sizes 10000,100000 --interactive 5 --json figures.json\n"
    "mdv bench batch --archive 2014.tar.xz --uri 'http://books.example/{1}.rdf' --schema books.ttl --rule …"
)
@click.option("--documents", type=click.IntRange(min=1), default=10_000, show_default=True,
              help="Documents of the catalogue, about 50 statements each.")  # fmt: skip
@click.option("--sizes", metavar="N,N", default=None, callback=sizes_of,
              help="Instead: catalogues of several sizes, each in a system of its own.")  # fmt: skip
@click.option("--rules", type=click.IntRange(min=0), default=1_000, show_default=True,
              help="Rules of an LMR that nobody runs, of four kinds.")  # fmt: skip
@lmrs_option
@click.option("--http", type=click.IntRange(min=2), default=300, show_default=True,
              help="Documents to register over HTTP for comparison, by one client and by eight.")  # fmt: skip
@click.option("--interactive", type=click.FloatRange(min=0, min_open=True), metavar="RATE",
              help="Registrations a second over HTTP beside the batch, and before it.")  # fmt: skip
@click.option("--folder", "folders", type=click.Path(exists=True, file_okay=False, path_type=Path), multiple=True,
              help="Instead: a catalogue of yours. Of several each is a batch, one after the other.")  # fmt: skip
@click.option("--archive", "archives", type=click.Path(exists=True, dir_okay=False, path_type=Path), multiple=True,
              help="The same, in a .tar, packed or not.")  # fmt: skip
@click.option("--uri", metavar="PATTERN", help="URIs of that catalogue, as for `mdv batch`.")
@click.option("--schema", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Its schema, in Turtle.")
@click.option("--rule", "followed", metavar="RULE", multiple=True, help="What LMRs that run follow of it.")
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
    """Very many documents, through `mdv batch`: how fast, with how much memory, and what others wait meanwhile.

    In the same run stand HTTP, one by one and by eight clients, and the bare COPY of as many statements into an equally
    indexed table. In the end every document must be there, the same batch again must find nothing to do, and each LMR
    must have what its rules select.
    """
    from mdv.bench.batch import Plan, measure
    from mdv.bench.catalogue import generate, given
    from mdv.bench.report import write_json
    from mdv.cli.own_system import own_system

    paths = (*folders, *archives)
    if paths and (uri is None or schema is None or not followed):
        raise click.UsageError("A catalogue of yours needs --uri, --schema, and a --rule that LMRs follow.")
    found = []
    for size in sizes or (documents,):
        with tempfile.TemporaryDirectory(prefix="mdv-bench-") as name:
            folder = Path(name)
            if uri is not None and schema is not None and paths:
                catalogue = given(paths, uri, schema.read_bytes(), followed)
            else:
                catalogue = generate(size, rules, folder, say)
            say("Starting a system.")
            with own_system(lmrs) as target:
                found.append(measure(target, catalogue, Plan(http, interactive), folder, say))
        _show_batches(found[-1])
    if len(found) > 1:
        table(
            ("documents", "seconds", "seconds for 1,000", "against the first"),
            ((f"{f.documents:,}", f"{f.seconds:,.1f}", f"{f.for_a_thousand:.2f}",
              f"{f.for_a_thousand / found[0].for_a_thousand:.2f}") for f in found),
        )  # fmt: skip
    if json_file is not None:
        results = [result for f in found for result in f.results()]
        write_json(json_file, command(), results, runs=[f.as_dict() for f in found], lmrs=lmrs, interactive=interactive)
    problems = [problem for f in found for problem in f.problems]
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        raise click.exceptions.Exit(1)


def _show_batches(found: Found) -> None:
    from mdv.bench.used import USED_BY

    one_by_one, copied = found.one_by_one, found.copied
    table(
        ("way", "documents/s", "statements/s", "documents", "seconds", "HTTP one by one = 1", "time, COPY = 1"),
        ((way.name, f"{way.documents_per_second:,.1f}", f"{way.statements_per_second:,.0f}", f"{way.documents:,}",
          f"{way.seconds:,.2f}", f"{way.documents_per_second / one_by_one.documents_per_second:.2f}",
          f"{way.us / copied.us:.2f}") for way in found.ways),
    )  # fmt: skip
    click.echo()
    headings = [f"batch {number}" for number in range(1, len(found.batches) + 1)]
    shares = [
        {name: f"{spent:,.2f} s, {100 * spent / batch.seconds_itself:.0f} %" for name, spent in batch.stages.items()}
        for batch in found.batches
    ]
    table(("stage", *headings), ((name, *(share[name] for share in shares)) for name in shares[0]))
    click.echo()
    for title, uses in (
        ("MiB at most", [batch.memory for batch in found.batches]),
        ("s of processor", [batch.processor for batch in found.batches]),
    ):
        table((title, *headings), ((part, *(f"{use.get(part, 0.0):,.0f}" for use in uses)) for part in USED_BY))
        click.echo()
    waited = (("without a batch", found.quiet), *zip(headings, (batch.beside for batch in found.batches), strict=True))
    table(
        ("registered beside", "number", "p50, ms", "p90, ms", "p99, ms", "most, ms"),
        ((name, spread.count, *times(spread)) for name, spread in waited if spread is not None),
    )
    click.echo()
