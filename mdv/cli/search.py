"""`mdv search`: find resources by words, at the MDP or at an LMR."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from mdv.cli.command import ExampleCommand, connect, data_option
from mdv.cli.lmr import connect_lmr
from mdv.cli.output import Columns, Item, Listing, list_options

if TYPE_CHECKING:
    from mdv.client import Client

RESULT: Columns = {
    "resource": lambda item: item["uri"],
    "label": lambda item: item["label"],
    "classes": lambda item: item["classes"],
    "found in": lambda item: [one["value"] for one in item["matches"]],
}
EMPTY = "No resource has all of these words. Use fewer words, or * for the rest of a word: 'pass*'."


@click.command(
    cls=ExampleCommand,
    example="mdv search passau\nmdv search 'pass* cycle' --class CycleProvider\nmdv search http://mdv.example/",
)
@click.argument("words", nargs=-1, required=True)
@click.option("--class", "class_", metavar="C", help="Only instances of this class and its subclasses.")
@click.option(
    "--lmr", "at_lmr", is_flag=True, help="Search the LMR that runs with the system, or the one at $MDV_LMR_URL."
)
@list_options
@data_option
def search(
    words: tuple[str, ...], class_: str | None, at_lmr: bool, limit: int | None, everything: bool, as_json: bool
) -> None:
    """Find the resources that have all WORDS in their URI, labels and values, or whose URI starts with the argument.

    Case and accents do not matter. `pass*` finds all words that start with `pass`.
    """
    listing = Listing(limit, everything, as_json)
    found = _results(connect_lmr() if at_lmr else connect(), " ".join(words), class_, listing.page)
    listing.show(found, RESULT, EMPTY)


def _results(client: Client, query: str, class_: str | None, page: int) -> Iterator[Item]:
    """Yield the results. Warn if the index is being updated."""
    for number, answer in enumerate(client.pages("/search", page, q=query, **{"class": class_})):
        if not number and not answer["up_to_date"]:
            click.echo("mdv: the index is being updated; recent changes may be missing.", err=True)
        yield from answer["items"]
