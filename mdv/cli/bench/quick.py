"""`mdv bench quick` measures everything that users see, in short."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from mdv.cli.bench.options import (
    bench,
    json_file_option,
    plots_option,
    print_progress,
    print_result,
    print_table,
    save_results,
    start_bench_postgres,
)


@bench.command(example="mdv bench quick --json figures.json")
@click.option("--rounds", type=click.IntRange(min=1), default=25, show_default=True,
              help="Number of rounds. The median counts.")  # fmt: skip
@click.option("--many", type=click.IntRange(min=10), default=1_000, show_default=True,
              help="Rules in one call, and documents in the batch.")  # fmt: skip
@json_file_option
@plots_option
def quick(rounds: int, many: int, json_file: Path | None, plots: Path | None) -> None:
    """Measure everything that users see, in under two minutes: HTTP, subscriptions, feed, queries, a batch on Spark.

    A whole system is started for the measurement and stopped afterwards. The floor is the least possible cost, measured
    in the same rounds: COPY and commit of the written data, or one round trip over HTTP. Every response is checked.
    """
    from mdv.bench.quick import COPY, QuickPlan, QuickResult, measure_quick
    from mdv.bench.registration import RegistrationBench, measure_registration
    from mdv.cli.bench.temporary_system import temporary_system
    from mdv.db.engine import make_engine
    from mdv.db.migrate import migrate

    ways = []
    print_progress("Measuring registration in one process.")
    with start_bench_postgres() as server:
        engine = make_engine(server.url)
        migrate(engine)
        ways += [
            QuickResult(result, COPY)
            for result in measure_registration(RegistrationBench(engine), "in one process", (1, 100), rounds)
        ]
        engine.dispose()
    print_progress("Starting a system.")
    with temporary_system(1) as target, tempfile.TemporaryDirectory(prefix="mdv-bench-") as folder:
        for way in measure_quick(target, QuickPlan(rounds, many), Path(folder), print_progress):
            print_result(way.result)
            ways.append(way)
    results = [way.result for way in ways]
    print_table(
        ("what", "batch", "µs each", "floor, µs each", "ratio", "floor"),
        ((r.name, f"{r.batch:,}", f"{r.ours_us:,.0f}", f"{r.floor_us:,.0f}", f"{r.ratio:.1f}", way.floor)
         for way in ways for r in (way.result,)),
    )  # fmt: skip
    save_results("quick", results, json_file, plots, floors={way.result.name: way.floor for way in ways})
