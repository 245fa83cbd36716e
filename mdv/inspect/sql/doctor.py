"""Database checks of `mdv doctor`. Each check is one function that returns a one-sentence finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import Connection, Row, TextClause, text

from mdv.db.migrate import is_migrated
from mdv.db.suspensions import Suspensions
from mdv.db.webhooks import PAUSED_BY_ADMIN
from mdv.inspect.sql.status import read_queue

Verdict = Literal["ok", "warning", "failure"]

MIN_POSTGRES_VERSION, TESTED_POSTGRES_VERSION = 16, 18
"""The oldest supported major version of Postgres, and the one that MDV is tested with."""
MAX_NAMES_LISTED = 3
"""A finding lists at most this many names."""
DAY_SECONDS = 86_400.0
MAX_CLOCK_DIFFERENCE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check, and advice unless the verdict is `ok`."""

    verdict: Verdict
    says: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class DoctorLimits:
    """`patience`: seconds after which jobs and transactions count as stuck. The others: the retention of feeds."""

    patience: float
    feed_seconds: float
    feed_events: int


def ok(says: str) -> Finding:
    return Finding("ok", says)


def warn(says: str, advice: str) -> Finding:
    return Finding("warning", says, advice)


def fail(says: str, advice: str) -> Finding:
    return Finding("failure", says, advice)


Check = Callable[[Connection, DoctorLimits], Finding | None]
"""A check returns None if it does not apply."""


def check_version(connection: Connection, limits: DoctorLimits) -> Finding:
    number, database = _row(connection, _VERSION)
    major = number // 10_000
    if major < MIN_POSTGRES_VERSION:
        return fail(
            f"Postgres {major} is too old.",
            f"Move the database to Postgres {TESTED_POSTGRES_VERSION} with pg_dump and pg_restore.",
        )
    if major < TESTED_POSTGRES_VERSION:
        return warn(
            f"Postgres {major} is reachable; MDV is tested with {TESTED_POSTGRES_VERSION}.",
            f"Move to Postgres {TESTED_POSTGRES_VERSION} when you can.",
        )
    return ok(f"Postgres {major} is reachable, database {database}.")


def check_migrated(connection: Connection, limits: DoctorLimits) -> Finding:
    if is_migrated(connection):
        return ok("The database schema is up to date.")
    return fail("The database schema is not the one of this version of MDV.", "Run `mdv migrate`.")


def check_encoding(connection: Connection, limits: DoctorLimits) -> Finding:
    (name,) = _row(connection, _ENCODING)
    if name == "UTF8":
        return ok("The database encoding is UTF-8.")
    return fail(
        f"The database encoding is {name}.", "Create a database with the encoding UTF8, and move the data to it."
    )


def check_durability(connection: Connection, limits: DoctorLimits) -> Finding:
    settings: dict[str, str] = dict(connection.execute(_DURABLE).all())
    unsafe = [name for name in ("fsync", "full_page_writes") if settings.get(name) != "on"]
    if unsafe:
        return fail(
            f"{' and '.join(unsafe)} off: a crash of the machine can corrupt the database.",
            f"Set {' and '.join(f'{name} = on' for name in unsafe)} in postgresql.conf, and reload the configuration.",
        )
    if settings.get("synchronous_commit") == "off":
        return warn(
            "synchronous_commit is off: a crash can lose the last changes, although they were acknowledged.",
            "Set synchronous_commit = on.",
        )
    return ok("Committed transactions survive a crash.")


def check_autovacuum(connection: Connection, limits: DoctorLimits) -> Finding:
    off = [name for name, value in connection.execute(_AUTOVACUUM) if value != "on"]
    if off:
        return fail(
            f"{' and '.join(off)} off: tables will grow without limit.", "Set autovacuum = on and track_counts = on."
        )
    return ok("Autovacuum is on.")


