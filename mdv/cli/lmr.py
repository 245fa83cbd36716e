"""`mdv lmr`: manage local metadata repositories at the MDP."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from mdv.cli.command import ExampleGroup, connect, data_folder, data_option, json_option
from mdv.cli.errors import EXIT_FAILED
from mdv.cli.output import (
    Columns,
    Item,
    Listing,
    list_options,
    on_terminal,
    print_line,
    short_time,
    write_json,
    write_table,
)
from mdv.errors import NotFound

if TYPE_CHECKING:
    from mdv.client import Client

LOCAL_LMR = "local"
"""Name of the LMR that `mdv up` starts."""

DELETE_TIMEOUT_SECONDS = 600.0
"""Deleting an LMR removes all its rules, which may be very many."""

LMR: Columns = {
    name: lambda item, name=name: item[name]  # type: ignore[misc]
    for name in ("id", "name", "subscriptions", "resources", "roots", "behind", "asked_at", "home")
}

_TERMINAL_LMR: Columns = {
    "id": lambda item: item["id"],
    "name": lambda item: item["name"],
    "rules": lambda item: item["subscriptions"],
    "resources": lambda item: item["resources"],
    "behind": lambda item: item["behind"] if item["home"] is None else f"at {item['home']}",
    "last request": lambda item: short_time(item["asked_at"]),
}
"""Fits a terminal of 80 columns."""


def connect_lmr() -> Client:
    """Return a client of the LMR that the options or the environment name."""
    from mdv.client import Client
    from mdv.system import find_lmr

    return click.get_current_context().with_resource(Client(find_lmr(data_folder())))


def lmr_path(name: str) -> str:
    """Return the path of an LMR in the API of the MDP.

    >>> lmr_path("my library")
    '/lmrs/my%20library'
    """
    if name in ("", ".", ".."):  # the path would be that of another resource
        raise NotFound(f"There is no LMR {name!r}: `mdv lmr list` shows all LMRs.")
    return f"/lmrs/{quote(name, safe='')}"


@click.group(cls=ExampleGroup, example="mdv lmr create library")
def lmr() -> None:
    """Manage local metadata repositories (LMRs): create, list, pause and delete them at the MDP.

    An LMR caches the resources that its rules select, and the targets of their strong references, near its users. It
    reads its feed from the MDP with its own token.
    """


@lmr.command("create", example="mdv lmr create library")
@click.argument("name")
@json_option
@data_option
def create(name: str, as_json: bool) -> None:
    """Create an LMR named NAME. Its token is shown only once."""
    _show_token(connect().change("POST", "/lmrs", {"name": name}), as_json)


@lmr.command("list", example="mdv lmr list")
@list_options
@data_option
def list_(limit: int | None, everything: bool, as_json: bool) -> None:
    """List the LMRs: the size of each cache, and how many events it is behind."""
    listing = Listing(limit, everything, as_json)
    columns = _TERMINAL_LMR if on_terminal() else LMR
    listing.show(
        connect().items("/lmrs", listing.page), columns, "There are no LMRs yet: `mdv lmr create NAME` creates one."
    )


@lmr.command("show", example="mdv lmr show library")
@click.argument("name")
@json_option
@data_option
def show(name: str, as_json: bool) -> None:
    """Show the LMR NAME (or its id): its subscriptions, its resources, and how far it has read its feed."""
    found = connect().get(lmr_path(name))
    if as_json:
        write_json(found)
    else:
        write_table(("", ""), found.items())


@lmr.command("token", example="mdv lmr token library")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation. Required without a terminal.")
@json_option
@data_option
def token(name: str, yes: bool, as_json: bool) -> None:
    """Create a new token for the LMR NAME, shown only once. Its old tokens are revoked."""
    mdp, path = connect(), lmr_path(name)
    confirm(f"revoke the tokens of the LMR {name}", yes)
    _show_token(mdp.change("POST", f"{path}/token"), as_json)


@lmr.command("pause", example="mdv lmr pause library")
@click.argument("name")
@json_option
@data_option
def pause(name: str, as_json: bool) -> None:
    """Pause the feed of the LMR NAME: it gets no new events, and serves its cache."""
    _print_changed(connect().change("POST", f"{lmr_path(name)}/pause"), as_json, "is paused")


@lmr.command("resume", example="mdv lmr resume library")
@click.argument("name")
@json_option
@data_option
def resume(name: str, as_json: bool) -> None:
    """Resume the feed of the LMR NAME. The events since the pause are sent."""
    _print_changed(connect().change("POST", f"{lmr_path(name)}/resume"), as_json, "is resumed")


@lmr.command("refetch", example="mdv lmr refetch library")
@click.argument("name")
@json_option
@data_option
def refetch(name: str, as_json: bool) -> None:
    """Make the LMR NAME take a new snapshot at its next request. It serves its cache until the snapshot is complete."""
    refetching = connect().change("POST", f"{lmr_path(name)}/refetch")
    _print_changed(refetching, as_json, "will take a snapshot at its next request")


@lmr.command("delete", example="mdv lmr delete library")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation. Required without a terminal.")
@json_option
@data_option
def delete(name: str, yes: bool, as_json: bool) -> None:
    """Delete the LMR NAME at the MDP, with its subscriptions, its feed and its tokens."""
    mdp, path = connect(), lmr_path(name)
    confirm(f"delete the LMR {name} with its subscriptions", yes)
    deleted = mdp.change("DELETE", path, seconds=DELETE_TIMEOUT_SECONDS)
    if as_json:
        write_json(deleted)
    else:
        print_line(f"The LMR {deleted['name']} is deleted.")


def confirm(what: str, yes: bool) -> None:
    """Ask for confirmation on the terminal, unless `yes`. Exit if the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"There is no terminal to confirm: {what}. Use --yes.")
    if not click.confirm(f"{what[0].upper()}{what[1:]}?", err=True):
        raise click.exceptions.Exit(EXIT_FAILED)


def _print_changed(changed: Item, as_json: bool, what: str) -> None:
    if as_json:
        write_json(changed)
    else:
        print_line(f"The LMR {changed['name']} {what}.")


def _show_token(made: Item, as_json: bool) -> None:
    if as_json:
        write_json(made)
        return
    if on_terminal():
        print_line(f"LMR {made['id']}, {made['name']}. Store its token: it is not shown again.")
    click.echo(made["token"])
