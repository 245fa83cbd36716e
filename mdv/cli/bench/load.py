"""`mdv bench load` measures a whole system under load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mdv.cli.bench.options import (
    bench,
    comma_separated,
    command_line,
    json_file_option,
    latency_cells,
    lmrs_option,
    new_workload,
    open_target,
    parse_count,
    print_progress,
    print_table,
    rules_option,
    running_option,
    start_bench_postgres,
)

if TYPE_CHECKING:
    from mdv.bench.load_results import LoadResult
    from mdv.bench.report import BenchResult


@bench.command(example="mdv bench load --clients 1,8,64 --seconds 20 --rules 10000 --json figures.json")
@click.option("--clients", default="1,8,64", show_default=True, callback=comma_separated(parse_count),
              help="Concurrent clients. Each waits for the response before it sends the next document.")  # fmt: skip
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N",
              help="Send this many documents per second instead, without waiting for responses.")  # fmt: skip
@click.option(
    "--queued", is_flag=True, help="Clients do not wait for their jobs, and send as fast as the server accepts."
)
@click.option("--seconds", type=click.FloatRange(min=1), default=20.0, show_default=True, help="Duration of each run.")
@click.option("--warm-up", type=click.FloatRange(min=0), default=3.0, show_default=True,
              help="Seconds of load before the measurement starts.")  # fmt: skip
@click.option("--documents", "shape", type=click.Choice(["paper", "large"]), default="paper", show_default=True,
              help="Documents of two resources, as in the paper, or of a hundred resources.")  # fmt: skip
@click.option("--updates", type=click.FloatRange(0, 1), default=0.0, show_default=True,
              help="Share of the documents that update an existing one.")  # fmt: skip
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
    """Measure a whole system under load: documents over HTTP, through worker and filter, to an LMR.

    A system is started for the measurement and stopped afterwards. With --data or MDV_URL, a running system is used and
    left as it was. For comparison, the same documents are registered in one process, without web server, queue and
    worker. At the end, every acknowledged document must be stored once, and each LMR must hold what its rules select.
    """
    from mdv.bench.in_process import InProcessBench
    from mdv.bench.load import LoadPattern, run_load
    from mdv.bench.load_documents import PROVIDERS_PER_DOCUMENT, LoadDocuments
    from mdv.bench.load_system import prepare_load_system
    from mdv.bench.report import write_json
    from mdv.bench.sql.bench_store import BenchDatabases

    if rate is not None and queued:
        raise click.UsageError("--rate and --queued exclude each other. Use only one of them.")
    patterns = [
        LoadPattern(number, rate, queued, updates, seconds, warm_up) for number in (clients if rate is None else (1,))
    ]
    workload = new_workload(rules, PROVIDERS_PER_DOCUMENT[shape])
    runs, documents = [], LoadDocuments(workload)
    with (
        open_target(lmrs, data) as (target, is_own),
        prepare_load_system(target, workload, is_own, print_progress) as ground,
    ):
        for pattern in patterns:
            before = ground.position
            run = run_load(target, documents, pattern, print_progress)
            runs.append(replace(run, batch=ground.mean_batch(before)) if queued else run)
        print_progress("Checking the stored documents and the LMRs.")
        problems = ground.problems(documents)
    print_progress("Registering the same documents without web server, queue and worker.")
    with start_bench_postgres() as server, BenchDatabases(server.url).new() as engine:
        reference = InProcessBench(engine, workload, len(target.lmrs), updates)
        in_process = {
            size: reference.measure(size, IN_PROCESS_ROUNDS) for size in sorted({_batch_of(run) for run in runs})
        }
    _show_runs(runs, in_process)
    for problem in problems:
        click.echo(problem, err=True)
    if json_file is not None:
        shown = [run.as_dict() | {"in_process": in_process[_batch_of(run)].as_dict()} for run in runs]
        write_json(json_file, command_line(), list(in_process.values()), runs=shown, problems=problems, documents=shape,
                   rules=rules, lmrs=len(target.lmrs), updates=updates)  # fmt: skip
    if problems or any(run.errors for run in runs):
        raise click.exceptions.Exit(1)


IN_PROCESS_ROUNDS = 15


def _batch_of(run: LoadResult) -> int:
    """Return the batch size to compare a run with."""
    return max(1, round(run.batch or 1))


def _show_runs(runs: Sequence[LoadResult], in_process: Mapping[int, BenchResult]) -> None:
    def row(run: LoadResult) -> Iterator[str]:
        reference = in_process[_batch_of(run)]
        yield from (run.name, f"{run.per_second:,.0f}", *latency_cells(run.answer), *latency_cells(run.visible))
        yield "" if run.batch is None else f"{run.batch:.1f}"
        yield from (f"{run.most_waiting:,}", f"{1e6 / reference.ours_us:,.0f}", f"{1e6 / reference.floor_us:,.0f}")
        yield f"{run.per_second * reference.ours_us / 1e6:.2f}"
        yield ", ".join(f"{count:,} {outcome}" for outcome, count in run.outcomes.items())

    marks = ("p50", "p90", "p99", "most")
    print_table(
        ("run", "documents/s", *(f"response {t}, ms" for t in marks), *(f"at the LMR {t}, ms" for t in marks),
         "documents per batch", "max jobs waiting", "in one process, documents/s", "floor, documents/s", "ratio",
         "answers"),
        map(row, runs),
    )  # fmt: skip
    click.echo()
    print_table(
        ("run", "part", "cores", "MiB at start", "MiB at end", "peak MiB"),
        ((run.name, part.part, f"{part.cores:.2f}", *(f"{mib:,.0f}" for mib in (part.first_mib, part.last_mib,
          part.most_mib))) for run in runs for part in run.parts),
    )  # fmt: skip
