"""Fixtures of the state machines."""

from __future__ import annotations

import pytest

from mdv.embedded import Postgres
from tests.support.mdp import Mdp
from tests.support.two_processes import System, systems


@pytest.fixture
def system(mdp: Mdp, postgres: Postgres, template: str) -> System:
    """Return two processes on a new database for each call."""
    return systems(type(mdp), postgres, template)
