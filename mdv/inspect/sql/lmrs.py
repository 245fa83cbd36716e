"""Read LMRs: their sizes and their progress."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from mdv.db.engine import driver
from mdv.db.lmrs import SUBSCRIPTION_COLUMNS, WITH_LASTING_IDS, Lmr, StoredSubscription, read_lmrs, subscription_id
from mdv.db.load_sql import load_sql
from mdv.db.postgres_copy import array_literal
from mdv.db.tables import feed, lmr_resources, lmrs, rules
from mdv.inspect.sql.status import find_lmrs_behind


@dataclass(frozen=True, slots=True)
class LmrCounts:
    """Counts for an LMR: subscriptions, resources in its closure, resources that its rules select (`roots`), retained
    events, and retained events that it has not read (`behind`)."""

    subscriptions: int
    resources: int
    roots: int
    events: int
    behind: int


def count_per_lmr(connection: Connection, some: Sequence[Lmr]) -> dict[int, LmrCounts]:
    """Return the counts of each of some LMRs, by ID."""
    ids = [lmr.id for lmr in some]
    owned = select(rules.c.owner, func.count()).where(rules.c.owner.in_(ids)).group_by(rules.c.owner)
    held = lmr_resources.c
    closures = (
        select(held.lmr_id, func.count(), func.count().filter(held.reasons > 0))
        .where(held.lmr_id.in_(ids))
        .group_by(held.lmr_id)
    )
    kept = (
        select(feed.c.lmr_id, func.count(), func.count().filter(feed.c.offset > func.coalesce(lmrs.c.cursor, 0)))
        .join_from(feed, lmrs, lmrs.c.id == feed.c.lmr_id)
        .where(feed.c.lmr_id.in_(ids))
        .group_by(feed.c.lmr_id)
    )
    subscriptions = {row[0]: row[1] for row in connection.execute(owned)}
    holds = {lmr: (count, roots) for lmr, count, roots in connection.execute(closures)}
    events = {lmr: (count, behind) for lmr, count, behind in connection.execute(kept)}
    return {
        number: LmrCounts(subscriptions.get(number, 0), *holds.get(number, (0, 0)), *events.get(number, (0, 0)))
        for number in ids
    }


def list_lmrs_behind(connection: Connection, after: int, limit: int) -> list[Lmr]:
    """Return a page of the LMRs that are behind."""
    return read_lmrs(connection, find_lmrs_behind(connection, after, limit))


def list_newest_rules(
    connection: Connection, lmr_id: int, before: int | None, limit: int
) -> Sequence[StoredSubscription]:
    """Return a page of an LMR's rules, newest first."""
    query = select(*SUBSCRIPTION_COLUMNS).select_from(WITH_LASTING_IDS).where(rules.c.owner == lmr_id)
    if before is not None:
        query = query.where(subscription_id < before)
    return [tuple(row) for row in connection.execute(query.order_by(subscription_id.desc()).limit(limit))]


class LmrProgress(NamedTuple):
    """The progress of an LMR: numbers of its rules, resources, selected resources (`roots`), retained events, and
    unread events (`behind`), of which the first was published `since`. Each is counted up to a limit, plus one. `lost`:
    its cursor has expired."""

    subscriptions: int
    resources: int
    roots: int
    events: int
    behind: int
    since: datetime | None
    lost: bool


def read_progress(connection: Connection, lmrs: Collection[int], most: int) -> dict[int, LmrProgress]:
    """Return the progress of some LMRs by ID. Nothing is counted beyond `most`."""
    session, sql = driver(connection), load_sql("lmrs", __package__)
    session.execute(sql["pin_index_scans"], prepare=True)
    rows = session.execute(sql["progress"], {"lmrs": array_literal(lmrs), "most": most}, prepare=True)
    return {number: LmrProgress(*rest) for number, *rest in rows}