def check_open_transactions(connection: Connection, limits: DoctorLimits) -> Finding:
    """Find transactions that stay open. They keep dead rows alive and may block others."""
    open_ = connection.execute(_TRANSACTIONS, {"seconds": limits.patience}).all()
    if not open_:
        return ok("No transaction has been open for too long.")
    named = _named([f"process {pid} ({who}), {state} for {age:.0f} s" for pid, who, state, age, _ in open_], len(open_))
    advice = "Stop the programs that hold them open, or run: " + " ".join(
        f"select pg_terminate_backend({row[0]});" for row in open_[:MAX_NAMES_LISTED]
    )
    if any(blocks for *_, blocks in open_):
        return fail(f"An open transaction blocks others: {named}.", advice)
    return warn(f"Transactions have been open for too long: {named}.", advice)


def check_prepared_transactions(connection: Connection, limits: DoctorLimits) -> Finding | None:
    """Find prepared transactions. MDV prepares none; one that is left behind holds its locks across restarts."""
    left = [name for (name,) in connection.execute(_PREPARED)]
    if not left:
        return None
    return warn(
        f"Prepared transactions were not finished: {_named(left, len(left))}.",
        "Roll back each with: rollback prepared 'NAME';",
    )


def check_connections(connection: Connection, limits: DoctorLimits) -> Finding:
    used, most = _row(connection, _CONNECTIONS)
    says = f"{used} of {most} connections are in use"
    advice = "Raise max_connections, start fewer web processes and workers, or use a connection pooler."
    if used >= 0.95 * most:
        return fail(f"{says}: new connections will soon be refused.", advice)
    return warn(f"{says}.", advice) if used >= 0.8 * most else ok(f"{says}.")


def check_dead_rows(connection: Connection, limits: DoctorLimits) -> Finding:
    """Find tables with many dead rows. Jobs and feeds are deleted all the time; reads slow down if vacuum falls
    behind."""
    bad = [f"{table} ({dead:,} dead rows to {live:,})" for table, dead, live in connection.execute(_BLOAT)]
    if bad:
        return warn(
            f"Some tables consist mostly of dead rows: {', '.join(bad)}.",
            "Run: vacuum (analyze); and find out what holds autovacuum back.",
        )
    return ok("The tables hold few dead rows.")


def check_waiting_jobs(connection: Connection, limits: DoctorLimits) -> Finding:
    found = connection.execute(_WAITING, {"seconds": limits.patience}).one()
    if not found.jobs:
        return ok("No job has waited for too long.")
    return fail(
        f"{_many(found.jobs, 'job')} waited longer than {limits.patience:.0f} s, the oldest for {found.age:.0f} s.",
        "Check that a worker is running (`mdv worker`), and read its log. `mdv status` shows the waiting jobs.",
    )


def check_dead_letters(connection: Connection, limits: DoctorLimits) -> Finding:
    dead = read_queue(connection).dead
    if not dead:
        return ok("There are no dead letters.")
    return warn(
        f"{_many(dead, 'dead letter')}: all attempts failed for a reason other than the document.",
        "`mdv jobs --state dead` shows the reasons. Fix them, then retry with `mdv jobs retry`.",
    )


def check_started_jobs(connection: Connection, limits: DoctorLimits) -> Finding | None:
    """Find jobs that were started several times and never finished. Such a job may crash its worker."""
    found = [f"{job} ({times} times)" for job, times in connection.execute(_BEGUN)]
    if not found:
        return None
    return warn(
        f"Jobs were started several times and not finished: {_named(found, len(found))}.",
        "`mdv job ID` shows one. The worker's log shows why the worker died.",
    )


def check_silent_lmrs(connection: Connection, limits: DoctorLimits) -> Finding | None:
    found = connection.execute(_SILENT, {"seconds": DAY_SECONDS, "most": MAX_NAMES_LISTED}).all()
    (all_,) = _row(connection, _LMRS)
    if not all_:
        return None
    if not found:
        return ok(f"Every LMR ({all_:,}) has read its feed within a day.")
    return warn(
        f"LMRs have not read their feeds for a day: {_named([row.name for row in found], found[0].all)}.",
        "Find out why. `mdv lmr delete NAME` removes an LMR that is no longer in use.",
    )


