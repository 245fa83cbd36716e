"""One Spark session per test process: starting a session takes seconds, a job a fraction of a second."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from mdv.batch.session import spark_session
from mdv.embedded import Postgres
from tests.support.catalogues import SCHEMA
from tests.support.mdp import Mdp
from tests.support.tiers import check_may_start
from tests.support.two_processes import System, systems

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", "ignore:PySpark does not yet fully support pandas:FutureWarning")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    check_may_start("Spark")
    with spark_session("local[2]") as running:
        yield running


@pytest.fixture
def other(postgres: Postgres, template: str, mdp: Mdp) -> Iterator[Mdp]:
    """A second MDP."""
    start: System = systems(type(mdp), postgres, template)
    with start() as (first, _):
        first.put_schema(SCHEMA)
        yield first
