"""`mdv webhook`: manage webhooks, which are notified when the feed of an LMR has new events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from mdv.cli.command import ExampleGroup, connect, data_option, json_option
from mdv.cli.errors import EXIT_FAILED
from mdv.cli.lmr import LOCAL_LMR, confirm, lmr_path
from mdv.cli.output import Columns, Item, Listing, list_options, on_terminal, print_line, write_json, write_table

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

TEST_TIMEOUT_SECONDS = 30.0
"""Longer than the 15 s that a receiver has to answer."""

WEBHOOK: Columns = {
    name: lambda item, name=name: item[name]  # type: ignore[misc]
    for name in ("id", "state", "told", "failures", "url", "reason")
}
DELIVERY: Columns = {
    name: lambda item, name=name: item[name] for name in ("id", "state", "offset", "attempts", "status", "created_at")
} | {"next attempt": lambda item: item["not_before"], "reason": lambda item: item["reason"]}

number_argument = click.argument("number", metavar="ID", type=click.IntRange(min=1))
lmr_option = click.option(
    "--lmr", "lmr_name", metavar="NAME", default=LOCAL_LMR, show_default=True, help="The LMR of the webhook."
)


@click.group(cls=ExampleGroup, example="mdv webhook add https://hooks.example/news --lmr library")
def webhook() -> None:
    """Manage webhooks: URLs that are notified when the feed of an LMR has new events.

    A message contains only the newest offset, not the events; the receiver then reads the feed. Messages are signed as
    in Standard Webhooks, and retried for nine hours.
    """


@webhook.command("add", example="mdv webhook add https://hooks.example/news --lmr library")
@click.argument("url")
@lmr_option
@json_option
@data_option
def add(url: str, lmr_name: str, as_json: bool) -> None:
    """Add a webhook for URL. The secret that signs its messages is shown only once."""
    _show_secret(connect().change("POST", _path(lmr_name), {"url": url}), as_json)


@webhook.command("list", example="mdv webhook list --lmr library")
@lmr_option
@list_options
@data_option
def list_(lmr_name: str, limit: int | None, everything: bool, as_json: bool) -> None:
    """List the webhooks of an LMR: their state, the last delivered offset, and why one is paused."""
    listing = Listing(limit, everything, as_json)
    empty = "The LMR has no webhooks: `mdv webhook add URL` adds one."
    listing.show(connect().items(_path(lmr_name), listing.page), WEBHOOK, empty)


@webhook.command("show", example="mdv webhook show 3 --lmr library")
@number_argument
@lmr_option
@json_option
@data_option
def show(number: int, lmr_name: str, as_json: bool) -> None:
    """Show the webhook ID: its state, the last delivered offset, since when it fails, and the time of the next
    attempt."""
    mdp = connect()
    found = mdp.get(_path(lmr_name, number))
    waiting = mdp.get(_path(lmr_name, number, "deliveries"), state="waiting", limit=1)["items"]
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
def pause(number: int, lmr_name: str, as_json: bool) -> None:
    """Pause the webhook ID: no messages are sent until it is resumed."""
    paused = connect().change("POST", _path(lmr_name, number, "pause"))
    _print_result(paused, as_json, f"Webhook {number} is paused.")


@webhook.command("resume", example="mdv webhook resume 3 --lmr library")
@number_argument
@lmr_option
@json_option
@data_option
def resume(number: int, lmr_name: str, as_json: bool) -> None:
    """Resume the webhook ID. If the feed has new events, a message is sent immediately."""
    resumed = connect().change("POST", _path(lmr_name, number, "resume"))
    _print_result(resumed, as_json, f"Webhook {number} is active.")


@webhook.command("rotate", example="mdv webhook rotate 3 --lmr library")
@number_argument
@lmr_option
@json_option
@data_option
def rotate(number: int, lmr_name: str, as_json: bool) -> None:
    """Create a new secret for the webhook ID, shown only once. Messages are also signed with the old one for a day."""
    _show_secret(connect().change("POST", _path(lmr_name, number, "rotate")), as_json)


@webhook.command("test", example="mdv webhook test 3 --lmr library")
@number_argument
@lmr_option
@json_option
@data_option
def trial(number: int, lmr_name: str, as_json: bool) -> None:
    """Send a signed test message to the webhook ID and print the result. Exits with 1 if it was not accepted."""
    result = connect().change("POST", _path(lmr_name, number, "test"), seconds=TEST_TIMEOUT_SECONDS)
    if result["delivered"]:
        _print_result(result, as_json, f"The message was delivered: the receiver answered {result['status']}.")
    else:
        _print_result(result, as_json, f"The message was not delivered. {result['reason']}")
        raise click.exceptions.Exit(EXIT_FAILED)


@webhook.command("deliveries", example="mdv webhook deliveries 3 --lmr library --state dead")
@number_argument
@click.option("--state", type=click.Choice(["waiting", "delivered", "dead"]), help="Only messages in this state.")
@lmr_option
@list_options
@data_option
def deliveries(
    number: int, state: str | None, lmr_name: str, limit: int | None, everything: bool, as_json: bool
) -> None:
    """List the messages of the webhook ID, newest first. Finished messages are kept for seven days."""
    listing = Listing(limit, everything, as_json)
    filters = {} if state is None else {"state": state}
    found = connect().items(_path(lmr_name, number, "deliveries"), listing.page, **filters)
    listing.show(found, DELIVERY, "There are no messages.")


@webhook.command("replay", example="mdv webhook replay 3 --lmr library")
@number_argument
@click.argument("message", metavar="[MESSAGE]", required=False, type=click.UUID)
@lmr_option
@json_option
@data_option
def replay(number: int, message: object, lmr_name: str, as_json: bool) -> None:
    """Send the dead MESSAGE to the webhook ID again, with the same id; without MESSAGE, send a new one."""
    what = ("deliveries",) if message is None else ("deliveries", str(message), "replay")
    made = connect().change("POST", _path(lmr_name, number, *what))
    _print_result(made, as_json, f"The message {made['id']} with offset {made['offset']} will be sent.")


@webhook.command("delete", example="mdv webhook delete 3 --lmr library")
@number_argument
@lmr_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation. Required without a terminal.")
@json_option
@data_option
def delete(number: int, lmr_name: str, yes: bool, as_json: bool) -> None:
    """Delete the webhook ID and its messages."""
    mdp, path = connect(), _path(lmr_name, number)
    confirm(f"delete the webhook {number}", yes)
    _print_result(mdp.change("DELETE", path), as_json, f"Webhook {number} is deleted.")


def _path(lmr_name: str, *parts: object) -> str:
    """
    >>> _path("my library", 3, "pause")
    '/lmrs/my%20library/webhooks/3/pause'
    """
    return "/".join([lmr_path(lmr_name), "webhooks", *map(str, parts)])


def _print_result(answer: Item, as_json: bool, message: str) -> None:
    if as_json:
        write_json(answer)
    else:
        print_line(message)


def _show_secret(made: Item, as_json: bool) -> None:
    if as_json:
        write_json(made)
        return
    if on_terminal():
        print_line(f"Webhook {made['id']}, {made['url']}. Store its secret: it is not shown again.")
    click.echo(made["secret"])
