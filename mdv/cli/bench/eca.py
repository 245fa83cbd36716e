"""`mdv bench eca` measures event-condition-action rules."""

from __future__ import annotations

from pathlib import Path

import click

from mdv.cli.bench.options import (
    bench,
    comma_separated,
    json_file_option,
    parse_count,
    plots_option,
    print_progress,
    print_result,
    print_table,
    rounds_option,
    save_results,
    start_bench_postgres,
)


@bench.command(example="mdv bench eca --rules 10000,100000 --batches 1,50")
@click.option(
    "--rules", default="10000,100000", show_default=True, callback=comma_separated(parse_count),
    help="Numbers of rules.",
)  # fmt: skip
@click.option("--batches", default="1,50,1000", show_default=True, callback=comma_separated(parse_count),
              help="Documents per batch.")  # fmt: skip
@click.option("--chain", type=click.IntRange(min=1), default=100, show_default=True, help="Steps of a cascade.")
@click.option("--set-size", type=click.IntRange(min=1), default=1000, show_default=True,
              help="Resources of one document that each fire a rule.")  # fmt: skip
@click.option("--triggers", type=click.IntRange(min=1), default=1000, show_default=True,
              help="Number of Postgres triggers to compare with.")  # fmt: skip
@click.option("--peers/--no-peers", default=True, show_default=True, help="Also measure CLIPS and Postgres triggers.")
@rounds_option
@json_file_option
@plots_option
def eca(
    rules: tuple[int, ...],
    batches: tuple[int, ...],
    chain: int,
    set_size: int,
    triggers: int,
    peers: bool,
    rounds: int,
    json_file: Path | None,
    plots: Path | None,
) -> None:
    """Measure event-condition-action rules: registrations with rules, relative to the same without.

    The rules are like Example 3 of the paper, one for each subject. Stores with rules take turns with one that has
    none; every round checks what the rules inserted. CLIPS holds the rules as facts in memory. The Postgres triggers
    are one for each rule.
    """
    from mdv.bench.eca import EcaPlan, evaluate_eca_goals, run_eca
    from mdv.bench.sql.bench_store import BenchDatabases

    if peers:
        _require_clips()
    plan = EcaPlan(rules, batches, rounds, chain, set_size, triggers, peers)
    results = []
    with start_bench_postgres() as server:
        for result in run_eca(BenchDatabases(server.url), plan, print_progress):
            print_result(result)
            results.append(result)
    reached = evaluate_eca_goals(results)
    print_table(
        ("what", "rules", "batch", "µs each", "without rules, µs each", "ratio", "comparison, µs each"),
        ((r.name, f"{r.rules:,}", f"{r.batch:,}", f"{r.ours_us:,.1f}", f"{r.floor_us:,.1f}", f"{r.ratio:.2f}",
          ", ".join(f"{peer} {us:,.0f}" for peer, us in r.peers.items())) for r in results),
    )  # fmt: skip
    click.echo()
    print_table(("what", "goal", "stretch", "measured", "at", "met"), (goal.as_row() for goal in reached))
    save_results("eca", results, json_file, plots, goals=[goal.as_dict() for goal in reached])


def _require_clips() -> None:
    from importlib.util import find_spec

    if find_spec("clips") is None:
        raise click.UsageError("CLIPS is not installed. Install the peers with `make peers`, or use --no-peers.")
