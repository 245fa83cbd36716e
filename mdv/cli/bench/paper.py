"""`mdv bench paper`: the paper's experiments."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from mdv.cli.bench.options import (
    bench,
    count,
    json_file_option,
    keep,
    list_of,
    percent,
    plots_option,
    postgres,
    rounds_option,
    say,
    say_result,
    table,
)


@bench.command(example="mdv bench paper --rules 10000,100000 --types oid,path,join --plots build/bench")
@click.option("--rules", default="10000,100000", show_default=True, callback=list_of(count), help="Rule bases.")
@click.option("--batches", default="1,10,100,1000", show_default=True, callback=list_of(count),
              help="Documents in a batch.")  # fmt: skip
@click.option("--types", "kinds", default="oid,path,join,comp,contains,ne,update,rules", show_default=True,
              callback=list_of(str), help="What to measure.")  # fmt: skip
@click.option("--matched", default="1,5,10,20", show_default=True, callback=list_of(percent),
              help="Percentages of COMP rules that match a document; one of them on every rule base.")  # fmt: skip
@click.option("--bulk", type=click.IntRange(min=1), default=100_000, show_default=True,
              help="Rules that are registered in one call.")  # fmt: skip
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
    """The paper's experiments: the filter on rule bases of one type at a time, and the goals.

    oid, path, join and comp are the rule types of the paper's Figure 10; contains and ne (!=) come beside them. update:
    documents registered again, against their insertion. rules: rules registered one by one and in bulk. The floor is
    the bare COPY and commit of the same statements. Every round checks what the filter found. --plots draws the paper's
    Figures 11 to 15.
    """
    from mdv.bench.goals import goals, growth
    from mdv.bench.paper import KINDS, Paper, run_paper
    from mdv.db.bench import Databases

    if unknown := set(kinds) - set(KINDS):
        raise click.UsageError(f"--types: {', '.join(sorted(unknown))} is none of {', '.join(KINDS)}.")
    if max(batches) > min(rules):
        raise click.UsageError(
            f"A batch of {max(batches):,} documents, each matched by a rule of its own, needs as many rules:"
            f" --rules has {min(rules):,}."
        )
    results = []
    with postgres() as server:
        for result in run_paper(Databases(server.url), Paper(rules, batches, kinds, rounds, matched, bulk), say):
            say_result(result)
            results.append(result)
    reached, grown = goals(results), growth(results)
    table(
        ("what", "rules", "batch", "µs each", "floor, µs each", "ratio", "beside it, µs each"),
        ((r.name, f"{r.rules:,}", f"{r.batch:,}", f"{r.ours_us:,.1f}", f"{r.floor_us:,.1f}", f"{r.ratio:.2f}",
          ", ".join(f"{peer} {us:,.0f}" for peer, us in r.peers.items())) for r in results),
    )  # fmt: skip
    click.echo()
    table(
        ("growth of", "batch", "from rules", "to rules", "ratio"),
        ((g.name, f"{g.batch:,}", f"{g.from_rules:,}", f"{g.to_rules:,}", f"{g.ratio:.2f}") for g in grown),
    )
    click.echo()
    table(("what", "goal", "stretch", "measured", "at", "met"), (goal.as_row() for goal in reached))
    more = {"growth": [asdict(g) for g in grown], "goals": [goal.as_dict() for goal in reached]}
    keep("paper", results, json_file, plots, **more)
