"""The cost of programs in ReAL, relative to bare SQL, to pyoxigraph in memory, and to a queue with SKIP LOCKED."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mdv.bench.goals import Goal
from mdv.bench.real_processes import (
    EFFECTS,
    EFFECTS_WITH_RULES,
    ELSEWHERE,
    KILLED,
    LINDA,
    ON_WATCHED,
    ONE_EFFECT,
    RELAY,
    WOKEN,
    measure_effects,
    measure_killed_worker,
    measure_linda,
    measure_relay,
    measure_waits,
)
from mdv.bench.real_reads import JOIN, OXIGRAPH, STREAM, STREAM_BEST, STREAM_NDJSON, measure_reads
from mdv.bench.report import BenchResult
from mdv.bench.sql.bench_store import BenchDatabases

PrintProgress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RealPlan:
    """What to measure. `statements`: of a streamed read. `effects`: of a slice. `waiting`: processes. `tasks` and
    `workers`: of the work that is handed over."""

    statements: int = 20_000
    effects: int = 1000
    waiting: int = 10_000
    tasks: int = 1000
    workers: int = 10
    rounds: int = 9


def run_real(databases: BenchDatabases, plan: RealPlan, print_progress: PrintProgress) -> Iterator[BenchResult]:
    """Run the measurements. Each result has the cost of what it is compared with as its floor."""
    with databases.new() as engine:
        yield from measure_reads(engine, plan.statements, plan.rounds, print_progress)
    yield from measure_effects(databases, plan.effects, plan.rounds, print_progress)
    yield measure_linda(databases, plan.tasks, plan.workers, plan.rounds, print_progress)
    yield measure_killed_worker(databases, plan.effects, plan.rounds, print_progress)
    yield from measure_waits(databases, plan.waiting, plan.rounds, print_progress)
    yield measure_relay(databases, plan.waiting, print_progress)


def evaluate_real_goals(results: Sequence[BenchResult]) -> list[Goal]:
    """Return the goals for programs with the measured values."""
    return list(_goals(results))


def _goals(results: Sequence[BenchResult]) -> Iterator[Goal]:
    def find(name: str) -> BenchResult | None:
        """Return the result with this name, of the largest size."""
        return max((one for one in results if one.name == name), key=lambda one: one.rules, default=None)

    def ratio(name: str, most: float) -> Goal:
        found = find(name)
        return Goal(name, most, measured=None if found is None else found.ratio, at=_at(found))

    yield from (ratio(name, most) for name, most in ((STREAM, 1.3), (STREAM_BEST, 2), (STREAM_NDJSON, 4), (JOIN, 2.5)))
    join = find(JOIN)
    against = None if join is None else join.ours_us / join.peers[OXIGRAPH]
    yield Goal("AND of two / pyoxigraph in memory", 5, measured=against, at=_at(join))
    yield from (ratio(name, most) for name, most in ((EFFECTS, 3), (EFFECTS_WITH_RULES, 5), (ONE_EFFECT, 2.5)))
    yield ratio(WOKEN, 3)
    woken = sorted((one for one in results if one.name == WOKEN), key=lambda one: one.rules)
    grown = woken[-1].ours_us / woken[0].ours_us if len(woken) > 1 else None
    yield Goal("growth of a wake-up with the waiting processes", 1.2, measured=grown, at=_at(find(WOKEN)))
    yield from (ratio(name, most) for name, most in ((ELSEWHERE, 1.02), (ON_WATCHED, 1.2), (LINDA, 10)))


def describe_figures(results: Sequence[BenchResult]) -> Iterator[tuple[str, str]]:
    """Yield figures without a goal: their names and texts."""
    for one in results:
        if one.name == RELAY:
            yield f"{one.rules:,} waiting processes woken one by one", f"{one.rules * one.ours_us / 1e6:,.1f} s"
        if one.name == KILLED:
            yield f"slice of {one.batch:,} effects after a killed worker", f"{one.ours_us / 1e3:,.0f} ms"
            yield "the same slice without a kill", f"{one.floor_us / 1e3:,.0f} ms"


def _at(found: BenchResult | None) -> str:
    if found is None:
        return ""
    processes = f"{found.rules:,} processes" if found.rules else ""
    return ", ".join(part for part in (processes, f"{found.batch:,} at once" if found.batch > 1 else "") if part)
