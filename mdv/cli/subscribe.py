"""`mdv subscribe`, `unsubscribe`, `subscriptions`: what an LMR wants, said by rules.

At the LMR that runs with the system, which answers when the first matches are there; with --lmr NAME at the MDP, for an
LMR that gets them with its feed.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mdv.cli.failures import FAILED, sentences
from mdv.cli.files import Source
from mdv.cli.frame import Noun, Verb, connect, data_option, json_option
from mdv.cli.lmr import LOCAL, connect_lmr, path_of
from mdv.cli.output import Columns, Item, Listing, list_options, on_terminal, say, write_json, write_table
from mdv.cli.rule import rule_options, text_of
from mdv.errors import BadRequest, Conflict, Flaw, Forbidden, MdvError, NotFound

if TYPE_CHECKING:
    from mdv.client import Client

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

MOST_SECONDS = 600.0
"""A rule may match very much."""
MOST_SECONDS_FOR_MANY = 3600.0

SUBSCRIPTION: Columns = {
    "id": lambda item: item["id"],
    "name": lambda item: item.get("name"),
    "position": lambda item: item["position"],
    "rule": lambda item: one_line(item["rule"]),
}
PROPOSAL = ("", "selects", "why", "rule")


def lmr_option(function: AnyFunction) -> AnyFunction:
    """--lmr NAME: at the MDP, for that LMR."""
    return click.option(
        "--lmr",
        "name_of_lmr",
        metavar="NAME",
        help="At the MDP, for this LMR  [default: at the LMR that runs with the system, or at $MDV_LMR_URL]",
    )(function)


@click.command(
    cls=Verb,
    example="mdv subscribe my.rule --lmr library\n"
    "mdv subscribe --like http://mdv.example/doc.rdf#host\n"
    "mdv subscribe --many rules.jsonl --lmr library",
)
@rule_options
@click.option("--like", metavar="RESOURCE", help="Choose among rules that select this resource, in place of a rule.")
@click.option("--choose", type=click.IntRange(min=1), metavar="N", help="With --like: take the Nth, without asking.")
@click.option("--many", metavar="FILE", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
              help='Many rules at once, all or none: {"rule": …, "name": …} on each line. Needs --lmr.')  # fmt: skip
@click.option("--name", metavar="NAME", help="By which other rules of the LMR can search it.")
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
    name_of_lmr: str | None,
    as_json: bool,
) -> None:
    """Subscribe to what a rule selects. FILE - is standard input.

    What matches comes with the LMR's feed; at the LMR itself, the command ends when it is there. With --like, the rules
    to choose from are shown with how much each selects; off a terminal, --choose N takes one.
    """
    if [file is not None or text is not None, like is not None, many is not None].count(True) != 1:
        raise click.UsageError("Give a rule as FILE (- is standard input) or with --text, or say --like or --many.")
    if choose is not None and like is None:
        raise click.UsageError("--choose takes one of the rules that --like proposes.")
    if many is not None:
        if name_of_lmr is None or name is not None:
            raise click.UsageError("--many goes to the MDP, for --lmr NAME; each line names its rule itself.")
        _subscribe_many(many, name_of_lmr, as_json)
        return
    somebody = on_terminal() and sys.stdin.isatty() and not as_json
    if like is not None and choose is None and not somebody:
        _show_proposals(_proposals(like), as_json)
        click.echo("mdv: nothing is subscribed yet: --choose N in addition takes the Nth of these rules.", err=True)
        return
    caller, path = place(name_of_lmr)
    rule = text_of(file, text) if like is None else _choose(_proposals(like), choose)
    made = caller.change("POST", path, {"rule": rule} | ({} if name is None else {"name": name}), MOST_SECONDS)
    if as_json:
        write_json(made)
        return
    say(f"Subscription {made['id']} is made; what it matches is {_where(name_of_lmr)}.")
    if like is not None:
        say(f"Its rule: {one_line(rule)}")


@click.command(cls=Verb, example="mdv unsubscribe 3 4 --lmr library")
@click.argument("numbers", metavar="ID...", nargs=-1, required=True, type=click.IntRange(min=1))
@lmr_option
@json_option
@data_option
def unsubscribe(numbers: tuple[int, ...], name_of_lmr: str | None, as_json: bool) -> None:
    """End subscriptions. What only they kept leaves the LMR."""
    caller, path = place(name_of_lmr)
    ended: list[int] = []
    failed: list[MdvError] = []
    waiting = list(dict.fromkeys(numbers))
    while waiting:
        searched: dict[int, MdvError] = {}
        for number in waiting:
            try:
                caller.change("DELETE", f"{path}/{number}", seconds=MOST_SECONDS)
            except Conflict as error:
                searched[number] = error
            except (NotFound, Forbidden) as error:
                failed.append(error)
            else:
                ended.append(number)
                if not as_json:
                    say(f"Subscription {number} is ended.")
        # One that another searches can be ended after that other: another round, as long as that helps.
        if len(searched) == len(waiting):
            failed += searched.values()
            break
        waiting = list(searched)
    for reason in failed:
        click.echo("\n".join(sentences(reason)), err=True)
    if as_json:
        write_json({"ended": ended, "failed": len(failed)})
    if failed:
        raise click.exceptions.Exit(FAILED)


@click.group(cls=Noun, invoke_without_command=True, example="mdv subscriptions --lmr library")
@lmr_option
@list_options
@data_option
@click.pass_context
def subscriptions(
    context: click.Context, name_of_lmr: str | None, limit: int | None, everything: bool, as_json: bool
) -> None:
    """List what an LMR subscribes to."""
    if context.invoked_subcommand is None:
        listing = Listing(limit, everything, as_json)
        caller, path = place(name_of_lmr)
        listing.show(caller.items(path, listing.page), SUBSCRIPTION, "It subscribes to nothing: `mdv subscribe` does.")
    elif name_of_lmr is not None:
        raise click.UsageError(f"Say --lmr {name_of_lmr} after {context.invoked_subcommand}, which it is for.")


@subscriptions.command("change", example="mdv subscriptions change 3 new.rule --lmr library")
@click.argument("number", metavar="ID", type=click.IntRange(min=1))
@rule_options
@click.option("--lmr", "name_of_lmr", metavar="NAME", default=LOCAL, show_default=True, help="Whose it is.")
@json_option
@data_option
def change(number: int, file: Path | None, text: str | None, name_of_lmr: str, as_json: bool) -> None:
    """Let the subscription ID have another rule, at the MDP. FILE - is standard input.

    It keeps its id and its name, and only the difference is sent to the LMR.
    """
    rule = text_of(file, text)
    caller, path = place(name_of_lmr)
    changed = caller.change("PUT", f"{path}/{number}", {"rule": rule}, MOST_SECONDS)
    if as_json:
        write_json(changed)
    else:
        say(f"Subscription {number} is changed; the difference is {_where(name_of_lmr)}.")


def place(name_of_lmr: str | None) -> tuple[Client, str]:
    """Who is asked about subscriptions, and under which path."""
    if name_of_lmr is not None:
        return connect(), f"{path_of(name_of_lmr)}/subscriptions"
    try:
        return connect_lmr(), "/subscriptions"
    except NotFound as error:
        raise NotFound(f"{error.detail} Or name one that the MDP knows with --lmr NAME.") from None


def _where(name_of_lmr: str | None) -> str:
    return "at the LMR" if name_of_lmr is None else f"in the feed of {name_of_lmr}"


def one_line(rule: str) -> str:
    """A rule on one line; what it quotes stays as it is.

    >>> one_line("search  Book b\\nregister b where b.title = 'a  b'")
    "search Book b register b where b.title = 'a  b'"
    """
    return re.sub(r"'[^']*'|\s+", lambda part: part[0] if part[0].startswith("'") else " ", rule).strip()


# Rules that are proposed


def _proposals(resource: str) -> list[Item]:
    found: list[Item] = connect().post("/rules/propose", {"resource": resource})["items"]
    if not found:
        raise NotFound(f"No rule can be proposed that selects <{resource}>: write one yourself.")
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


# Many rules at once


def _subscribe_many(file: Path, name_of_lmr: str, as_json: bool) -> None:
    drafts = _drafts(file)
    caller, path = place(name_of_lmr)
    began = time.monotonic()
    answer = caller.change("POST", path, drafts, MOST_SECONDS_FOR_MANY)
    seconds = time.monotonic() - began
    if as_json:
        write_json(answer | {"count": len(drafts), "seconds": round(seconds, 3)})
    else:
        numbers = [item["id"] for item in answer["items"]]
        what = "subscription is" if len(drafts) == 1 else "subscriptions are"
        say(f"{len(drafts):,} {what} made in {seconds:.2f} s, {min(numbers)} to {max(numbers)}; "
            f"what they match is {_where(name_of_lmr)}.")  # fmt: skip


def _drafts(file: Path) -> list[Item]:
    """The rules of a file, one on a line; with any flaw none."""
    drafts: list[Item] = []
    flaws: list[Flaw] = []
    try:
        lines = Source(file, file.name).read().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file}: byte {error.start + 1} is not UTF-8.") from None
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                drafts.append(_draft(line))
            except ValueError as error:
                flaws.append(Flaw(str(error), line=number))
    if flaws:
        raise BadRequest(f"{file}: nothing was subscribed; these lines cannot be read.", flaws)
    if not drafts:
        raise BadRequest(f"{file} holds no rule.")
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
        raise ValueError(f"it says {min(unknown)!r}, which is neither rule nor name")
    if not isinstance(draft.get("name"), str | None):
        raise ValueError("the name is no text")
    return draft
