"""A running backbone of three MDPs: how soon a change can be read at another member, and how long local changes take
while a member catches up.

Times count from the answer of the member that has made the change, which is sent after its commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

from mdv.bench.goals import Goal
from mdv.bench.workload import SCHEMA, make_document
from mdv.client import Client
from mdv.config import Config
from mdv.db.engine import make_engine
from mdv.errors import MdvError, NotFound
from mdv.mdp.provider import Provider
from mdv.mdp.register import prepare, register
from mdv.system import System

PrintProgress = Callable[[str], None]

MEDIA_TYPE = "application/rdf+xml"
WAIT_SECONDS = 600.0
POLL_SECONDS = 0.1
FIRST_LOCAL, FIRST_BULK = 1_000_000, 2_000_000
"""Numbers of documents of their own for each part."""


@dataclass(frozen=True, slots=True)
class LivePlan:
    """What to measure. `behind`: how many documents the member lacks that catches up, in operations of `batch`."""

    changes: int = 100
    behind: int = 20_000
    batch: int = 200


@dataclass(slots=True)
class LiveFigures:
    """Seconds of each change. `catching_up_seconds`: how long it took to catch up."""

    readable: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    catching_up: list[float] = field(default_factory=list)
    behind: int = 0
    catching_up_seconds: float = 0.0


def run_live(systems: Sequence[System], plan: LivePlan, print_progress: PrintProgress) -> LiveFigures:
    """Measure the members of a new backbone. The first is the lead."""
    figures = LiveFigures()
    first, second, *others = mdps = [Client(system) for system in systems]
    try:
        first.put_schema(SCHEMA, "text/turtle")
        _until(lambda: all(_has_schema(mdp) for mdp in mdps))
        print_progress(f"{plan.changes} changes, until they can be read at another member")
        for number in range(plan.changes):
            figures.readable.append(_seconds_until_readable(first, second, number))
        print_progress(f"{plan.changes} local changes at rest")
        figures.alone = [_seconds_of_change(second, FIRST_LOCAL + number) for number in range(plan.changes)]
        print_progress(f"{plan.behind:,} documents that a member lacks")
        for peer in _names(second):
            second.change("PATCH", f"/backbone/members/{peer}", {"paused": True})
        _load(systems[0], plan)
        for other in others:
            _until(lambda other=other: _vector(other) == _vector(first))  # type: ignore[misc]
        _catch_up(first, second, figures, FIRST_LOCAL + plan.changes)
        _until(lambda: _vector(second) == _vector(first))
        figures.behind = plan.behind
        if len({str(mdp.get("/backbone/checksum")["sums"]) for mdp in mdps}) != 1:
            raise AssertionError("The members differ.")
    finally:
        for mdp in mdps:
            mdp.close()
    return figures


def _seconds_until_readable(first: Client, second: Client, number: int) -> float:
    uri, body = make_document(number)
    answer = first.register(uri, body, MEDIA_TYPE)
    began = time.perf_counter()
    if not second.get("/status", after=answer["token"], wait=30)["reached"]:
        raise AssertionError(f"{uri} has not arrived within 30 s")
    seconds = time.perf_counter() - began
    second.rdf("/documents", "application/n-triples", uri=uri)
    return seconds


def _seconds_of_change(mdp: Client, number: int) -> float:
    uri, body = make_document(number)
    began = time.perf_counter()
    mdp.register(uri, body, MEDIA_TYPE)
    return time.perf_counter() - began


def _load(system: System, plan: LivePlan) -> None:
    """Register documents in the database of a member, as a worker does."""
    engine = make_engine(system.database_url)
    provider = Provider.configured(engine, Config.from_environment({}))
    for first in range(FIRST_BULK, FIRST_BULK + plan.behind, plan.batch):
        with engine.begin() as connection:
            schema = provider.schemas.now(connection)
        numbers = range(first, min(first + plan.batch, FIRST_BULK + plan.behind))
        batch = [prepare(uri, body, MEDIA_TYPE, schema) for uri, body in map(make_document, numbers)]
        with engine.begin() as connection:
            register(connection, batch, provider)
    engine.dispose()


def _catch_up(first: Client, second: Client, figures: LiveFigures, number: int) -> None:
    """Let a member catch up, and change documents there meanwhile."""
    target = _vector(first)
    for peer in _names(second):
        second.change("PATCH", f"/backbone/members/{peer}", {"paused": False})
    began = time.monotonic()
    while time.monotonic() - began < WAIT_SECONDS:
        figures.catching_up.append(_seconds_of_change(second, number))
        number += 1
        have = _vector(second)
        if all(have.get(life, 0) >= seq for life, seq in target.items()):
            figures.catching_up_seconds = time.monotonic() - began
            return
    raise AssertionError(f"The member has not caught up within {WAIT_SECONDS:g} s")


def _vector(mdp: Client) -> dict[str, int]:
    return dict(mdp.get("/backbone")["vector"])


def _names(mdp: Client) -> list[str]:
    found = mdp.get("/backbone")
    return [one["name"] for one in found["members"] if one["name"] != found["name"]]


def _has_schema(mdp: Client) -> bool:
    try:
        return b"serverHost" in mdp.rdf("/schema", "text/turtle")
    except NotFound:
        return False


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise MdvError(f"The members did not come to rest within {WAIT_SECONDS:g} s.")
        time.sleep(POLL_SECONDS)


def percentile_95(seconds: Sequence[float]) -> float:
    """Return the 95th percentile.

    >>> round(percentile_95([number / 100 for number in range(1, 101)]), 2)
    0.96
    """
    return quantiles(seconds, n=20)[-1] if len(seconds) > 1 else seconds[0]


def evaluate_live_goals(figures: LiveFigures | None) -> list[Goal]:
    """Return the goals for a running backbone, in milliseconds; not measured without figures."""
    readable = figures.readable if figures is not None else []
    late = None
    at = "three MDPs on one machine"
    if figures is not None and figures.alone and figures.catching_up:
        late = 1000 * (percentile_95(figures.catching_up) - percentile_95(figures.alone))
        at = (
            f"{len(figures.catching_up)} changes during {figures.catching_up_seconds:.1f} s for"
            f" {figures.behind:,} documents; at rest {1000 * percentile_95(figures.alone):.0f} ms"
        )
    return [
        Goal("commit to readable elsewhere, idle, ms: median", most=50, at="three MDPs on one machine",
             measured=1000 * median(readable) if readable else None),
        Goal("commit to readable elsewhere, idle, ms: p95", most=200, at="three MDPs on one machine",
             measured=1000 * percentile_95(readable) if readable else None),
        Goal("local change while catching up, ms p95 more than at rest", most=100, measured=late, at=at),
    ]  # fmt: skip
