"""Doctor: what can ail the database of an MDP. One check is one function, and says in a sentence what it found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import Connection, Row, TextClause, text

from mdv.db.migrate import is_migrated
from mdv.db.status import read_queue
from mdv.db.webhooks import BY_HAND

Verdict = Literal["ok", "warning", "failure"]

OLDEST, USUAL = 16, 18
"""The oldest Postgres that MDV can live with, and the one that it is tested with."""
MOST_NAMED = 3
"""How many of something a sentence names."""
DAY = 86_400.0
CLOCKS_APART = 2.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found, and what to do about it; nothing is to be done where all is well."""

    verdict: Verdict
    says: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a check takes for long, and how much is kept of feeds."""

    patience: float
    feed_seconds: float
    feed_events: int


def well(says: str) -> Finding:
    return Finding("ok", says)


def warn(says: str, advice: str) -> Finding:
    return Finding("warning", says, advice)


def fail(says: str, advice: str) -> Finding:
    return Finding("failure", says, advice)


Check = Callable[[Connection, Limits], Finding | None]
"""None: there is nothing to look at."""


def version(connection: Connection, limits: Limits) -> Finding:
    number, place = _row(connection, _VERSION)
    major = number // 10_000
    if major < OLDEST:
        return fail(
            f"Postgres {major} is too old.", f"Move the database to Postgres {USUAL} with pg_dump and pg_restore."
        )
    if major < USUAL:
        return warn(f"Postgres {major} answers; MDV is tested with {USUAL}.", f"Move to Postgres {USUAL} when you can.")
    return well(f"Postgres {major} answers, database {place}.")


def migrated(connection: Connection, limits: Limits) -> Finding:
    if is_migrated(connection):
        return well("The tables are those of this version.")
    return fail("The tables are not those of this version of MDV.", "Run `mdv migrate`.")


def encoding(connection: Connection, limits: Limits) -> Finding:
    (name,) = _row(connection, _ENCODING)
    if name == "UTF8":
        return well("The database holds text as UTF-8.")
    return fail(f"The database's encoding is {name}.", "Make a database with the encoding UTF8, and move to it.")


def durable(connection: Connection, limits: Limits) -> Finding:
    settings: dict[str, str] = dict(connection.execute(_DURABLE).all())
    unsafe = [name for name in ("fsync", "full_page_writes") if settings.get(name) != "on"]
    if unsafe:
        return fail(
            f"{' and '.join(unsafe)} off: a crash of the machine can destroy the database.",
            f"Set {' and '.join(f'{name} = on' for name in unsafe)} in postgresql.conf, and reload it.",
        )
    if settings.get("synchronous_commit") == "off":
        return warn(
            "synchronous_commit is off: a crash can lose the last changes, although they were answered.",
            "Set synchronous_commit = on.",
        )
    return well("What is committed survives a crash.")


def autovacuum(connection: Connection, limits: Limits) -> Finding:
    off = [name for name, value in connection.execute(_AUTOVACUUM) if value != "on"]
    if off:
        return fail(
            f"{' and '.join(off)} off: tables will grow without end.", "Set autovacuum = on and track_counts = on."
        )
    return well("Autovacuum is on.")


def transactions(connection: Connection, limits: Limits) -> Finding:
    """A transaction that nobody ends keeps old rows alive, and perhaps everybody else out."""
    open_ = connection.execute(_TRANSACTIONS, {"seconds": limits.patience}).all()
    if not open_:
        return well("No transaction has been open for long.")
    named = _named([f"process {pid} ({who}), {state} for {age:.0f} s" for pid, who, state, age, _ in open_], len(open_))
    advice = "End the programs that hold them, or run: " + " ".join(
        f"select pg_terminate_backend({row[0]});" for row in open_[:MOST_NAMED]
    )
    if any(blocks for *_, blocks in open_):
        return fail(f"An open transaction keeps others waiting: {named}.", advice)
    return warn(f"Transactions have been open for long: {named}.", advice)


def prepared_transactions(connection: Connection, limits: Limits) -> Finding | None:
    """MDV prepares none; one that somebody left holds its locks through every restart."""
    left = [name for (name,) in connection.execute(_PREPARED)]
    if not left:
        return None
    return warn(
        f"Prepared transactions that nobody has ended: {_named(left, len(left))}.",
        "End each with: rollback prepared 'NAME';",
    )


def connections(connection: Connection, limits: Limits) -> Finding:
    used, most = _row(connection, _CONNECTIONS)
    says = f"{used} of {most} connections are taken"
    advice = "Raise max_connections, start fewer web processes and workers, or put a pooler between."
    if used >= 0.95 * most:
        return fail(f"{says}: soon nobody can connect.", advice)
    return warn(f"{says}.", advice) if used >= 0.8 * most else well(f"{says}.")


def bloat(connection: Connection, limits: Limits) -> Finding:
    """Queues and feeds come and go; where vacuum does not keep up, each look at them passes over dead rows."""
    bad = [f"{table} ({dead:,} dead rows to {live:,})" for table, dead, live in connection.execute(_BLOAT)]
    if bad:
        return warn(
            f"Much of some tables is dead: {', '.join(bad)}.", "Run: vacuum (analyze); and see what keeps it away."
        )
    return well("The tables hold few dead rows.")


def waiting(connection: Connection, limits: Limits) -> Finding:
    found = connection.execute(_WAITING, {"seconds": limits.patience}).one()
    if not found.jobs:
        return well("No job has waited for long.")
    return fail(
        f"{_many(found.jobs, 'job')} waited longer than {limits.patience:.0f} s, the oldest for {found.age:.0f} s.",
        "See that a worker runs (`mdv worker`), and its log; `mdv status` shows what waits.",
    )


def dead_letters(connection: Connection, limits: Limits) -> Finding:
    dead = read_queue(connection).dead
    if not dead:
        return well("There is no dead letter.")
    return warn(
        f"{_many(dead, 'dead letter')}: failed again and again by no fault of the document.",
        "`mdv jobs --state dead` tells why; mend that, and try them again with `mdv jobs retry`.",
    )


def begun(connection: Connection, limits: Limits) -> Finding | None:
    """A job that was begun several times and never ended has perhaps killed its worker each time."""
    found = [f"{job} ({times} times)" for job, times in connection.execute(_BEGUN)]
    if not found:
        return None
    return warn(
        f"Jobs were begun several times and not ended: {_named(found, len(found))}.",
        "`mdv job ID` shows one; see in the worker's log why it died.",
    )


def silent_lmrs(connection: Connection, limits: Limits) -> Finding | None:
    found = connection.execute(_SILENT, {"seconds": DAY, "most": MOST_NAMED}).all()
    (all_,) = _row(connection, _LMRS)
    if not all_:
        return None
    if not found:
        return well(f"Every LMR ({all_:,}) has asked within a day.")
    return warn(
        f"LMRs have not asked for a day: {_named([row.name for row in found], found[0].all)}.",
        "See why they are away; `mdv lmr delete NAME` ends one that will not come back.",
    )


def lost_lmrs(connection: Connection, limits: Limits) -> Finding | None:
    """An LMR that comes later than its feed is kept has to take a snapshot."""
    values = {"seconds": 0.8 * limits.feed_seconds, "events": int(0.8 * limits.feed_events), "most": MOST_NAMED}
    found = connection.execute(_LOST, values).all()
    if not found:
        return None
    lost = [row.name for row in found if row.lost]
    if lost:
        return warn(
            f"LMRs have lost their place in their feeds: {_named(lost, len(lost))}.",
            "Each takes a snapshot when it comes back; raise MDV_FEED_SECONDS or MDV_FEED_EVENTS to keep more.",
        )
    near = [row.name for row in found]
    return warn(
        f"LMRs will soon lose their place in their feeds: {_named(near, len(near))}.",
        "Start them, or raise MDV_FEED_SECONDS or MDV_FEED_EVENTS; else they will take a snapshot.",
    )


def webhooks(connection: Connection, limits: Limits) -> Finding | None:
    if _row(connection, _HAS_WEBHOOKS) == (None,):
        return None
    found = connection.execute(_WEBHOOKS, {"by_hand": BY_HAND, "most": MOST_NAMED}).all()
    ailing = [row for row in found if not row.by_hand]
    if ailing:
        named = _named([f"{_webhook(row)} ({_ailment(row)})" for row in ailing], ailing[0].all)
        return warn(
            f"Webhooks do not get through: {named}.",
            "Mend their receivers; `mdv webhook resume ID --lmr NAME` lets one that is paused go on.",
        )
    if found:
        return well(f"Paused by hand: {_named([_webhook(row) for row in found], found[0].all)}.")
    return well("No webhook is paused or failing.")


def _webhook(row: Row[Any]) -> str:
    return f"webhook {row.id} of LMR {row.name}"


def _ailment(row: Row[Any]) -> str:
    if row.state == "paused":
        return f"paused: {row.reason.rstrip('.')}" if row.reason else "paused"
    return f"failing since {row.failing_since:%Y-%m-%d %H:%M:%S %Z}"


def clock(connection: Connection, limits: Limits) -> Finding:
    before = datetime.now(UTC)
    (there,) = _row(connection, _CLOCK)
    apart = clocks_apart(before, there, datetime.now(UTC))
    if apart > CLOCKS_APART:
        return warn(
            f"This machine's clock and the database's are {apart:.0f} s apart.",
            "Let both follow the same time server: ages and moments are wrong until then.",
        )
    return well("The clocks of this machine and of the database agree.")


def clocks_apart(before: datetime, there: datetime, after: datetime) -> float:
    """How many seconds another clock is out, that was read between two looks at this one.

    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> clocks_apart(now, now.replace(second=5), now.replace(second=1))
    4.0
    """
    return max(0.0, (before - there).total_seconds(), (there - after).total_seconds())


def moment(connection: Connection) -> datetime:
    """What the database takes for now."""
    (now,) = _row(connection, _CLOCK)
    assert isinstance(now, datetime)
    return now


CHECKS: dict[str, Check] = {
    "database": version,
    "migrated": migrated,
    "encoding": encoding,
    "durable": durable,
    "autovacuum": autovacuum,
    "transactions": transactions,
    "prepared": prepared_transactions,
    "connections": connections,
    "dead rows": bloat,
    "database clock": clock,
    "waiting jobs": waiting,
    "dead letters": dead_letters,
    "begun jobs": begun,
    "LMRs": silent_lmrs,
    "feeds": lost_lmrs,
    "webhooks": webhooks,
}
NEED_TABLES = {"waiting jobs", "dead letters", "begun jobs", "LMRs", "feeds", "webhooks"}
"""Those that look into MDV's own tables: without them they have nothing to say."""


def _row(connection: Connection, statement: TextClause) -> tuple[Any, ...]:
    return tuple(connection.execute(statement).one())


def _named(names: list[str], all_: int) -> str:
    """
    >>> _named(["a", "b", "c", "d"], 9)
    'a, b, c and 6 more'
    """
    more = all_ - len(names[:MOST_NAMED])
    return ", ".join(names[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


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
"""A transaction that works is given ten minutes more than one that is idle."""
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
_LMRS = text("select lmrs from mdp_state")
_SILENT = text("""
    select name, count(*) over () as all from lmrs
    where coalesce(asked_at, created_at) < now() - make_interval(secs => :seconds)
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
    -- Offsets are everybody's: only where so many were given out can one LMR have so many events. Few are looked at.
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
