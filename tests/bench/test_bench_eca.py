"""The benchmark of event-condition-action rules at tiny sizes: every round checks what the rules inserted."""

from __future__ import annotations

from mdv.bench.eca import (
    BULK,
    CASCADE,
    CLIPS,
    IDLE,
    ONE,
    SET,
    SILENT_RULES,
    TEN,
    TRIGGERS,
    WITHOUT,
    EcaPlan,
    evaluate_eca_goals,
    run_eca,
)
from mdv.bench.sql.bench_store import BenchDatabases
from mdv.embedded import Postgres


def test_every_case_is_measured_and_compared_with_its_goal(postgres: Postgres) -> None:
    plan = EcaPlan(rules=(20, 40), batches=(1, 5), rounds=1, chain=5, set_size=10, triggers=5)
    shown: list[str] = []
    results = list(run_eca(BenchDatabases(postgres.url), plan, shown.append))

    names = {result.name.partition(":")[0] for result in results}
    assert names == {WITHOUT, IDLE, SILENT_RULES, ONE, TEN, SET, CASCADE, BULK}
    assert {peer for result in results for peer in result.peers} == {CLIPS, TRIGGERS}
    assert all(result.ours_us > 0 or result.name in (SET, CASCADE) for result in results)
    goals = evaluate_eca_goals(results)
    assert {goal.what for goal in goals if goal.measured is None} == {
        f"{SILENT_RULES}, none fires / {WITHOUT}",
        "one fires / CLIPS in memory",
    }, "those at batches of 50 and 1,000"
