"""`mdv bench quick`: what the ways that users see cost."""

from __future__ import annotations

from pathlib import Path

import click

from mdv.cli.bench.options import bench, command, json_file_option, postgres, rounds_option, say, say_result, table


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
    with postgres() as server:
        engine = make_engine(server.url)
        migrate(engine)
        subject = Bench(engine)
        for name, fill in (("empty store", 0), (f"{stored:,} documents", stored)):
            subject.fill(fill, say)
            for result in measure(subject, name, (1, 10, 100, 1000), rounds):
                say_result(result)
                results.append(result)
        engine.dispose()
    table(
        ("what", "documents a batch", "µs a document", "floor, µs a document", "ratio"),
        ((r.name, r.batch, f"{r.ours_us:,.0f}", f"{r.floor_us:,.0f}", f"{r.ratio:.1f}") for r in results),
    )
    if json_file is not None:
        write_json(json_file, command(), results)
