"""Run state machines: as tests that must pass, and against mutants that they must detect."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

STEPS = 25
MAX_MUTANT_EXAMPLES, MAX_SEEDS = 40, 5

_T = TypeVar("_T")


def model_examples(default: int) -> int:
    """Return the number of examples of a model test. `MDV_MODEL_EXAMPLES` overrides it for a longer search."""
    return int(os.environ.get("MDV_MODEL_EXAMPLES", default))


EXAMPLES = model_examples(6)


def run_machine(make: Callable[[], RuleBasedStateMachine], examples: int = EXAMPLES) -> None:
    """Run a state machine that must find no error. Examples that once failed are tried first."""
    _run(make, examples, phases=[Phase.reuse, Phase.generate])


def assert_mutant_is_detected(make: Callable[[], RuleBasedStateMachine], seed: int) -> None:
    """Run a state machine that must find an error. `seed` is one with which it finds it soon.

    What Hypothesis draws for a seed also depends on the constants in the code. So others are tried after it.
    """
    with pytest.raises(AssertionError):
        for other in range(seed, seed + MAX_SEEDS):
            _run(hypothesis.seed(other)(make), MAX_MUTANT_EXAMPLES, phases=[Phase.generate], database=None)


def _run(make: Callable[[], RuleBasedStateMachine], examples: int, **options: Any) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    profile = settings(
        max_examples=examples, stateful_step_count=STEPS, deadline=None, suppress_health_check=checks,
        report_multiple_bugs=False, **options,
    )  # fmt: skip
    run_state_machine_as_test(make, settings=profile)  # type: ignore[arg-type]


class Rotation:
    """Takes one element of a changing collection at a time, so that each has its turn."""

    def __init__(self) -> None:
        self._turn = -1

    def next_of(self, items: list[_T]) -> list[_T]:
        """Return a list with the next element, or the empty list."""
        self._turn += 1
        return [items[self._turn % len(items)]] if items else []
