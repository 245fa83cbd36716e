"""Output: tables on a terminal, lines with tabs otherwise, or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeVar

import click

Item = dict[str, Any]
Columns = Mapping[str, Callable[[Item], object]]
AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

TERMINAL_ROW_LIMIT = 50
ROWS_PER_TABLE = 1000

# A value may contain control characters, which would move the cursor, change colours or break lines.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    ord("\t"): "\\t",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
}


def escape_controls(text: str) -> str:
    """Return `text` on one line, with control characters escaped.

    >>> escape_controls("a\\tb \\x1b[31m")
    'a\\\\tb \\\\x1b[31m'
    """
    return text.translate(_CONTROLS).encode("utf-8", "replace").decode()


def short_time(moment: str | None, missing: str = "never") -> str:
    """Return a time for a column on a terminal: in UTC, to the minute.

    >>> short_time("2031-12-24T18:00:59.123456+00:00"), short_time(None)
    ('2031-12-24 18:00', 'never')
    """
    return datetime.fromisoformat(moment).astimezone(UTC).strftime("%Y-%m-%d %H:%M") if moment else missing


def on_terminal() -> bool:
    return sys.stdout.isatty()


def print_line(message: str) -> None:
    """Print one line, with control characters escaped."""
    click.echo(escape_controls(message))


def warn_suspended(what: str, why: Mapping[str, Any], command: str) -> None:
    """Print a warning to standard error that a rule is suspended, with the command that resumes it."""
    message = f"{what} is suspended since position {why['position']}: {why['reason']} `{command}` resumes it."
    click.echo(f"mdv: {escape_controls(message)}", err=True)


def write_json(value: object) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2 if on_terminal() else None))


def write_bytes(text: bytes) -> None:
    """Write RDF unchanged to standard output."""
    click.echo(text, nl=False)


def write_table(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Write a table: formatted on a terminal, otherwise one line per row with tabs between the columns."""
    if not on_terminal():
        for row in rows:
            click.echo("\t".join(escape_controls(_text(value)) for value in row))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(escape_controls(_text(value))) for value in row))
    Console(highlight=False).print(table)


@dataclass(frozen=True, slots=True)
class Listing:
    """The options of a list: how many items to show, and in which format."""

    limit: int | None
    everything: bool
    as_json: bool

    @property
    def most(self) -> int | None:
        """The number of items to show; None for all. Output to a program is truncated only with --limit."""
        if self.everything or (self.limit is None and (self.as_json or not on_terminal())):
            return None
        return self.limit or TERMINAL_ROW_LIMIT

    @property
    def page(self) -> int:
        """The page size of requests: one more than shown, to know whether there are more items."""
        return ROWS_PER_TABLE if self.most is None else self.most + 1

    def show(self, items: Iterable[Item], columns: Columns, empty: str) -> None:
        """Write the list. On a terminal, print `empty` if there are no items, and a hint if there are more."""
        source = iter(items)
        if self.as_json:
            self._write_json(source)
            return
        shown = 0
        while rows := list(islice(source, ROWS_PER_TABLE if self.most is None else self.most - shown)):
            write_table(columns, ([value(item) for value in columns.values()] for item in rows))
            shown += len(rows)
        if on_terminal() and shown == 0:
            print_line(empty)
        elif on_terminal() and next(source, None) is not None:
            print_line(f"There are more than {shown} items: use --limit N or --all.")

    def _write_json(self, source: Iterator[Item]) -> None:
        click.echo('{"items": [', nl=False)
        for number, item in enumerate(source if self.most is None else islice(source, self.most)):
            click.echo((",\n" if number else "\n") + json.dumps(item, ensure_ascii=False), nl=False)
        click.echo(f'], "more": {json.dumps(next(source, None) is not None)}}}')


def list_options(function: AnyFunction) -> AnyFunction:
    """Add the options --limit, --all and --json, which are the fields of a `Listing`."""
    options = (
        click.option("--limit", type=click.IntRange(min=1), metavar="N",
                     help=f"Maximum number of items  [default: {TERMINAL_ROW_LIMIT} on a terminal, else all]"),
        click.option("--all", "everything", is_flag=True, help="Show all items."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(str(part) for part in value)
    return str(value)
