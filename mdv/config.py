"""Settings from environment variables. The tables of settings in the documentation are generated from this file."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, fields
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any

Network = IPv4Network | IPv6Network

MAX_NUMBER = 2**53
"""Upper bound of numbers without another one: the largest integer that JSON readers keep exact."""
DAY_SECONDS, CENTURY_SECONDS = 86400, 36525 * 86400

MAX_SETTING_FILE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable: its default, its description, the bounds of a number, and the choices of a word.
    `is_prefixes`: a list of URI prefixes, otherwise a list is one of networks."""

    variable: str
    default: Any
    help: str
    minimum: float = 1
    maximum: int = MAX_NUMBER
    choices: tuple[str, ...] = ()
    is_prefixes: bool = False


COMMUTE, CASCADE = "commute", "cascade"
"""The values of MDV_ECA_READERS."""

SETTINGS: dict[str, Setting] = {
    "database_url": Setting("MDV_DATABASE_URL", "", "URL of Postgres: postgresql://user:password@host:port/database"),
    "redis_url": Setting("MDV_REDIS_URL", "", "URL of Redis or Valkey: redis://:password@host:port/0"),
    "admin_token": Setting("MDV_ADMIN_TOKEN", "", "token with all permissions; `mdv token` creates others"),
    "public_read": Setting("MDV_PUBLIC_READ", False, "true: reading requires no token"),
    "max_document_bytes": Setting("MDV_MAX_DOCUMENT_BYTES", 32 * 1024 * 1024, "maximum size of a document"),
    "max_wait_seconds": Setting(
        "MDV_MAX_WAIT_SECONDS", 60, "maximum time that a request with `Prefer: wait` waits for its job", 0, DAY_SECONDS
    ),
    "body_seconds": Setting("MDV_BODY_SECONDS", 60, "maximum time for the body of a request to arrive", 1, DAY_SECONDS),
    "max_waiting": Setting(
        "MDV_MAX_WAITING", 10_000, "maximum number of waiting jobs; further changes are refused with 429"
    ),
    "max_waiting_bytes": Setting(
        "MDV_MAX_WAITING_BYTES", 1024**3, "maximum total size of waiting jobs; further changes are refused with 429"
    ),
    "job_limit_seconds": Setting(
        "MDV_JOB_LIMIT_SECONDS", 300, "maximum time of a worker for one batch of jobs", 5, DAY_SECONDS
    ),
    "rule_seconds": Setting(
        "MDV_RULE_SECONDS",
        2.0,
        "maximum time of a rule in one transaction; a rule that takes longer is suspended",
        0.01,
        DAY_SECONDS,
    ),
    "eca_steps": Setting(
        "MDV_ECA_STEPS",
        10_000,
        "maximum number of updates in one run of event-condition-action rules, and of detached copies that one change"
        " causes",
    ),
    "eca_depth": Setting(
        "MDV_ECA_DEPTH", 1_000, "maximum number of event-condition-action rules that trigger each other in a chain"
    ),
    "eca_seconds": Setting(
        "MDV_ECA_SECONDS",
        10.0,
        "maximum time of the event-condition-action rules of one transaction",
        0.01,
        DAY_SECONDS,
    ),
    "eca_readers": Setting(
        "MDV_ECA_READERS",
        COMMUTE,
        "what a compensation does about later rules that read what it undoes: `commute` leaves them, `cascade`"
        " compensates them, too",
        choices=(COMMUTE, CASCADE),
    ),
    "real_steps": Setting("MDV_REAL_STEPS", 10_000_000, "maximum number of steps of a process"),
    "real_seconds": Setting("MDV_REAL_SECONDS", 60.0, "maximum CPU time of a process, in seconds", 0.01, DAY_SECONDS),
    "real_effects": Setting("MDV_REAL_EFFECTS", 1_000_000, "maximum number of effects of a process"),
    "real_solutions": Setting("MDV_REAL_SOLUTIONS", 1_000_000, "maximum number of solutions of a process"),
    "real_depth": Setting("MDV_REAL_DEPTH", 1_000, "maximum number of nested calls of a process"),
    "real_family": Setting(
        "MDV_REAL_FAMILY", 1_000, "maximum number of live processes that descend from one, with itself"
    ),
    "real_processes": Setting("MDV_REAL_PROCESSES", 10_000, "maximum number of live processes of one caller"),
    "real_calls": Setting("MDV_REAL_CALLS", 100, "maximum number of calls of services by a process in a minute"),
    "real_actions": Setting(
        "MDV_REAL_ACTIONS",
        (),
        "comma-separated URI prefixes of the documents whose actions programs may run; default: any document",
        is_prefixes=True,
    ),
    "real_services": Setting(
        "MDV_REAL_SERVICES",
        (),
        "comma-separated URI prefixes of the services that programs may call; default: none",
        is_prefixes=True,
    ),
    "real_service_secret": Setting(
        "MDV_REAL_SERVICE_SECRET",
        "",
        "key that signs requests to services, as for webhooks: `whsec_` and a key in base64",
    ),
    "keep_jobs_seconds": Setting(
        "MDV_KEEP_JOBS_SECONDS",
        7 * 86400,
        "how long ended jobs and their idempotency keys are kept",
        1,
        CENTURY_SECONDS,
    ),
    "feed_seconds": Setting(
        "MDV_FEED_SECONDS", 7 * 86400, "how long feeds are kept for LMRs that do not read them", 1, CENTURY_SECONDS
    ),
    "feed_events": Setting("MDV_FEED_EVENTS", 2_000_000, "maximum number of events kept for one LMR"),
    "feed_event_statements": Setting(
        "MDV_FEED_EVENT_STATEMENTS",
        10_000,
        "maximum number of statements in one event; a larger resource is sent as several events",
        1,
        10**6,
    ),
    "webhook_private": Setting("MDV_WEBHOOK_PRIVATE", False, "true: webhook URLs may be in private networks"),
    "trusted_proxies": Setting(
        "MDV_TRUSTED_PROXIES",
        (),
        "comma-separated addresses and networks of trusted proxies, for example `127.0.0.1, 10.0.0.0/8`; only their"
        " `X-Forwarded-For` and `X-Forwarded-Proto` headers are used",
    ),
    "backbone_relay_seconds": Setting(
        "MDV_BACKBONE_RELAY_SECONDS",
        5.0,
        "if a member of the backbone was not heard of for this long, the others are asked for its changes",
        0.1,
        DAY_SECONDS,
    ),
    "backbone_check_seconds": Setting(
        "MDV_BACKBONE_CHECK_SECONDS",
        3600.0,
        "how often the documents are compared with those of the other members of the backbone; 0: never",
        0,
        30 * DAY_SECONDS,
    ),
    "backbone_plain": Setting(
        "MDV_BACKBONE_PLAIN", False, "true: members of the backbone may use http:// in a private network"
    ),
    "backbone_transport": Setting(
        "MDV_BACKBONE_TRANSPORT",
        "http",
        "how operations of other members arrive: `http`, or `postgres` for logical replication of their logs",
        choices=("http", "postgres"),
    ),
    "backbone_databases": Setting(
        "MDV_BACKBONE_DATABASES",
        "",
        "with `postgres`: the databases of other members as NAME=URL, separated by spaces; others are reached by HTTP",
    ),
    "mdp_url": Setting(
        "MDV_URL",
        "",
        "URL of the MDP that an LMR and the commands use: http://host:port; for an LMR also those of other members of"
        " the backbone, separated by commas, in the order in which they are preferred as its home",
    ),
    "lmr_home_seconds": Setting(
        "MDV_LMR_HOME_SECONDS",
        30.0,
        "if the home of an LMR does not answer for this long, the LMR asks the other members of the backbone",
        0.1,
        DAY_SECONDS,
    ),
    "lmr_patience": Setting(
        "MDV_LMR_PATIENCE",
        300.0,
        "if no member has had all changes of the cache of an LMR for this long, the LMR accepts an older state",
        0,
        DAY_SECONDS,
    ),
    "lmr_token": Setting(
        "MDV_LMR_TOKEN", "", "token of an LMR, created with `mdv lmr create`; valid at its MDP and at the LMR"
    ),
    "lmr_store": Setting("MDV_LMR_STORE", "", "URL of the cache of an LMR: sqlite:///path or postgresql://…"),
    "worker_metrics": Setting(
        "MDV_WORKER_METRICS", "", "address where a worker serves its metrics, for example 0.0.0.0:9464"
    ),
    "log_level": Setting("MDV_LOG_LEVEL", "info", "log level: debug, info, warning or error"),
}

