"""`mdv explain`: why a resource is or is not at an LMR."""

from __future__ import annotations

import click

from mdv.cli.command import ExampleCommand, connect, data_option, json_option
from mdv.cli.lmr import LOCAL_LMR
from mdv.cli.output import print_line, write_json
from mdv.cli.resources import print_origins


@click.command(cls=ExampleCommand, example="mdv explain http://mdv.example/doc.rdf#host --lmr library")
@click.argument("resource")
@click.option("--lmr", "name", metavar="NAME", default=LOCAL_LMR, show_default=True, help="Name or id of the LMR.")
@json_option
@data_option
def explain(resource: str, name: str, as_json: bool) -> None:
    """Explain why RESOURCE is or is not at an LMR.

    Shows the rules that select it, with the values that satisfy them; the chain of strong references that leads to it;
    or the rules that almost match, with the predicates that fail. Also shows which of its statements were inserted by
    event-condition-action rules and updates, and why.
    """
    from mdv.inspect.resource_reasons import explanation_lines

    answer = connect().get("/explain", lmr=name, uri=resource)
    if as_json:
        write_json(answer)
        return
    for line in explanation_lines(answer):
        print_line(line)
    print_origins(answer["origins"])