def check_lagging_lmrs(connection: Connection, limits: DoctorLimits) -> Finding | None:
    """Find LMRs whose unread events have expired, or will soon. They have to load a snapshot."""
    values = {"seconds": 0.8 * limits.feed_seconds, "events": int(0.8 * limits.feed_events), "most": MAX_NAMES_LISTED}
    found = connection.execute(_LOST, values).all()
    if not found:
        return None
    lost = [row.name for row in found if row.lost]
    if lost:
        return warn(
            f"LMRs have not read events before they expired: {_named(lost, len(lost))}.",
            "Each loads a snapshot when it reads again. Raise MDV_FEED_SECONDS or MDV_FEED_EVENTS to keep more events.",
        )
    near = [row.name for row in found]
    return warn(
        f"Unread events of LMRs will soon expire: {_named(near, len(near))}.",
        "Start these LMRs, or raise MDV_FEED_SECONDS or MDV_FEED_EVENTS. Otherwise they will load a snapshot.",
    )


def check_webhooks(connection: Connection, limits: DoctorLimits) -> Finding | None:
    if _row(connection, _HAS_WEBHOOKS) == (None,):
        return None
    found = connection.execute(_WEBHOOKS, {"by_hand": PAUSED_BY_ADMIN, "most": MAX_NAMES_LISTED}).all()
    failing = [row for row in found if not row.by_hand]
    if failing:
        named = _named([f"{_webhook(row)} ({_failure(row)})" for row in failing], failing[0].all)
        return warn(
            f"Webhooks are failing: {named}.",
            "Fix their receivers. `mdv webhook resume ID --lmr NAME` resumes a paused webhook.",
        )
    if found:
        return ok(f"Paused manually: {_named([_webhook(row) for row in found], found[0].all)}.")
    return ok("No webhook is paused or failing.")


def _webhook(row: Row[Any]) -> str:
    return f"webhook {row.id} of LMR {row.name}"


def _failure(row: Row[Any]) -> str:
    if row.state == "paused":
        return f"paused: {row.reason.rstrip('.')}" if row.reason else "paused"
    return f"failing since {row.failing_since:%Y-%m-%d %H:%M:%S %Z}"


def check_suspended_rules(connection: Connection, limits: DoctorLimits) -> Finding:
    suspensions = Suspensions(connection)
    some, all_ = suspensions.page(0, MAX_NAMES_LISTED), suspensions.count()
    if not some:
        return ok("No rule is suspended.")
    named = [
        f"{rule.rule_id} of {rule.lmr or 'the provider'}, since position {rule.position:,} ({rule.at:%Y-%m-%d %H:%M})"
        for rule in some
    ]
    first = some[0]
    resume = f"mdv subscriptions resume {first.rule_id} --lmr NAME" if first.lmr else f"mdv rule resume {first.rule_id}"
    return warn(
        f"{_many(all_, 'rule')} {'is' if all_ == 1 else 'are'} suspended: {_named(named, all_)}.",
        "Each took longer than MDV_RULE_SECONDS in one transaction. Its matches stay as they were. `mdv rule explain`"
        f" shows what a rule costs. Change the rule, or evaluate it again with `{resume}`.",
    )


def check_quarantined_rules(connection: Connection, limits: DoctorLimits) -> Finding | None:
    """Find event-condition-action rules that were stopped because they fail."""
    found = connection.execute(_QUARANTINED, {"most": MAX_NAMES_LISTED}).all()
    if not found:
        return ok("No event-condition-action rule is quarantined.") if _row(connection, _HAS_ECA_RULES)[0] else None
    named = [f"{row.name or row.id} ({(row.reason or '').rstrip('.')})" for row in found]
    return warn(
        f"Event-condition-action rules are quarantined: {_named(named, found[0].all)}.",
        "They do not run. Change each rule, or enable it again as it is.",
    )