COMMAND_SETTINGS: tuple[Setting, ...] = (
    Setting("MDV_DATA", ".mdv", "data folder of the `mdv up` that the commands use"),
    Setting("MDV_TOKEN", "", "token that the commands send to the MDP at MDV_URL"),
    Setting("MDV_LMR_URL", "", "URL of the LMR that the commands use, with the token in `MDV_LMR_TOKEN`"),
    Setting("MDV_UP_WORKERS", 2, "number of worker processes under `mdv up`"),
    Setting("MDV_UP_WEB", 1, "number of web server processes under `mdv up`"),
    Setting("MDV_DEBUG", "", "1: print a traceback with every error"),
    Setting("MDV_DIE_AT", "", "for tests: kill the process at a failpoint, for example after the store:3"),
)
"""Settings that only the command line reads."""


@dataclass(frozen=True, slots=True)
class Config:
    """The values of all settings, as one process reads them."""

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
    rule_seconds: float
    eca_steps: int
    eca_depth: int
    eca_seconds: float
    eca_readers: str
    real_steps: int
    real_seconds: float
    real_effects: int
    real_solutions: int
    real_depth: int
    real_family: int
    real_processes: int
    real_calls: int
    real_actions: tuple[str, ...]
    real_services: tuple[str, ...]
    real_service_secret: str
    keep_jobs_seconds: int
    feed_seconds: int
    feed_events: int
    feed_event_statements: int
    webhook_private: bool
    trusted_proxies: tuple[Network, ...]
    backbone_relay_seconds: float
    backbone_check_seconds: float
    backbone_plain: bool
    backbone_transport: str
    backbone_databases: str
    mdp_url: str
    lmr_home_seconds: float
    lmr_patience: float
    lmr_token: str
    lmr_store: str
    worker_metrics: str
    log_level: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Config:
        """Read every setting. `SystemExit` with a message if a value is invalid.

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
            raise SystemExit(f"{setting.variable} is {text!r}; it must be true or false.")
        return text.lower() in ("true", "1", "yes")
    if isinstance(setting.default, int | float):
        return _read_number(setting, text)
    if isinstance(setting.default, tuple):
        return _read_prefixes(setting, text) if setting.is_prefixes else _read_networks(setting, text)
    if setting.choices and text not in setting.choices:
        raise SystemExit(f"{setting.variable} is {text!r}; it must be {' or '.join(setting.choices)}.")
    return text


def _read_number(setting: Setting, text: str) -> float:
    kind, name = (int, "a whole number") if isinstance(setting.default, int) else (float, "a number")
    try:
        number = kind(text)
    except ValueError:
        raise SystemExit(f"{setting.variable} is {text!r}; it must be {name}.") from None
    if not setting.minimum <= number <= setting.maximum:
        raise SystemExit(
            f"{setting.variable} is {text}; it must be a number from {setting.minimum} to {setting.maximum}."
        )
    return number


def _read_networks(setting: Setting, text: str) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise SystemExit(
            f"{setting.variable} is {text!r}; it must be a comma-separated list of IP addresses and networks: {error}."
        ) from None


def _read_prefixes(setting: Setting, text: str) -> tuple[str, ...]:
    prefixes = tuple(part.strip() for part in text.split(",") if part.strip())
    if wrong := next((prefix for prefix in prefixes if ":" not in prefix), None):
        raise SystemExit(f"{setting.variable} contains {wrong!r}; it must be a comma-separated list of URI prefixes.")
    return prefixes


def read_variable(variable: str, environment: Mapping[str, str]) -> str:
    """Return the value of a variable, or the content of the file that VARIABLE_FILE names, stripped.

    A file keeps secrets out of the environment.

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
        raise SystemExit(f"{variable}_FILE is {name!r}. The file cannot be read: {error}.") from None


def _read_file(path: Path) -> str:
    # Several processes read a setting, some more than once. A pipe would give it only to the first reader.
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is not a regular file")
    with path.open("rb") as file:
        text = file.read(MAX_SETTING_FILE_BYTES + 1)
    if len(text) > MAX_SETTING_FILE_BYTES:
        raise ValueError(f"it is larger than {MAX_SETTING_FILE_BYTES // 1024} KiB")
    return text.decode("utf-8")
