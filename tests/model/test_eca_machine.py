"""Event-condition-action rules over many transactions against the naive oracle."""

from __future__ import annotations

import pytest

from tests.support.eca_machine import EcaMachine
from tests.support.machines import run_machine
from tests.support.two_processes import System

pytestmark = pytest.mark.full


def test_transactions_with_rules_agree_with_the_oracle(system: System) -> None:
    run_machine(lambda: EcaMachine(system))
