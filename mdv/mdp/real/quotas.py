"""The quotas of processes, from the settings."""

from __future__ import annotations

from typing import NamedTuple

from mdv.config import Config
from mdv.real.events import ProgramLimits


class ProcessQuotas(NamedTuple):
    """Limits of processes. A process that exceeds one fails, and its problem names the limit.

    `seconds`: of CPU. `family`: live processes that descend from one, with itself. `processes`: live processes of one
    caller. `calls`: calls of services a minute. `actions`: prefixes of the documents whose actions may be called; None:
    any. `services`: prefixes of the endpoints that may be called.
    """

    steps: int = 10_000_000
    seconds: float = 60.0
    effects: int = 1_000_000
    solutions: int = 1_000_000
    depth: int = 1000
    family: int = 1000
    processes: int = 10_000
    calls: int = 100
    actions: tuple[str, ...] | None = None
    services: tuple[str, ...] = ()

    @classmethod
    def configured(cls, config: Config) -> ProcessQuotas:
        """Return the quotas of the settings."""
        return cls(
            config.real_steps, config.real_seconds, config.real_effects, config.real_solutions, config.real_depth,
            config.real_family, config.real_processes, config.real_calls, config.real_actions or None,
            config.real_services,
        )  # fmt: skip

    @property
    def limits(self) -> ProgramLimits:
        """The limits that the machine checks."""
        return ProgramLimits(self.steps, self.effects, self.solutions, self.depth)


DEFAULT_QUOTAS = ProcessQuotas()