def check_compensations(connection: Connection, limits: DoctorLimits) -> Finding | None:
    """Find compensations and detached copies that failed for an internal reason: what they should do is missing."""
    found = connection.execute(_DEAD_RULE_JOBS, {"most": MAX_NAMES_LISTED}).all()
    if not found:
        return None
    return warn(
        f"Jobs of event-condition-action rules are dead letters:"
        f" {_named([f'{row.kind} {row.id}' for row in found], found[0].all)}.",
        "A change is not compensated, or a detached rule has not run. `mdv job ID` shows the reason; `mdv jobs retry`"
        " tries it again.",
    )


def check_clock(connection: Connection, limits: DoctorLimits) -> Finding:
    before = datetime.now(UTC)
    (there,) = _row(connection, _CLOCK)
    apart = clock_difference(before, there, datetime.now(UTC))
    if apart > MAX_CLOCK_DIFFERENCE_SECONDS:
        return warn(
            f"The clocks of this machine and of the database differ by {apart:.0f} s.",
            "Synchronize both with the same time server. Until then, ages and timestamps are wrong.",
        )
    return ok("The clocks of this machine and of the database agree.")


def clock_difference(before: datetime, there: datetime, after: datetime) -> float:
    """Return the difference in seconds to a clock that was read between two readings of the local clock.

    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> clock_difference(now, now.replace(second=5), now.replace(second=1))
    4.0
    """
    return max(0.0, (before - there).total_seconds(), (there - after).total_seconds())


def read_database_time(connection: Connection) -> datetime:
    """Return the current time of the database server."""
    (now,) = _row(connection, _CLOCK)
    assert isinstance(now, datetime)
    return now


CHECKS: dict[str, Check] = {
    "database": check_version,
    "migrated": check_migrated,
    "encoding": check_encoding,
    "durable": check_durability,
    "autovacuum": check_autovacuum,
    "transactions": check_open_transactions,
    "prepared": check_prepared_transactions,
    "connections": check_connections,
    "dead rows": check_dead_rows,
    "database clock": check_clock,
    "waiting jobs": check_waiting_jobs,
    "dead letters": check_dead_letters,
    "begun jobs": check_started_jobs,
    "rules": check_suspended_rules,
    "reactions": check_quarantined_rules,
    "compensations": check_compensations,
    "LMRs": check_silent_lmrs,
    "feeds": check_lagging_lmrs,
    "webhooks": check_webhooks,
}
CHECKS_THAT_NEED_TABLES = {
    "waiting jobs", "dead letters", "begun jobs", "rules", "reactions", "compensations", "LMRs", "feeds", "webhooks",
}  # fmt: skip
"""Checks that read MDV's own tables. They are skipped if the tables do not exist."""


def _row(connection: Connection, statement: TextClause) -> tuple[Any, ...]:
    return tuple(connection.execute(statement).one())


