"""`mdv bench quick`: what the ways that users see cost."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from mdv.cli.bench.options import bench, json_file_option, keep, plots_option, postgres, say, say_result, table


@bench.command(example="mdv bench quick --json figures.json")
@click.option("--rounds", type=click.IntRange(min=1), default=25, show_default=True,
              help="Rounds of which the median counts.")  # fmt: skip
@click.option("--many", type=click.IntRange(min=10), default=1_000, show_default=True,
              help="Rules of one call, and documents of the batch.")  # fmt: skip
@json_file_option
@plots_option
def quick(rounds: int, many: int, json_file: Path | None, plots: Path | None) -> None:
    """Every way that users see, in under two minutes: HTTP, subscriptions, feed, queries, a batch on Spark.

    A whole system is started for it, and stopped afterwards. The floor is what each way must cost at least, in the
    same rounds: COPY and commit of what is written, or one round trip over HTTP. Every answer is checked.
    """
    from mdv.bench.quick import COPY, Plan, Way, measure_quick
    from mdv.bench.registration import Bench, measure
    from mdv.cli.own_system import own_system
    from mdv.db.engine import make_engine
    from mdv.db.migrate import migrate

    ways = []
    say("Measuring registration in one process.")
    with postgres() as server:
        engine = make_engine(server.url)
        migrate(engine)
        ways += [Way(result, COPY) for result in measure(Bench(engine), "in one process", (1, 100), rounds)]
        engine.dispose()
    say("Starting a system.")
    with own_system(1) as target, tempfile.TemporaryDirectory(prefix="mdv-bench-") as folder:
        for way in measure_quick(target, Plan(rounds, many), Path(folder), say):
            say_result(way.result)
            ways.append(way)
    results = [way.result for way in ways]
    table(
        ("what", "in a batch", "µs each", "floor, µs each", "ratio", "the floor is"),
        ((r.name, f"{r.batch:,}", f"{r.ours_us:,.0f}", f"{r.floor_us:,.0f}", f"{r.ratio:.1f}", way.floor)
         for way in ways for r in (way.result,)),
    )  # fmt: skip
    keep("quick", results, json_file, plots, floors={way.result.name: way.floor for way in ways})
