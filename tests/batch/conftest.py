"""One Spark for all tests of a process: a session costs seconds, a job a fraction of one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mdv.batch.session import session
from mdv.embedded import Postgres

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("cli", "model")]

from catalogues import SCHEMA
from systems_of_two import System, systems

if TYPE_CHECKING:
    from conftest import Mdp
    from pyspark.sql import SparkSession


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", "ignore:PySpark does not yet fully support pandas:FutureWarning")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session("local[2]") as running:
        yield running


@pytest.fixture
def other(postgres: Postgres, template: str, mdp: Mdp) -> Iterator[Mdp]:
    """A second MDP."""
    start: System = systems(type(mdp), postgres, template)
    with start() as (first, _):
        first.put_schema(SCHEMA)
        yield first
