"""`mdv bench`: what things cost on this machine."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from mdv.cli.frame import Noun
from mdv.cli.output import write_table


@click.group(cls=Noun, example="mdv bench quick")
def bench() -> None:
    """Measure MDV on this machine, against a floor measured in the same run."""


@bench.command(example="mdv bench quick --stored 100000 --json figures.json")
@click.option("--stored", default=5_000, show_default=True, help="Documents stored before the second half.")
@click.option("--rounds", default=9, show_default=True, help="Rounds of which the median counts.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures there.")
def quick(stored: int, rounds: int, json_file: Path | None) -> None:
    """Registration: text to durable commit, in an empty store and in a filled one.

    The floor is the bare COPY and commit of the same statements, encoded beforehand, into an equally indexed table.
    """
    from mdv.bench.registration import Bench, measure
    from mdv.bench.report import write_json
    from mdv.db.engine import make_engine
    from mdv.db.migrate import migrate
    from mdv.embedded import start_postgres

    def say(words: str) -> None:
        if sys.stderr.isatty():
            click.echo(words, err=True)

    results = []
    with (
        tempfile.TemporaryDirectory(prefix="mdv-bench-") as folder,
        start_postgres(Path(folder) / "postgres") as server,
    ):
        engine = make_engine(server.url)
        migrate(engine)
        subject = Bench(engine)
        for name, fill in (("empty store", 0), (f"{stored:,} documents", stored)):
            subject.fill(fill, say)
            for result in measure(subject, name, (1, 10, 100, 1000), rounds):
                say(f"  {result.name}, batches of {result.batch}: {result.ours_us:,.0f} µs a document")
                results.append(result)
        engine.dispose()
    write_table(
        ("what", "batch", "µs a document", "floor", "ratio"),
        ((r.name, r.batch, f"{r.ours_us:,.0f}", f"{r.floor_us:,.0f}", f"{r.ratio:.1f}") for r in results),
    )
    if json_file is not None:
        write_json(json_file, " ".join(["mdv", *sys.argv[1:]]), results)
