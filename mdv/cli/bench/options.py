"""The options, the target systems and the output that the measurements share."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from mdv.cli.command import AnyFunction, ExampleGroup
from mdv.cli.output import on_terminal, write_table

if TYPE_CHECKING:
    from mdv.bench.load import LoadTarget
    from mdv.bench.load_documents import LoadWorkload
    from mdv.bench.load_results import Latency
    from mdv.bench.report import BenchResult
    from mdv.embedded import Postgres

Part = TypeVar("Part")


json_file_option = click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the results to this file."
)


def _create_plots_folder(_context: click.Context, _parameter: click.Parameter, folder: Path | None) -> Path | None:
    """Create the folder. Fail before the measurement if charts cannot be drawn."""
    from mdv.bench.plot import require_matplotlib

    if folder is not None:
        require_matplotlib()
        folder.mkdir(parents=True, exist_ok=True)
    return folder


plots_option = click.option(
    "--plots", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), callback=_create_plots_folder,
    help="Draw charts into this folder, with a page of all results in it.",
)  # fmt: skip
rounds_option = click.option(
    "--rounds", type=click.IntRange(min=1), default=9, show_default=True, help="Number of rounds. The median counts."
)

running_option = click.option(
    "--data", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="Measure the running `mdv up` of this folder instead of starting a system.",
)  # fmt: skip
lmrs_option = click.option(
    "--lmrs", type=click.IntRange(min=1), default=1, show_default=True, help="Number of running LMRs."
)


def rules_option(default: int) -> Callable[[AnyFunction], AnyFunction]:
    help_text = "Rules of an LMR that is not running, of the paper's types."
    return click.option("--rules", type=click.IntRange(min=0), default=default, show_default=True, help=help_text)


@click.group(cls=ExampleGroup, example="mdv bench quick")
def bench() -> None:
    """Measure MDV on this machine, against a lower bound (floor) measured in the same run."""


def comma_separated(convert: Callable[[str], Part]) -> Callable[..., tuple[Part, ...]]:
    """Return a callback that parses a comma-separated option."""

    def read(_context: click.Context, parameter: click.Parameter, value: str) -> tuple[Part, ...]:
        try:
            return tuple(dict.fromkeys(convert(part.strip()) for part in value.split(",")))
        except ValueError as error:
            raise click.BadParameter(f"{value!r}: {error}.", param=parameter) from None

    return read


def parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("use whole numbers of at least 1, separated by commas")
    return int(text)


def parse_sizes(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...]:
    return comma_separated(parse_count)(context, parameter, value) if value else ()


def parse_percent(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number <= 100:
        raise ValueError("use percentages above 0 and up to 100, separated by commas")
    return number


def latency_cells(spread: Latency | None) -> Sequence[str]:
    if spread is None:
        return ("",) * 4
    return [f"{ms:,.1f}" for ms in (spread.p50, spread.p90, spread.p99, spread.most)]


def new_workload(rules: int, pairs: int) -> LoadWorkload:
    import secrets

    from mdv.bench.load_documents import LoadWorkload

    return LoadWorkload(secrets.token_hex(4), rules, pairs)


@contextmanager
def open_target(lmrs: int, data: Path | None) -> Iterator[tuple[LoadTarget, bool]]:
    """Provide the system to measure, and whether it was started for the measurement."""
    import os

    from mdv.bench.load import LoadTarget
    from mdv.cli.bench.temporary_system import temporary_system
    from mdv.errors import NotFound
    from mdv.system import find_lmr, find_system

    if data is None and not os.environ.get("MDV_URL", "").strip():
        print_progress("Starting a system.")
        with temporary_system(lmrs) as target:
            yield target, True
        return
    system = find_system(data)
    running = []
    with suppress(NotFound):  # without an LMR, the delay until a document is visible there is not measured
        running.append(find_lmr(data))
    yield LoadTarget(system, tuple(running), (system.pid,) if system.pid else ()), False


@contextmanager
def start_bench_postgres() -> Iterator[Postgres]:
    """Start a Postgres with durable commits for the benchmark."""
    from mdv.embedded import start_postgres

    with (
        tempfile.TemporaryDirectory(prefix="mdv-bench-") as folder,
        start_postgres(Path(folder) / "postgres") as server,
    ):
        yield server


def print_table(headings: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a table. Its headings name the units, so they are printed to files too."""
    if not on_terminal():
        click.echo("\t".join(headings))
    write_table(headings, rows)


def print_progress(words: str) -> None:
    """Print progress to a terminal."""
    if sys.stderr.isatty():
        click.echo(words, err=True)


def save_results(
    name: str, results: Sequence[BenchResult], json_file: Path | None, plots: Path | None, **more: object
) -> None:
    """Write the results as JSON, and draw them on a page of all results in the folder `plots`."""
    from mdv.bench.report import as_json
    from mdv.bench.report_page import write_report_page

    written = as_json(command_line(), results, **more)
    if json_file is not None:
        json_file.write_text(written, "utf-8")
    if plots is not None:
        (plots / f"{name}.json").write_text(written, "utf-8")
        print_progress(f"See {write_report_page(plots)}.")


def print_result(result: BenchResult) -> None:
    print_progress(f"  {result.name}, batches of {result.batch}: {result.ours_us:,.0f} µs each")


def command_line() -> str:
    return " ".join(["mdv", *sys.argv[1:]])
