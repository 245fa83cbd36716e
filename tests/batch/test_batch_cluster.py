"""`mdv batch` on a real cluster: a master and two workers whose Python has no packages installed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mdv.batch.executor_packages import build_archive
from tests.support.catalogues import BASE, FLAWED, SCHEMA, catalogue, write
from tests.support.eventually import eventually
from tests.support.listed_documents import register_one_by_one
from tests.support.mdp import Mdp
from tests.support.mdp_content import assert_alike
from tests.support.spark_cluster import Cluster, standalone
from tests.support.whole_system import MDV

SPARK_SUBMIT = Path(sys.executable).with_name("spark-submit")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def test_a_run_on_bare_executors_survives_a_killed_executor(
    cluster: Cluster, mdp: Mdp, other: Mdp, database_url: str, tmp_path: Path
) -> None:
    bare = subprocess.run([cluster.python, "-c", "import pyarrow"], capture_output=True, text=True)
    assert "ModuleNotFoundError" in bare.stderr
    mdp.put_schema(SCHEMA)
    files = catalogue(400)
    folder = write(files | {name: text.encode() for name, text in FLAWED.items()}, tmp_path / "documents")
    argv = [str(MDV), "batch", str(folder), "--uri-base", BASE, "--json", "--master", cluster.url]
    argv += [*cluster.conf, "--rejects", str(tmp_path / "rejects")]
    killed: list[int] = []

    def strike() -> None:
        prepared = "select coalesce(sum(prepared), 0) from batch_partitions"
        eventually(lambda: mdp.one(prepared) > 0, 120)
        for pid in cluster.executors()[:1]:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    striking = threading.Thread(target=strike)
    striking.start()
    environment = cluster.environment | {"MDV_DATABASE_URL": database_url}
    ended = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=240)
    striking.join()
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert killed
    assert (found["registered"], found["refused"], found["documents"]) == (400, len(FLAWED), 400 + len(FLAWED))
    register_one_by_one(other, files)
    assert_alike(mdp.engine, other.engine)


def test_spark_submit_runs_with_a_prebuilt_archive(
    cluster: Cluster, mdp: Mdp, database_url: str, tmp_path: Path
) -> None:
    mdp.put_schema(SCHEMA)
    folder = write(catalogue(20), tmp_path / "documents")
    build_archive(tmp_path / "ready.tar.gz")
    script = subprocess.run([str(MDV), "batch", "--script"], capture_output=True, text=True, check=True).stdout.strip()
    argv = [str(SPARK_SUBMIT), "--master", cluster.url, "--archives", f"{tmp_path / 'ready.tar.gz'}#mdv-packages"]
    argv += [
        *cluster.conf,
        "--conf",
        "spark.cores.max=1",
        "--conf",
        "spark.sql.files.openCostInBytes=7",
        script,
        str(folder),
        "--uri-base",
        BASE,
        "--json",
    ]
    environment = cluster.environment | {"MDV_DATABASE_URL": database_url, "PYSPARK_DRIVER_PYTHON": sys.executable}
    ended = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1])["registered"] == 20
    assert mdp.one("select count(*) from documents where present") == 20
