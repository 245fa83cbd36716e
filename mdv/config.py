"""Settings, from the environment. One place, so that a table of them can be made."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

MANY = 2**53
"""More than anybody has, and still exact wherever numbers are read."""
DAY, CENTURY = 86400, 36525 * 86400

MOST_FILE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable of the environment: how it is read, and what it is for. Numbers have bounds."""

    variable: str
    default: Any
    help: str
    least: int = 1
    most: int = MANY


SETTINGS: dict[str, Setting] = {
    "database_url": Setting("MDV_DATABASE_URL", "", "Postgres, as postgresql://user:password@host:port/database"),
    "redis_url": Setting("MDV_REDIS_URL", "", "Redis or Valkey, as redis://:password@host:port/0"),
    "admin_token": Setting("MDV_ADMIN_TOKEN", "", "a token that opens everything; others are made with `mdv token`"),
    "public_read": Setting("MDV_PUBLIC_READ", False, "true: reading needs no token"),
    "max_document_bytes": Setting("MDV_MAX_DOCUMENT_BYTES", 32 * 1024 * 1024, "the largest document accepted"),
    "max_wait_seconds": Setting(
        "MDV_MAX_WAIT_SECONDS", 60, "the longest time that `Prefer: wait` may hold a call", 0, DAY
    ),
    "body_seconds": Setting(
        "MDV_BODY_SECONDS", 60, "the longest time that a request's body may take to arrive", 1, DAY
    ),
    "max_waiting": Setting("MDV_MAX_WAITING", 10_000, "jobs that may wait; beyond, changes are refused with 429"),
    "max_waiting_bytes": Setting("MDV_MAX_WAITING_BYTES", 1024**3, "the texts of jobs that may wait, likewise"),
    "job_limit_seconds": Setting(
        "MDV_JOB_LIMIT_SECONDS", 300, "the longest time that a worker may take for a batch", 5, DAY
    ),
    "keep_jobs_seconds": Setting(
        "MDV_KEEP_JOBS_SECONDS", 7 * 86400, "how long ended jobs, and their keys, are kept", 1, CENTURY
    ),
    "feed_seconds": Setting(
        "MDV_FEED_SECONDS", 7 * 86400, "how long feeds are kept for LMRs that do not ask", 1, CENTURY
    ),
    "feed_events": Setting("MDV_FEED_EVENTS", 2_000_000, "how many events are kept for one LMR"),
    "webhook_private": Setting("MDV_WEBHOOK_PRIVATE", False, "true: webhooks may be at addresses of private networks"),
    "mdp_url": Setting("MDV_URL", "", "of the MDP, as http://host:port: what an LMR and the commands speak to"),
    "lmr_token": Setting("MDV_LMR_TOKEN", "", "an LMR's own, made with `mdv lmr create`: opens its MDP and itself"),
    "lmr_store": Setting("MDV_LMR_STORE", "", "an LMR's cache, as sqlite:///path or postgresql://…"),
    "worker_metrics": Setting("MDV_WORKER_METRICS", "", "where a worker tells its figures, as 0.0.0.0:9464"),
    "log_level": Setting("MDV_LOG_LEVEL", "info", "debug, info, warning or error"),
}

COMMAND_SETTINGS: tuple[Setting, ...] = (
    Setting("MDV_DATA", ".mdv", "the folder of the `mdv up` that a command speaks to"),
    Setting("MDV_TOKEN", "", "what opens the MDP at MDV_URL to a command"),
    Setting("MDV_LMR_URL", "", "the LMR that a command speaks to; `MDV_LMR_TOKEN` opens it"),
    Setting("MDV_UP_WORKERS", 2, "how many processes carry out jobs under `mdv up`"),
    Setting("MDV_UP_WEB", 1, "how many processes answer calls under `mdv up`"),
    Setting("MDV_DEBUG", "", "1: an error shows where in the code it arose"),
    Setting("MDV_DIE_AT", "", "for tests: a process dies at a named point of a registration, as after the store:3"),
)
"""What the command line reads besides, where it is told from outside what to speak to."""


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one process."""

    database_url: str
    redis_url: str
    admin_token: str
    public_read: bool
    max_document_bytes: int
    max_wait_seconds: int
    body_seconds: int
    max_waiting: int
    max_waiting_bytes: int
    job_limit_seconds: int
    keep_jobs_seconds: int
    feed_seconds: int
    feed_events: int
    webhook_private: bool
    mdp_url: str
    lmr_token: str
    lmr_store: str
    worker_metrics: str
    log_level: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Config:
        """Read every setting.

        >>> Config.from_environment({"MDV_PUBLIC_READ": "true"}).public_read
        True
        """
        environment = os.environ if environment is None else environment
        values = {f.name: _read(SETTINGS[f.name], environment) for f in fields(cls)}
        return cls(**values)


def _read(setting: Setting, environment: Mapping[str, str]) -> Any:
    text = read_variable(setting.variable, environment)
    if not text:
        return setting.default
    if isinstance(setting.default, bool):
        if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
            raise SystemExit(f"{setting.variable} is {text!r}; it takes true or false.")
        return text.lower() in ("true", "1", "yes")
    if isinstance(setting.default, int):
        return _read_number(setting, text)
    return text


def _read_number(setting: Setting, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise SystemExit(f"{setting.variable} is {text!r}; it takes a whole number.") from None
    if not setting.least <= number <= setting.most:
        raise SystemExit(f"{setting.variable} is {text}; it takes a number from {setting.least} to {setting.most}.")
    return number


def read_variable(variable: str, environment: Mapping[str, str]) -> str:
    """A variable's text, or that of the file which VARIABLE_FILE names: a secret need not stand in the environment.

    >>> read_variable("MDV_URL", {"MDV_URL": " http://mdp.example "})
    'http://mdp.example'
    """
    text = environment.get(variable, "").strip()
    name = environment.get(f"{variable}_FILE", "").strip()
    if text or not name:
        return text
    try:
        return _read_file(Path(name)).strip()
    except (OSError, ValueError) as error:
        raise SystemExit(f"{variable}_FILE is {name!r}, which cannot be read: {error}.") from None


def _read_file(path: Path) -> str:
    # A setting is read by several processes, more than once: a pipe would tell it to the first alone, or to nobody.
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is not a plain file")
    with path.open("rb") as file:
        text = file.read(MOST_FILE_BYTES + 1)
    if len(text) > MOST_FILE_BYTES:
        raise ValueError(f"it holds more than {MOST_FILE_BYTES // 1024} KiB")
    return text.decode("utf-8")
