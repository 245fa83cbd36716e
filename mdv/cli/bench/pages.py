"""`mdv bench pages`: what the pages cost on a large store."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import click

from mdv.cli.bench.options import bench, command, json_file_option, say, table
from mdv.errors import MdvError


@bench.command(example="mdv bench pages --documents 100000 --json pages.json")
@click.option("--documents", type=click.IntRange(min=100), default=100_000, show_default=True,
              help="Documents of the store, about 50 statements each.")  # fmt: skip
@click.option("--rules", type=click.IntRange(min=0), default=1_000, show_default=True,
              help="Rules of an LMR that nobody runs.")  # fmt: skip
@json_file_option
def pages(documents: int, rules: int, json_file: Path | None) -> None:
    """The pages of the web UI on a large store: time of the server, bytes, requests and first paint.

    The store is made first, by `mdv batch`; that takes some minutes.
    """
    from mdv.bench.batch import lay_ground
    from mdv.bench.catalogue import generate
    from mdv.bench.pages import addresses, measure
    from mdv.bench.report import write_json
    from mdv.cli.own_system import own_system
    from mdv.client import Client

    with tempfile.TemporaryDirectory(prefix="mdv-bench-") as name:
        catalogue = generate(documents, rules, Path(name), say)
        say("Starting a system.")
        with own_system(1) as target, Client(target.mdp) as mdp, Client(target.lmrs[0]) as lmr:
            lay_ground(mdp, [lmr], catalogue, say)
            say(f"Registering {documents:,} documents.")
            data = str(Path(target.mdp.known_by).parent)
            argv = [sys.executable, "-m", "mdv.cli", "batch", *catalogue.runs[0], "--json", "--data", data]
            if subprocess.run(argv, stdout=subprocess.DEVNULL).returncode:
                raise MdvError("The store could not be made.")
            found = []
            for cost in measure(target.mdp, addresses(documents // 2, "local")):
                found.append(cost)
                say(f"  {cost.name}: {cost.server_ms:.0f} ms")
    table(
        ("page", "status", "server, ms", "KiB", "requests", "KiB in all", "first paint, ms"),
        ((cost.name, cost.status, f"{cost.server_ms:,.0f}", f"{cost.bytes / 1024:,.0f}", cost.requests or "",
          f"{(cost.fetched_bytes or 0) / 1024:,.0f}", f"{cost.paint_ms or 0:,.0f}") for cost in found),
    )  # fmt: skip
    if json_file is not None:
        write_json(json_file, command(), [], documents=documents, pages=[cost.as_dict() for cost in found])
    bad = [cost.name for cost in found if cost.status != 200]
    if bad:
        raise MdvError(f"These pages were not answered: {', '.join(bad)}.")
