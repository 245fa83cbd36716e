"""`mdv bench peers`: the same work on what a user might pick instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mdv.cli.bench.options import (
    bench,
    count,
    json_file_option,
    keep,
    list_of,
    plots_option,
    postgres,
    say,
    say_result,
    table,
)

if TYPE_CHECKING:
    from mdv.bench.peers.compare import Compared


@bench.command(example="mdv bench peers --types oid,join --peers clips,pathway --plots build/bench")
@click.option("--rules", default="100000", show_default=True, callback=list_of(count), help="Rule bases.")
@click.option("--batches", default="100,1000", show_default=True, callback=list_of(count),
              help="Documents in a batch.")  # fmt: skip
@click.option("--types", default="oid,path,join,comp", show_default=True, callback=list_of(str),
              help="Types of rules; contains is one more.")  # fmt: skip
@click.option("--peers", "names", default="", callback=lambda *given: list_of(str)(*given) if given[-1] else (),
              help="Only these: clips, pathway, oxigraph, oxigraph-queries, rdflib-queries, sql-queries.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(min=1), default=5, show_default=True,
              help="Rounds of two batches, of which the median counts.")  # fmt: skip
@click.option("--patience", type=click.FloatRange(min=0, min_open=True), default=30.0, show_default=True,
              help="Seconds after which a peer is left out: for one batch; or, for all of one size, of the rounds that"
              " remain.")  # fmt: skip
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
    """The same rules and documents on what a user might pick instead of MDV, round by round in one run.

    CLIPS, Pathway and Oxigraph have the rules as data; Oxigraph, rdflib and our own Postgres are asked by a query for
    each rule, too, of which a sample is asked. Peers take parsed documents, as our "store and filter" does; their time
    is that of inserting a batch, in memory, and finding its matches. Every round checks what each of them found.
    """
    from mdv.bench.goals import peer_goals
    from mdv.bench.peers.compare import RULE_TYPES, Comparison, compare
    from mdv.db.bench import Databases

    if unknown := set(types) - set(RULE_TYPES):
        raise click.UsageError(f"--types: {', '.join(sorted(unknown))} is none of {', '.join(RULE_TYPES)}.")
    if max(batches) > min(rules):
        raise click.UsageError(
            f"A batch of {max(batches):,} documents, each matched by a rule of its own, needs as many rules:"
            f" --rules has {min(rules):,}."
        )
    chosen = Comparison(rules, batches, types, _installed(names), rounds, patience, patience)
    found = []
    with postgres() as server:
        for compared in compare(Databases(server.url), chosen, say):
            for result in compared.results:
                say_result(result)
            found.append(compared)
    results = [result for compared in found for result in compared.results]
    reached = peer_goals(results)
    _show(found)
    click.echo()
    table(("what", "goal", "stretch", "measured", "at", "met"), (goal.as_row() for goal in reached))
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
    keep("peers", results, json_file, plots, goals=[goal.as_dict() for goal in reached], beside=beside)


def _installed(names: Sequence[str]) -> tuple[str, ...]:
    """The peers to measure: those asked for, or all there are."""
    from mdv.bench.peers import KINDS
    from mdv.bench.peers.hosted import missing, python_for

    if unknown := set(names) - set(KINDS):
        raise click.UsageError(f"--peers: {', '.join(sorted(unknown))} is none of {', '.join(KINDS)}.")
    there = []
    for name in names or KINDS:
        if python_for(KINDS[name]) is not None:
            there.append(name)
        elif names:
            raise click.UsageError(missing(KINDS[name]))
        else:
            click.echo(missing(KINDS[name]), err=True)
    return tuple(there)


def _show(found: Sequence[Compared]) -> None:
    table(
        ("rules of", "rules", "batch", "system", "µs a document", "filter = 1", "store and filter = 1", "durability",
         "MiB at most", ""),
        (row for compared in found for row in _rows(compared)),
    )  # fmt: skip


def _rows(compared: Compared) -> Iterator[Sequence[str]]:
    """Ours and each peer on one rule base, in batches of one size."""
    from mdv.bench.peers import KINDS

    filtered, stored = compared.results
    what = (filtered.name.partition(":")[0], f"{filtered.rules:,}", f"{filtered.batch:,}")

    def row(system: str, us: float | None, *more: str) -> Sequence[str]:
        times = ("", "", "") if us is None else (us, us / filtered.ours_us, us / stored.ours_us)
        return (*what, system, *(f"{number:,.2f}" if number != "" else "" for number in times), *more)

    durable = "durable commit"
    yield row("MDV: filter alone", filtered.ours_us, "in the transaction", "", "")
    yield row("MDV: store and filter", stored.ours_us, durable, "", "")
    yield row("floor", stored.floor_us, durable, "", "")
    for kind in KINDS.values():
        us, mib = stored.peers.get(kind.title), compared.memory_mib.get(kind.title, 0.0)
        note = "extrapolated from a sample" if kind.sampled else ""
        if us is not None:
            yield row(kind.title, us, kind.durability, f"{mib:,.0f}" if mib else "", note)
        elif why := compared.left_out.get(kind.title):
            yield row(kind.title, None, kind.durability, "", f"left out: {why}")
