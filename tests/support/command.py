"""The result of a command line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Ran:
    code: int
    out: str
    err: str
