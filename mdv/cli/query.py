"""`mdv query`: run a query at the MDP or at an LMR."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mdv.cli.command import ExampleCommand, connect, data_option, json_option
from mdv.cli.lmr import connect_lmr
from mdv.cli.output import (
    ROWS_PER_TABLE,
    TERMINAL_ROW_LIMIT,
    Item,
    Listing,
    on_terminal,
    print_line,
    write_json,
    write_table,
)
from mdv.cli.resources import RESOURCE
from mdv.cli.source_files import SourceFile
from mdv.errors import BadRequest

if TYPE_CHECKING:
    from mdv.client import Client

MAX_ROWS = 10_000


@click.command(
    cls=ExampleCommand,
    example="mdv query 'search CycleProvider c where c.serverPort = 5874 return c, c.serverHost'\n"
    "mdv query ports.rule --csv\n"
    "mdv query --lmr 'search CycleProvider c return c.serverHost'",
)
@click.argument("query", metavar="TEXT|FILE|-")
@click.option("--limit", type=click.IntRange(1, MAX_ROWS), metavar="N",
              help=f"Maximum number of rows  [default: {TERMINAL_ROW_LIMIT} on a terminal, "
              f"else {MAX_ROWS:,}]")  # fmt: skip
@click.option(
    "--lmr", "at_lmr", is_flag=True, help="Query the LMR that runs with the system, or the one at $MDV_LMR_URL."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, with the column names in the first line.")
@json_option
@data_option
def query(query: str, limit: int | None, at_lmr: bool, as_csv: bool, as_json: bool) -> None:
    """Run a query: a rule with `return` instead of `register`; or a rule, whose matching resources are listed.

    The argument is the text of the query, or a FILE that contains it; - is standard input.
    """
    if as_csv and as_json:
        raise click.UsageError("--json and --csv cannot be combined.")
    text, client = read_query(query), connect_lmr() if at_lmr else connect()
    most = limit or (TERMINAL_ROW_LIMIT if on_terminal() and not (as_csv or as_json) else MAX_ROWS)
    answer = client.post("/query", {"query": text, "limit": most}) if _returns(text) else None
    if answer is None:
        _show_resources(client, text, limit, as_csv, as_json)
    elif as_json:
        write_json(answer)
    else:
        rows = [[term and term["value"] for term in row] for row in answer["rows"]]
        _write(answer["columns"], rows, as_csv)
        _print_truncation(answer["truncated"], len(rows), on_terminal() and not as_csv)


def read_query(argument: str) -> str:
    """Return the text of a query, from the argument itself or from the file that it names.

    >>> read_query("search Book b return b")
    'search Book b return b'
    """
    if len(argument.split()) != 1:
        return argument
    try:
        return SourceFile(Path(argument), argument).read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{argument}: byte {error.start + 1} is not UTF-8.") from None


def _returns(text: str) -> bool:
    """True if the query returns rows. Also true for an invalid query: the server reports the errors."""
    from mdv.errors import InvalidRule
    from mdv.rules.ast import ParsedQuery
    from mdv.rules.parse import parse_query

    try:
        return isinstance(parse_query(text), ParsedQuery)
    except InvalidRule:
        return True


def _show_resources(client: Client, text: str, limit: int | None, as_csv: bool, as_json: bool) -> None:
    listing = Listing(limit, as_csv and limit is None, as_json)
    items = _pages(client, text, listing.page)
    if not as_csv:
        listing.show(items, RESOURCE, "No resources match.")
        return
    shown = [item for item, _ in zip(items, range(limit), strict=False)] if limit else items
    _write(["uri", "classes"], ([item["uri"], " ".join(item["classes"])] for item in shown), as_csv)


def _pages(client: Client, text: str, size: int) -> Iterator[Item]:
    """Yield the resources that match a rule. Pages are fetched as needed."""
    after: str | None = None
    while True:
        page = {} if after is None else {"after": after}
        answer = client.post("/query", {"query": text, "limit": min(size, ROWS_PER_TABLE), **page})
        yield from answer["items"]
        after = answer["next"]
        if after is None:
            return


def _write(columns: list[str], rows: object, as_csv: bool) -> None:
    if not as_csv:
        write_table(columns, rows)  # type: ignore[arg-type]
        return
    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows(rows)  # type: ignore[arg-type]


def _print_truncation(truncated: bool, shown: int, is_interactive: bool) -> None:
    if is_interactive and not shown:
        print_line("No rows.")
    elif truncated and is_interactive:
        print_line(f"There are more than {shown} rows: use --limit N, at most {MAX_ROWS:,}.")
    elif truncated:
        click.echo(f"mdv: there are more than {shown} rows.", err=True)
