"""`mdv bench soak`: a moderate load for a long time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mdv.cli.bench.options import (
    bench,
    command,
    json_file_option,
    lmrs_option,
    rules_option,
    running_option,
    say,
    table,
    target_of,
    workload_of,
)

if TYPE_CHECKING:
    from mdv.bench.soak import Growth


@bench.command(example="mdv bench soak --minutes 30 --samples soak.jsonl")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), default=30.0, show_default=True)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), default=20.0, show_default=True,
              help="Changes of documents a second.")  # fmt: skip
@click.option("--kept", type=click.IntRange(min=1), default=2_000, show_default=True,
              help="Documents that are there at a time, when the store is full.")  # fmt: skip
@click.option("--every", type=click.FloatRange(min=0.1), default=15.0, show_default=True,
              help="Seconds from sample to sample.")  # fmt: skip
@click.option("--growth", type=click.FloatRange(min=0), default=30.0, show_default=True,
              help="MiB an hour that a process may grow after the first third.")  # fmt: skip
@click.option(
    "--samples", type=click.Path(dir_okay=False, path_type=Path), help="Write every sample there, a line each."
)
@rules_option(1_000)
@lmrs_option
@running_option
@json_file_option
def soak(
    minutes: float,
    rate: float,
    kept: int,
    every: float,
    growth: float,
    samples: Path | None,
    rules: int,
    lmrs: int,
    data: Path | None,
    json_file: Path | None,
) -> None:
    """A moderate load for a long time: does any process grow, does any queue?

    Documents come, change and go, so that the store does not only grow; queries are asked at the MDP and at the LMR,
    and a feed is followed by somebody who is cut off now and then. Fails when a process grows beyond --growth, when
    anything is answered with an error, or when something is missing in the end.

    Ends with 0 when all is well and every process is flat, with 1 when it fails, and with 2 when nothing is wrong but
    the time was too short to tell what grows: that takes eight samples after the first third, three minutes as it is.
    """
    from mdv.bench.ground import lay_ground
    from mdv.bench.loaded import Documents
    from mdv.bench.report import write_json
    from mdv.bench.soak import Plan, run_soak

    plan = Plan(minutes * 60, rate, kept, every, growth)
    workload = workload_of(rules, 1)
    with target_of(lmrs, data) as (target, is_own), lay_ground(target, workload, is_own, say) as ground:
        with _lines(samples) as write:
            found = run_soak(ground, Documents(workload), plan, click.echo, write)
        problems = [*found.problems, *ground.problems(found.documents)]
    answers = ", ".join(f"{count:,} {outcome}" for outcome, count in found.outcomes.items())
    click.echo(f"Changes of documents: {answers or 'none'}. Queries: {found.queries:,}. Samples: {found.samples:,}.\n")
    table(
        ("process", "MiB after the first third", "MiB at last", "MiB an hour", "±, MiB an hour", "flat"),
        ((g.process, f"{g.first:,.0f}", f"{g.last:,.0f}", *_slope(g)) for g in found.growth),
    )
    for problem in problems:
        click.echo(problem, err=True)
    if json_file is not None:
        write_json(json_file, command(), [], soak=found.as_dict() | {"problems": problems})
    if problems:
        raise click.exceptions.Exit(1)
    if found.is_too_short:
        click.echo(f"Too short to tell whether anything grows: try --minutes {plan.least_minutes:g} or more.", err=True)
        raise click.exceptions.Exit(TOO_SHORT)


TOO_SHORT = 2


def _slope(line: Growth) -> tuple[str, str, object]:
    if line.flat is None:
        return "", "", "too short to tell"
    return f"{line.an_hour:+,.1f}", f"{line.within:,.1f}", line.flat


@contextmanager
def _lines(path: Path | None) -> Iterator[Callable[[str], object]]:
    """Where samples go, a line each, at once."""
    if path is None:
        yield lambda line: None
        return
    with path.open("w", buffering=1, encoding="utf-8") as file:
        yield lambda line: file.write(line + "\n")
