"""`mdv job` and `mdv jobs`: show jobs, and retry dead letters."""

from __future__ import annotations

from urllib.parse import quote

import click

from mdv.cli.command import ExampleCommand, ExampleGroup, connect, data_option, json_option
from mdv.cli.errors import EXIT_FAILED, format_error
from mdv.cli.output import Columns, Listing, list_options, print_line, write_json, write_table
from mdv.errors import BadCommand, Conflict, NotFound

STATES = ("queued", "done", "failed", "dead")
JOB: Columns = {
    "job": lambda item: item["id"],
    "kind": lambda item: item["kind"],
    "state": lambda item: "dead" if item["dead"] else item["state"],
    "attempts": lambda item: item["attempts"],
    "about": lambda item: item["document"],
    "problem": lambda item: (item["problem"] or {}).get("detail", ""),
}


@click.command(cls=ExampleCommand, example="mdv job 0198c1d2-7e57-7000-8000-6d6476000001")
@click.argument("identity", metavar="ID")
@json_option
@data_option
def job(identity: str, as_json: bool) -> None:
    """Show a job: queued, running, done with its result, or failed with its problem."""
    from mdv.client import error_from_problem

    status = connect().get(f"/jobs/{quote(identity, safe='')}")
    if as_json:
        write_json(status)
        return
    facts = {name: value for name, value in status.items() if name not in ("result", "problem") and value is not None}
    write_table(("", ""), (facts | (status.get("result") or {})).items())
    if status.get("problem"):
        click.echo("\n".join(format_error(error_from_problem(status["problem"], 500), "problem")), err=True)


@click.group(cls=ExampleGroup, invoke_without_command=True, example="mdv jobs --state dead")
@click.option("--state", type=click.Choice(STATES), help="Only jobs in this state. `queued` includes running"
              " jobs; `dead` are dead letters, failed jobs that can be retried.")  # fmt: skip
@list_options
@data_option
@click.pass_context
def jobs(context: click.Context, state: str | None, limit: int | None, everything: bool, as_json: bool) -> None:
    """List jobs, newest first."""
    if context.invoked_subcommand is None:
        listing = Listing(limit, everything, as_json)
        what = "dead letters" if state == "dead" else f"{state} jobs" if state else "jobs"
        listing.show(connect().items("/jobs", listing.page, state=state), JOB, f"There are no {what}.")


@jobs.command("retry", example="mdv jobs retry --all")
@click.argument("identities", metavar="ID...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Retry all dead letters.")
@data_option
def retry(identities: tuple[str, ...], everything: bool) -> None:
    """Retry dead letters: jobs that failed inside MDV in all their attempts."""
    if everything == bool(identities):
        raise BadCommand("Give the ids of jobs, or --all.")
    mdp = connect()
    wanted = identities or [item["id"] for item in mdp.items("/jobs", state="dead")]
    refused = 0
    for identity in wanted:
        try:
            mdp.change("POST", f"/jobs/{quote(identity, safe='')}/retry")
        except (Conflict, NotFound) as error:
            refused += 1
            click.echo("\n".join(format_error(error)), err=True)
    print_line(
        f"{len(wanted) - refused} of {len(wanted)} will be tried again." if wanted else "There is no dead letter."
    )
    if refused:
        raise click.exceptions.Exit(EXIT_FAILED)
