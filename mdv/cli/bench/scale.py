"""`mdv bench scale`: how costs grow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mdv.cli.bench.options import (
    bench,
    count,
    json_file_option,
    keep,
    list_of,
    plots_option,
    postgres,
    rounds_option,
    say,
    table,
)

if TYPE_CHECKING:
    from mdv.bench.scale.extrapolate import Extrapolation
    from mdv.bench.scale.fit import Fit
    from mdv.bench.scale.series import Series, Weight


@bench.command(example="mdv bench scale --series documents,lmrs --largest 10000 --json figures.json")
@click.option("--series", "names", default="documents,rules,lmrs,sets,depth", show_default=True,
              callback=list_of(str), help="What grows.")  # fmt: skip
@click.option("--largest", type=click.IntRange(min=10), default=100_000, show_default=True,
              help="Documents in the largest store; the largest sets are a tenth of it, LMRs a hundredth.")  # fmt: skip
@click.option("--largest-rules", type=click.IntRange(min=10),
              help="Rules in the largest rule base; without it as many as documents.")  # fmt: skip
@click.option("--at", metavar="N,N,N", default="100000000,10000000,100000", show_default=True, callback=list_of(count),
              help="Documents, rules and LMRs to extrapolate to.")  # fmt: skip
@click.option("--selected", type=click.IntRange(min=1), default=10_000, show_default=True,
              help="Documents that an LMR's rules would select there.")  # fmt: skip
@click.option("--changing", type=click.FloatRange(min=0, min_open=True), default=5.0, show_default=True,
              help="Percentage of the documents that would change in a day.")  # fmt: skip
@click.option("--disk", type=click.IntRange(min=1), default=8192, show_default=True, help="GiB of disk of a machine.")
@click.option("--memory", type=click.IntRange(min=1), default=256, show_default=True, help="GiB of its memory.")
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
    """How costs grow with stored documents, rules, LMRs, sets and paths; and what that means at very large sizes.

    Stores of all sizes stand side by side and take turns. The floor is the bare COPY and commit of the same statements.
    An exponent of 0 is no growth, 1 is as fast as the thing itself; its law says what it should be at most. Every round
    checks what matched, and who was told.
    """
    from mdv.bench.scale.extrapolate import Assumed, Size, extrapolate
    from mdv.bench.scale.run import SERIES, run
    from mdv.bench.scale.series import Plan, Series, Weight
    from mdv.db.bench import Databases

    if unknown := set(names) - set(SERIES):
        raise click.UsageError(f"--series: {', '.join(sorted(unknown))} is none of {', '.join(SERIES)}.")
    if len(at) != 3:
        raise click.UsageError("--at takes three numbers, none twice: documents, rules and LMRs.")
    with postgres() as server:
        found = list(run(Databases(server.url), names, Plan(largest, largest_rules or largest, rounds), say))
    series = [one for one in found if isinstance(one, Series)]
    weights = [one for one in found if isinstance(one, Weight)]
    fits = {fit.name: fit for fit in (one.fit() for one in found)}
    assumed = Assumed(selected=selected, changing=changing / 100, disk_gib=disk, memory_gib=memory)
    told = extrapolate(fits, Size(*at), assumed)
    _show_points(series, weights)
    _show_fits(list(fits.values()))
    _show_extrapolation(told)
    keep(
        "scale", [result for one in series for result in one.results()], json_file, plots,
        weights=[one.as_dict() for one in weights], fits=[fit.as_dict() for fit in fits.values()],
        extrapolation=told.as_dict(),
    )  # fmt: skip


def _show_points(series: Sequence[Series], weights: Sequence[Weight]) -> None:
    table(
        ("series", "size", "of", "rules", "batch", "µs a document", "floor, µs", "ratio"),
        ((one.name, f"{size:,}", one.grows, f"{r.rules:,}", f"{r.batch:,}", f"{r.ours_us:,.0f}", f"{r.floor_us:,.0f}",
          f"{r.ratio:.2f}") for one in series for size, r in zip(one.sizes, one.results(), strict=True)),
    )  # fmt: skip
    click.echo()
    table(
        ("weight", "size", "of", "value", "unit", "each"),
        ((one.name, f"{size:,}", one.grows, f"{value:,.6g}", one.unit, f"{value / size:,.3g}")
         for one in weights for size, value in zip(one.sizes, one.values, strict=True)),
    )  # fmt: skip
    click.echo()


def _show_fits(fits: Sequence[Fit]) -> None:
    table(
        ("growth of", "with", "exponent", "± of rounds", "R²", "each one more", "law", "verdict"),
        ((fit.name, fit.grows, f"{fit.exponent:.2f}", "" if fit.spread is None else f"{fit.spread:.2f}",
          f"{fit.r2:.2f}", f"{fit.slope:,.3g} {fit.unit}" if fit.law else "", "linear" if fit.law else "constant",
          fit.verdict) for fit in fits),
    )  # fmt: skip
    click.echo()


def _show_extrapolation(told: Extrapolation) -> None:
    size = told.size
    click.echo(f"At {size.documents:,.0f} documents, {size.rules:,.0f} rules and {size.lmrs:,.0f} LMRs this would be:")
    click.echo(told.assumptions)
    table(("what", "value"), told.notes)
    click.echo()
    table(
        ("needed", "then", "one machine has", "unit", "share", "reached at, documents"),
        ((row.what, f"{row.amount:,.4g}", f"{row.limit:,.4g}", row.unit, f"{row.share:,.2g}",
          "" if row.reached is None else f"{row.reached * size.documents:,.3g}") for row in told.rows),
    )  # fmt: skip
    click.echo()
    for sentence in told.sentences():
        click.echo(sentence)
