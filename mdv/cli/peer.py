"""`mdv peer`: the members of the backbone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from mdv.cli.command import ExampleGroup, connect, data_option, json_option
from mdv.cli.lmr import confirm
from mdv.cli.output import Item, print_line, write_json, write_table
from mdv.errors import NotReplicated
from mdv.mdp_places import CRDTS

if TYPE_CHECKING:
    from mdv.client import Client

JOIN_SECONDS = 600.0
LEAVE_SECONDS = 60.0
POLL_SECONDS = 0.25


@click.group(cls=ExampleGroup, example="mdv peer status")
@data_option
def peer() -> None:
    """The backbone: several MDPs that replicate all documents.

    One MDP founds it and invites the others; each accepts changes, also while the others are away. `mdv up --mdps 3`
    starts three connected MDPs.
    """


@peer.command("found", example="mdv peer found m1 https://m1.example")
@click.argument("name")
@click.argument("url")
@click.option("--crdt", type=click.Choice(CRDTS), default=CRDTS[0], show_default=True, help="Replicated set.")
@json_option
@data_option
def found(name: str, url: str, crdt: str, as_json: bool) -> None:
    """Found a backbone with this MDP as NAME, which the others reach at URL."""
    made = connect().change("POST", "/backbone", {"name": name, "url": url, "mode": crdt})
    if as_json:
        write_json(made)
    else:
        print_line(f"{name} has founded a backbone ({crdt}). Its schema and documents are those of the backbone.")
        print_line("Invite others with `mdv peer invite`. Run `mdv replicate` beside the MDP, or restart `mdv up`.")


@peer.command("invite", example="mdv peer invite")
@json_option
@data_option
def invite(as_json: bool) -> None:
    """Print a code with which one MDP can join within an hour. Only the lead can."""
    made = connect().change("POST", "/backbone/invitations")
    if as_json:
        write_json(made)
    else:
        click.echo(made["code"])


@peer.command("join", example="mdv peer join m2 https://m2.example CODE")
@click.argument("name")
@click.argument("url")
@click.argument("code")
@click.option("--merge", is_flag=True, help="Register the documents of this MDP in the backbone.")
@click.option("--no-wait", is_flag=True, help="Do not wait until the state is transferred.")
@json_option
@data_option
def join(name: str, url: str, code: str, merge: bool, no_wait: bool, as_json: bool) -> None:
    """Join the backbone of an invitation with this MDP as NAME, which the others reach at URL."""
    mdp = connect()
    made = mdp.change("POST", "/backbone/entry", {"name": name, "url": url, "code": code, "merge": merge}, 60)
    if not no_wait:
        made = wait_until_active(mdp)
    if as_json:
        write_json(made)
    elif made["state"] == "active":
        print_line(f"{name} is a member of the backbone: {', '.join(one['name'] for one in made['members'])}.")
    else:
        print_line(
            f"{name} has joined. It takes over the state when `mdv replicate` runs, or after a restart of `mdv up`."
        )


def wait_until_active(mdp: Client, seconds: float = JOIN_SECONDS) -> Item:
    """Wait until the state of the backbone is transferred. Return the backbone; not active if nothing replicates."""
    began = time.monotonic()
    while True:
        found = mdp.get("/backbone")
        waited = time.monotonic() - began
        if found["state"] == "active" or waited > seconds or (waited > 5 and not found["replicating"]):
            return found
        time.sleep(POLL_SECONDS)


@peer.command("list", example="mdv peer list")
@json_option
@data_option
def list_(as_json: bool) -> None:
    """List the members."""
    found = connect().get("/backbone")
    if as_json:
        write_json({"items": found["members"]})
        return
    columns = ("name", "url", "state", "")
    write_table(columns, ([one["name"], one["url"], one["state"], _notes(found, one)] for one in found["members"]))


def _notes(found: Item, member: Item) -> str:
    notes = ["this MDP"] if member["name"] == found["name"] else []
    notes += ["lead"] if member["name"] == found["lead"] else []
    notes += ["paused"] if member["paused"] else []
    return ", ".join(notes)


@peer.command("status", example="mdv peer status")
@json_option
@data_option
def status(as_json: bool) -> None:
    """Show how far this MDP and the others are behind."""
    found = connect().get("/backbone")
    if as_json:
        write_json(found)
        return
    print_line(f"{found['name']} is {found['state']} in a backbone of {len(found['members'])} ({found['mode']}).")
    if not found["replicating"]:
        print_line("`mdv replicate` is not running, so no changes of others arrive.")
    behind = f"{found['lag']:,} operations are missing here, for {found['lag_seconds']:,.0f} s." if found["lag"] else (
        "No operation is missing here."
    )  # fmt: skip
    print_line(behind)
    columns = ("member", "state", "missing here", "missing there", "last contact", "error")
    others = [one for one in found["members"] if one["name"] != found["name"]]
    write_table(columns, ([one["name"], "paused" if one["paused"] else one["state"], _count(one["lag"]),
                           _count(one["behind_us"]), _ago(one["last_contact"]), one["error"] or ""]
                          for one in others))  # fmt: skip


def _count(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def _ago(at: float | None) -> str:
    return "never" if not at else f"{max(0.0, time.time() - at):,.0f} s ago"


@peer.command("pause", example="mdv peer pause m2")
@click.argument("name")
@json_option
@data_option
def pause(name: str, as_json: bool) -> None:
    """Stop pulling from a member. Its changes may still arrive through others."""
    _set_paused(name, True, as_json)


@peer.command("resume", example="mdv peer resume m2")
@click.argument("name")
@json_option
@data_option
def resume(name: str, as_json: bool) -> None:
    """Pull from a member again."""
    _set_paused(name, False, as_json)


def _set_paused(name: str, paused: bool, as_json: bool) -> None:
    made = connect().change("PATCH", f"/backbone/members/{name}", {"paused": paused})
    if as_json:
        write_json(made)
    else:
        print_line(f"Nothing is pulled from {name}." if paused else f"Pulling from {name} again.")


@peer.command("lead", example="mdv peer lead m2")
@click.argument("name")
@click.option("--force", is_flag=True, help="This MDP is not the lead: the lead is lost.")
@json_option
@data_option
def lead(name: str, force: bool, as_json: bool) -> None:
    """Make a member the lead: it changes the schema and the members. A lead that is lost is replaced with --force."""
    made = connect().change("PUT", "/backbone/lead", {"member": name, "force": force})
    if as_json:
        write_json(made)
    else:
        print_line(f"{made['lead']} is the lead, in term {made['term']}.")


@peer.command("verify", example="mdv peer verify m2 --deep")
@click.argument("name", required=False)
@click.option("--deep", is_flag=True, help="Also check all rows of this MDP.")
@json_option
@data_option
def verify(name: str | None, deep: bool, as_json: bool) -> None:
    """Compare the documents of this MDP with those of NAME, or of all others. Nothing is changed."""
    _show_check(connect().change("POST", "/backbone/verify", {"peer": name, "deep": deep}), as_json)


@peer.command("repair", example="mdv peer repair m2 --yes")
@click.argument("name")
@click.option("--document", "documents", metavar="URI", multiple=True, help="Only this one. Can be repeated.")
@click.option("--yes", is_flag=True, help="Do not ask. Required without a terminal.")
@json_option
@data_option
def repair(name: str, documents: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Where documents of this MDP differ from those of NAME, take those of NAME."""
    confirm(f"replace documents of this MDP by those of {name}", yes)
    body = {"from": name, "documents": list(documents) or None}
    _show_check(connect().change("POST", "/backbone/repair", body), as_json)


