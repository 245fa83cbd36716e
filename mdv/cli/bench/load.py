"""`mdv bench load`: a whole system under load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mdv.cli.bench.options import (
    bench,
    command,
    count,
    json_file_option,
    list_of,
    lmrs_option,
    postgres,
    rules_option,
    running_option,
    say,
    table,
    target_of,
    times,
    workload_of,
)

if TYPE_CHECKING:
    from mdv.bench.figures import Run
    from mdv.bench.report import Result


@bench.command(example="mdv bench load --clients 1,8,64 --seconds 20 --rules 10000 --json figures.json")
@click.option("--clients", default="1,8,64", show_default=True, callback=list_of(count),
              help="Clients at once; each waits for the answer before it sends the next.")  # fmt: skip
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N",
              help="Instead: so many documents a second, whatever the answers.")  # fmt: skip
@click.option(
    "--queued", is_flag=True, help="Clients do not wait for the end of jobs, and send as fast as they are let."
)
@click.option("--seconds", type=click.FloatRange(min=1), default=20.0, show_default=True, help="Of each run.")
@click.option("--warm-up", type=click.FloatRange(min=0), default=3.0, show_default=True,
              help="Seconds before those that count.")  # fmt: skip
@click.option("--documents", "shape", type=click.Choice(["paper", "large"]), default="paper", show_default=True,
              help="Documents of two resources, as in the paper, or of a hundred.")  # fmt: skip
@click.option("--updates", type=click.FloatRange(0, 1), default=0.0, show_default=True,
              help="The share of documents that were registered before.")  # fmt: skip
@rules_option(10_000)
@lmrs_option
@running_option
@json_file_option
def load(
    clients: tuple[int, ...],
    rate: float | None,
    queued: bool,
    seconds: float,
    warm_up: float,
    shape: str,
    updates: float,
    rules: int,
    lmrs: int,
    data: Path | None,
    json_file: Path | None,
) -> None:
    """A whole system under load: documents over HTTP, through worker and filter, to a local repository.

    It is started for this and stopped afterwards; with --data or MDV_URL, one that runs is loaded and left as it was.
    Beside it stands what the same documents cost in one process, without web, queue and worker. In the end every
    document that was acknowledged must be there once, and each LMR must have what its rules select.
    """
    from mdv.bench.alone import Alone
    from mdv.bench.ground import lay_ground
    from mdv.bench.load import Pattern, run_load
    from mdv.bench.loaded import PAIRS, Documents
    from mdv.bench.report import write_json
    from mdv.db.bench import Databases

    if rate is not None and queued:
        raise click.UsageError("--rate and --queued are two ways to send: choose one.")
    patterns = [
        Pattern(number, rate, queued, updates, seconds, warm_up) for number in (clients if rate is None else (1,))
    ]
    workload = workload_of(rules, PAIRS[shape])
    runs, documents = [], Documents(workload)
    with target_of(lmrs, data) as (target, is_own), lay_ground(target, workload, is_own, say) as ground:
        for pattern in patterns:
            before = ground.position
            run = run_load(target, documents, pattern, say)
            runs.append(replace(run, batch=ground.mean_batch(before)) if queued else run)
        say("Checking what is there.")
        problems = ground.problems(documents)
    say("The same documents without web, queue and worker.")
    with postgres() as server, Databases(server.url).new() as engine:
        alone = Alone(engine, workload, len(target.lmrs), updates)
        beside = {size: alone.measure(size, ALONE_ROUNDS) for size in sorted({_batch_of(run) for run in runs})}
    _show_runs(runs, beside)
    for problem in problems:
        click.echo(problem, err=True)
    if json_file is not None:
        shown = [run.as_dict() | {"in_process": beside[_batch_of(run)].as_dict()} for run in runs]
        write_json(json_file, command(), list(beside.values()), runs=shown, problems=problems, documents=shape,
                   rules=rules, lmrs=len(target.lmrs), updates=updates)  # fmt: skip
    if problems or any(run.errors for run in runs):
        raise click.exceptions.Exit(1)


ALONE_ROUNDS = 15


def _batch_of(run: Run) -> int:
    """The size of batches to compare a run with."""
    return max(1, round(run.batch or 1))


def _show_runs(runs: Sequence[Run], beside: Mapping[int, Result]) -> None:
    def row(run: Run) -> Iterator[str]:
        alone = beside[_batch_of(run)]
        yield from (run.name, f"{run.per_second:,.0f}", *times(run.answer), *times(run.visible))
        yield "" if run.batch is None else f"{run.batch:.1f}"
        yield from (f"{run.most_waiting:,}", f"{1e6 / alone.ours_us:,.0f}", f"{1e6 / alone.floor_us:,.0f}")
        yield f"{run.per_second * alone.ours_us / 1e6:.2f}"
        yield ", ".join(f"{count:,} {outcome}" for outcome, count in run.outcomes.items())

    marks = ("p50", "p90", "p99", "most")
    table(
        ("run", "documents/s", *(f"answer {t}, ms" for t in marks), *(f"at the LMR {t}, ms" for t in marks),
         "documents a batch", "most jobs waiting", "in one process, documents/s", "floor, documents/s", "ratio",
         "answers"),
        map(row, runs),
    )  # fmt: skip
    click.echo()
    table(
        ("run", "part", "cores", "MiB at first", "MiB at last", "MiB at most"),
        ((run.name, part.part, f"{part.cores:.2f}", *(f"{mib:,.0f}" for mib in (part.first_mib, part.last_mib,
          part.most_mib))) for run in runs for part in run.parts),
    )  # fmt: skip
