"""`mdv real ps`, `show`, `stop` and `logs`: processes, which are programs in the mode run."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from mdv.cli.command import ExampleCommand, connect, data_option, json_option
from mdv.cli.output import Listing, escape_controls, list_options, print_line, short_time, write_json, write_table

if TYPE_CHECKING:
    from mdv.client import Client

Item = dict[str, Any]

STATES = ("live", "ready", "waiting", "calling", "full", "done", "failed", "stopped")
FOLLOW_SECONDS = 1.0
"""How often `logs -f` looks for new entries."""

PROCESS = {
    "process": lambda one: one["process"],
    "state": lambda one: f"{one['state']} (stalled)" if one["stalled"] else one["state"],
    "solutions": lambda one: one["solutions"],
    "added": lambda one: one["effects"]["added"],
    "removed": lambda one: one["effects"]["removed"],
    "slices": lambda one: one["slices"],
    "started": lambda one: short_time(one["created_at"]),
    "action": lambda one: one["action"],
}


def add_process_commands(group: click.Group) -> None:
    """Add the commands about processes to `mdv real`."""
    for command in (ps, show, stop, logs):
        group.add_command(command)


def start_detached(client: Client, body: Item, as_json: bool) -> None:
    """Start a program as a process, without waiting for its solutions."""
    headers = {"Content-Type": "application/json", "Prefer": "respond-async"}
    answer = client.request("POST", "/real", content=json.dumps(body).encode(), headers=headers, once=True).json()
    if as_json:
        write_json(answer)
        return
    for warning in answer["warnings"]:
        click.echo(f"mdv: {escape_controls(warning['message'])}", err=True)
    print_line(answer["process"])


@click.command("ps", cls=ExampleCommand, example="mdv real ps --state live")
@click.option("--state", type=click.Choice(STATES), help="Only processes in this state; live: all that have not ended.")
@click.option("--root", metavar="P", help="Only processes that descend from P, with itself.")
@list_options
@data_option
def ps(state: str | None, root: str | None, limit: int | None, everything: bool, as_json: bool) -> None:
    """List processes, the newest first."""
    listing = Listing(limit, everything, as_json)
    items = connect().items("/real/processes", listing.page, state=state, root=root)
    listing.show(items, PROCESS, "There are no processes: `mdv real run` starts one.")


@click.command("show", cls=ExampleCommand, example="mdv real show 3f2a9c01d4e5b678")
@click.argument("process", metavar="P")
@json_option
@data_option
def show(process: str, as_json: bool) -> None:
    """Show the process P: its state, its program, what it waits for, and why it failed."""
    found = connect().get(_path(process))
    if as_json:
        write_json(found)
        return
    code = found.pop("code")
    facts = {name: _fact(value) for name, value in found.items() if value not in (None, [], {})}
    write_table(("", ""), facts.items())
    print_line("code:")
    for line in code.split("\n"):
        print_line(f"  {line}")


def _fact(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


@click.command("stop", cls=ExampleCommand, example="mdv real stop 3f2a9c01d4e5b678 --message enough")
@click.argument("process", metavar="P")
@click.option("--message", metavar="TEXT", help="Text for the activity document of P.")
@click.option("--family", is_flag=True, help="Stop all processes that descend from the same one.")
@data_option
def stop(process: str, message: str | None, family: bool) -> None:
    """Stop the process P. What it has not committed is dropped."""
    given = {"message": message, "family": "true" if family else None}
    answer = connect().request("DELETE", _path(process), params=given).json()
    print_line(f"{answer['process']} {'and its family are' if family else 'is'} being stopped.")


@click.command("logs", cls=ExampleCommand, example="mdv real logs 3f2a9c01d4e5b678 -f")
@click.argument("process", metavar="P")
@click.option("-f", "--follow", is_flag=True, help="Print new entries until P has ended.")
@json_option
@data_option
def logs(process: str, follow: bool, as_json: bool) -> None:
    """Print the log of the process P: messages, warnings, and slices that changed documents."""
    client, after = connect(), None
    while True:
        has_ended = client.get(_path(process))["ended_at"] is not None
        page = client.get(f"{_path(process)}/log", limit=1000, **({} if after is None else {"after": after}))
        for entry in page["items"]:
            _print_entry(entry, as_json)
            after = entry["id"]
        if page["next"] is None and (has_ended or not follow):
            return
        if page["next"] is None:
            time.sleep(FOLLOW_SECONDS)


def _print_entry(entry: Item, as_json: bool) -> None:
    if as_json:
        print_line(json.dumps(entry, ensure_ascii=False))
        return
    kind = entry["kind"]
    if kind == "commit":
        text = f"position {entry['position']}: {entry['added']} added, {entry['removed']} removed"
    elif kind == "call":
        text = f"action with digest {entry['digest'][:16]}"
    else:
        message = entry["message"]
        text = message["value"] if isinstance(message, dict) else message
    print_line(f"{short_time(entry['at'])}  {kind:<7}  {text}")


def _path(process: str) -> str:
    return f"/real/processes/{quote(process, safe='')}"
