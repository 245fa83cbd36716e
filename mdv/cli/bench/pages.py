"""`mdv bench pages` measures the web pages on a large store."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import click

from mdv.cli.bench.options import bench, command_line, json_file_option, print_progress, print_table
from mdv.errors import MdvError


@bench.command(example="mdv bench pages --documents 100000 --json pages.json")
@click.option("--documents", type=click.IntRange(min=100), default=100_000, show_default=True,
              help="Documents in the store, about 50 statements each.")  # fmt: skip
@click.option("--rules", type=click.IntRange(min=0), default=1_000, show_default=True,
              help="Rules of an LMR that is not running.")  # fmt: skip
@json_file_option
def pages(documents: int, rules: int, json_file: Path | None) -> None:
    """Measure the pages of the web UI on a large store: server time, bytes, requests and first paint.

    First, `mdv batch` fills the store, which takes some minutes.
    """
    from mdv.bench.batch import prepare_catalogue_system
    from mdv.bench.catalogue import generate_catalogue
    from mdv.bench.report import write_json
    from mdv.bench.web_pages import measure_pages, page_paths
    from mdv.cli.bench.temporary_system import temporary_system
    from mdv.client import Client

    with tempfile.TemporaryDirectory(prefix="mdv-bench-") as name:
        catalogue = generate_catalogue(documents, rules, Path(name), print_progress)
        print_progress("Starting a system.")
        with temporary_system(1) as target, Client(target.mdp) as mdp, Client(target.lmrs[0]) as lmr:
            prepare_catalogue_system(mdp, [lmr], catalogue, print_progress)
            print_progress(f"Registering {documents:,} documents.")
            data = str(Path(target.mdp.source).parent)
            argv = [sys.executable, "-m", "mdv.cli", "batch", *catalogue.runs[0], "--json", "--data", data]
            if subprocess.run(argv, stdout=subprocess.DEVNULL).returncode:
                raise MdvError("The store could not be filled: `mdv batch` failed. See its messages above.")
            found = []
            for cost in measure_pages(target.mdp, page_paths(documents // 2, "local")):
                found.append(cost)
                print_progress(f"  {cost.name}: {cost.server_ms:.0f} ms")
    print_table(
        ("page", "status", "server, ms", "KiB", "requests", "total KiB", "first paint, ms"),
        ((cost.name, cost.status, f"{cost.server_ms:,.0f}", f"{cost.bytes / 1024:,.0f}", cost.requests or "",
          f"{(cost.fetched_bytes or 0) / 1024:,.0f}", f"{cost.paint_ms or 0:,.0f}") for cost in found),
    )  # fmt: skip
    if json_file is not None:
        write_json(json_file, command_line(), [], documents=documents, pages=[cost.as_dict() for cost in found])
    bad = [cost.name for cost in found if cost.status != 200]
    if bad:
        raise MdvError(f"These pages did not respond with status 200: {', '.join(bad)}. See the log of the web server.")
