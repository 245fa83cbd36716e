"""`mdv status`: how the MDP is, and the LMR beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from mdv.cli.failures import sentences, words
from mdv.cli.frame import Verb, connect, data_folder, data_option, json_option
from mdv.cli.output import Item, clean, on_terminal, write_json
from mdv.errors import MdvError, NotFound, SystemNotFound

if TYPE_CHECKING:
    from rich.console import Group

    from mdv.client import Client

PULSE = 2.0
"""Seconds between two looks of --watch."""
MOST_NAMED = 3
"""How many LMRs a line names."""


@click.command(cls=Verb, example="mdv status --watch")
@click.option("--watch", is_flag=True, help="Look again every 2 s, until Ctrl-C.")
@json_option
@data_option
def status(watch: bool, as_json: bool) -> None:
    """Show how the MDP is: what it holds, what waits, who works, which LMRs are behind; and the LMR beside it."""
    mdp, lmr = connect(), _lmr()
    if watch and (as_json or not on_terminal()):
        raise click.UsageError("--watch draws on a terminal: without one, ask again with --json.")
    if watch:
        _watch(mdp, lmr)
    found = _look(mdp, lmr)
    if as_json:
        write_json(found)
    elif on_terminal():
        from rich.console import Console

        Console(highlight=False).print(_drawn(found))
    else:
        for name, value in facts(found):
            click.echo(f"{name}\t{clean(value)}")


def _lmr() -> Client | None:
    """A client of the LMR, where one is known."""
    from mdv.client import Client
    from mdv.system import find_lmr

    try:
        return click.get_current_context().with_resource(Client(find_lmr(data_folder())))
    except (NotFound, SystemNotFound):
        return None


def _look(mdp: Client, lmr: Client | None) -> Item:
    found = mdp.get("/status")
    if lmr is not None:
        try:
            found["lmr"] = lmr.get("/status")
        except MdvError as error:
            found["lmr"] = {"problem": words(error)}
    return found


def _watch(mdp: Client, lmr: Client | None) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(screen=True, auto_refresh=False) as live:
        while True:
            try:
                live.update(_drawn(_look(mdp, lmr)), refresh=True)
            except MdvError as error:  # it may be starting again
                live.update(Text("\n".join(sentences(error))), refresh=True)
            time.sleep(PULSE)


def _drawn(found: Item) -> Group:
    """The same on a terminal: what is known, and the LMRs that are behind as a table."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts(found):
        grid.add_row(name, Text(clean(value)))
    if not found["behind"]:
        return Group(grid)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("LMR behind", "events", "since", "asked at", ""):
        table.add_column(heading, overflow="fold")
    for lmr in found["behind"]:
        events = f"{lmr['events']:,}{'+' if lmr['more'] else ''}"
        lost = "takes a snapshot" if lmr["must_refetch"] else ""
        row = (lmr["name"], events, lmr["since"] or "", lmr["asked_at"] or "never", lost)
        table.add_row(*(Text(clean(part)) for part in row))
    return Group(grid, table)


def facts(found: Item) -> Iterator[tuple[str, str]]:
    """What there is to say of an MDP, a line each."""
    counts, queue = found["counts"], found["queue"]
    yield "MDV", f"{found['version']}, at position {found['position']:,}, life {found['epoch']}"
    yield "last change", _ago(found["last_transaction"]) or "none yet"
    yield "holds", ", ".join(f"{_count(counts[noun])} {noun}" for noun in counts)
    yield "database", _size(found["database_bytes"])
    yield "waiting", _waiting(queue)
    yield "dead letters", f"{queue['dead']:,}"
    yield "workers", _workers(found["workers"])
    yield "LMRs", f"{found['lmrs']:,}, {_behind(found['behind'])}"
    if "lmr" in found:
        yield "LMR here", _lmr_says(found["lmr"])


def _count(counted: Item) -> str:
    return f"{'' if counted['exact'] else 'about '}{counted['count']:,}"


def _waiting(queue: Item) -> str:
    if not queue["waiting"]:
        return "nothing"
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in queue["by_kind"].items())
    priorities = ", ".join(f"{count:,} of priority {priority}" for priority, count in queue["by_priority"].items())
    much = f"more than {queue['waiting'] - 1:,}" if queue["more"] else f"{queue['waiting']:,}"
    return f"{much} (the oldest for {_span(queue['oldest_seconds'])}): {kinds}; {priorities}"


def _workers(workers: list[Item] | None) -> str:
    if workers is None:
        return "not known: Redis does not answer"
    return ", ".join(_worker(worker) for worker in workers) or "none is heard of"


def _worker(worker: Item) -> str:
    heard = "" if worker["heard_seconds_ago"] is None else f", last heard {_span(worker['heard_seconds_ago'])} ago"
    processes = "1 process" if worker["processes"] == 1 else f"{worker['processes']} processes"
    return f"{worker['name']} ({processes}{heard})"


def _behind(behind: list[Item]) -> str:
    """
    >>> _behind([{"name": "watcher", "events": 1551, "more": False, "must_refetch": False}])
    '1 behind: watcher (1,551 events)'
    """
    if not behind:
        return "none behind"
    named = ", ".join(f"{lmr['name']} ({_unread(lmr)})" for lmr in behind[:MOST_NAMED])
    more = len(behind) - MOST_NAMED
    return f"{len(behind):,} behind: {named}{f' and {more:,} more' if more > 0 else ''}"


def _unread(lmr: Item) -> str:
    if lmr["must_refetch"]:
        return "takes a snapshot"
    much = f"more than {lmr['events']:,}" if lmr["more"] else f"{lmr['events']:,}"
    return f"{much} event{'' if much == '1' else 's'}"


def _lmr_says(lmr: Item) -> str:
    if "problem" in lmr:
        return str(lmr["problem"])
    state = "up to date" if lmr["up_to_date"] else "catching up"
    if lmr["last_error"]:
        state = f"alone ({lmr['last_error']})"
    return f"{state} at position {lmr['position']:,}, {lmr['resources']:,} resources"


def _ago(moment: str | None) -> str:
    if moment is None:
        return ""
    return f"{_span((datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds())} ago, {moment}"


def _span(seconds: float) -> str:
    """
    >>> _span(3.2), _span(200), _span(90_000)
    ('3 s', '3 min', '25 h')
    """
    seconds = max(0.0, seconds)
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.0f} h"
    )


def _size(count: int) -> str:
    """
    >>> _size(10_400_000)
    '10.4 MB'
    """
    return f"{count / 1e6:,.1f} MB" if count < 1e10 else f"{count / 1e9:,.1f} GB"
