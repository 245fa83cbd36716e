"""`mdv filter`: inspect the filter."""

from __future__ import annotations

from collections.abc import Iterator

import click

from mdv.cli.atoms import reference_of
from mdv.cli.command import ExampleGroup, connect, data_option, json_option
from mdv.cli.output import Item, on_terminal, print_line, write_json, write_table

COLUMNS = ("uri_reference", "rule_id", "rule")


@click.group("filter", cls=ExampleGroup, example="mdv filter trace http://mdv.example/doc.rdf")
def filter_() -> None:
    """Inspect the filter."""


@filter_.command("trace", example="mdv filter trace http://mdv.example/doc.rdf --short")
@click.argument("document")
@click.option("--short", is_flag=True, help="Show short names for this document, as in the paper.")
@json_option
@data_option
def trace(document: str, short: bool, as_json: bool) -> None:
    """Replay the filter of the paper on the registered DOCUMENT, with the results of each iteration, as in Figure 9."""
    answer = connect().get("/filter/trace", document=document)
    if as_json:
        write_json(answer)
        return
    for number, (heading, rows) in enumerate(tables(answer, short)):
        if number:
            click.echo()
        print_line(heading)
        write_table(COLUMNS, rows)
    if on_terminal() and not answer["iterations"]:
        print_line("No rule matches resources of this document.")
    if answer["truncated"]:
        click.echo("mdv: the trace is truncated: there are more results than it can show.", err=True)


def tables(answer: Item, short: bool) -> Iterator[tuple[str, list[tuple[str, int, str]]]]:
    """Yield the iterations and then the results, each with its heading."""

    def name(uri: str) -> str:
        return reference_of(uri, answer["document"]) if short else uri

    texts: dict[int, str] = {}
    for number, rows in enumerate(answer["iterations"]):
        texts |= {row["rule"]: row["text"] for row in rows}
        heading = f"Iteration {number}" if number else "Initial iteration"
        yield heading, [(name(row["resource"]), row["rule"], row["text"]) for row in rows]
    yield "Results", [(name(row["resource"]), row["rule"], texts[row["rule"]]) for row in answer["results"]]
