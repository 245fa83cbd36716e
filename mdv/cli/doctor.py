"""`mdv doctor`: looks at every part of a system, and says what is wrong and what to do."""

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

from mdv.cli.failures import FAILED
from mdv.cli.frame import Verb, data_folder, data_option, json_option
from mdv.cli.output import Item, clean, say, write_json
from mdv.config import SETTINGS, read_variable
from mdv.errors import MdvError, SystemNotFound

if TYPE_CHECKING:
    import httpx
    from sqlalchemy import Connection

    from mdv.db.doctor import Finding, Limits
    from mdv.system import System

Answer = TypeVar("Answer")

MARKS = {"ok": "ok", "warning": "--", "failure": "!!"}
PATIENCE = 30.0
SECONDS = 3.0
"""How long anything may take to answer."""
TOO_SLOW = "57014"
"""What Postgres calls a statement that it gave up."""
ELSEWHERE = "Nothing is wrong where MDV is only called; where it runs, let `mdv doctor` look there."


@click.command(cls=Verb, example="mdv doctor")
@click.option("--patience", type=click.FloatRange(min=0), default=PATIENCE, show_default=True, metavar="SECONDS",
              help="What jobs and open transactions may take before they are told of.")  # fmt: skip
@json_option
@data_option
def doctor(patience: float, as_json: bool) -> None:
    """Look at every part of the system: settings, database, Redis, workers, jobs, LMRs, web server, token, LMR.

    A line a check: ok, -- for a warning, !! for a failure. Exits 1 where something failed. It needs no running web
    server, only what tells where the parts are: the folder, or the environment. Where that names MDV_URL alone, the
    database and Redis are not looked at.
    """
    found: list[Item] = []
    with ExitStack() as closing:
        for name, finding in examine(_place(), patience, closing):
            item = {"check": name, "verdict": finding.verdict, "says": finding.says, "advice": finding.advice}
            found.append(item)
            if not as_json:
                say(f"{MARKS[finding.verdict]}  {name}: {finding.says}")
                if finding.advice:
                    say(f"      {finding.advice}")
    failures = sum(item["verdict"] == "failure" for item in found)
    warnings = sum(item["verdict"] == "warning" for item in found)
    if as_json:
        write_json({"checks": found, "failures": failures, "warnings": warnings})
    else:
        say(f"{len(found)} checks: {failures} failed, {warnings} {'warning' if warnings == 1 else 'warnings'}.")
    if failures:
        raise click.exceptions.Exit(FAILED)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the parts of a system are, as far as that is known; `missing` says why the rest is not."""

    folder: Path | None = None
    url: str = ""
    token: str = field(default="", repr=False)
    database_url: str = field(default="", repr=False)
    redis_url: str = field(default="", repr=False)
    lmr: System | None = None
    missing: str = ""

    @property
    def is_elsewhere(self) -> bool:
        """Whether this machine is one from which MDV is only called."""
        return self.folder is None and bool(self.url) and not (self.database_url or self.redis_url)


def _place() -> Place:
    """By the folder, or by the environment: never by both, since they may tell of two systems."""
    named = data_folder()
    database_url, url = _given("MDV_DATABASE_URL"), _given("MDV_URL").rstrip("/")
    if named is None and (database_url or url):
        lmr = _lmr(None) if _given("MDV_LMR_URL") else None
        token = _given("MDV_TOKEN") or _given("MDV_ADMIN_TOKEN")
        return Place(None, url, token, database_url, _given("MDV_REDIS_URL"), lmr)
    return _place_of_folder(named)


def _place_of_folder(named: Path | None) -> Place:
    from mdv.system import DEFAULT_FOLDER, find_system

    folder = named or Path(_given("MDV_DATA") or DEFAULT_FOLDER)
    known = folder if folder.is_dir() else None
    try:
        system = find_system(named)
    except SystemNotFound as error:
        return Place(known, redis_url=_given("MDV_REDIS_URL"), lmr=_lmr(named), missing=error.detail)
    return Place(known, system.url, system.token, system.database_url, system.redis_url, _lmr(named))


def _lmr(named: Path | None) -> System | None:
    from mdv.system import find_lmr

    try:
        return find_lmr(named)
    except MdvError:
        return None


def _given(variable: str) -> str:
    """A variable, or nothing where it cannot be read: that is told among the settings."""
    try:
        return read_variable(variable, os.environ)
    except SystemExit:
        return ""


Findings = Iterator[tuple[str, "Finding"]]


def examine(place: Place, patience: float, closing: ExitStack) -> Findings:
    """Every check, in the order in which the parts lean on each other."""
    from mdv.cli import checks

    yield from _told("settings", checks.settings)
    if place.folder is not None:
        yield from _told("secrets", partial(checks.private_files, place.folder))
        yield from _told("disk", partial(checks.disk, place.folder))
    leads: list[timedelta] = []
    yield from _database(place, patience, closing, leads)
    yield from _redis(place, closing)
    yield from _web(place, leads)


def _database(place: Place, patience: float, closing: ExitStack, leads: list[timedelta]) -> Findings:
    """`leads` takes how far the database's clock is ahead of this machine's."""
    from sqlalchemy.exc import SQLAlchemyError

    from mdv.db.doctor import CHECKS, NEED_TABLES, fail, moment, warn

    if place.is_elsewhere:
        yield "database", warn("Not looked at: MDV_DATABASE_URL is not set.", ELSEWHERE)
        return
    if not place.database_url:
        why = place.missing or "No database is known."
        yield "database", fail(why, "Name it with MDV_DATABASE_URL, or the folder of a running `mdv up` with --data.")
        return
    try:
        connection = within(2 * SECONDS, partial(_connect, place.database_url, closing))
    except (SQLAlchemyError, MdvError, TimeoutError) as error:
        yield (
            "database",
            fail(f"The database does not answer: {reason(error)}.", "Start Postgres, or correct MDV_DATABASE_URL."),
        )
        return
    has_tables = True
    for name, check in CHECKS.items():
        if name in NEED_TABLES and not has_tables:
            continue
        for told in _told(name, partial(check, connection, _limits(patience))):
            has_tables = has_tables and not (name == "migrated" and told[1].verdict == "failure")
            yield told
            if isinstance(told[1].says, Unanswered):
                return
    with suppress(SQLAlchemyError, TimeoutError):
        leads.append(within(SECONDS, partial(moment, connection)) - datetime.now(UTC))


def _connect(url: str, closing: ExitStack) -> Connection:
    from mdv.db.engine import make_engine

    options = f"-c statement_timeout={int(1000 * SECONDS)} -c lock_timeout={int(1000 * SECONDS)}"
    arguments = {"connect_timeout": int(SECONDS), "options": options, "application_name": "mdv doctor"}
    engine = make_engine(url, connect_args=arguments, isolation_level="AUTOCOMMIT", pool_size=1)
    closing.callback(engine.dispose)
    return engine.connect()


def _limits(patience: float) -> Limits:
    from mdv.config import Config
    from mdv.db.doctor import Limits

    try:
        config = Config.from_environment()
    except SystemExit:  # told of already
        return Limits(patience, SETTINGS["feed_seconds"].default, SETTINGS["feed_events"].default)
    return Limits(patience, config.feed_seconds, config.feed_events)


def _redis(place: Place, closing: ExitStack) -> Findings:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    from mdv.cli import checks
    from mdv.db.doctor import fail, warn

    if place.is_elsewhere:
        yield "Redis", warn("Not looked at: MDV_REDIS_URL is not set.", ELSEWHERE)
        return
    if not place.redis_url:
        yield "Redis", fail("No Redis is known.", "Name it with MDV_REDIS_URL.")
        return
    try:
        client = redis.Redis.from_url(
            place.redis_url, socket_connect_timeout=SECONDS, socket_timeout=SECONDS, retry=Retry(NoBackoff(), 0)
        )
    except ValueError:  # whose words may hold a part of the password
        advice = "It takes redis://:password@host:port/0; in a password, / # ? and @ are written as %2F %23 %3F %40."
        yield "Redis", fail("MDV_REDIS_URL cannot be read.", advice)
        return
    closing.callback(client.close)
    answered = True
    for told in _told("Redis", partial(checks.redis_answers, client)):
        answered = told[1].verdict != "failure"
        yield told
    if answered:
        yield from _told("Redis memory", partial(checks.redis_memory, client))
        yield from _told("workers", partial(checks.workers, client))
    else:
        yield "workers", warn("Not known: Redis does not answer.", "Mend Redis first.")


def _web(place: Place, leads: list[timedelta]) -> Findings:
    import httpx

    from mdv.cli import checks
    from mdv.client import is_loopback
    from mdv.db.doctor import fail

    def get(url: str, **options: Any) -> httpx.Response:
        return httpx.get(url, timeout=SECONDS, trust_env=not is_loopback(url), **options)

    if place.url:
        try:
            answer = within(2 * SECONDS, partial(get, f"{place.url}/readyz"))
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            said = f"The web server at {place.url} does not answer: {reason(error)}."
            doubt = "Is MDV_URL right? " if place.folder is None else ""
            yield "web", fail(said, f"{doubt}Start it with `mdv serve`, or see its log.")
        else:
            yield from _told("web", partial(checks.web_ready, answer))
            yield from _told("token", partial(checks.token, place.url, place.token, get))
            for lead in leads:
                yield from _told("web clock", partial(checks.web_clock, answer, datetime.now(UTC) + lead))
    if place.lmr is not None:
        yield from _told("LMR", partial(checks.lmr, place.lmr, get))


class Unanswered(str):
    """What is said where nothing came back in time: then nothing else of the same part is asked."""


def _told(name: str, check: Callable[[], Finding | None]) -> Findings:
    """What a check found; that it failed itself is a finding, too."""
    from mdv.db.doctor import fail, warn

    try:
        finding = within(2 * SECONDS, check)
    except TimeoutError:
        yield name, fail(Unanswered("No answer came in time."), "See whether that part is stopped or overloaded.")
    except Exception as error:
        if getattr(getattr(error, "orig", None), "sqlstate", None) == TOO_SLOW:
            yield name, warn("This takes too long to look at now.", "Look again when the database has less to do.")
            return
        yield name, fail(f"This could not be looked at: {reason(error)}.", "Mend what it names, and look again.")
    else:
        if finding is not None:
            yield name, finding


def within(seconds: float, function: Callable[[], Answer]) -> Answer:
    """What `function` answers, if it does so in time: some calls cannot be given a limit of their own.

    >>> within(1, lambda: 7)
    7
    """
    answers: list[Answer] = []
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
    """What an error says, in one line and without addresses that hold a password."""
    cause = getattr(error, "orig", None) or error
    return clean((str(cause).strip().splitlines() or [type(cause).__name__])[0]).rstrip(".")
