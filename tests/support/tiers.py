"""The tiers of the suite: `make test-quick` starts no other programs than Postgres and Valkey."""

from __future__ import annotations

import os

QUICK_VARIABLE = "MDV_TESTS_QUICK"
"""Set in the environment while the quick tier runs."""


def check_may_start(program: str) -> None:
    """Raise an error in the quick tier. A test that needs the program is marked `full`."""
    if QUICK_VARIABLE in os.environ:
        raise RuntimeError(f"The quick tier does not start {program}. Mark this test with `pytest.mark.full`.")
