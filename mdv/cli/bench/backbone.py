"""`mdv bench backbone` measures the log of a backbone, and how its operations are applied."""

from __future__ import annotations

import json
from pathlib import Path

import click

from mdv.cli.bench.options import (
    bench,
    comma_separated,
    json_file_option,
    parse_count,
    plots_option,
    print_progress,
    print_table,
    rounds_option,
    save_results,
    start_bench_postgres,
)


@bench.command(example="mdv bench backbone --batches 1,100,1000")
@click.option("--batches", default="1,10,100,1000", show_default=True, callback=comma_separated(parse_count),
              help="Documents per batch.")  # fmt: skip
@click.option("--documents", type=click.IntRange(min=1), default=20_000, show_default=True,
              help="Documents that are stored when sums are measured.")  # fmt: skip
@click.option("--crdt", type=click.Choice(["orset", "cset"]), default="orset", show_default=True,
              help="The kind of replicated set.")  # fmt: skip
@click.option("--adoption", type=click.IntRange(min=0), metavar="N", help="Instead, measure an adoption of an LMR with"
              " N resources against a snapshot.")  # fmt: skip
@click.option("--live/--no-live", default=True, show_default=True,
              help="Also start three MDPs, and measure how they replicate over HTTP.")  # fmt: skip
@click.option("--behind", type=click.IntRange(min=1), default=20_000, show_default=True,
              help="Documents that a member lacks when it begins to catch up.")  # fmt: skip
@rounds_option
@json_file_option
@plots_option
def backbone(
    batches: tuple[int, ...],
    documents: int,
    crdt: str,
    adoption: int | None,
    live: bool,
    behind: int,
    rounds: int,
    json_file: Path | None,
    plots: Path | None,
) -> None:
    """Measure a backbone: registrations with the log, and applying them at another member.

    Registrations with the log are compared with those without a backbone; applying with text to commit at one MDP. The
    members are databases of one process, so that the network costs nothing. Then three MDPs are started: how soon can a
    change be read at another one, and how long do local changes take while a member catches up?
    """
    from mdv.bench.backbone import BackbonePlan, evaluate_backbone_goals, run_backbone
    from mdv.bench.backbone_live import LivePlan, evaluate_live_goals, run_live
    from mdv.bench.sql.bench_store import BenchDatabases
    from mdv.cli.bench.temporary_system import temporary_backbone

    if adoption is not None:
        _measure_adoption(adoption, json_file)
        return
    plan = BackbonePlan(batches, rounds, documents, crdt)
    with start_bench_postgres() as server:
        figures = run_backbone(BenchDatabases(server.url), plan, print_progress)
    live_figures = None
    if live:
        print_progress("starting three MDPs")
        with temporary_backbone(3, crdt) as systems:
            live_figures = run_live(systems, LivePlan(behind=behind), print_progress)
    reached = [*evaluate_backbone_goals(figures), *evaluate_live_goals(live_figures)]
    print_table(
        ("what", "batch", "µs a document", "compared with", "ratio"),
        ((r.name, f"{r.batch:,}", f"{r.ours_us:,.1f}", f"{r.floor_us:,.1f}", f"{r.ratio:.2f}")
         for r in figures.results),
    )  # fmt: skip
    click.echo()
    print_table(("what", "goal", "stretch", "measured", "at", "met"), (goal.as_row() for goal in reached))
    save_results("backbone", figures.results, json_file, plots, goals=[goal.as_dict() for goal in reached],
                 log_bytes=figures.log_bytes)  # fmt: skip


def _measure_adoption(resources: int, json_file: Path | None) -> None:
    """Measure adoptions after 0, 10 and 100 changes, and a snapshot."""
    from tempfile import TemporaryDirectory

    from mdv.bench.adoption import run_adoption
    from mdv.bench.sql.bench_store import BenchDatabases

    with start_bench_postgres() as server, TemporaryDirectory() as folder:
        databases = BenchDatabases(server.url)
        figures = run_adoption(databases, Path(folder), max(1, resources // 2), (0, 10, 100), print_progress)
    print_table(
        ("what", "resources", "buckets", "bytes", "seconds", "of these for the rules"),
        ((f.name, f"{f.resources:,}", f"{f.buckets}", f"{f.size:,}", f"{f.seconds:.2f}", f"{f.activation_seconds:.2f}")
         for f in figures),
    )  # fmt: skip
    if json_file is not None:
        json_file.write_text(json.dumps([figure.as_dict() for figure in figures], indent=1) + "\n", encoding="utf-8")
