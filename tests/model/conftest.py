"""Fixtures of the state machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from systems_of_two import System, systems

from mdv.embedded import Postgres

if TYPE_CHECKING:
    from conftest import Mdp


@pytest.fixture
def system(mdp: Mdp, postgres: Postgres, template: str) -> System:
    """Two processes on a new database, each time that it is called."""
    return systems(type(mdp), postgres, template)
