"""`mdv doctor`: check every part of a system, and advise how to fix problems."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mdv.cli.command import ExampleCommand, data_folder, data_option, json_option
from mdv.cli.errors import EXIT_FAILED
from mdv.cli.output import Item, escape_controls, print_line, write_json
from mdv.config import SETTINGS, read_variable
from mdv.errors import MdvError, SystemNotFound

if TYPE_CHECKING:
    import httpx2
    from sqlalchemy import Connection

    from mdv.inspect.sql.doctor import DoctorLimits, Finding
    from mdv.system import System

T = TypeVar("T")

MARKS = {"ok": "ok", "warning": "--", "failure": "!!"}
DEFAULT_PATIENCE_SECONDS = 30.0
CHECK_TIMEOUT_SECONDS = 3.0
"""Timeout of a single query or request."""
QUERY_CANCELED = "57014"
"""SQLSTATE of a statement that Postgres cancelled after the timeout."""
REMOTE_ADVICE = "This is normal on a machine that only calls MDV; run `mdv doctor` on the machine where MDV runs."


@click.command(cls=ExampleCommand, example="mdv doctor")
@click.option("--patience", type=click.FloatRange(min=0), default=DEFAULT_PATIENCE_SECONDS, show_default=True,
              metavar="SECONDS", help="Report jobs and open transactions that are older than this.")  # fmt: skip
@json_option
@data_option
def doctor(patience: float, as_json: bool) -> None:
    """Check every part of the system: settings, pages, database, Redis, workers, jobs, LMRs, web server, token, LMR.

    Prints one line per check: ok, -- for a warning, !! for a failure. Exits with 1 if a check failed. It needs no
    running web server, only the addresses of the parts, from the folder or the environment. If the environment has only
    MDV_URL, the database and Redis are not checked.
    """
    found: list[Item] = []
    with ExitStack() as closing:
        for name, finding in run_checks(_find_parts(), patience, closing):
            item = {"check": name, "verdict": finding.verdict, "says": finding.says, "advice": finding.advice}
            found.append(item)
            if not as_json:
                print_line(f"{MARKS[finding.verdict]}  {name}: {finding.says}")
                if finding.advice:
                    print_line(f"      {finding.advice}")
    failures = sum(item["verdict"] == "failure" for item in found)
    warnings = sum(item["verdict"] == "warning" for item in found)
    if as_json:
        write_json({"checks": found, "failures": failures, "warnings": warnings})
    else:
        print_line(f"{len(found)} checks: {failures} failed, {warnings} {'warning' if warnings == 1 else 'warnings'}.")
    if failures:
        raise click.exceptions.Exit(EXIT_FAILED)


@dataclass(frozen=True, slots=True)
class SystemParts:
    """The addresses of the parts of a system, as far as they are known. `missing` is the reason why others are not."""

    folder: Path | None = None
    url: str = ""
    token: str = field(default="", repr=False)
    database_url: str = field(default="", repr=False)
    redis_url: str = field(default="", repr=False)
    lmr: System | None = None
    missing: str = ""

    @property
    def is_elsewhere(self) -> bool:
        """True if this machine only calls an MDV that runs on another one."""
        return self.folder is None and bool(self.url) and not (self.database_url or self.redis_url)


def _find_parts() -> SystemParts:
    """Return the parts from the folder or from the environment, never from both: these may be two systems."""
    named = data_folder()
    database_url, url = _given("MDV_DATABASE_URL"), _given("MDV_URL").rstrip("/")
    if named is None and (database_url or url):
        lmr = _lmr(None) if _given("MDV_LMR_URL") else None
        token = _given("MDV_TOKEN") or _given("MDV_ADMIN_TOKEN")
        return SystemParts(None, url, token, database_url, _given("MDV_REDIS_URL"), lmr)
    return _find_parts_in_folder(named)


def _find_parts_in_folder(named: Path | None) -> SystemParts:
    from mdv.system import DEFAULT_FOLDER, find_system

    folder = named or Path(_given("MDV_DATA") or DEFAULT_FOLDER)
    known = folder if folder.is_dir() else None
    try:
        system = find_system(named)
    except SystemNotFound as error:
        return SystemParts(known, redis_url=_given("MDV_REDIS_URL"), lmr=_lmr(named), missing=error.detail)
    return SystemParts(known, system.url, system.token, system.database_url, system.redis_url, _lmr(named))


def _lmr(named: Path | None) -> System | None:
    from mdv.system import find_lmr

    try:
        return find_lmr(named)
    except MdvError:
        return None


def _given(variable: str) -> str:
    """Return the value of a variable, or an empty string if it cannot be read. The check of settings reports that."""
    try:
        return read_variable(variable, os.environ)
    except SystemExit:
        return ""


Findings = Iterator[tuple[str, "Finding"]]


def run_checks(parts: SystemParts, patience: float, closing: ExitStack) -> Findings:
    """Run all checks, in the order of the dependencies between the parts."""
    from mdv.cli import doctor_checks

    yield from _run_check("settings", doctor_checks.settings)
    yield from _run_check("pages", doctor_checks.pages)
    if parts.folder is not None:
        yield from _run_check("secrets", partial(doctor_checks.private_files, parts.folder))
        yield from _run_check("disk", partial(doctor_checks.disk, parts.folder))
    leads: list[timedelta] = []
    yield from _database(parts, patience, closing, leads)
    yield from _redis(parts, closing)
    yield from _web(parts, leads)


def _database(parts: SystemParts, patience: float, closing: ExitStack, leads: list[timedelta]) -> Findings:
    """Check the database. The lead of its clock over the clock of this machine is appended to `leads`."""
    from sqlalchemy.exc import SQLAlchemyError

    from mdv.inspect.sql.doctor import CHECKS, CHECKS_THAT_NEED_TABLES, fail, read_database_time, warn

    if parts.is_elsewhere:
        yield "database", warn("Not checked: MDV_DATABASE_URL is not set.", REMOTE_ADVICE)
        return
    if not parts.database_url:
        why = parts.missing or "No database is configured."
        yield "database", fail(why, "Set MDV_DATABASE_URL, or give the folder of a running `mdv up` with --data.")
        return
    try:
        connection = call_with_timeout(2 * CHECK_TIMEOUT_SECONDS, partial(_connect, parts.database_url, closing))
    except (SQLAlchemyError, MdvError, TimeoutError) as error:
        yield (
            "database",
            fail(f"The database does not answer: {reason(error)}.", "Start Postgres, or correct MDV_DATABASE_URL."),
        )
        return
    has_tables = True
    for name, check in CHECKS.items():
        if name in CHECKS_THAT_NEED_TABLES and not has_tables:
            continue
        for found in _run_check(name, partial(check, connection, _limits(patience))):
            has_tables = has_tables and not (name == "migrated" and found[1].verdict == "failure")
            yield found
            if isinstance(found[1].says, NoAnswer):
                return
    with suppress(SQLAlchemyError, TimeoutError):
        leads.append(
            call_with_timeout(CHECK_TIMEOUT_SECONDS, partial(read_database_time, connection)) - datetime.now(UTC)
        )


def _connect(url: str, closing: ExitStack) -> Connection:
    from mdv.db.engine import make_engine

    options = (
        f"-c statement_timeout={int(1000 * CHECK_TIMEOUT_SECONDS)} -c lock_timeout={int(1000 * CHECK_TIMEOUT_SECONDS)}"
    )
    arguments = {"connect_timeout": int(CHECK_TIMEOUT_SECONDS), "options": options, "application_name": "mdv doctor"}
    engine = make_engine(url, connect_args=arguments, isolation_level="AUTOCOMMIT", pool_size=1)
    closing.callback(engine.dispose)
    return engine.connect()


def _limits(patience: float) -> DoctorLimits:
    from mdv.config import Config
    from mdv.inspect.sql.doctor import DoctorLimits

    try:
        config = Config.from_environment()
    except SystemExit:  # already reported by the check of settings
        return DoctorLimits(patience, SETTINGS["feed_seconds"].default, SETTINGS["feed_events"].default)
    return DoctorLimits(patience, config.feed_seconds, config.feed_events)


def _redis(parts: SystemParts, closing: ExitStack) -> Findings:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    from mdv.cli import doctor_checks
    from mdv.inspect.sql.doctor import fail, warn

    if parts.is_elsewhere:
        yield "Redis", warn("Not checked: MDV_REDIS_URL is not set.", REMOTE_ADVICE)
        return
    if not parts.redis_url:
        yield "Redis", fail("No Redis is configured.", "Set MDV_REDIS_URL.")
        return
    try:
        client = redis.Redis.from_url(
            parts.redis_url,
            socket_connect_timeout=CHECK_TIMEOUT_SECONDS,
            socket_timeout=CHECK_TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError:  # its message may contain a part of the password
        advice = "Use redis://:password@host:port/0; in a password, write / # ? and @ as %2F %23 %3F %40."
        yield "Redis", fail("MDV_REDIS_URL is not a valid URL.", advice)
        return
    closing.callback(client.close)
    answered = True
    for found in _run_check("Redis", partial(doctor_checks.redis_answers, client)):
        answered = found[1].verdict != "failure"
        yield found
    if answered:
        yield from _run_check("Redis memory", partial(doctor_checks.redis_memory, client))
        yield from _run_check("workers", partial(doctor_checks.workers, client))
    else:
        yield "workers", warn("Unknown: Redis does not answer.", "Fix Redis first.")


def _web(parts: SystemParts, leads: list[timedelta]) -> Findings:
    import httpx2

    from mdv.cli import doctor_checks
    from mdv.client import is_loopback
    from mdv.inspect.sql.doctor import fail

    def get(url: str, **options: Any) -> httpx2.Response:
        return httpx2.get(url, timeout=CHECK_TIMEOUT_SECONDS, trust_env=not is_loopback(url), **options)

    if parts.url:
        try:
            answer = call_with_timeout(2 * CHECK_TIMEOUT_SECONDS, partial(get, f"{parts.url}/readyz"))
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError) as error:
            says = f"The web server at {parts.url} does not answer: {reason(error)}."
            check_url = "Check MDV_URL. " if parts.folder is None else ""
            yield "web", fail(says, f"{check_url}Start it with `mdv serve`, or see its log.")
        else:
            yield from _run_check("web", partial(doctor_checks.web_ready, answer))
            yield from _run_check("token", partial(doctor_checks.token, parts.url, parts.token, get))
            yield from _run_check("backbone", partial(doctor_checks.backbone, parts.url, parts.token, get))
            for lead in leads:
                yield from _run_check("web clock", partial(doctor_checks.web_clock, answer, datetime.now(UTC) + lead))
    if parts.lmr is not None:
        yield from _run_check("LMR", partial(doctor_checks.lmr, parts.lmr, get))


class NoAnswer(str):
    """The message of a check that timed out. Further checks of the same part are skipped."""


def _run_check(name: str, check: Callable[[], Finding | None]) -> Findings:
    """Run a check and yield its finding. An exception or a timeout of the check is a finding, too."""
    from mdv.inspect.sql.doctor import fail, warn

    try:
        finding = call_with_timeout(2 * CHECK_TIMEOUT_SECONDS, check)
    except TimeoutError:
        yield name, fail(NoAnswer("The check timed out."), "Check whether this part is stopped or overloaded.")
    except Exception as error:
        if getattr(getattr(error, "orig", None), "sqlstate", None) == QUERY_CANCELED:
            yield name, warn("The check takes too long now.", "Try again when the database is less busy.")
            return
        yield name, fail(f"The check failed: {reason(error)}.", "Fix this error, and run the check again.")
    else:
        if finding is not None:
            yield name, finding


def call_with_timeout(seconds: float, function: Callable[[], T]) -> T:
    """Call `function` in a thread and return its result; `TimeoutError` after `seconds`.

    For calls that have no timeout of their own.

    >>> call_with_timeout(1, lambda: 7)
    7
    """
    answers: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not answers:
        raise TimeoutError(f"it took longer than {seconds:g} s")
    return answers[0]


def reason(error: BaseException) -> str:
    """Return the first line of an error message, without URLs that contain a password."""
    cause = getattr(error, "orig", None) or error
    return escape_controls((str(cause).strip().splitlines() or [type(cause).__name__])[0]).rstrip(".")
