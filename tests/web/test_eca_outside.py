"""Event-condition-action rules over HTTP against a checker that knows the specification alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mdv.embedded import Valkey
from tests.support.machines import model_examples
from tests.support.outside_checker import OutsideChecker
from tests.support.outside_execsched import Limits
from tests.support.server import Server, start_server, start_worker, stopping

pytestmark = pytest.mark.full

LIMITS = Limits(60, 40)
SETTINGS = {"MDV_ECA_STEPS": "60", "MDV_ECA_DEPTH": "40", "MDV_ECA_SECONDS": "60"}
SEEDS = model_examples(2)
STEPS = 40


@pytest.fixture
def limited(folder: Path, new_database: Callable[[], str], valkey: Valkey) -> Iterator[Server]:
    """A system with low limits, and its worker."""
    database = new_database()
    worker = start_worker(folder, database, valkey.url, **SETTINGS)
    with stopping(worker):
        server = start_server(folder, database, valkey.url, **SETTINGS)
        with stopping(server):
            yield server


def test_random_worlds_over_http_are_what_the_specification_says(limited: Server) -> None:
    compared: Counter[str] = Counter()
    for seed in range(SEEDS):
        OutsideChecker(limited.api().http, seed, LIMITS, compared).run(STEPS)
    assert compared["update"] and compared["put"] and compared["fired"], compared
