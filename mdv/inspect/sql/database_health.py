"""Read the health of the database, and of the webhooks that it stores."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, select, text

from mdv.db.tables import webhooks


@dataclass(frozen=True, slots=True)
class DatabaseHealth:
    """The size of the database, its connections and their limit, and the age of the oldest open transaction."""

    size: int
    connections: int
    max_connections: int
    oldest_transaction_seconds: float


@dataclass(frozen=True, slots=True)
class WebhookCounts:
    """The numbers of active and paused webhooks. `failing`: active ones whose last attempt failed."""

    active: int
    paused: int
    failing: int


def read_database_health(connection: Connection) -> DatabaseHealth:
    return DatabaseHealth(*connection.execute(_HEALTH).one())


def count_webhooks(connection: Connection) -> WebhookCounts:
    is_active = webhooks.c.state == "active"
    active = func.count().filter(is_active)
    failing = func.count().filter(is_active, webhooks.c.failures > 0)
    return WebhookCounts(*connection.execute(select(active, func.count().filter(~is_active), failing)).one())


_HEALTH = text("""
    select pg_database_size(current_database()),
           (select count(*) from pg_stat_activity where backend_type = 'client backend'),
           current_setting('max_connections')::int,
           coalesce((select extract(epoch from now() - min(xact_start))::float8 from pg_stat_activity
                     where datname = current_database() and backend_type = 'client backend'
                       and pid <> pg_backend_pid()), 0)
""")
