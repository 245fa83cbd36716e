"""The benchmark of programs at tiny sizes: every round checks what the programs did."""

from __future__ import annotations

import json
from pathlib import Path

from mdv.bench.real import RealPlan, describe_figures, evaluate_real_goals, run_real
from mdv.bench.real_processes import KILLED, LINDA, RELAY, WOKEN
from mdv.bench.real_reads import JOIN, OXIGRAPH
from mdv.bench.report import as_json
from mdv.bench.report_page import write_report_page
from mdv.bench.sql.bench_store import BenchDatabases
from mdv.embedded import Postgres


def test_every_case_is_measured_and_compared_with_its_goal(postgres: Postgres, tmp_path: Path) -> None:
    plan = RealPlan(statements=20, effects=10, waiting=5, tasks=8, workers=3, rounds=1)
    shown: list[str] = []
    results = list(run_real(BenchDatabases(postgres.url), plan, shown.append))

    names = {result.name for result in results}
    assert {JOIN, WOKEN, LINDA, KILLED, RELAY} < names and len(names) == 13
    assert {peer for result in results for peer in result.peers} == {OXIGRAPH}
    assert all(result.ours_us > 0 and result.floor_us > 0 for result in results)
    goals = evaluate_real_goals(results)
    assert [goal.what for goal in goals if goal.measured is None] == [] and len(goals) == 13
    assert len(list(describe_figures(results))) == 3
    assert len(json.loads(as_json("mdv bench real", results))["results"]) == len(results) == 14
    (tmp_path / "real.json").write_text(as_json("mdv bench real", results, goals=[goal.as_dict() for goal in goals]))
    assert "Linda" in write_report_page(tmp_path).read_text("utf-8")
