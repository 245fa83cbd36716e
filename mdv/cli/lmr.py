"""`mdv lmr`: local metadata repositories, as the MDP knows them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from mdv.cli.failures import FAILED
from mdv.cli.frame import Noun, connect, data_folder, data_option, json_option
from mdv.cli.output import Columns, Item, Listing, list_options, on_terminal, say, write_json, write_table
from mdv.errors import NotFound

if TYPE_CHECKING:
    from mdv.client import Client

LOCAL = "local"
"""What the LMR of a `mdv up` is called."""

MOST_SECONDS = 600.0
"""An LMR may have very many rules to end."""

LMR: Columns = {
    name: lambda item, name=name: item[name]  # type: ignore[misc]
    for name in ("id", "name", "subscriptions", "resources", "roots", "behind", "asked_at")
}


def connect_lmr() -> Client:
    """A client of the LMR that the caller means."""
    from mdv.client import Client
    from mdv.system import find_lmr

    return click.get_current_context().with_resource(Client(find_lmr(data_folder())))


def path_of(name: str) -> str:
    """The path of an LMR at the MDP.

    >>> path_of("my library")
    '/lmrs/my%20library'
    """
    if name in ("", ".", ".."):  # they would make the path of something else
        raise NotFound(f"There is no LMR {name!r}: `mdv lmr list` shows them.")
    return f"/lmrs/{quote(name, safe='')}"


@click.group(cls=Noun, example="mdv lmr create library")
def lmr() -> None:
    """Local metadata repositories: make, list, hold back and end them at the MDP.

    An LMR keeps what its rules select, and what that refers to strongly, near those who ask. It reads its feed at the
    MDP with a token of its own.
    """


@lmr.command("create", example="mdv lmr create library")
@click.argument("name")
@json_option
@data_option
def create(name: str, as_json: bool) -> None:
    """Make an LMR called NAME. Its token is shown this once."""
    _show_token(connect().change("POST", "/lmrs", {"name": name}), as_json)


@lmr.command("list", example="mdv lmr list")
@list_options
@data_option
def list_(limit: int | None, everything: bool, as_json: bool) -> None:
    """List the LMRs: what each holds, and how many events it is behind."""
    listing = Listing(limit, everything, as_json)
    listing.show(connect().items("/lmrs", listing.page), LMR, "There is no LMR yet: `mdv lmr create NAME` makes one.")


@lmr.command("show", example="mdv lmr show library")
@click.argument("name")
@json_option
@data_option
def show(name: str, as_json: bool) -> None:
    """Show the LMR NAME (or its id): what it subscribes and holds, and how far it has read its feed."""
    found = connect().get(path_of(name))
    if as_json:
        write_json(found)
    else:
        write_table(("", ""), found.items())


@lmr.command("token", example="mdv lmr token library")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
@json_option
@data_option
def token(name: str, yes: bool, as_json: bool) -> None:
    """Give the LMR NAME another token, shown this once. Those that it had are revoked."""
    mdp, path = connect(), path_of(name)
    ask(f"revoke the tokens of the LMR {name}", yes)
    _show_token(mdp.change("POST", f"{path}/token"), as_json)


@lmr.command("pause", example="mdv lmr pause library")
@click.argument("name")
@json_option
@data_option
def pause(name: str, as_json: bool) -> None:
    """Hold back the feed of the LMR NAME: it is told of nothing new, and answers from its cache."""
    _tell(connect().change("POST", f"{path_of(name)}/pause"), as_json, "is paused")


@lmr.command("resume", example="mdv lmr resume library")
@click.argument("name")
@json_option
@data_option
def resume(name: str, as_json: bool) -> None:
    """Hand out the feed of the LMR NAME again, with what was held back."""
    _tell(connect().change("POST", f"{path_of(name)}/resume"), as_json, "is told of what is new")


@lmr.command("refetch", example="mdv lmr refetch library")
@click.argument("name")
@json_option
@data_option
def refetch(name: str, as_json: bool) -> None:
    """Let the LMR NAME fetch everything anew when it asks next. It answers from its cache until it has that."""
    refetching = connect().change("POST", f"{path_of(name)}/refetch")
    _tell(refetching, as_json, "fetches everything anew when it asks next")


@lmr.command("delete", example="mdv lmr delete library")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
@json_option
@data_option
def delete(name: str, yes: bool, as_json: bool) -> None:
    """End the LMR NAME at the MDP, with its subscriptions, its feed and its tokens."""
    mdp, path = connect(), path_of(name)
    ask(f"end the LMR {name} with its subscriptions", yes)
    ended = mdp.change("DELETE", path, seconds=MOST_SECONDS)
    if as_json:
        write_json(ended)
    else:
        say(f"The LMR {ended['name']} is ended.")


def ask(what: str, yes: bool) -> None:
    """Go on only if somebody wants it."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"Nobody is here to be asked whether to {what}: say --yes.")
    if not click.confirm(f"{what[0].upper()}{what[1:]}?", err=True):
        raise click.exceptions.Exit(FAILED)


def _tell(changed: Item, as_json: bool, what: str) -> None:
    if as_json:
        write_json(changed)
    else:
        say(f"The LMR {changed['name']} {what}.")


def _show_token(made: Item, as_json: bool) -> None:
    if as_json:
        write_json(made)
        return
    if on_terminal():
        say(f"LMR {made['id']}, {made['name']}. Keep its token: it is not shown again.")
    click.echo(made["token"])
