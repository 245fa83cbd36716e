"""The polling helper of the tests returns the awaited value, or raises with a description of it."""

from __future__ import annotations

import pytest

from tests.support.eventually import eventually


def test_the_first_truthy_value_is_returned() -> None:
    values = iter([None, "", [], "found"])
    assert eventually(lambda: next(values), interval=0) == "found"


def test_a_condition_that_never_holds_is_named_in_the_error() -> None:
    with pytest.raises(AssertionError) as raised:
        eventually(lambda: "the moon is blue" == "", timeout=0, interval=0, detail=lambda: "it is white")
    message = str(raised.value)
    assert "the moon is blue" in message and "last value: False" in message and message.endswith("it is white")
    assert "test_eventually.py:" in message
