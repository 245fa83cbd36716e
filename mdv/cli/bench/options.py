"""What the measurements share: their options, where they measure, and how they tell what they found."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from mdv.cli.frame import AnyFunction, Noun
from mdv.cli.output import on_terminal, write_table

if TYPE_CHECKING:
    from mdv.bench.figures import Spread
    from mdv.bench.load import Target
    from mdv.bench.loaded import Workload
    from mdv.bench.report import Result
    from mdv.embedded import Postgres

Part = TypeVar("Part")


json_file_option = click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures there."
)


def _drawable(_context: click.Context, _parameter: click.Parameter, folder: Path | None) -> Path | None:
    """The folder, made, if there is something to draw with: that is said before anything is measured."""
    from mdv.bench.draw import require_matplotlib

    if folder is not None:
        require_matplotlib()
        folder.mkdir(parents=True, exist_ok=True)
    return folder


plots_option = click.option(
    "--plots", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), callback=_drawable,
    help="Draw the figures into that folder, with a page of all that was measured into it.",
)  # fmt: skip
rounds_option = click.option(
    "--rounds", type=click.IntRange(min=1), default=9, show_default=True, help="Rounds of which the median counts."
)

running_option = click.option(
    "--data", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="Load the `mdv up` that runs on that folder, and start none.",
)  # fmt: skip
lmrs_option = click.option(
    "--lmrs", type=click.IntRange(min=1), default=1, show_default=True, help="LMRs that run with the system."
)


def rules_option(default: int) -> Callable[[AnyFunction], AnyFunction]:
    help_ = "Rules of an LMR that nobody runs, of the paper's types."
    return click.option("--rules", type=click.IntRange(min=0), default=default, show_default=True, help=help_)


@click.group(cls=Noun, example="mdv bench quick")
def bench() -> None:
    """Measure MDV on this machine, against a floor measured in the same run."""


def list_of(convert: Callable[[str], Part]) -> Callable[..., tuple[Part, ...]]:
    """The parts of an option's value, which stand between commas."""

    def read(_context: click.Context, parameter: click.Parameter, value: str) -> tuple[Part, ...]:
        try:
            return tuple(dict.fromkeys(convert(part.strip()) for part in value.split(",")))
        except ValueError as error:
            raise click.BadParameter(f"{value!r}: {error}.", param=parameter) from None

    return read


def count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("whole numbers from 1 on, with commas between them")
    return int(text)


def sizes_of(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...]:
    return list_of(count)(context, parameter, value) if value else ()


def percent(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number <= 100:
        raise ValueError("percentages, above 0 and up to 100, with commas between them")
    return number


def times(spread: Spread | None) -> Sequence[str]:
    if spread is None:
        return ("",) * 4
    return [f"{ms:,.1f}" for ms in (spread.p50, spread.p90, spread.p99, spread.most)]


def workload_of(rules: int, pairs: int) -> Workload:
    import secrets

    from mdv.bench.loaded import Workload

    return Workload(secrets.token_hex(4), rules, pairs)


@contextmanager
def target_of(lmrs: int, data: Path | None) -> Iterator[tuple[Target, bool]]:
    """The system to load, and whether it was started for that."""
    import os

    from mdv.bench.load import Target
    from mdv.cli.own_system import own_system
    from mdv.errors import NotFound
    from mdv.system import find_lmr, find_system

    if data is None and not os.environ.get("MDV_URL", "").strip():
        say("Starting a system.")
        with own_system(lmrs) as target:
            yield target, True
        return
    system = find_system(data)
    running = []
    with suppress(NotFound):  # no LMR is known there: then how long a document takes to one is not measured
        running.append(find_lmr(data))
    yield Target(system, tuple(running), (system.pid,) if system.pid else ()), False


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A Postgres of the benchmark's own, with durable commits."""
    from mdv.embedded import start_postgres

    with (
        tempfile.TemporaryDirectory(prefix="mdv-bench-") as folder,
        start_postgres(Path(folder) / "postgres") as server,
    ):
        yield server


def table(headings: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """A table of figures, which mean nothing without their units: it has its headings in a file, too."""
    if not on_terminal():
        click.echo("\t".join(headings))
    write_table(headings, rows)


def say(words: str) -> None:
    """Progress, for whoever watches."""
    if sys.stderr.isatty():
        click.echo(words, err=True)


def keep(name: str, results: Sequence[Result], json_file: Path | None, plots: Path | None, **more: object) -> None:
    """Write the figures where they are wanted: as JSON, and drawn, on a page of all that was measured into a folder."""
    from mdv.bench.page import write_page
    from mdv.bench.report import as_json

    written = as_json(command(), results, **more)
    if json_file is not None:
        json_file.write_text(written, "utf-8")
    if plots is not None:
        (plots / f"{name}.json").write_text(written, "utf-8")
        say(f"Look at {write_page(plots)}.")


def say_result(result: Result) -> None:
    say(f"  {result.name}, batches of {result.batch}: {result.ours_us:,.0f} µs each")


def command() -> str:
    return " ".join(["mdv", *sys.argv[1:]])
