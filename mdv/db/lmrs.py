"""The LMRs that are registered at the MDP, and how far each has read its feed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from mdv.db.tables import (
    feed,
    lmr_ranges,
    lmr_resources,
    lmr_rules,
    lmrs,
    mdp_state,
    news,
    rule_ends,
    rules,
    snapshots,
    tokens,
)
from mdv.db.tokens import hash_token, make_secret
from mdv.errors import Conflict


@dataclass(frozen=True, slots=True)
class Lmr:
    """A local metadata repository. `cursor`: the offset of its last feed request. `paused`: its feed is held back."""

    id: int
    name: str
    kept_after: int
    cursor: int | None
    asked_at: datetime | None
    created_at: datetime
    paused: bool
    by: str | None = None
    """Who created it."""
    home: str | None = None
    """The member of the backbone where it is at home; None: here."""
    term: int = 0
    """The number of its last adoption."""


_COLUMNS: tuple[ColumnElement[Any], ...] = (
    lmrs.c.id, lmrs.c.name, lmrs.c.kept_after, lmrs.c.cursor, lmrs.c.asked_at,
            lmrs.c.created_at, lmrs.c.paused, lmrs.c.changed_by, lmrs.c.home, lmrs.c.term,
)  # fmt: skip


def create_lmr(connection: Connection, name: str, by: str | None = None) -> tuple[Lmr, str]:
    """Create an LMR and return it with its token. Only the hash of the token is stored. The caller holds the lock."""
    try:
        with connection.begin_nested():
            row = connection.execute(insert(lmrs).values(name=name, changed_by=by).returning(*_COLUMNS)).one()
    except IntegrityError:
        raise Conflict(f"An LMR named {name} already exists. Choose another name.") from None
    connection.execute(update(mdp_state).values(lmrs=mdp_state.c.lmrs + 1))
    lmr = Lmr(*row)
    return lmr, create_lmr_token(connection, lmr)


def create_lmr_token(connection: Connection, lmr: Lmr) -> str:
    """Create and return an additional token for an LMR."""
    secret, digest = make_secret()
    connection.execute(insert(tokens).values(name=lmr.name, role="lmr", lmr_id=lmr.id, hash=digest))
    return secret


def accept_lmr_token(connection: Connection, lmr: Lmr, secret: str) -> None:
    """Store an existing token of an LMR, which keeps its other tokens."""
    digest = hash_token(secret)
    connection.execute(delete(tokens).where(tokens.c.hash == digest))  # it may be revoked
    connection.execute(insert(tokens).values(name=lmr.name, role="lmr", lmr_id=lmr.id, hash=digest))


def revoke_lmr_tokens(connection: Connection, lmr: Lmr) -> None:
    """Revoke all tokens of an LMR."""
    still = (tokens.c.lmr_id == lmr.id) & tokens.c.revoked_at.is_(None)
    connection.execute(update(tokens).where(still).values(revoked_at=func.now()))
    connection.execute(update(lmrs).where(lmrs.c.id == lmr.id).values(announced=False))


def set_paused(connection: Connection, lmr: Lmr, paused: bool) -> Lmr:
    """Pause or resume the feed of an LMR."""
    change = update(lmrs).where(lmrs.c.id == lmr.id).values(paused=paused).returning(*_COLUMNS)
    row = connection.execute(change).one_or_none()
    return Lmr(*row) if row else lmr


def find_lmr(connection: Connection, name: str) -> Lmr | None:
    """Return the LMR with this name or ID."""
    is_it = lmrs.c.id == int(name) if name.isascii() and name.isdecimal() and len(name) < 19 else lmrs.c.name == name
    row = connection.execute(select(*_COLUMNS).where(is_it)).one_or_none()
    return Lmr(*row) if row else None


def read_lmr_names(connection: Connection, numbers: Iterable[int]) -> dict[int, str]:
    """Return the names of LMRs by ID."""
    found = connection.execute(select(lmrs.c.id, lmrs.c.name).where(lmrs.c.id.in_(list(numbers))))
    return {row[0]: row[1] for row in found}


def list_lmrs(connection: Connection, after: int, limit: int) -> list[Lmr]:
    query = select(*_COLUMNS).where(lmrs.c.id > after).order_by(lmrs.c.id).limit(limit)
    return [Lmr(*row) for row in connection.execute(query)]


def read_lmrs(connection: Connection, ids: Collection[int]) -> list[Lmr]:
    """Return the LMRs with these IDs, in their order."""
    query = select(*_COLUMNS).where(lmrs.c.id.in_(ids)).order_by(lmrs.c.id)
    return [Lmr(*row) for row in connection.execute(query)]


def record_cursor(connection: Connection, lmr_id: int, cursor: int) -> None:
    """Record how far an LMR has read its feed."""
    connection.execute(update(lmrs).where(lmrs.c.id == lmr_id).values(cursor=cursor, asked_at=func.now()))


def record_request(connection: Connection, lmr_id: int) -> None:
    """Record the time of a feed request."""
    connection.execute(update(lmrs).where(lmrs.c.id == lmr_id).values(asked_at=func.now()))


StoredSubscription = tuple[int, str | None, str, int, str | None, int]
"""A rule of an LMR: its ID as a subscription, name, text and position, who changed it last, and its own ID."""

subscription_id = func.coalesce(lmr_rules.c.lasting_id, rules.c.id)
"""The ID of a subscription: that of its rule, unless the LMR has had another home."""

SUBSCRIPTION_COLUMNS = (subscription_id, rules.c.name, rules.c.text, rules.c.position, rules.c.changed_by, rules.c.id)

WITH_LASTING_IDS = rules.outerjoin(
    lmr_rules, (lmr_rules.c.rule_id == rules.c.id) & (lmr_rules.c.lmr_id == rules.c.owner)
)
"""The rules, with their lasting IDs if they have any."""


def list_lmr_rules(connection: Connection, lmr_id: int, after: int, limit: int) -> Sequence[StoredSubscription]:
    """Return a page of an LMR's rules."""
    query = (
        select(*SUBSCRIPTION_COLUMNS)
        .select_from(WITH_LASTING_IDS)
        .where(rules.c.owner == lmr_id, subscription_id > after)
        .order_by(subscription_id)
        .limit(limit)
    )
    return [tuple(row) for row in connection.execute(query)]