def _named(names: list[str], all_: int) -> str:
    """
    >>> _named(["a", "b", "c", "d"], 9)
    'a, b, c and 6 more'
    """
    more = all_ - len(names[:MAX_NAMES_LISTED])
    return ", ".join(names[:MAX_NAMES_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


_VERSION = text("select current_setting('server_version_num')::int, current_database()")
_ENCODING = text("select pg_encoding_to_char(encoding) from pg_database where datname = current_database()")
_DURABLE = text(
    "select name, setting from pg_settings where name in ('fsync', 'full_page_writes', 'synchronous_commit')"
)
_AUTOVACUUM = text("select name, setting from pg_settings where name in ('autovacuum', 'track_counts')")
_TRANSACTIONS = text("""
    select a.pid, coalesce(nullif(a.application_name, ''), a.usename, '?') as who, a.state, a.age,
           exists (select from pg_stat_activity w where a.pid = any (pg_blocking_pids(w.pid))
                   and now() - w.state_change > make_interval(secs => :seconds)) as blocks
    from (select pid, application_name, usename, state, state like 'idle in transaction%' as idle,
                 extract(epoch from now() - case when state = 'active' then xact_start else state_change end)::float8
                     as age
          from pg_stat_activity
          where datname = current_database() and xact_start is not null and pid <> pg_backend_pid()
            and backend_type = 'client backend') a
    where a.age > :seconds + case when a.idle then 0 else 600 end
    order by a.age desc limit 10
""")
"""An active transaction may be open ten minutes longer than an idle one."""
_PREPARED = text("select gid from pg_prepared_xacts where database = current_database() order by prepared limit 10")
_CONNECTIONS = text("""
    select (select count(*) from pg_stat_activity where backend_type = 'client backend'),
           current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
""")
_BLOAT = text("""
    select relname, n_dead_tup, n_live_tup from pg_stat_user_tables
    where relname in ('jobs', 'feed', 'filter_data', 'lmr_resources', 'publications', 'begun_jobs', 'mdp_state')
      and n_dead_tup > greatest(50000, n_live_tup)
    order by n_dead_tup desc
""")
_WAITING = text("""
    select count(*) as jobs, extract(epoch from max(now() - since))::float8 as age
    from (select greatest(created_at, not_before) as since from jobs
          where state = 'queued' and greatest(created_at, not_before) < now() - make_interval(secs => :seconds)
          limit 10000) w
""")
_BEGUN = text("select job_id, times from begun_jobs where times > 1 order by times desc limit 10")
_HAS_ECA_RULES = text("select exists (select from eca_rules)")
_QUARANTINED = text("""
    select id, name, reason, count(*) over () as all from eca_rules where state = 'quarantined' order by id limit :most
""")
_DEAD_RULE_JOBS = text("""
    select id, kind, count(*) over () as all from jobs
    where state = 'dead' and kind in ('detached', 'compensate') order by number limit :most
""")
_LMRS = text("select lmrs from mdp_state")
_SILENT = text("""
    select name, count(*) over () as all from lmrs
    where home is null and coalesce(asked_at, created_at) < now() - make_interval(secs => :seconds)
    order by asked_at nulls first limit :most
""")
_LOST = text("""
    with unread as (
        select l.id, l.name, coalesce(l.cursor, 0) as read, l.cursor is not null and l.kept_after > l.cursor as lost,
               e."offset", p.at
        from lmrs l
        left join lateral (select "offset", tx from feed where lmr_id = l.id and "offset" > coalesce(l.cursor, 0)
                           order by "offset" limit 1) e on true
        left join publications p on p.tx = e.tx),
    -- All LMRs share one sequence of offsets, so the distance to the last offset bounds an LMR's number of events.
    -- Events are counted only for the few LMRs that can exceed the limit.
    long as (
        select u.id from (select u.id, u.read from unread u, mdp_state s where s.last_offset - u."offset" >= :events
                          order by u."offset" limit :most) u
        where exists (select from feed f where f.lmr_id = u.id and f."offset" > u.read offset :events))
    select name, lost from unread
    where lost or at < now() - make_interval(secs => :seconds) or id in (select id from long)
    order by lost desc, "offset" limit 10 + :most
""")
_HAS_WEBHOOKS = text("select to_regclass('webhooks')::text")
_WEBHOOKS = text("""
    select id, name, state, reason, failing_since, by_hand, count(*) over (partition by by_hand) as all
    from (select w.id, l.name, w.state, w.reason, w.failing_since,
                 w.state = 'paused' and coalesce(w.reason, '') = :by_hand as by_hand
          from webhooks w join lmrs l on l.id = w.lmr_id
          where w.state = 'paused' or w.failing_since is not null) w
    order by by_hand, id limit :most
""")
_CLOCK = text("select clock_timestamp()")
