"""`mdv explain`: why a resource is, or is not, at an LMR."""

from __future__ import annotations

import click

from mdv.cli.frame import Verb, connect, data_option, json_option
from mdv.cli.lmr import LOCAL
from mdv.cli.output import say, write_json


@click.command(cls=Verb, example="mdv explain http://mdv.example/doc.rdf#host --lmr library")
@click.argument("resource")
@click.option("--lmr", "name", metavar="NAME", default=LOCAL, show_default=True, help="The LMR, by name or id.")
@json_option
@data_option
def explain(resource: str, name: str, as_json: bool) -> None:
    """Tell why RESOURCE is, or is not, at an LMR.

    The rules that select it, with the values that satisfy them; the chain of strong references that leads to it; or the
    rules that come nearest, with the first predicate that fails.
    """
    from mdv.mdp.because import why_lines

    answer = connect().get("/explain", lmr=name, uri=resource)
    if as_json:
        write_json(answer)
        return
    for line in why_lines(answer):
        say(line)
