"""Counts for administrators, and the webhooks of all LMRs."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, select, true

from mdv.db.tables import lmrs, rules, tokens, users, webhooks
from mdv.db.webhooks import WEBHOOK_COLUMNS, Webhook
from mdv.mdp.rules.planning import PROVIDER_OWNER


@dataclass(frozen=True, slots=True)
class AdministrationCounts:
    """Numbers of what administrators manage. `expiring_tokens`: valid tokens that expire within some days."""

    users: int
    admins: int
    tokens: int
    expiring_tokens: int
    webhooks: int
    paused_webhooks: int
    rules: int
    lmrs: int


def count_for_administration(connection: Connection, days: int) -> AdministrationCounts:
    """Count users, valid tokens, webhooks, the provider's rules and LMRs. `days`: for expiring tokens."""
    ends = tokens.c.expires_at
    is_valid = tokens.c.revoked_at.is_(None), func.coalesce(ends > func.now(), true())
    soon = ends < func.now() + func.make_interval(0, 0, 0, days)
    counts = (
        select(func.count()).select_from(users),
        select(func.count()).where(users.c.role == "admin"),
        select(func.count()).select_from(tokens).where(*is_valid),
        select(func.count()).select_from(tokens).where(*is_valid, soon),
        select(func.count()).select_from(webhooks),
        select(func.count()).where(webhooks.c.state == "paused"),
        select(func.count()).where(rules.c.owner == PROVIDER_OWNER),
        select(func.count()).select_from(lmrs),
    )
    return AdministrationCounts(*connection.execute(select(*(count.scalar_subquery() for count in counts))).one())


def list_all_webhooks(
    connection: Connection, after: int, limit: int, lmr: int | None = None
) -> list[tuple[str, Webhook]]:
    """Return a page of the webhooks of all LMRs, or of one, each with the name of its LMR."""
    query = select(lmrs.c.name, *WEBHOOK_COLUMNS).join(webhooks, webhooks.c.lmr_id == lmrs.c.id)
    if lmr is not None:
        query = query.where(webhooks.c.lmr_id == lmr)
    query = query.where(webhooks.c.id > after).order_by(webhooks.c.id).limit(limit)
    return [(name, Webhook(*row)) for name, *row in connection.execute(query)]


def find_lmr_of_webhook(connection: Connection, number: int) -> str | None:
    """Return the name of the LMR of a webhook; None if there is no such webhook."""
    query = select(lmrs.c.name).join(webhooks, webhooks.c.lmr_id == lmrs.c.id).where(webhooks.c.id == number)
    return connection.execute(query).scalar_one_or_none()
