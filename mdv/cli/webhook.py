"""`mdv webhook`: addresses that are told when an LMR's feed goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from mdv.cli.failures import FAILED
from mdv.cli.frame import Noun, connect, data_option, json_option
from mdv.cli.lmr import LOCAL, ask, path_of
from mdv.cli.output import Columns, Item, Listing, list_options, on_terminal, say, write_json, write_table

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

TEST_SECONDS = 30.0
"""A receiver has 15 s to answer."""

WEBHOOK: Columns = {
    name: lambda item, name=name: item[name]  # type: ignore[misc]
    for name in ("id", "state", "told", "failures", "url", "reason")
}
DELIVERY: Columns = {
    name: lambda item, name=name: item[name] for name in ("id", "state", "offset", "attempts", "status", "created_at")
} | {"next attempt": lambda item: item["not_before"], "reason": lambda item: item["reason"]}

number_argument = click.argument("number", metavar="ID", type=click.IntRange(min=1))
lmr_option = click.option(
    "--lmr", "name_of_lmr", metavar="NAME", default=LOCAL, show_default=True, help="Whose feed it is about."
)


@click.group(cls=Noun, example="mdv webhook add https://hooks.example/news --lmr library")
def webhook() -> None:
    """Webhooks: addresses that are told when an LMR's feed goes on.

    A message says up to which offset there is something new, and nothing of what it is; whoever gets it reads the feed
    as usual. It is signed as Standard Webhooks has it, and tried again for nine hours.
    """


@webhook.command("add", example="mdv webhook add https://hooks.example/news --lmr library")
@click.argument("url")
@lmr_option
@json_option
@data_option
def add(url: str, name_of_lmr: str, as_json: bool) -> None:
    """Let the address URL be told. The secret that signs its messages is shown this once."""
    _show_secret(connect().change("POST", _path(name_of_lmr), {"url": url}), as_json)


@webhook.command("list", example="mdv webhook list --lmr library")
@lmr_option
@list_options
@data_option
def list_(name_of_lmr: str, limit: int | None, everything: bool, as_json: bool) -> None:
    """List the webhooks of an LMR: how far each was told, and why one is paused."""
    listing = Listing(limit, everything, as_json)
    nothing = "It has no webhook: `mdv webhook add URL` makes one."
    listing.show(connect().items(_path(name_of_lmr), listing.page), WEBHOOK, nothing)


@webhook.command("show", example="mdv webhook show 3 --lmr library")
@number_argument
@lmr_option
@json_option
@data_option
def show(number: int, name_of_lmr: str, as_json: bool) -> None:
    """Show the webhook ID: its state, how far it was told, since when it has been failing, and when the message that
    waits is sent next."""
    mdp = connect()
    found = mdp.get(_path(name_of_lmr, number))
    waiting = mdp.get(_path(name_of_lmr, number, "deliveries"), state="waiting", limit=1)["items"]
    found["next_attempt"] = waiting[0]["not_before"] if waiting and found["state"] == "active" else None
    if as_json:
        write_json(found)
    else:
        write_table(("", ""), found.items())


@webhook.command("pause", example="mdv webhook pause 3 --lmr library")
@number_argument
@lmr_option
@json_option
@data_option
def pause(number: int, name_of_lmr: str, as_json: bool) -> None:
    """Send nothing to the webhook ID until it is resumed."""
    paused = connect().change("POST", _path(name_of_lmr, number, "pause"))
    _tell(paused, as_json, f"Webhook {number} is paused.")


@webhook.command("resume", example="mdv webhook resume 3 --lmr library")
@number_argument
@lmr_option
@json_option
@data_option
def resume(number: int, name_of_lmr: str, as_json: bool) -> None:
    """Send to the webhook ID again. If the feed has gone on meanwhile, it is told at once."""
    resumed = connect().change("POST", _path(name_of_lmr, number, "resume"))
    _tell(resumed, as_json, f"Webhook {number} is active.")


@webhook.command("rotate", example="mdv webhook rotate 3 --lmr library")
@number_argument
@lmr_option
@json_option
@data_option
def rotate(number: int, name_of_lmr: str, as_json: bool) -> None:
    """Give the webhook ID another secret, shown this once. For a day the one before signs as well."""
    _show_secret(connect().change("POST", _path(name_of_lmr, number, "rotate")), as_json)


@webhook.command("test", example="mdv webhook test 3 --lmr library")
@number_argument
@lmr_option
@json_option
@data_option
def trial(number: int, name_of_lmr: str, as_json: bool) -> None:
    """Send a signed test message to the webhook ID now, and tell what came of it; exit 1 if it was not taken."""
    came = connect().change("POST", _path(name_of_lmr, number, "test"), seconds=TEST_SECONDS)
    if came["delivered"]:
        _tell(came, as_json, f"The message arrived: the receiver answered {came['status']}.")
    else:
        _tell(came, as_json, f"The message was not taken. {came['reason']}")
        raise click.exceptions.Exit(FAILED)


@webhook.command("deliveries", example="mdv webhook deliveries 3 --lmr library --state dead")
@number_argument
@click.option("--state", type=click.Choice(["waiting", "delivered", "dead"]), help="Only those that are so.")
@lmr_option
@list_options
@data_option
def deliveries(
    number: int, state: str | None, name_of_lmr: str, limit: int | None, everything: bool, as_json: bool
) -> None:
    """List the messages to the webhook ID, the newest first. Those that ended are kept for seven days."""
    listing = Listing(limit, everything, as_json)
    asked = {} if state is None else {"state": state}
    found = connect().items(_path(name_of_lmr, number, "deliveries"), listing.page, **asked)
    listing.show(found, DELIVERY, "There is no such message.")


@webhook.command("replay", example="mdv webhook replay 3 --lmr library")
@number_argument
@click.argument("message", metavar="[MESSAGE]", required=False, type=click.UUID)
@lmr_option
@json_option
@data_option
def replay(number: int, message: object, name_of_lmr: str, as_json: bool) -> None:
    """Send the dead MESSAGE to the webhook ID again, under its old id; without MESSAGE, one of now."""
    what = ("deliveries",) if message is None else ("deliveries", str(message), "replay")
    made = connect().change("POST", _path(name_of_lmr, number, *what))
    _tell(made, as_json, f"The message {made['id']} is on its way; it tells of offset {made['offset']}.")


@webhook.command("delete", example="mdv webhook delete 3 --lmr library")
@number_argument
@lmr_option
@click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
@json_option
@data_option
def delete(number: int, name_of_lmr: str, yes: bool, as_json: bool) -> None:
    """End the webhook ID, with its messages."""
    mdp, path = connect(), _path(name_of_lmr, number)
    ask(f"end the webhook {number}", yes)
    _tell(mdp.change("DELETE", path), as_json, f"Webhook {number} is ended.")


def _path(name_of_lmr: str, *parts: object) -> str:
    """
    >>> _path("my library", 3, "pause")
    '/lmrs/my%20library/webhooks/3/pause'
    """
    return "/".join([path_of(name_of_lmr), "webhooks", *map(str, parts)])


def _tell(answer: Item, as_json: bool, sentence: str) -> None:
    if as_json:
        write_json(answer)
    else:
        say(sentence)


def _show_secret(made: Item, as_json: bool) -> None:
    if as_json:
        write_json(made)
        return
    if on_terminal():
        say(f"Webhook {made['id']}, {made['url']}. Keep its secret: it is not shown again.")
    click.echo(made["secret"])
