"""One Spark for all tests of a process: a session costs seconds, a job a fraction of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from mdv.batch.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session("local[2]") as running:
        yield running
