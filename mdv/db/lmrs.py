"""LMRs: who they are, and how far each has read its feed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from mdv.db.tables import (
    feed,
    lmr_ranges,
    lmr_resources,
    lmrs,
    mdp_state,
    news,
    rules,
    snapshots,
    tokens,
)
from mdv.db.tokens import make_secret
from mdv.errors import Conflict


@dataclass(frozen=True, slots=True)
class Lmr:
    """A local metadata repository. `cursor` is the offset that it last asked from; `paused`: its feed is held back."""

    id: int
    name: str
    kept_after: int
    cursor: int | None
    asked_at: datetime | None
    created_at: datetime
    paused: bool


@dataclass(frozen=True, slots=True)
class LmrCounts:
    """What an LMR has: rules, resources in its closure, those of them that its rules select, and events kept for it,
    those that it has not asked beyond apart."""

    subscriptions: int
    resources: int
    roots: int
    events: int
    behind: int


_COLUMNS = (lmrs.c.id, lmrs.c.name, lmrs.c.kept_after, lmrs.c.cursor, lmrs.c.asked_at,
            lmrs.c.created_at, lmrs.c.paused)  # fmt: skip


def create_lmr(connection: Connection, name: str) -> tuple[Lmr, str]:
    """A new LMR, and its token, which is kept nowhere. The caller holds the lock."""
    try:
        with connection.begin_nested():
            row = connection.execute(insert(lmrs).values(name=name).returning(*_COLUMNS)).one()
    except IntegrityError:
        raise Conflict(f"There is an LMR of the name {name} already.") from None
    connection.execute(update(mdp_state).values(lmrs=mdp_state.c.lmrs + 1))
    lmr = Lmr(*row)
    return lmr, create_lmr_token(connection, lmr)


def create_lmr_token(connection: Connection, lmr: Lmr) -> str:
    """A token for an LMR, beside those that it has."""
    secret, digest = make_secret()
    connection.execute(insert(tokens).values(name=lmr.name, role="lmr", lmr_id=lmr.id, hash=digest))
    return secret


def revoke_lmr_tokens(connection: Connection, lmr: Lmr) -> None:
    """Close all tokens that an LMR has."""
    still = (tokens.c.lmr_id == lmr.id) & tokens.c.revoked_at.is_(None)
    connection.execute(update(tokens).where(still).values(revoked_at=func.now()))


def hold(connection: Connection, lmr: Lmr, paused: bool) -> Lmr:
    """Hold back the feed of an LMR, or hand it out again."""
    change = update(lmrs).where(lmrs.c.id == lmr.id).values(paused=paused).returning(*_COLUMNS)
    row = connection.execute(change).one_or_none()
    return Lmr(*row) if row else lmr


def find_lmr(connection: Connection, name: str) -> Lmr | None:
    """The LMR of that name or number."""
    is_it = lmrs.c.id == int(name) if name.isascii() and name.isdecimal() and len(name) < 19 else lmrs.c.name == name
    row = connection.execute(select(*_COLUMNS).where(is_it)).one_or_none()
    return Lmr(*row) if row else None


def names_of(connection: Connection, numbers: Iterable[int]) -> dict[int, str]:
    """The names of LMRs by their numbers."""
    found = connection.execute(select(lmrs.c.id, lmrs.c.name).where(lmrs.c.id.in_(list(numbers))))
    return {row[0]: row[1] for row in found}


def list_lmrs(connection: Connection, after: int, limit: int) -> list[Lmr]:
    query = select(*_COLUMNS).where(lmrs.c.id > after).order_by(lmrs.c.id).limit(limit)
    return [Lmr(*row) for row in connection.execute(query)]


def count_for(connection: Connection, some: Sequence[Lmr]) -> dict[int, LmrCounts]:
    """What each of some LMRs has."""
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


def note_asked(connection: Connection, lmr_id: int, cursor: int) -> None:
    """How far an LMR has read."""
    connection.execute(update(lmrs).where(lmrs.c.id == lmr_id).values(cursor=cursor, asked_at=func.now()))


def rules_of(connection: Connection, lmr_id: int, after: int, limit: int) -> Sequence[tuple[int, str | None, str, int]]:
    """A page of an LMR's rules: number, name, text and position."""
    query = (
        select(rules.c.id, rules.c.name, rules.c.text, rules.c.position)
        .where(rules.c.owner == lmr_id, rules.c.id > after)
        .order_by(rules.c.id)
        .limit(limit)
    )
    return [tuple(row) for row in connection.execute(query)]


def newest_rules(
    connection: Connection, lmr_id: int, before: int | None, limit: int
) -> Sequence[tuple[int, str | None, str, int]]:
    """A page of an LMR's rules, the newest first."""
    query = select(rules.c.id, rules.c.name, rules.c.text, rules.c.position).where(rules.c.owner == lmr_id)
    if before is not None:
        query = query.where(rules.c.id < before)
    return [tuple(row) for row in connection.execute(query.order_by(rules.c.id.desc()).limit(limit))]


def rule_of(connection: Connection, lmr_id: int, rule_id: int) -> tuple[int, str | None, str, int] | None:
    """One of an LMR's rules."""
    columns = (rules.c.id, rules.c.name, rules.c.text, rules.c.position)
    row = connection.execute(select(*columns).where(rules.c.owner == lmr_id, rules.c.id == rule_id)).one_or_none()
    return tuple(row) if row else None


def rule_ids(connection: Connection, lmr_id: int) -> list[int]:
    return list(connection.execute(select(rules.c.id).where(rules.c.owner == lmr_id)).scalars())


def delete_lmr(connection: Connection, lmr_id: int) -> None:
    """Forget an LMR, whose rules have been ended, with all that it held and was told. The caller holds the lock."""
    for table in (lmr_resources, lmr_ranges, feed, news, snapshots):
        connection.execute(delete(table).where(table.c.lmr_id == lmr_id))
    connection.execute(delete(lmrs).where(lmrs.c.id == lmr_id))
    connection.execute(update(mdp_state).values(lmrs=mdp_state.c.lmrs - 1))
