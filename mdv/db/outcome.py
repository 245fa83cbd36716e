"""What came of a registration: who was told, and whose rules its resources match."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from mdv.db.tables import filter_data, lmr_resources, lmrs, publications, rule_ends, rules

MOST_RULES = 100


class OwnedRule(NamedTuple):
    """A subscription: its number, name and text, and whose it is."""

    id: int
    name: str | None
    text: str
    lmr: str


def told_at(connection: Connection, position: int) -> list[str]:
    """The LMRs that a transaction was told to."""
    concerned = select(func.unnest(publications.c.lmrs)).where(publications.c.tx == position)
    return list(connection.scalars(select(lmrs.c.name).where(lmrs.c.id.in_(concerned)).order_by(lmrs.c.name)))


def rules_ending_in(connection: Connection, ends: Collection[int]) -> dict[int, list[OwnedRule]]:
    """The subscriptions that end in some atomic rules, those that came first."""
    query = (
        select(rule_ends.c.end_id, rules.c.id, rules.c.name, rules.c.text, lmrs.c.name)
        .join_from(rule_ends, rules, rules.c.id == rule_ends.c.rule_id)
        .join(lmrs, lmrs.c.id == rules.c.owner)
        .where(rule_ends.c.end_id.in_(ends))
        .order_by(rules.c.id)
        .limit(MOST_RULES)
    )
    found: dict[int, list[OwnedRule]] = {}
    for end, *rule in connection.execute(query):
        found.setdefault(end, []).append(OwnedRule(*rule))
    return found


def holders(connection: Connection, document_id: int) -> list[str]:
    """The LMRs that hold something that a document describes."""
    described = select(filter_data.c.resource_id).where(filter_data.c.document_id == document_id).distinct()
    held = select(lmr_resources.c.lmr_id).where(lmr_resources.c.resource_id.in_(described))
    return list(connection.scalars(select(lmrs.c.name).where(lmrs.c.id.in_(held)).order_by(lmrs.c.name)))
