"""Settings, from the environment. One place, so that a table of them can be made."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable of the environment: how it is read, and what it is for."""

    variable: str
    default: Any
    help: str


SETTINGS: dict[str, Setting] = {
    "database_url": Setting("MDV_DATABASE_URL", "", "Postgres, as postgresql://user:password@host:port/database"),
    "redis_url": Setting("MDV_REDIS_URL", "", "Redis or Valkey, as redis://:password@host:port/0"),
    "admin_token": Setting("MDV_ADMIN_TOKEN", "", "a token that opens everything; others are made with `mdv token`"),
    "public_read": Setting("MDV_PUBLIC_READ", False, "true: reading needs no token"),
    "max_document_bytes": Setting("MDV_MAX_DOCUMENT_BYTES", 32 * 1024 * 1024, "the largest document accepted"),
    "max_wait_seconds": Setting("MDV_MAX_WAIT_SECONDS", 60, "the longest time that `Prefer: wait` may hold a call"),
    "body_seconds": Setting("MDV_BODY_SECONDS", 60, "the longest time that a request's body may take to arrive"),
    "feed_seconds": Setting("MDV_FEED_SECONDS", 7 * 86400, "how long feeds are kept for LMRs that do not ask"),
    "feed_events": Setting("MDV_FEED_EVENTS", 2_000_000, "how many events are kept for one LMR"),
    "mdp_url": Setting("MDV_URL", "", "of the MDP, as http://host:port: what an LMR and the commands speak to"),
    "lmr_token": Setting("MDV_LMR_TOKEN", "", "an LMR's own, made with `mdv lmr create`: opens its MDP and itself"),
    "lmr_store": Setting("MDV_LMR_STORE", "", "an LMR's cache, as sqlite:///path or postgresql://…"),
    "log_level": Setting("MDV_LOG_LEVEL", "info", "debug, info, warning or error"),
}


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
    feed_seconds: int
    feed_events: int
    mdp_url: str
    lmr_token: str
    lmr_store: str
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
    text = environment.get(setting.variable, "").strip()
    if not text:
        return setting.default
    if isinstance(setting.default, bool):
        if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
            raise SystemExit(f"{setting.variable} is {text!r}; it takes true or false.")
        return text.lower() in ("true", "1", "yes")
    if isinstance(setting.default, int):
        try:
            return int(text)
        except ValueError:
            raise SystemExit(f"{setting.variable} is {text!r}; it takes a whole number.") from None
    return text
