"""`mdv subscribe`, `unsubscribe`, `subscriptions`: manage the subscriptions of an LMR.

By default the request goes to the LMR that runs with the system, which answers when the first matches are in its cache.
With --lmr NAME it goes to the MDP, and that LMR gets the matches with its feed.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mdv.cli.command import ExampleCommand, ExampleGroup, connect, data_option, json_option
from mdv.cli.errors import EXIT_FAILED, format_error
from mdv.cli.lmr import LOCAL_LMR, connect_lmr, lmr_path
from mdv.cli.output import (
    Columns,
    Item,
    Listing,
    list_options,
    on_terminal,
    print_line,
    warn_suspended,
    write_json,
    write_table,
)
from mdv.cli.rule import read_rule, rule_options
from mdv.cli.source_files import SourceFile
from mdv.errors import BadRequest, Conflict, Flaw, Forbidden, MdvError, NotFound

if TYPE_CHECKING:
    from mdv.client import Client

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

CHANGE_TIMEOUT_SECONDS = 600.0
"""A rule may have very many matches."""
BULK_TIMEOUT_SECONDS = 3600.0

SUBSCRIPTION: Columns = {
    "id": lambda item: item["id"],
    "name": lambda item: item.get("name"),
    "position": lambda item: item["position"],
    "rule": lambda item: one_line(item["rule"]),
    "state": lambda item: item["state"],
}
PROPOSAL = ("", "selects", "why", "rule")


def lmr_option(function: AnyFunction) -> AnyFunction:
    """Add the option --lmr NAME: send the request to the MDP, for this LMR."""
    return click.option(
        "--lmr",
        "lmr_name",
        metavar="NAME",
        help="The LMR, by name, at the MDP  [default: the LMR that runs with the system, or the one at $MDV_LMR_URL]",
    )(function)


@click.command(
    cls=ExampleCommand,
    example="mdv subscribe my.rule --lmr library\n"
    "mdv subscribe --like http://mdv.example/doc.rdf#host\n"
    "mdv subscribe --many rules.jsonl --lmr library",
)
@rule_options
@click.option("--like", metavar="RESOURCE", help="Choose from proposed rules that select this resource.")
@click.option(
    "--choose", type=click.IntRange(min=1), metavar="N", help="With --like: take the Nth rule without asking."
)
@click.option("--many", metavar="FILE", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
              help='Many rules in one transaction: {"rule": …, "name": …} on each line. Requires --lmr.')  # fmt: skip
@click.option("--name", metavar="NAME", help="Name of the rule, which other rules of the LMR can search.")
@lmr_option
@json_option
@data_option
def subscribe(
    file: Path | None,
    text: str | None,
    like: str | None,
    choose: int | None,
    many: Path | None,
    name: str | None,
    lmr_name: str | None,
    as_json: bool,
) -> None:
    """Subscribe an LMR to a rule. FILE - is standard input.

    The matches are sent with the feed of the LMR. At the LMR itself, the command returns when they are in its cache.
    With --like, the proposed rules are shown with the number of resources that each selects; without a terminal, use
    --choose N to take one.
    """
    if [file is not None or text is not None, like is not None, many is not None].count(True) != 1:
        raise click.UsageError("Give a rule as FILE (- is standard input) or with --text, or use --like or --many.")
    if choose is not None and like is None:
        raise click.UsageError("--choose requires --like.")
    if many is not None:
        if lmr_name is None or name is not None:
            raise click.UsageError("--many requires --lmr NAME and excludes --name: each line can name its rule.")
        _subscribe_many(many, lmr_name, as_json)
        return
    is_interactive = on_terminal() and sys.stdin.isatty() and not as_json
    if like is not None and choose is None and not is_interactive:
        _show_proposals(_proposals(like), as_json)
        click.echo("mdv: no subscription was made: add --choose N to take the Nth of these rules.", err=True)
        return
    caller, path = subscriptions_endpoint(lmr_name)
    rule = read_rule(file, text) if like is None else _choose(_proposals(like), choose)
    made = caller.change(
        "POST", path, {"rule": rule} | ({} if name is None else {"name": name}), CHANGE_TIMEOUT_SECONDS
    )
    if as_json:
        write_json(made)
        return
    print_line(f"Subscription {made['id']} is made; its matches are {_where(lmr_name)}.")
    if like is not None:
        print_line(f"Its rule: {one_line(rule)}")


@click.command(cls=ExampleCommand, example="mdv unsubscribe 3 4 --lmr library")
@click.argument("numbers", metavar="ID...", nargs=-1, required=True, type=click.IntRange(min=1))
@lmr_option
@json_option
@data_option
def unsubscribe(numbers: tuple[int, ...], lmr_name: str | None, as_json: bool) -> None:
    """Remove subscriptions. Resources that no other subscription needs leave the LMR."""
    caller, path = subscriptions_endpoint(lmr_name)
    removed: list[int] = []
    failed: list[MdvError] = []
    remaining = list(dict.fromkeys(numbers))
    while remaining:
        searched: dict[int, MdvError] = {}
        for number in remaining:
            try:
                caller.change("DELETE", f"{path}/{number}", seconds=CHANGE_TIMEOUT_SECONDS)
            except Conflict as error:
                searched[number] = error
            except (NotFound, Forbidden) as error:
                failed.append(error)
            else:
                removed.append(number)
                if not as_json:
                    print_line(f"Subscription {number} is removed.")
        # A rule that another one searches can be removed after that other: repeat while this makes progress.
        if len(searched) == len(remaining):
            failed += searched.values()
            break
        remaining = list(searched)
    for reason in failed:
        click.echo("\n".join(format_error(reason)), err=True)
    if as_json:
        write_json({"ended": removed, "failed": len(failed)})
    if failed:
        raise click.exceptions.Exit(EXIT_FAILED)


@click.group(cls=ExampleGroup, invoke_without_command=True, example="mdv subscriptions --lmr library")
@lmr_option
@list_options
@data_option
@click.pass_context
def subscriptions(
    context: click.Context, lmr_name: str | None, limit: int | None, everything: bool, as_json: bool
) -> None:
    """List the subscriptions of an LMR."""
    if context.invoked_subcommand is None:
        listing = Listing(limit, everything, as_json)
        caller, path = subscriptions_endpoint(lmr_name)
        suspended: list[Item] = []
        items = (_collect_suspended(item, suspended) for item in caller.items(path, listing.page))
        listing.show(items, SUBSCRIPTION, "The LMR has no subscriptions: `mdv subscribe` makes one.")
        for item in [] if as_json else suspended:
            command = f"mdv subscriptions resume {item['id']}"
            if lmr_name is not None:
                command += f" --lmr {shlex.quote(lmr_name)}"
            warn_suspended(f"Subscription {item['id']}", item["suspended"], command)
    elif lmr_name is not None:
        raise click.UsageError(f"Give --lmr {lmr_name} after {context.invoked_subcommand}.")


@subscriptions.command("change", example="mdv subscriptions change 3 new.rule --lmr library")
@click.argument("number", metavar="ID", type=click.IntRange(min=1))
@rule_options
@click.option("--lmr", "lmr_name", metavar="NAME", default=LOCAL_LMR, show_default=True, help="The LMR.")
@json_option
@data_option
def change(number: int, file: Path | None, text: str | None, lmr_name: str, as_json: bool) -> None:
    """Replace the rule of the subscription ID, at the MDP. FILE - is standard input.

    The subscription keeps its id and its name. Only the difference is sent to the LMR.
    """
    rule = read_rule(file, text)
    caller, path = subscriptions_endpoint(lmr_name)
    changed = caller.change("PUT", f"{path}/{number}", {"rule": rule}, CHANGE_TIMEOUT_SECONDS)
    if as_json:
        write_json(changed)
    else:
        print_line(f"Subscription {number} is changed; the difference is {_where(lmr_name)}.")


@subscriptions.command("resume", example="mdv subscriptions resume 3 --lmr library")
@click.argument("number", metavar="ID", type=click.IntRange(min=1))
@lmr_option
@json_option
@data_option
def resume(number: int, lmr_name: str | None, as_json: bool) -> None:
    """Resume the suspended subscription ID.

    A rule that takes too long in one transaction (MDV_RULE_SECONDS) is suspended; its matches are kept. When it is
    resumed, only the difference is sent to the LMR. If it still takes too long, it stays suspended: change the rule.
    """
    caller, path = subscriptions_endpoint(lmr_name)
    resumed = caller.change("POST", f"{path}/{number}/resume", seconds=CHANGE_TIMEOUT_SECONDS)
    if as_json:
        write_json(resumed)
    else:
        print_line(f"Subscription {number} is active; the difference is {_where(lmr_name)}.")


def _collect_suspended(item: Item, suspended: list[Item]) -> Item:
    if item["state"] == "suspended":
        suspended.append(item)
    return item


def subscriptions_endpoint(lmr_name: str | None) -> tuple[Client, str]:
    """Return the client and the path for requests about subscriptions."""
    if lmr_name is not None:
        return connect(), f"{lmr_path(lmr_name)}/subscriptions"
    try:
        return connect_lmr(), "/subscriptions"
    except NotFound as error:
        raise NotFound(f"{error.detail} Or name an LMR of the MDP with --lmr NAME.") from None


def _where(lmr_name: str | None) -> str:
    return "at the LMR" if lmr_name is None else f"in the feed of {lmr_name}"


def one_line(rule: str) -> str:
    """Return a rule on one line. Quoted text is unchanged.

    >>> one_line("search  Book b\\nregister b where b.title = 'a  b'")
    "search Book b register b where b.title = 'a  b'"
    """
    return re.sub(r"'[^']*'|\s+", lambda part: part[0] if part[0].startswith("'") else " ", rule).strip()


# Proposed rules


def _proposals(resource: str) -> list[Item]:
    found: list[Item] = connect().post("/rules/propose", {"resource": resource})["items"]
    if not found:
        raise NotFound(f"There is no proposal for a rule that selects <{resource}>: write the rule yourself.")
    return found


def _show_proposals(proposals: list[Item], as_json: bool) -> None:
    if as_json:
        write_json({"items": proposals, "more": False})
    else:
        write_table(PROPOSAL, ([n, _selects(p), p["why"], one_line(p["rule"])] for n, p in enumerate(proposals, 1)))


def _selects(proposal: Item) -> str:
    """
    >>> _selects({"selects": 1000, "more": True}), _selects({"selects": None, "more": False})
    ('1000+', '?')
    """
    return "?" if proposal["selects"] is None else f"{proposal['selects']}{'+' if proposal['more'] else ''}"


def _choose(proposals: list[Item], number: int | None) -> str:
    if number is None:
        _show_proposals(proposals, as_json=False)
        number = click.prompt("Subscribe to which", type=click.IntRange(1, len(proposals)), err=True)
    if number > len(proposals):
        raise BadRequest(f"There is no proposal {number}: choose one of 1 to {len(proposals)}.")
    return str(proposals[number - 1]["rule"])


# Many rules in one transaction


def _subscribe_many(file: Path, lmr_name: str, as_json: bool) -> None:
    drafts = _drafts(file)
    caller, path = subscriptions_endpoint(lmr_name)
    started = time.monotonic()
    answer = caller.change("POST", path, drafts, BULK_TIMEOUT_SECONDS)
    seconds = time.monotonic() - started
    if as_json:
        write_json(answer | {"count": len(drafts), "seconds": round(seconds, 3)})
    else:
        numbers = [item["id"] for item in answer["items"]]
        what = "subscription is" if len(drafts) == 1 else "subscriptions are"
        print_line(f"{len(drafts):,} {what} made in {seconds:.2f} s, {min(numbers)} to {max(numbers)}; "
            f"their matches are {_where(lmr_name)}.")  # fmt: skip


def _drafts(file: Path) -> list[Item]:
    """Return the rules of a file with one rule on each line. Any invalid line is an error."""
    drafts: list[Item] = []
    flaws: list[Flaw] = []
    try:
        lines = SourceFile(file, file.name).read().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file}: byte {error.start + 1} is not UTF-8.") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                drafts.append(_draft(line))
            except ValueError as error:
                flaws.append(Flaw(str(error), line=number))
    if flaws:
        raise BadRequest(f"{file}: no subscription was made, because these lines are invalid.", flaws)
    if not drafts:
        raise BadRequest(f"{file} contains no rule.")
    return drafts


def _draft(line: str) -> Item:
    """
    >>> _draft('{"rule": "search Book b register b"}')
    {'rule': 'search Book b register b'}
    """
    try:
        draft = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        draft = None
    if not isinstance(draft, dict) or not isinstance(draft.get("rule"), str):
        raise ValueError('not JSON of the form {"rule": "search …", "name": "…"}')
    if unknown := set(draft) - {"rule", "name"}:
        raise ValueError(f"unknown key {min(unknown)!r}: only rule and name are allowed")
    if not isinstance(draft.get("name"), str | None):
        raise ValueError("the name is not a string")
    return draft
