"""`mdv status`: the state of the MDP and of its local LMR."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from mdv.cli.command import ExampleCommand, connect, data_folder, data_option, json_option
from mdv.cli.errors import error_detail, format_error
from mdv.cli.output import Item, escape_controls, on_terminal, short_time, write_json
from mdv.errors import MdvError, NotFound, SystemNotFound

if TYPE_CHECKING:
    from rich.console import Group

    from mdv.client import Client

REFRESH_SECONDS = 2.0
"""Refresh interval of --watch."""
MAX_LMRS_NAMED = 3
"""How many LMRs are named in one line."""


@click.command(cls=ExampleCommand, example="mdv status --watch")
@click.option("--watch", is_flag=True, help="Refresh every 2 s until Ctrl-C.")
@json_option
@data_option
def status(watch: bool, as_json: bool) -> None:
    """Show the state of the MDP: counts, waiting jobs, workers, LMRs that are behind; and of its local LMR."""
    mdp, lmr = connect(), _lmr()
    if watch and (as_json or not on_terminal()):
        raise click.UsageError("--watch needs a terminal and cannot be combined with --json.")
    if watch:
        _watch(mdp, lmr)
    found = _fetch(mdp, lmr)
    if as_json:
        write_json(found)
    elif on_terminal():
        from rich.console import Console

        Console(highlight=False).print(_render(found))
    else:
        for name, value in status_lines(found):
            click.echo(f"{name}\t{escape_controls(value)}")


def _lmr() -> Client | None:
    """Return a client of the LMR, if one is configured."""
    from mdv.client import Client
    from mdv.system import find_lmr

    try:
        return click.get_current_context().with_resource(Client(find_lmr(data_folder())))
    except (NotFound, SystemNotFound):
        return None


def _fetch(mdp: Client, lmr: Client | None) -> Item:
    found = mdp.get("/status")
    if lmr is not None:
        try:
            found["lmr"] = lmr.get("/status")
        except MdvError as error:
            found["lmr"] = {"problem": error_detail(error)}
    return found


def _watch(mdp: Client, lmr: Client | None) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(screen=True, auto_refresh=False) as live:
        while True:
            try:
                live.update(_render(_fetch(mdp, lmr)), refresh=True)
            except MdvError as error:  # the server may be restarting
                live.update(Text("\n".join(format_error(error))), refresh=True)
            time.sleep(REFRESH_SECONDS)


def _render(found: Item) -> Group:
    """Return the status for a terminal, with the LMRs that are behind as a table."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in status_lines(found):
        grid.add_row(name, Text(escape_controls(value)))
    if not found["behind"]:
        return Group(grid)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("LMR behind", "events", "since", "last request", ""):
        table.add_column(heading, overflow="fold")
    for lmr in found["behind"]:
        events = f"{lmr['events']:,}{'+' if lmr['more'] else ''}"
        note = "needs a snapshot" if lmr["must_refetch"] else ""
        row = (lmr["name"], events, short_time(lmr["since"], ""), short_time(lmr["asked_at"]), note)
        table.add_row(*(Text(escape_controls(part)) for part in row))
    return Group(grid, table)


def status_lines(found: Item) -> Iterator[tuple[str, str]]:
    """Yield the state of an MDP as labels and values."""
    counts, queue = found["counts"], found["queue"]
    yield "MDV", f"{found['version']}, at position {found['position']:,}, epoch {found['epoch']}"
    yield "last change", _ago(found["last_transaction"]) or "none yet"
    yield "stored", ", ".join(f"{_count(counts[noun])} {noun}" for noun in counts)
    yield "database", _size(found["database_bytes"])
    yield "waiting", _waiting(queue)
    yield "dead letters", f"{queue['dead']:,}"
    yield "workers", _workers(found["workers"])
    if found["rules_suspended"]:
        yield "suspended", f"{_rules(found['rules_suspended'])} over MDV_RULE_SECONDS; `mdv doctor` lists them"
    yield "LMRs", f"{found['lmrs']:,}, {_behind(found['behind'])}"
    if "lmr" in found:
        yield "local LMR", _lmr_state(found["lmr"])


def _rules(count: int) -> str:
    """
    >>> _rules(1), _rules(2)
    ('1 rule', '2 rules')
    """
    return f"{count:,} rule{'' if count == 1 else 's'}"


def _count(counted: Item) -> str:
    return f"{'' if counted['exact'] else 'about '}{counted['count']:,}"


def _waiting(queue: Item) -> str:
    if not queue["waiting"]:
        return "nothing"
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in queue["by_kind"].items())
    priorities = ", ".join(f"{count:,} of priority {priority}" for priority, count in queue["by_priority"].items())
    count = f"more than {queue['waiting'] - 1:,}" if queue["more"] else f"{queue['waiting']:,}"
    return f"{count} (the oldest for {_span(queue['oldest_seconds'])}): {kinds}; {priorities}"


def _workers(workers: list[Item] | None) -> str:
    if workers is None:
        return "unknown: Redis does not answer"
    return ", ".join(_worker(worker) for worker in workers) or "none"


def _worker(worker: Item) -> str:
    heard = "" if worker["heard_seconds_ago"] is None else f", last heartbeat {_span(worker['heard_seconds_ago'])} ago"
    processes = "1 process" if worker["processes"] == 1 else f"{worker['processes']} processes"
    return f"{worker['name']} ({processes}{heard})"


def _behind(behind: list[Item]) -> str:
    """
    >>> _behind([{"name": "watcher", "events": 1551, "more": False, "must_refetch": False}])
    '1 behind: watcher (1,551 events)'
    """
    if not behind:
        return "none behind"
    named = ", ".join(f"{lmr['name']} ({_unread(lmr)})" for lmr in behind[:MAX_LMRS_NAMED])
    more = len(behind) - MAX_LMRS_NAMED
    return f"{len(behind):,} behind: {named}{f' and {more:,} more' if more > 0 else ''}"


def _unread(lmr: Item) -> str:
    if lmr["must_refetch"]:
        return "needs a snapshot"
    count = f"more than {lmr['events']:,}" if lmr["more"] else f"{lmr['events']:,}"
    return f"{count} event{'' if count == '1' else 's'}"


def _lmr_state(lmr: Item) -> str:
    if "problem" in lmr:
        return str(lmr["problem"])
    state = "up to date" if lmr["up_to_date"] else "catching up"
    if lmr["last_error"]:
        state = f"disconnected ({lmr['last_error']})"
    stale = f", {_rules(lmr['suspended_count'])} suspended" if lmr["suspended_count"] else ""
    return f"{state} at position {lmr['position']:,}, {lmr['resources']:,} resources{stale}"


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
