"""Values that the last writer decides: rules and locks, by key.

A register has the hybrid time and the life of the change that wrote it. The later one wins, at every member. A value of
None was removed; it is kept, so that an earlier change that arrives later does not bring it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mdv.backbone.vector import Life


class Register(NamedTuple):
    """The value of a key, when it was written, and in which life."""

    at: int
    life: Life
    value: Any

    def is_later_than(self, other: Register | None) -> bool:
        """True if this value replaces another.

        >>> Register(7, "b", "x").is_later_than(Register(7, "a", "y"))
        True
        """
        return other is None or self[:2] > other[:2]


Registers = Mapping[str, Register]


def later_registers(given: Registers, stored: Registers) -> dict[str, Register]:
    """Return the given registers that replace what is stored."""
    return {key: one for key, one in given.items() if one.is_later_than(stored.get(key))}


def registers_to_json(registers: Registers) -> dict[str, list[Any]]:
    """
    >>> registers_from_json(registers_to_json({"k": Register(7, "a", None)}))
    {'k': Register(at=7, life='a', value=None)}
    """
    return {key: list(one) for key, one in registers.items()}


def registers_from_json(given: Mapping[str, Any]) -> dict[str, Register]:
    return {key: Register(at, life, value) for key, (at, life, value) in given.items()}
