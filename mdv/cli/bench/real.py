"""`mdv bench real` measures programs in ReAL."""

from __future__ import annotations

from pathlib import Path

import click

from mdv.cli.bench.options import (
    bench,
    json_file_option,
    plots_option,
    print_progress,
    print_result,
    print_table,
    rounds_option,
    save_results,
    start_bench_postgres,
)

_COUNT = click.IntRange(min=1)


@bench.command(example="mdv bench real --statements 5000 --waiting 1000 --rounds 5")
@click.option("--statements", type=_COUNT, default=20_000, show_default=True, help="Statements of a streamed read.")
@click.option("--effects", type=_COUNT, default=1000, show_default=True, help="Effects of a slice.")
@click.option("--waiting", type=_COUNT, default=10_000, show_default=True, help="Waiting processes.")
@click.option("--tasks", type=_COUNT, default=1000, show_default=True, help="Tasks that worker processes take.")
@click.option("--workers", type=_COUNT, default=10, show_default=True, help="Worker processes.")
@rounds_option
@json_file_option
@plots_option
def real(
    statements: int,
    effects: int,
    waiting: int,
    tasks: int,
    workers: int,
    rounds: int,
    json_file: Path | None,
    plots: Path | None,
) -> None:
    """Measure programs in ReAL, relative to bare SQL.

    Reads are compared with cursors, SQL joins and pyoxigraph; slices with COPY and commit; wake-ups with a durable
    commit; work that is handed over through statements with a queue that uses SKIP LOCKED. All take turns round by
    round, and every round checks what the programs did.
    """
    from mdv.bench.real import RealPlan, describe_figures, evaluate_real_goals, run_real
    from mdv.bench.sql.bench_store import BenchDatabases

    plan = RealPlan(statements, effects, waiting, tasks, workers, rounds)
    results = []
    with start_bench_postgres() as server:
        for result in run_real(BenchDatabases(server.url), plan, print_progress):
            print_result(result)
            results.append(result)
    reached = evaluate_real_goals(results)
    print_table(
        ("what", "processes", "at once", "µs each", "compared with, µs each", "ratio", "comparison, µs each"),
        ((r.name, f"{r.rules:,}", f"{r.batch:,}", f"{r.ours_us:,.1f}", f"{r.floor_us:,.1f}", f"{r.ratio:.2f}",
          ", ".join(f"{peer} {us:,.1f}" for peer, us in r.peers.items())) for r in results),
    )  # fmt: skip
    click.echo()
    print_table(("what", "goal", "stretch", "measured", "at", "met"), (goal.as_row() for goal in reached))
    click.echo()
    print_table(("figure", "measured"), describe_figures(results))
    save_results("real", results, json_file, plots, goals=[goal.as_dict() for goal in reached])