def _show_check(found: Item, as_json: bool) -> None:
    if as_json:
        write_json(found)
        return
    if not found["differing"]:
        print_line(f"There are no differences ({', '.join(found['peers'])}).")
    for one in found["documents"]:
        members = "; ".join(f"version {both['here']['version']} here, {both['there']['version']} at {name}"
                            for name, both in one["members"].items())  # fmt: skip
        notes = ["rows changed from outside"] if one["damaged"] else []
        print_line(f"{one['uri']}: {', '.join([*notes, members] if members else notes)}")
    if found["repairs"]:
        print_line(f"{found['repairs']:,} documents were repaired.")
    if found["undecided"]:
        print_line(f"{len(found['undecided']):,} documents still differ.")
    if found["pending"]:
        print_line(f"{found['pending']:,} documents were changing. Check again.")
    for name, why in found["unreachable"].items():
        print_line(f"{name} did not answer: {why}")


@peer.command("activate", example="mdv peer activate --yes")
@click.option("--yes", is_flag=True, help="Do not ask. Required without a terminal.")
@json_option
@data_option
def activate(yes: bool, as_json: bool) -> None:
    """Let this MDP go first after all members were restored. Choose the one with the latest backup."""
    confirm("let this MDP go first, since all members of the backbone were restored", yes)
    made = connect().change("POST", "/backbone/activation")
    if as_json:
        write_json(made)
    else:
        print_line(f"{made['name']} is {made['state']}. The other members take over its state.")


@peer.command("remove", example="mdv peer remove m3 --yes")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask. Required without a terminal.")
@json_option
@data_option
def remove(name: str, yes: bool, as_json: bool) -> None:
    """Remove a member. Changes that no other member has are lost to the backbone. Only the lead can."""
    confirm(f"remove {name} from the backbone", yes)
    made = connect().change("DELETE", f"/backbone/members/{name}")
    if as_json:
        write_json(made)
    else:
        print_line(f"{name} is removed once the other members have agreed; `mdv peer list` shows it.")


@peer.command("leave", example="mdv peer leave --yes")
@click.option("--force", is_flag=True, help="Ask no other member: this MDP was removed, or the others are gone.")
@click.option("--yes", is_flag=True, help="Do not ask. Required without a terminal.")
@json_option
@data_option
def leave(force: bool, yes: bool, as_json: bool) -> None:
    """Leave the backbone with this MDP, once all members have its changes. Its documents remain here."""
    confirm("leave the backbone", yes)
    made = leave_when_replicated(connect(), force)
    if as_json:
        write_json(made)
    else:
        print_line(f"{made['name']} has left the backbone. Its documents remain here.")


def leave_when_replicated(mdp: Client, force: bool, seconds: float = LEAVE_SECONDS) -> Item:
    """Leave the backbone. Wait while other members do not have all changes of this MDP."""
    began = time.monotonic()
    while True:
        try:
            return mdp.change("POST", "/backbone/exit", {"force": force}, 60)
        except NotReplicated:
            if time.monotonic() - began > seconds:
                raise
        time.sleep(POLL_SECONDS)
