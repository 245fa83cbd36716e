"""`mdv bench peers` compares MDV with alternatives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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
    save_results,
    start_bench_postgres,
)

if TYPE_CHECKING:
    from mdv.bench.peers.compare import ComparisonResult


@bench.command(example="mdv bench peers --types oid,join --peers clips,pathway --plots build/bench")
@click.option(
    "--rules",
    default="100000",
    show_default=True,
    callback=comma_separated(parse_count),
    help="Sizes of the rule bases.",
)
@click.option("--batches", default="100,1000", show_default=True, callback=comma_separated(parse_count),
              help="Documents per batch.")  # fmt: skip
@click.option("--types", default="oid,path,join,comp", show_default=True, callback=comma_separated(str),
              help="Rule types; contains is available too.")  # fmt: skip
@click.option("--peers", "names", default="", callback=lambda *given: comma_separated(str)(*given) if given[-1] else (),
              help="Measure only these: clips, pathway, oxigraph, oxigraph-queries, rdflib-queries,"
              " sql-queries.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True,
              help="Number of rounds, each of two batches. The median counts.")  # fmt: skip
@click.option("--patience", type=click.FloatRange(min=0, min_open=True), default=30.0, show_default=True,
              help="Time limit in seconds. A peer that needs longer for one batch is left out; one that needs"
              " longer for all batches of one size has fewer rounds.")  # fmt: skip
@json_file_option
@plots_option
def peers(
    rules: tuple[int, ...],
    batches: tuple[int, ...],
    types: tuple[str, ...],
    names: tuple[str, ...],
    rounds: int,
    patience: float,
    json_file: Path | None,
    plots: Path | None,
) -> None:
    """Run the same rules and documents on MDV and its alternatives, round by round in one run.

    CLIPS, Pathway and Oxigraph hold the rules as data. Oxigraph, rdflib and our own Postgres also run one query per
    rule, for a sample of the rules. Peers receive parsed documents, as our "store and filter" does. Their time is that
    of inserting a batch in memory and finding its matches. Every round checks the matches of each peer.
    """
    from mdv.bench.goals import evaluate_peer_goals
    from mdv.bench.peers.compare import PEER_RULE_TYPES, PeerComparison, compare_peers
    from mdv.bench.sql.bench_store import BenchDatabases

    if unknown := set(types) - set(PEER_RULE_TYPES):
        raise click.UsageError(
            f"--types: {', '.join(sorted(unknown))} is unknown. Use one of {', '.join(PEER_RULE_TYPES)}."
        )
    if max(batches) > min(rules):
        raise click.UsageError(
            f"A batch of {max(batches):,} documents needs as many rules, one for each document, but --rules has only"
            f" {min(rules):,}. Use smaller --batches or more --rules."
        )
    chosen = PeerComparison(rules, batches, types, _installed(names), rounds, patience, patience)
    found = []
    with start_bench_postgres() as server:
        for compared in compare_peers(BenchDatabases(server.url), chosen, print_progress):
            for result in compared.results:
                print_result(result)
            found.append(compared)
    results = [result for compared in found for result in compared.results]
    reached = evaluate_peer_goals(results)
    _show(found)
    click.echo()
    print_table(("what", "goal", "stretch", "measured", "at", "met"), (goal.as_row() for goal in reached))
    beside = [
        {
            "type": first.name.partition(":")[0],
            "rules": first.rules,
            "batch": first.batch,
            "memory_mib": compared.memory_mib,
            "left_out": compared.left_out,
        }
        for compared in found
        for first in compared.results[:1]
    ]
    save_results("peers", results, json_file, plots, goals=[goal.as_dict() for goal in reached], beside=beside)


def _installed(names: Sequence[str]) -> tuple[str, ...]:
    """Return the peers to measure: the requested ones, or all that are installed."""
    from mdv.bench.peers import PEER_KINDS
    from mdv.bench.peers.peer_process import not_installed_message, python_for

    if unknown := set(names) - set(PEER_KINDS):
        raise click.UsageError(f"--peers: {', '.join(sorted(unknown))} is unknown. Use one of {', '.join(PEER_KINDS)}.")
    there = []
    for name in names or PEER_KINDS:
        if python_for(PEER_KINDS[name]) is not None:
            there.append(name)
        elif names:
            raise click.UsageError(not_installed_message(PEER_KINDS[name]))
        else:
            click.echo(not_installed_message(PEER_KINDS[name]), err=True)
    return tuple(there)


def _show(found: Sequence[ComparisonResult]) -> None:
    print_table(
        ("rule type", "rules", "batch", "system", "µs per document", "relative to filter",
         "relative to store and filter", "durability", "peak MiB", ""),
        (row for compared in found for row in _rows(compared)),
    )  # fmt: skip


def _rows(compared: ComparisonResult) -> Iterator[Sequence[str]]:
    """Yield the rows of MDV and each peer for one rule base and one batch size."""
    from mdv.bench.peers import PEER_KINDS

    filtered, stored = compared.results
    what = (filtered.name.partition(":")[0], f"{filtered.rules:,}", f"{filtered.batch:,}")

    def row(system: str, us: float | None, *more: str) -> Sequence[str]:
        times = ("", "", "") if us is None else (us, us / filtered.ours_us, us / stored.ours_us)
        return (*what, system, *(f"{number:,.2f}" if number != "" else "" for number in times), *more)

    durable = "durable commit"
    yield row("MDV: filter alone", filtered.ours_us, "in the transaction", "", "")
    yield row("MDV: store and filter", stored.ours_us, durable, "", "")
    yield row("floor", stored.floor_us, durable, "", "")
    for kind in PEER_KINDS.values():
        us, mib = stored.peers.get(kind.title), compared.memory_mib.get(kind.title, 0.0)
        note = "extrapolated from a sample" if kind.sampled else ""
        if us is not None:
            yield row(kind.title, us, kind.durability, f"{mib:,.0f}" if mib else "", note)
        elif why := compared.left_out.get(kind.title):
            yield row(kind.title, None, kind.durability, "", f"left out: {why}")
