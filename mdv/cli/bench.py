"""`mdv bench`: what things cost on this machine."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from mdv.cli.frame import Noun
from mdv.cli.output import write_table

if TYPE_CHECKING:
    from mdv.bench.report import Result
    from mdv.embedded import Postgres

Part = TypeVar("Part")

json_file_option = click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures there."
)
rounds_option = click.option(
    "--rounds", type=click.IntRange(min=1), default=9, show_default=True, help="Rounds of which the median counts."
)


@click.group(cls=Noun, example="mdv bench quick")
def bench() -> None:
    """Measure MDV on this machine, against a floor measured in the same run."""


@bench.command(example="mdv bench quick --stored 100000 --json figures.json")
@click.option("--stored", default=5_000, show_default=True, help="Documents stored before the second half.")
@rounds_option
@json_file_option
def quick(stored: int, rounds: int, json_file: Path | None) -> None:
    """Registration: text to durable commit, in an empty store and in a filled one.

    The floor is the bare COPY and commit of the same statements, encoded beforehand, into an equally indexed table.
    """
    from mdv.bench.registration import Bench, measure
    from mdv.bench.report import write_json
    from mdv.db.engine import make_engine
    from mdv.db.migrate import migrate

    results = []
    with _postgres() as server:
        engine = make_engine(server.url)
        migrate(engine)
        subject = Bench(engine)
        for name, fill in (("empty store", 0), (f"{stored:,} documents", stored)):
            subject.fill(fill, _say)
            for result in measure(subject, name, (1, 10, 100, 1000), rounds):
                _say_result(result)
                results.append(result)
        engine.dispose()
    write_table(
        ("what", "batch", "µs a document", "floor", "ratio"),
        ((r.name, r.batch, f"{r.ours_us:,.0f}", f"{r.floor_us:,.0f}", f"{r.ratio:.1f}") for r in results),
    )
    if json_file is not None:
        write_json(json_file, _command(), results)


def _list_of(convert: Callable[[str], Part]) -> Callable[..., tuple[Part, ...]]:
    """The parts of an option's value, which stand between commas."""

    def read(_context: click.Context, parameter: click.Parameter, value: str) -> tuple[Part, ...]:
        try:
            return tuple(dict.fromkeys(convert(part.strip()) for part in value.split(",")))
        except ValueError as error:
            raise click.BadParameter(f"{value!r}: {error}.", param=parameter) from None

    return read


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("whole numbers from 1 on, with commas between them")
    return int(text)


def _percent(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number <= 100:
        raise ValueError("percentages, above 0 and up to 100, with commas between them")
    return number


@bench.command(example="mdv bench paper --rules 10000,100000 --types oid,path,join --json figures.json")
@click.option("--rules", default="10000,100000", show_default=True, callback=_list_of(_count), help="Rule bases.")
@click.option("--batches", default="1,10,100,1000", show_default=True, callback=_list_of(_count),
              help="Documents in a batch.")  # fmt: skip
@click.option("--types", "kinds", default="oid,path,join,comp,contains,ne,update,rules", show_default=True,
              callback=_list_of(str), help="What to measure.")  # fmt: skip
@click.option("--matched", default="10", show_default=True, callback=_list_of(_percent),
              help="The percentages of COMP rules that match each document.")  # fmt: skip
@click.option("--bulk", type=click.IntRange(min=1), default=100_000, show_default=True,
              help="Rules that are registered in one call.")  # fmt: skip
@rounds_option
@json_file_option
def paper(
    rules: tuple[int, ...],
    batches: tuple[int, ...],
    kinds: tuple[str, ...],
    matched: tuple[float, ...],
    bulk: int,
    rounds: int,
    json_file: Path | None,
) -> None:
    """The paper's experiments: the filter on rule bases of one type at a time, and the goals.

    oid, path, join and comp are the rule types of the paper's Figure 10; contains and ne (!=) come beside them. update:
    documents registered again, against their insertion. rules: rules registered one by one and in bulk. The floor is
    the bare COPY and commit of the same statements. Every round checks what the filter found.
    """
    from mdv.bench.goals import goals, growth
    from mdv.bench.paper import KINDS, Paper, run_paper
    from mdv.bench.report import write_json
    from mdv.db.bench import Databases

    if unknown := set(kinds) - set(KINDS):
        raise click.UsageError(f"--types: {', '.join(sorted(unknown))} is none of {', '.join(KINDS)}.")
    if max(batches) > min(rules):
        raise click.UsageError(
            f"A batch of {max(batches):,} documents, each matched by a rule of its own, needs as many rules:"
            f" --rules has {min(rules):,}."
        )
    results = []
    with _postgres() as server:
        for result in run_paper(Databases(server.url), Paper(rules, batches, kinds, rounds, matched, bulk), _say):
            _say_result(result)
            results.append(result)
    reached, grown = goals(results), growth(results)
    write_table(
        ("what", "rules", "batch", "µs each", "floor", "ratio", "beside it, µs each"),
        ((r.name, f"{r.rules:,}", f"{r.batch:,}", f"{r.ours_us:,.1f}", f"{r.floor_us:,.1f}", f"{r.ratio:.2f}",
          ", ".join(f"{peer} {us:,.0f}" for peer, us in r.peers.items())) for r in results),
    )  # fmt: skip
    click.echo()
    write_table(
        ("growth of", "batch", "from rules", "to rules", "ratio"),
        ((g.name, f"{g.batch:,}", f"{g.from_rules:,}", f"{g.to_rules:,}", f"{g.ratio:.2f}") for g in grown),
    )
    click.echo()
    write_table(("what", "goal", "stretch", "measured", "at", "met"), (goal.as_row() for goal in reached))
    if json_file is not None:
        more = {"growth": [asdict(g) for g in grown], "goals": [goal.as_dict() for goal in reached]}
        write_json(json_file, _command(), results, **more)


@contextmanager
def _postgres() -> Iterator[Postgres]:
    """A Postgres of the benchmark's own, with durable commits."""
    from mdv.embedded import start_postgres

    with (
        tempfile.TemporaryDirectory(prefix="mdv-bench-") as folder,
        start_postgres(Path(folder) / "postgres") as server,
    ):
        yield server


def _say(words: str) -> None:
    """Progress, for whoever watches."""
    if sys.stderr.isatty():
        click.echo(words, err=True)


def _say_result(result: Result) -> None:
    _say(f"  {result.name}, batches of {result.batch}: {result.ours_us:,.0f} µs each")


def _command() -> str:
    return " ".join(["mdv", *sys.argv[1:]])
