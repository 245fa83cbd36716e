"""`mdv job`: how far a change is."""

from __future__ import annotations

from urllib.parse import quote

import click

from mdv.cli.failures import sentences
from mdv.cli.frame import Verb, connect, data_option, json_option
from mdv.cli.output import write_json, write_table


@click.command(cls=Verb, example="mdv job 0198c1d2-7e57-7000-8000-6d6476000001")
@click.argument("identity", metavar="ID")
@json_option
@data_option
def job(identity: str, as_json: bool) -> None:
    """Show a job: queued, running, done with its result, or failed with its problem."""
    from mdv.client import error_of

    status = connect().get(f"/jobs/{quote(identity, safe='')}")
    if as_json:
        write_json(status)
        return
    facts = {name: value for name, value in status.items() if name not in ("result", "problem") and value is not None}
    write_table(("", ""), (facts | (status.get("result") or {})).items())
    if status.get("problem"):
        click.echo("\n".join(sentences(error_of(status["problem"], 500), "problem")), err=True)