def find_lmr_rule(connection: Connection, lmr_id: int, number: int) -> StoredSubscription | None:
    """Return the rule of one of an LMR's subscriptions; None if it has no such subscription."""
    query = select(*SUBSCRIPTION_COLUMNS).select_from(WITH_LASTING_IDS)
    query = query.where(rules.c.owner == lmr_id, subscription_id == number)
    row = connection.execute(query).one_or_none()
    return tuple(row) if row else None


def find_rule_with_ends(connection: Connection, lmr_id: int, ends: Collection[int]) -> int | None:
    """Return the ID of the first of an LMR's rules with exactly these end rules; None if it has no such rule."""
    having_one = select(rule_ends.c.rule_id).where(rule_ends.c.end_id.in_(ends), rule_ends.c.owner == lmr_id)
    query = (
        select(rule_ends.c.rule_id)
        .where(rule_ends.c.rule_id.in_(having_one))
        .group_by(rule_ends.c.rule_id)
        .having(func.count() == len(ends), func.bool_and(rule_ends.c.end_id.in_(ends)))
        .order_by(rule_ends.c.rule_id)
        .limit(1)
    )
    return connection.execute(query).scalar_one_or_none()


def list_rule_ids(connection: Connection, lmr_id: int) -> list[int]:
    return list(connection.execute(select(rules.c.id).where(rules.c.owner == lmr_id)).scalars())


def delete_lmr(connection: Connection, lmr_id: int) -> None:
    """Delete an LMR with its closure, its feed and its snapshots. Its rules are already removed. The caller holds the
    lock."""
    delete_closure(connection, lmr_id)
    connection.execute(delete(lmrs).where(lmrs.c.id == lmr_id))
    connection.execute(update(mdp_state).values(lmrs=mdp_state.c.lmrs - 1))


def delete_closure(connection: Connection, lmr_id: int) -> None:
    """Delete the closure of an LMR, its feed and its snapshots. The caller holds the lock."""
    for table in (lmr_resources, lmr_ranges, feed, news, snapshots):
        connection.execute(delete(table).where(table.c.lmr_id == lmr_id))
