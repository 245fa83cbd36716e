"""Leave the backbone: once all other members have the operations of this one, the lead removes it, and it is alone."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection

from mdv.backbone.kinds import SET_KINDS
from mdv.backbone.replica_store import MemberFacts, MemberStatus
from mdv.backbone.vector import covers
from mdv.db.replica.keys import read_private_key
from mdv.errors import Conflict, NotReplicated, Unauthenticated
from mdv.mdp.provider import Provider
from mdv.mdp.replica import Replica
from mdv.replication.member_url import check_member_url
from mdv.replication.peer_client import PeerClient

AskLead = Callable[[Connection, MemberFacts], None]
"""Asks the lead to remove this member."""


def leave_backbone(replica: Replica, provider: Provider, allows_plain: bool, force: bool = False) -> MemberFacts:
    """Leave the backbone. The documents remain here. Return what this member knew.

    No change is made here until the lead has answered, so none is lost. `force`: ask no other member, because this one
    was removed or the others are gone.
    """

    def ask(connection: Connection, facts: MemberFacts) -> None:
        if not force and others_of(facts):
            refuse_to_leave(facts)
            _ask_lead(connection, facts, replica.mode(connection) or "", allows_plain)

    return replica.discard(ask)


def others_of(facts: MemberFacts) -> list[str]:
    """Return the other members that are active."""
    return sorted(name for name in facts.table.active() if name != facts.name)


def refuse_to_leave(facts: MemberFacts) -> None:
    """Raise an error unless all other members have the operations of this one."""
    if facts.table.lead[2] == facts.name:
        raise Conflict("The lead cannot leave. Make another member the lead first: `mdv peer lead NAME`.")
    if facts.status is not MemberStatus.ACTIVE:
        raise NotReplicated(f"This member is {facts.status.value}. Try again when it is active.")
    own = {life: seq for life, seq in facts.vector.items() if life in facts.table.lives_of(facts.name) | {facts.life}}
    behind = [name for name in others_of(facts)
              if not any(covers(facts.reports[life], own) for life in facts.table.members[name].current
                         if life in facts.reports)]  # fmt: skip
    if behind:
        raise NotReplicated(
            f"Changes of this member are not at {', '.join(behind)} yet. Wait, or have them removed first.",
            members=behind,
        )


def _ask_lead(connection: Connection, facts: MemberFacts, mode: str, allows_plain: bool) -> None:
    lead = facts.table.members[facts.table.lead[2]]
    key = read_private_key(connection)
    assert key is not None
    client = PeerClient(check_member_url(lead.url, allows_plain), facts.name, key, SET_KINDS[mode])
    try:
        client.leave()
    except Unauthenticated:
        """The lead has removed this member already."""
    finally:
        client.close()
