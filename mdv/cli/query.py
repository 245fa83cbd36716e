"""`mdv query`: ask what is known now, at the MDP or at an LMR."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mdv.cli.files import Source
from mdv.cli.frame import Verb, connect, data_option, json_option
from mdv.cli.lmr import connect_lmr
from mdv.cli.output import ON_A_TERMINAL, ROWS_A_TABLE, Item, Listing, on_terminal, say, write_json, write_table
from mdv.cli.resources import RESOURCE
from mdv.errors import BadRequest

if TYPE_CHECKING:
    from mdv.client import Client

MOST_ROWS = 10_000


@click.command(
    cls=Verb,
    example="mdv query 'search CycleProvider c where c.serverPort = 5874 return c, c.serverHost'\n"
    "mdv query ports.rule --csv\n"
    "mdv query --lmr 'search CycleProvider c return c.serverHost'",
)
@click.argument("query", metavar="TEXT|FILE|-")
@click.option("--limit", type=click.IntRange(1, MOST_ROWS), metavar="N",
              help=f"Show at most N  [default: {ON_A_TERMINAL} on a terminal, else {MOST_ROWS:,} rows]")  # fmt: skip
@click.option(
    "--lmr", "at_lmr", is_flag=True, help="Ask the LMR that runs with the system, or the one at $MDV_LMR_URL."
)
@click.option("--csv", "as_csv", is_flag=True, help="Answer as CSV, the columns in its first line.")
@json_option
@data_option
def query(query: str, limit: int | None, at_lmr: bool, as_csv: bool, as_json: bool) -> None:
    """Ask a query: a rule with `return` in place of `register`, or a rule, which gives its resources.

    The query is the text itself, or in a FILE; - is standard input.
    """
    if as_csv and as_json:
        raise click.UsageError("--json or --csv, not both.")
    text, asked = text_of(query), connect_lmr() if at_lmr else connect()
    most = limit or (ON_A_TERMINAL if on_terminal() and not (as_csv or as_json) else MOST_ROWS)
    answer = asked.post("/query", {"query": text, "limit": most}) if _returns(text) else None
    if answer is None:
        _show_resources(asked, text, limit, as_csv, as_json)
    elif as_json:
        write_json(answer)
    else:
        rows = [[term and term["value"] for term in row] for row in answer["rows"]]
        _write(answer["columns"], rows, as_csv)
        _tell(answer["truncated"], len(rows), on_terminal() and not as_csv)


def text_of(argument: str) -> str:
    """The text of a query, or the file that holds it.

    >>> text_of("search Book b return b")
    'search Book b return b'
    """
    if len(argument.split()) != 1:
        return argument
    try:
        return Source(Path(argument), argument).read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{argument}: byte {error.start + 1} is not UTF-8.") from None


def _returns(text: str) -> bool:
    """Whether it has rows for an answer. What cannot be read, the server says best."""
    from mdv.errors import InvalidRule
    from mdv.rules.ast import ParsedQuery
    from mdv.rules.parse import parse_query

    try:
        return isinstance(parse_query(text), ParsedQuery)
    except InvalidRule:
        return True


def _show_resources(asked: Client, text: str, limit: int | None, as_csv: bool, as_json: bool) -> None:
    listing = Listing(limit, as_csv and limit is None, as_json)
    items = _pages(asked, text, listing.page)
    if not as_csv:
        listing.show(items, RESOURCE, "There is no such resource.")
        return
    shown = [item for item, _ in zip(items, range(limit), strict=False)] if limit else items
    _write(["uri", "classes"], ([item["uri"], " ".join(item["classes"])] for item in shown), as_csv)


def _pages(asked: Client, text: str, size: int) -> Iterator[Item]:
    """The resources of a rule, page after page as they are asked for."""
    after: str | None = None
    while True:
        page = {} if after is None else {"after": after}
        answer = asked.post("/query", {"query": text, "limit": min(size, ROWS_A_TABLE), **page})
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


def _tell(truncated: bool, shown: int, to_people: bool) -> None:
    if to_people and not shown:
        say("Nothing answers that.")
    elif truncated and to_people:
        say(f"There are more than these {shown} rows: --limit N shows N, at most {MOST_ROWS:,}.")
    elif truncated:
        click.echo(f"mdv: there are more than these {shown} rows.", err=True)
