"""`mdv bench paper` repeats the paper's experiments."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from mdv.cli.bench.options import (
    bench,
    comma_separated,
    json_file_option,
    parse_count,
    parse_percent,
    plots_option,
    print_progress,
    print_result,
    print_table,
    rounds_option,
    save_results,
    start_bench_postgres,
)


@bench.command(example="mdv bench paper --rules 10000,100000 --types oid,path,join --plots build/bench")
@click.option(
    "--rules",
    default="10000,100000",
    show_default=True,
    callback=comma_separated(parse_count),
    help="Sizes of the rule bases.",
)
@click.option("--batches", default="1,10,100,1000", show_default=True, callback=comma_separated(parse_count),
              help="Documents per batch.")  # fmt: skip
@click.option("--types", "kinds", default="oid,path,join,comp,contains,startswith,endswith,ne,update,rules",
              show_default=True, callback=comma_separated(str), help="Experiments to run.")  # fmt: skip
@click.option("--matched", default="1,5,10,20", show_default=True, callback=comma_separated(parse_percent),
              help="Percentages of COMP rules that match a document. One of them is measured on every"
              " rule base.")  # fmt: skip
@click.option("--bulk", type=click.IntRange(min=1), default=100_000, show_default=True,
              help="Rules to register in one call.")  # fmt: skip
@rounds_option
@json_file_option
@plots_option
def paper(
    rules: tuple[int, ...],
    batches: tuple[int, ...],
    kinds: tuple[str, ...],
    matched: tuple[float, ...],
    bulk: int,
    rounds: int,
    json_file: Path | None,
    plots: Path | None,
) -> None:
    """Repeat the paper's experiments: run the filter on rule bases of one type each, and compare with the goals.

    oid, path, join and comp are the rule types of the paper's Figure 10; contains, startswith, endswith and ne (!=) are
    added. startswith and endswith are compared with = on as many rules. update compares the update of documents with
    their insertion. rules registers rules one by one and in bulk. The floor is the bare COPY and commit of the same
    statements. Every round checks the results of the filter. --plots draws the paper's Figures 11 to 15.
    """
    from mdv.bench.goals import evaluate_goals, measure_growth
    from mdv.bench.paper import EXPERIMENTS, PaperPlan, run_paper
    from mdv.bench.sql.bench_store import BenchDatabases

    if unknown := set(kinds) - set(EXPERIMENTS):
        raise click.UsageError(
            f"--types: {', '.join(sorted(unknown))} is unknown. Use one of {', '.join(EXPERIMENTS)}."
        )
    if max(batches) > min(rules):
        raise click.UsageError(
            f"A batch of {max(batches):,} documents needs as many rules, one for each document, but --rules has only"
            f" {min(rules):,}. Use smaller --batches or more --rules."
        )
    results = []
    with start_bench_postgres() as server:
        for result in run_paper(
            BenchDatabases(server.url), PaperPlan(rules, batches, kinds, rounds, matched, bulk), print_progress
        ):
            print_result(result)
            results.append(result)
    reached, grown = evaluate_goals(results), measure_growth(results)
    print_table(
        ("what", "rules", "batch", "µs each", "floor, µs each", "ratio", "comparison, µs each"),
        ((r.name, f"{r.rules:,}", f"{r.batch:,}", f"{r.ours_us:,.1f}", f"{r.floor_us:,.1f}", f"{r.ratio:.2f}",
          ", ".join(f"{peer} {us:,.0f}" for peer, us in r.peers.items())) for r in results),
    )  # fmt: skip
    click.echo()
    print_table(
        ("growth of", "batch", "from rules", "to rules", "ratio"),
        ((g.name, f"{g.batch:,}", f"{g.from_rules:,}", f"{g.to_rules:,}", f"{g.ratio:.2f}") for g in grown),
    )
    click.echo()
    print_table(("what", "goal", "stretch", "measured", "at", "met"), (goal.as_row() for goal in reached))
    more = {"growth": [asdict(g) for g in grown], "goals": [goal.as_dict() for goal in reached]}
    save_results("paper", results, json_file, plots, **more)
