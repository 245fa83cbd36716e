"""`mdv bench scale` measures how costs grow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mdv.cli.bench.options import (
    bench,
    comma_separated,
    json_file_option,
    parse_count,
    plots_option,
    print_progress,
    print_table,
    rounds_option,
    save_results,
    start_bench_postgres,
)

if TYPE_CHECKING:
    from mdv.bench.scale.extrapolate import Extrapolation
    from mdv.bench.scale.fit import Fit
    from mdv.bench.scale.series import SizeSeries, TimeSeries


@bench.command(example="mdv bench scale --series documents,lmrs --largest 10000 --json figures.json")
@click.option("--series", "names", default="documents,rules,lmrs,sets,depth", show_default=True,
              callback=comma_separated(str), help="Series to measure.")  # fmt: skip
@click.option("--largest", type=click.IntRange(min=10), default=100_000, show_default=True,
              help="Documents in the largest store. The largest sets are a tenth of it, the number of LMRs a"
              " hundredth.")  # fmt: skip
@click.option("--largest-rules", type=click.IntRange(min=10),
              help="Rules in the largest rule base. Default: the number of documents.")  # fmt: skip
@click.option("--at", metavar="N,N,N", default="100000000,10000000,100000", show_default=True,
              callback=comma_separated(parse_count),
              help="Numbers of documents, rules and LMRs to extrapolate to.")  # fmt: skip
@click.option("--selected", type=click.IntRange(min=1), default=10_000, show_default=True,
              help="Documents that the rules of an LMR would select there.")  # fmt: skip
@click.option("--changing", type=click.FloatRange(min=0, min_open=True), default=5.0, show_default=True,
              help="Percentage of the documents that would change per day.")  # fmt: skip
@click.option(
    "--disk", type=click.IntRange(min=1), default=8192, show_default=True, help="Disk space of a machine, in GiB."
)
@click.option(
    "--memory", type=click.IntRange(min=1), default=256, show_default=True, help="Memory of a machine, in GiB."
)
@rounds_option
@json_file_option
@plots_option
def scale(
    names: tuple[str, ...],
    largest: int,
    largest_rules: int | None,
    at: tuple[int, ...],
    selected: int,
    changing: float,
    disk: int,
    memory: int,
    rounds: int,
    json_file: Path | None,
    plots: Path | None,
) -> None:
    """Measure how costs grow with stored documents, rules, LMRs, sets and paths, and extrapolate to very large sizes.

    Stores of all sizes exist side by side and take turns. The floor is the bare COPY and commit of the same statements.
    An exponent of 0 means no growth, 1 means linear growth. The law is the largest exponent that is expected. Every
    round checks the matches and the LMRs that were notified.
    """
    from mdv.bench.scale.extrapolate import Assumptions, SystemSize, extrapolate
    from mdv.bench.scale.run import SERIES, run_series
    from mdv.bench.scale.series import ScalePlan, SizeSeries, TimeSeries
    from mdv.bench.sql.bench_store import BenchDatabases

    if unknown := set(names) - set(SERIES):
        raise click.UsageError(f"--series: {', '.join(sorted(unknown))} is unknown. Use one of {', '.join(SERIES)}.")
    if len(at) != 3:
        raise click.UsageError("--at needs three different numbers: documents, rules and LMRs.")
    with start_bench_postgres() as server:
        found = list(
            run_series(
                BenchDatabases(server.url), names, ScalePlan(largest, largest_rules or largest, rounds), print_progress
            )
        )
    series = [m for m in found if isinstance(m, TimeSeries)]
    weights = [m for m in found if isinstance(m, SizeSeries)]
    fits = {fit.name: fit for fit in (m.fit() for m in found)}
    assumed = Assumptions(selected=selected, changing=changing / 100, disk_gib=disk, memory_gib=memory)
    extrapolation = extrapolate(fits, SystemSize(*at), assumed)
    _show_points(series, weights)
    _show_fits(list(fits.values()))
    _show_extrapolation(extrapolation)
    save_results(
        "scale", [result for m in series for result in m.results()], json_file, plots,
        weights=[m.as_dict() for m in weights], fits=[fit.as_dict() for fit in fits.values()],
        extrapolation=extrapolation.as_dict(),
    )  # fmt: skip


def _show_points(series: Sequence[TimeSeries], weights: Sequence[SizeSeries]) -> None:
    print_table(
        ("series", "size", "of", "rules", "batch", "µs per document", "floor, µs", "ratio"),
        ((m.name, f"{size:,}", m.grows, f"{r.rules:,}", f"{r.batch:,}", f"{r.ours_us:,.0f}",
          f"{r.floor_us:,.0f}", f"{r.ratio:.2f}")
         for m in series for size, r in zip(m.sizes, m.results(), strict=True)),
    )  # fmt: skip
    click.echo()
    print_table(
        ("weight", "size", "of", "value", "unit", "each"),
        ((m.name, f"{size:,}", m.grows, f"{value:,.6g}", m.unit, f"{value / size:,.3g}")
         for m in weights for size, value in zip(m.sizes, m.values, strict=True)),
    )  # fmt: skip
    click.echo()


def _show_fits(fits: Sequence[Fit]) -> None:
    print_table(
        ("growth of", "with", "exponent", "± between rounds", "R²", "each additional one", "law", "verdict"),
        ((fit.name, fit.grows, f"{fit.exponent:.2f}", "" if fit.spread is None else f"{fit.spread:.2f}",
          f"{fit.r2:.2f}", f"{fit.slope:,.3g} {fit.unit}" if fit.law else "", "linear" if fit.law else "constant",
          fit.verdict) for fit in fits),
    )  # fmt: skip
    click.echo()


def _show_extrapolation(extrapolation: Extrapolation) -> None:
    size = extrapolation.size
    click.echo(
        f"With {size.documents:,.0f} documents, {size.rules:,.0f} rules and {size.lmrs:,.0f} LMRs, the estimate is:"
    )
    click.echo(extrapolation.assumptions)
    print_table(("what", "value"), extrapolation.notes)
    click.echo()
    print_table(
        ("needed", "then", "limit of one machine", "unit", "share", "limit reached at, documents"),
        ((row.what, f"{row.amount:,.4g}", f"{row.limit:,.4g}", row.unit, f"{row.share:,.2g}",
          "" if row.reached is None else f"{row.reached * size.documents:,.3g}") for row in extrapolation.rows),
    )  # fmt: skip
    click.echo()
    for sentence in extrapolation.sentences():
        click.echo(sentence)
