"""The outcome of a registration: the LMRs that were notified, and the rules that its resources match."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from mdv.db.tables import filter_data, lmr_resources, lmrs, publications, rule_ends, rules

MAX_RULES_LISTED = 100


class OwnedRule(NamedTuple):
    """A subscription: its ID, name and text, and its LMR."""

    id: int
    name: str | None
    text: str
    lmr: str


def list_notified_lmrs(connection: Connection, position: int) -> list[str]:
    """List the LMRs that received events of a transaction."""
    concerned = select(func.unnest(publications.c.lmrs)).where(publications.c.tx == position)
    return list(connection.scalars(select(lmrs.c.name).where(lmrs.c.id.in_(concerned)).order_by(lmrs.c.name)))


def list_rules_by_end(connection: Connection, ends: Collection[int]) -> dict[int, list[OwnedRule]]:
    """Return the first subscriptions with these end rules, by end rule."""
    query = (
        select(rule_ends.c.end_id, rules.c.id, rules.c.name, rules.c.text, lmrs.c.name)
        .join_from(rule_ends, rules, rules.c.id == rule_ends.c.rule_id)
        .join(lmrs, lmrs.c.id == rules.c.owner)
        .where(rule_ends.c.end_id.in_(ends))
        .order_by(rules.c.id)
        .limit(MAX_RULES_LISTED)
    )
    found: dict[int, list[OwnedRule]] = {}
    for end, *rule in connection.execute(query):
        found.setdefault(end, []).append(OwnedRule(*rule))
    return found


def list_holding_lmrs(connection: Connection, document_id: int) -> list[str]:
    """List the LMRs that hold a resource that a document describes."""
    described = select(filter_data.c.resource_id).where(filter_data.c.document_id == document_id).distinct()
    held = select(lmr_resources.c.lmr_id).where(lmr_resources.c.resource_id.in_(described))
    return list(connection.scalars(select(lmrs.c.name).where(lmrs.c.id.in_(held)).order_by(lmrs.c.name)))
