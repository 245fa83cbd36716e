"""`mdv filter`: the filter, to be looked at."""

from __future__ import annotations

from collections.abc import Iterator

import click

from mdv.cli.atoms import reference_of
from mdv.cli.frame import Noun, connect, data_option, json_option
from mdv.cli.output import Item, on_terminal, say, write_json, write_table

COLUMNS = ("uri_reference", "rule_id", "rule")


@click.group("filter", cls=Noun, example="mdv filter trace http://mdv.example/doc.rdf")
def filter_() -> None:
    """The filter, to be looked at."""


@filter_.command("trace", example="mdv filter trace http://mdv.example/doc.rdf --short")
@click.argument("document")
@click.option("--short", is_flag=True, help="Names of this document as the paper prints them.")
@json_option
@data_option
def trace(document: str, short: bool, as_json: bool) -> None:
    """Replay the paper's filter on the registered DOCUMENT: its results, iteration by iteration, as in Figure 9."""
    answer = connect().get("/filter/trace", document=document)
    if as_json:
        write_json(answer)
        return
    for number, (heading, rows) in enumerate(tables(answer, short)):
        if number:
            click.echo()
        say(heading)
        write_table(COLUMNS, rows)
    if on_terminal() and not answer["iterations"]:
        say("No rule looks at what this document describes.")
    if answer["truncated"]:
        click.echo("mdv: some of it was cut off: there is more than a trace shows.", err=True)


def tables(answer: Item, short: bool) -> Iterator[tuple[str, list[tuple[str, int, str]]]]:
    """The iterations, and at the end the results, each with its heading."""

    def name(uri: str) -> str:
        return reference_of(uri, answer["document"]) if short else uri

    texts: dict[int, str] = {}
    for number, rows in enumerate(answer["iterations"]):
        texts |= {row["rule"]: row["text"] for row in rows}
        heading = f"Iteration {number}" if number else "Initial iteration"
        yield heading, [(name(row["resource"]), row["rule"], row["text"]) for row in rows]
    yield "Results", [(name(row["resource"]), row["rule"], texts[row["rule"]]) for row in answer["results"]]
