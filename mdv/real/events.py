"""What a machine reports to its host, and the settings of a process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from mdv.model import Term
from mdv.real.store import (
    ScopedRead,
)
from mdv.rules.ast import Span


@dataclass(frozen=True, slots=True)
class SolutionFound:
    """A solution of the program. To run on asks for the next one."""

    binding: Mapping[str, Term]


@dataclass(frozen=True, slots=True)
class StepsUsed:
    """The given number of steps is used up."""


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """The program waits until a read may have another result, or a deadline (seconds since 1970).

    `takes`: it waits for statements that it takes, so one new statement needs to wake only one process. `is_retry`: it
    waited in `[ ]`, so it was taken back to the beginning of the segment.
    """

    reads: tuple[ScopedRead, ...]
    deadline: float | None = None
    takes: bool = False
    is_retry: bool = False


@dataclass(frozen=True, slots=True)
class ServiceCalled:
    """The program calls a service. It goes on when the answer is stored. `text`: the text that the span is in."""

    request: str
    span: Span | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class ProgramEnded:
    """There are no more solutions."""


@dataclass(frozen=True, slots=True)
class ProgramFailed:
    """An error ended the program. `limit`: the quota that was exceeded. `text`: the text that the span is in."""

    message: str
    span: Span | None = None
    text: str = ""
    limit: str | None = None


MachineEvent: TypeAlias = SolutionFound | StepsUsed | WaitingFor | ServiceCalled | ProgramEnded | ProgramFailed


@dataclass(frozen=True, slots=True)
class ProgramLimits:
    """Quotas of one process. The time and the number of processes are the host's."""

    steps: int = 10_000_000
    effects: int = 1_000_000
    solutions: int = 1_000_000
    depth: int = 1000
    """Calls that have not returned. Tail calls do not count."""
    choices: int = 100_000


@dataclass(frozen=True, slots=True)
class MachineSettings:
    """What is fixed for a process. `seed`: makes its fresh names unique. `into`: where the default context writes.
    `actions`: prefixes of the documents whose actions may be run; None: any."""

    process: str = "urn:mdv:real:process/0"
    into: str = "urn:mdv:real:anonymous"
    seed: str = "0"
    is_read_only: bool = False
    limits: ProgramLimits = ProgramLimits()
    actions: tuple[str, ...] | None = None
