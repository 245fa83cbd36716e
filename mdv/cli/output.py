"""Output: tables on a terminal, plain lines with tabs elsewhere, JSON where asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import click

Item = dict[str, Any]
Columns = Mapping[str, Callable[[Item], object]]
AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

ON_A_TERMINAL = 50
ROWS_A_TABLE = 1000

# A value may hold what would move the cursor, recolour the screen or break a line in two.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    ord("\t"): "\\t",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
}


def clean(text: str) -> str:
    """`text` on one line, its control characters spelled out.

    >>> clean("a\\tb \\x1b[31m")
    'a\\\\tb \\\\x1b[31m'
    """
    return text.translate(_CONTROLS).encode("utf-8", "replace").decode()


def on_terminal() -> bool:
    return sys.stdout.isatty()


def say(message: str) -> None:
    """One line for people."""
    click.echo(clean(message))


def write_json(value: object) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2 if on_terminal() else None))


def write_bytes(text: bytes) -> None:
    """RDF as the server wrote it."""
    click.echo(text, nl=False)


def write_table(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """A table: drawn on a terminal, elsewhere a line a row, tabs between the columns."""
    if not on_terminal():
        for row in rows:
            click.echo("\t".join(clean(_text(value)) for value in row))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(clean(_text(value))) for value in row))
    Console(highlight=False).print(table)


@dataclass(frozen=True, slots=True)
class Listing:
    """How much of a list to show, and in which form."""

    limit: int | None
    everything: bool
    as_json: bool

    @property
    def most(self) -> int | None:
        """The number of items to show; None for all. What goes to a program is never cut off unasked."""
        if self.everything or (self.limit is None and (self.as_json or not on_terminal())):
            return None
        return self.limit or ON_A_TERMINAL

    @property
    def page(self) -> int:
        """How many items to ask for at once: one more than shown, to know whether there are more."""
        return ROWS_A_TABLE if self.most is None else self.most + 1

    def show(self, items: Iterable[Item], columns: Columns, empty: str) -> None:
        """Write the list; on a terminal say how to see more, or with `empty` that there is nothing."""
        source = iter(items)
        if self.as_json:
            self._write_json(source)
            return
        shown = 0
        while rows := list(islice(source, ROWS_A_TABLE if self.most is None else self.most - shown)):
            write_table(columns, ([value(item) for value in columns.values()] for item in rows))
            shown += len(rows)
        if on_terminal() and shown == 0:
            say(empty)
        elif on_terminal() and next(source, None) is not None:
            say(f"There are more than these {shown}: --limit N shows N, --all shows all.")

    def _write_json(self, source: Iterator[Item]) -> None:
        click.echo('{"items": [', nl=False)
        for number, item in enumerate(source if self.most is None else islice(source, self.most)):
            click.echo((",\n" if number else "\n") + json.dumps(item, ensure_ascii=False), nl=False)
        click.echo(f'], "more": {json.dumps(next(source, None) is not None)}}}')


def list_options(function: AnyFunction) -> AnyFunction:
    """--limit, --all and --json: the parts of a `Listing`."""
    options = (
        click.option("--limit", type=click.IntRange(min=1), help=f"Show at most N  [default: {ON_A_TERMINAL} on a "
                     "terminal, else all]", metavar="N"),
        click.option("--all", "everything", is_flag=True, help="Show all."),
        click.option("--json", "as_json", is_flag=True, help="Answer as JSON, for machines."),
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
