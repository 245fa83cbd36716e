"""`mdv bench soak` applies a moderate load for a long time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mdv.cli.bench.options import (
    bench,
    command_line,
    json_file_option,
    lmrs_option,
    new_workload,
    open_target,
    print_progress,
    print_table,
    rules_option,
    running_option,
)

if TYPE_CHECKING:
    from mdv.bench.soak import MemoryGrowth


@bench.command(example="mdv bench soak --minutes 30 --samples soak.jsonl")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), default=30.0, show_default=True)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), default=20.0, show_default=True,
              help="Document changes per second.")  # fmt: skip
@click.option("--kept", type=click.IntRange(min=1), default=2_000, show_default=True,
              help="Documents in the store when it is full.")  # fmt: skip
@click.option("--every", type=click.FloatRange(min=0.1), default=15.0, show_default=True,
              help="Seconds between samples.")  # fmt: skip
@click.option("--growth", type=click.FloatRange(min=0), default=30.0, show_default=True,
              help="Growth in MiB per hour that is allowed for a process after the first third.")  # fmt: skip
@click.option(
    "--samples", type=click.Path(dir_okay=False, path_type=Path), help="Write each sample to this file, one per line."
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
    """Apply a moderate load for a long time, to see whether any process or queue grows.

    Documents are inserted, changed and deleted, so that the store stays limited. Queries run on the MDP and on the LMR,
    and a client that is disconnected now and then follows a feed. The command fails if a process grows faster than
    --growth, if any request fails, or if anything is missing at the end.

    The exit code is 0 if everything is right and no process grows, 1 on failure, and 2 if nothing is wrong but the run
    was too short to detect growth. That needs eight samples after the first third: three minutes with the defaults.
    """
    from mdv.bench.load_documents import LoadDocuments
    from mdv.bench.load_system import prepare_load_system
    from mdv.bench.report import write_json
    from mdv.bench.soak import SoakPlan, run_soak

    plan = SoakPlan(minutes * 60, rate, kept, every, growth)
    workload = new_workload(rules, 1)
    with (
        open_target(lmrs, data) as (target, is_own),
        prepare_load_system(target, workload, is_own, print_progress) as ground,
    ):
        with _open_samples(samples) as write:
            found = run_soak(ground, LoadDocuments(workload), plan, click.echo, write)
        problems = [*found.problems, *ground.problems(found.documents)]
    answers = ", ".join(f"{count:,} {outcome}" for outcome, count in found.outcomes.items())
    click.echo(f"Changes of documents: {answers or 'none'}. Queries: {found.queries:,}. Samples: {found.samples:,}.\n")
    print_table(
        ("process", "MiB after the first third", "MiB at end", "MiB per hour", "±, MiB per hour", "flat"),
        ((g.process, f"{g.first:,.0f}", f"{g.last:,.0f}", *_slope(g)) for g in found.growth),
    )
    for problem in problems:
        click.echo(problem, err=True)
    if json_file is not None:
        write_json(json_file, command_line(), [], soak=found.as_dict() | {"problems": problems})
    if problems:
        raise click.exceptions.Exit(1)
    if found.is_too_short:
        click.echo(f"The run was too short to detect growth. Use --minutes {plan.longer_minutes:g} or more.", err=True)
        raise click.exceptions.Exit(EXIT_TOO_SHORT)


EXIT_TOO_SHORT = 2


def _slope(fitted: MemoryGrowth) -> tuple[str, str, object]:
    if fitted.flat is None:
        return "", "", "too short"
    return f"{fitted.an_hour:+,.1f}", f"{fitted.within:,.1f}", fitted.flat


@contextmanager
def _open_samples(path: Path | None) -> Iterator[Callable[[str], object]]:
    """Return a function that writes a sample as one line, unbuffered."""
    if path is None:
        yield lambda line: None
        return
    with path.open("w", buffering=1, encoding="utf-8") as file:
        yield lambda line: file.write(line + "\n")
