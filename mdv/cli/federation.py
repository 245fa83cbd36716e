"""`mdv federation`: superpeers and peers that share event-condition-action rules, but no documents."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from mdv.cli.command import ExampleCommand, ExampleGroup, connect, data_option, json_option
from mdv.cli.lmr import confirm
from mdv.cli.output import Item, print_line, short_time, write_json, write_table
from mdv.cli.serve import exec_server
from mdv.cli.server_commands import federate_command

if TYPE_CHECKING:
    from mdv.client import Client

LEAVE_SECONDS = 40.0
POLL_SECONDS = 0.25
KINDS = ("class", "property", "prefix", "resource")
PRIVILEGES = ("private", "read-only", "read-write")


@click.group(cls=ExampleGroup, example="mdv federation status")
@data_option
def federation() -> None:
    """A federation: MDPs that share event-condition-action rules, each with documents of its own.

    One MDP founds it as a superpeer; others join it as peers, or are superpeers that are connected with it. A rule
    without LOCAL is stored wherever its events may happen, and acts wherever its actions are relevant and permitted.
    """


@federation.command("init", cls=ExampleCommand, example="mdv federation init lib-a")
@click.argument("name")
@click.option("--url", help="URL at which others reach this MDP  [default: the one that this command uses]")
@json_option
@data_option
def init(name: str, url: str | None, as_json: bool) -> None:
    """Make this MDP the superpeer NAME."""
    made = connect().change("POST", "/federation", {"name": name} | ({"url": url} if url is not None else {}))
    if as_json:
        write_json(made)
        return
    print_line(f"This MDP is the superpeer {name}, at {made['url'] or 'no URL'}.")
    print_line("Invite others with `mdv federation invite`. All its data is private to other superpeers:")
    print_line("`mdv federation privileges` changes that.")


@federation.command("invite", cls=ExampleCommand, example="mdv federation invite")
@json_option
@data_option
def invite(as_json: bool) -> None:
    """Print a code with which one MDP can connect to this superpeer within an hour."""
    made = connect().change("POST", "/federation/invitations")
    if as_json:
        write_json(made)
    else:
        click.echo(made["code"])


@federation.command("join", cls=ExampleCommand, example="mdv federation join https://a.example CODE --as p3")
@click.argument("url")
@click.argument("code")
@click.option("--as", "name", metavar="NAME", help="Name of this peer. Leave it out on a superpeer.")
@json_option
@data_option
def join(url: str, code: str, name: str | None, as_json: bool) -> None:
    """Join the superpeer at URL: as the peer NAME, or as a superpeer that is connected with it."""
    body = {"url": url, "code": code} | ({"name": name} if name is not None else {})
    made = connect().change("POST", "/federation/entry", body, 60)
    if as_json:
        write_json(made)
    elif made["superpeer"]:
        print_line(f"This MDP is the peer {made['name']} of {made['superpeer']}.")
    else:
        print_line(f"{made['name']} is connected with {', '.join(one['name'] for one in made['links'])}.")


@federation.command("leave", cls=ExampleCommand, example="mdv federation leave --yes")
@click.option("--yes", is_flag=True, help="Do not ask. Required without a terminal.")
@data_option
def leave(yes: bool) -> None:
    """Leave the federation. Documents remain; what rules of others have changed here remains, too."""
    confirm("leave the federation", yes)
    mdp = connect()
    mdp.request("DELETE", "/federation")
    until = time.monotonic() + LEAVE_SECONDS
    while time.monotonic() < until:
        if not _is_member(mdp):
            print_line("This MDP is in no federation any more.")
            return
        time.sleep(POLL_SECONDS)
    print_line("The neighbours have not answered yet. `mdv federation status` shows when this MDP has left.")


def _is_member(mdp: Client) -> bool:
    from mdv.errors import NotFound

    try:
        mdp.get("/federation")
    except NotFound:
        return False
    return True


@federation.command("status", cls=ExampleCommand, example="mdv federation status")
@json_option
@data_option
def status(as_json: bool) -> None:
    """Show this superpeer or peer, its neighbours, and the other superpeers."""
    found = connect().get("/federation")
    if as_json:
        write_json(found)
        return
    role = f"a peer of {found['superpeer']}" if found["superpeer"] else "a superpeer"
    print_line(f"{found['name']} is {role}{', and leaves' if found['leaving'] else ''}.")
    if found["waiting"]:
        print_line(f"{found['waiting']:,} messages wait to be handled. Is `mdv federation serve` running?")
    if found["error"]:
        print_line(f"The next message cannot be handled: {found['error']}")
    columns = ("neighbour", "kind", "messages waiting", "last exchange", "error")
    write_table(columns, ([one["name"], one["kind"], one["waiting"], _ago(one["last_exchange"]), one["error"] or ""]
                          for one in found["links"]))  # fmt: skip
    others = [one for one in found["superpeers"] if not one["has_left"]]
    if others:
        write_table(("superpeer", "classes and properties"), ([one["name"], len(one["present"])] for one in others))


def _ago(at: float | None) -> str:
    return "never" if not at else f"{max(0.0, time.time() - at):,.0f} s ago"


@federation.command("rules", cls=ExampleCommand, example="mdv federation rules")
@json_option
@data_option
def rules(as_json: bool) -> None:
    """List the global rules that are stored here, and where their parts are relevant in this group. 0 is this MDP."""
    items: list[Item] = connect().get("/federation/rules")["items"]
    if as_json:
        write_json({"items": items})
        return
    columns = ("rule", "name", "event at", "condition at", "actions at")
    write_table(columns, ([one["id"], one["name"] or "", *(", ".join(one[part]) for part in _PARTS)] for one in items))


_PARTS = ("event", "condition", "actions")


@federation.command("transactions", cls=ExampleCommand, example="mdv federation transactions --limit 20")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many are listed.")
@json_option
@data_option
def transactions(limit: int, as_json: bool) -> None:
    """List the newest transactions of this group: changes, and copies of rules."""
    items: list[Item] = connect().get("/federation/transactions", limit=limit)["items"]
    if as_json:
        write_json({"items": items})
        return
    columns = ("transaction", "peer", "state", "rule", "at", "reason")
    write_table(columns, ([one["id"], one["peer"], one["state"], one["rule"] or "", short_time(one["at"]),
                           one["reason"] or ""] for one in items))  # fmt: skip


@federation.command("trace", cls=ExampleCommand, example="mdv federation trace lib-a#17-3f2a")
@click.argument("transaction")
@json_option
@data_option
def trace(transaction: str, as_json: bool) -> None:
    """Show a transaction with the copies of the rules that it triggered, at all superpeers."""
    found = connect().get(f"/federation/transactions/{quote(transaction, safe='/@:')}")
    if as_json:
        write_json(found)
        return
    _print_transaction(found, 0)


def _print_transaction(one: Item, depth: int) -> None:
    indent = "  " * depth
    where = f" at {one['superpeer']}" if "superpeer" in one else ""
    print_line(f"{indent}{one['id']}{where}: {one.get('state') or one['outcome']}{_reason(one)}")
    for change in one.get("changes", ()):
        subject, name, term = change["statement"]
        print_line(f"{indent}  {'+' if change['added'] else '-'} <{subject}> <{name}> {term['value']}")
    for copy in one.get("copies", ()):
        awaited = f", no answer from {', '.join(copy['awaiting'])}" if copy["awaiting"] else ""
        print_line(f"{indent}  rule {copy['rule']} (ABORT {copy['abort']}){awaited}")
        for child in copy["transactions"]:
            _print_transaction(child, depth + 2)


def _reason(one: Item) -> str:
    return f" ({one['reason']})" if one.get("reason") else ""


@federation.command("privileges", cls=ExampleCommand, example="mdv federation privileges set class Book read-only")
@click.argument("words", nargs=-1, metavar="[set KIND NAME PRIVILEGE | remove KIND NAME]")
@json_option
@data_option
def privileges(words: tuple[str, ...], as_json: bool) -> None:
    """Show or change what other superpeers may read and write here.

    KIND is class, property, prefix or resource; NAME a URI or a name of the schema; PRIVILEGE private, read-only or
    read-write. The most specific one holds: resource, prefix, property, class. Without one, data is private.
    """
    mdp = connect()
    items: list[Item] = mdp.get("/federation/privileges")["items"]
    if words:
        items = mdp.change("PUT", "/federation/privileges", {"items": _changed(items, words)})["items"]
    if as_json:
        write_json({"items": items})
    elif not items:
        print_line("All data is private to other superpeers.")
    else:
        write_table(("kind", "name", "privilege"), ([one["kind"], one["name"], one["privilege"]] for one in items))


def _changed(items: list[Item], words: tuple[str, ...]) -> list[Item]:
    match words:
        case ("set", kind, name, privilege) if kind in KINDS and privilege in PRIVILEGES:
            added: list[dict[str, Any]] = [{"kind": kind, "name": name, "privilege": privilege}]
        case ("remove", kind, name):
            added = []
        case _:
            raise click.UsageError(
                f"Write `set KIND NAME PRIVILEGE` or `remove KIND NAME`. KIND: {', '.join(KINDS)}. PRIVILEGE:"
                f" {', '.join(PRIVILEGES)}."
            )
    return [one for one in items if (one["kind"], one["name"]) != (kind, name)] + added


@federation.command("serve", cls=ExampleCommand, example="MDV_DATABASE_URL=… MDV_REDIS_URL=… mdv federation serve")
def serve() -> None:
    """Run only the process of the federation, for production: it handles messages, and calls the neighbours.

    One process of an MDP does this; others wait until it ends. `mdv up` starts one where there is a federation.
    """
    exec_server(federate_command(), "database_url", "redis_url")
