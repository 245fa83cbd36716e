"""The benchmark of the backbone at tiny sizes: it compares the members after the first and the last round."""

from __future__ import annotations

from pathlib import Path

import pytest

from mdv.bench.adoption import run_adoption
from mdv.bench.backbone import APPLIED, SUMS, WITH_LOG, BackbonePlan, evaluate_backbone_goals, run_backbone
from mdv.bench.sql.bench_store import BenchDatabases
from mdv.embedded import Postgres
from mdv.mdp.replica_store import PostgresReplicaStore


def test_every_case_is_measured_and_compared_with_its_goal(postgres: Postgres) -> None:
    plan = BackbonePlan(batches=(1, 10), rounds=1, documents=200)
    figures = run_backbone(BenchDatabases(postgres.url), plan, lambda _: None)
    assert [(one.name, one.batch) for one in figures.results] == [
        (WITH_LOG, 1), (APPLIED, 1), (WITH_LOG, 10), (APPLIED, 10), (SUMS, 200),
    ]  # fmt: skip
    assert figures.log_bytes.keys() == {1, 10} and figures.log_bytes[1] > figures.log_bytes[10] > 0
    unmeasured = {goal.at for goal in evaluate_backbone_goals(figures) if goal.measured is None}
    assert unmeasured == {"batches of 100", "batches of 1,000"}


def test_members_that_differ_are_reported(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    original = PostgresReplicaStore.write
    monkeypatch.setattr(
        PostgresReplicaStore, "write",
        lambda self, uri, document, states: original(self, uri, document._replace(version=9), states),
    )  # fmt: skip
    with pytest.raises(AssertionError, match="The two members differ"):
        run_backbone(BenchDatabases(postgres.url), BackbonePlan(batches=(1,), rounds=1, documents=1), lambda _: None)


def test_an_adoption_fetches_less_than_a_snapshot(postgres: Postgres, tmp_path: Path) -> None:
    none, one, snapshot = run_adoption(BenchDatabases(postgres.url), tmp_path, 40, (0, 1), lambda _: None)
    assert (none.resources, none.buckets) == (80, 0) and snapshot.resources == 80
    assert one.buckets == 1
    assert none.size < one.size < snapshot.size
