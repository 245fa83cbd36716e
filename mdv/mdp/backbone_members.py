"""The members of the backbone, as their administrators change them: found, invite, join, pause, remove."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from mdv.backbone.membership import MemberLives
from mdv.backbone.messages import JoinRequest
from mdv.backbone.replica_store import MemberFacts, MemberStatus
from mdv.db.replica.keys import read_private_key, store_private_key
from mdv.errors import BadRequest, Conflict, Forbidden, MdvError, NotFound, Refused
from mdv.mdp.provider import Provider
from mdv.mdp.replica import Replica, now_in_microseconds
from mdv.mdp.replicated_rules import announce_rules
from mdv.mdp.replicated_schema import refuse_unless_lead, schema_as_text
from mdv.replication.keys import check_public_key, make_private_key, public_key
from mdv.replication.member_url import check_member_name, check_member_url

INVITATION_SECONDS = 3600


class BackboneInvitation(NamedTuple):
    """A code for one new member. `expires`: in seconds since 1970."""

    code: str
    expires: int


class InvitationContent(NamedTuple):
    """What the code of an invitation contains: where the lead is, and the kind of the set."""

    lead: str
    url: str
    mode: str
    secret: str


class NewMember(NamedTuple):
    """What a new member says about itself."""

    name: str
    url: str
    key: str
    life: str
    code: str


Contacts = Mapping[str, tuple[str, str]]
"""The URLs and the public keys of members, by name."""

Announce = Callable[[InvitationContent, NewMember], Contacts]
"""Sends the request of a new member to the lead. Returns all members. Raises an error if it is refused."""


def found_backbone(replica: Replica, provider: Provider, name: str, url: str, mode: str, allows_plain: bool) -> None:
    """Found a backbone with this MDP alone, as its lead."""
    url = check_member_url(url, allows_plain)
    _create(replica, provider, check_member_name(name), url, mode)
    with provider.engine.connect() as connection:
        schema = schema_as_text(provider.schemas.now(connection))
    with replica.member() as member:
        facts = member.store.facts
        now = now_in_microseconds()
        member.found(now)
        if schema is not None:
            member.put_schema(schema, now)
            facts.note_schema()
    with provider.engine.begin() as connection:
        announce_rules(connection, provider)


def invite_member(replica: Replica, mode: str) -> BackboneInvitation:
    """Return a code with which one new member may join within an hour."""
    secret, expires = secrets.token_urlsafe(24), int(time.time()) + INVITATION_SECONDS
    with replica.member() as member:
        facts = member.store.facts
        refuse_unless_lead(facts)
        now = now_in_microseconds()
        facts.invitations = {code: end for code, end in facts.invitations.items() if end > now}
        member.invite(_hash(secret), expires * 1_000_000)
        content = InvitationContent(facts.name, facts.url, mode, secret)
    return BackboneInvitation(_encode_code(content), expires)


def accept_member(replica: Replica, new: NewMember, allows_plain: bool) -> MemberFacts:
    """Add a new member, at the lead. Return what this member knows then."""
    check_member_name(new.name)
    check_member_url(new.url, allows_plain)
    if not check_public_key(new.key):
        raise BadRequest("`key` is not an Ed25519 public key (32 bytes as base64url).")
    code = read_code(new.code).secret if "." not in new.code and len(new.code) > 64 else new.code
    with replica.member() as member:
        facts, now = member.store.facts, now_in_microseconds()
        refuse_unless_lead(facts)
        _refuse_known(facts, new)
        if facts.invitations.get(_hash(code), 0) <= now:
            raise Forbidden("The invitation is unknown, was used or has expired. Ask for another: `mdv peer invite`.")
        member.receive(JoinRequest(new.name, new.life, _hash(code), new.url, new.key), now)
    return facts


def _refuse_known(facts: MemberFacts, new: NewMember) -> None:
    if new.name in facts.table.members:
        raise Conflict(f"The backbone has or had a member {new.name!r}. Choose another name.")
    for name, member in facts.table.members.items():
        if not member.is_removed and member.url.rstrip("/") == new.url.rstrip("/"):
            raise Conflict(f"The member {name!r} has the URL {new.url}. Give the URL of the new member.")


def join_backbone(
    replica: Replica, provider: Provider, name: str, url: str, code: str, announce: Announce, allows_plain: bool
) -> InvitationContent:
    """Join the backbone of an invitation. The documents here are registered again when its state was transferred."""
    content = read_code(code)
    url = check_member_url(url, allows_plain)
    check_member_url(content.url, allows_plain)
    private_key = _create(replica, provider, check_member_name(name), url, content.mode)
    try:
        with replica.member() as member:
            facts = member.store.facts
            member.join(_hash(content.secret), now_in_microseconds())
            members = announce(content, NewMember(name, url, public_key(private_key), facts.life, content.secret))
            # Half of the members must know the new life before it begins, so all of them are polled.
            for other in members.keys() - {name}:
                facts.table.members[other] = MemberLives(url=members[other][0], key=members[other][1])
        with provider.engine.begin() as connection:
            announce_rules(connection, provider)
    except MdvError:
        replica.discard()
        raise
    return content


def pause_member(replica: Replica, name: str, paused: bool) -> MemberFacts:
    """Stop or resume our pulls from a member. When this returns, nothing that was pulled from it is applied."""
    with replica.member() as member:
        facts = member.store.facts
        _refuse_unknown(facts, name)
        if name == facts.name:
            raise BadRequest("A member does not pull from itself: pause it at the other members.")
        if paused:
            facts.paused.add(name)
        else:
            facts.paused.discard(name)
    return facts


def change_lead(replica: Replica, name: str, force: bool) -> MemberFacts:
    """Make a member the lead, in the next term. Only the lead may, unless it is lost (`force`)."""
    with replica.member() as member:
        facts = member.store.facts
        _refuse_unknown(facts, name)
        if facts.table.lead[2] == name:
            return facts
        if not force:
            refuse_unless_lead(facts)
        try:
            (member.set_lead if force else member.hand_over_lead)(name, now_in_microseconds())
        except Refused as error:
            raise Conflict(error.detail) from None
    return facts


def remove_member(replica: Replica, name: str) -> MemberFacts:
    """Remove a member. Its key opens nothing any more. Only the lead may."""
    with replica.member() as member:
        facts = member.store.facts
        _refuse_unknown(facts, name)
        refuse_unless_lead(facts)
        if name == facts.name:
            raise Conflict("The lead cannot be removed.")
        member.close([name], is_removal=True)
    return facts


def activate_member(replica: Replica) -> MemberFacts:
    """Let this member go first, because all members were restored: none of them is active, so none could give its
    state to the others."""
    with replica.member() as member:
        facts = member.store.facts
        if facts.status is MemberStatus.ACTIVE:
            raise Conflict("This member is active already.")
        if facts.status is MemberStatus.CHECKING:
            member.stop_checking()
        else:
            member.assume_active()
    return facts


def _refuse_unknown(facts: MemberFacts, name: str) -> None:
    if not facts.table.is_member(name):
        raise NotFound(f"The backbone has no member {name!r}.")


def _create(replica: Replica, provider: Provider, name: str, url: str, mode: str) -> bytes:
    """Make this MDP a member without a backbone, unless an earlier attempt did. Return its private key."""
    with provider.engine.connect() as connection:
        facts, key = replica.facts(connection), read_private_key(connection)
    if facts is not None and facts.table.members:
        raise Conflict("This MDP is a member of a backbone already.")
    if facts is not None:
        replica.discard()
    replica.create(name, url, mode)
    key = key or make_private_key()
    with provider.engine.begin() as connection:
        store_private_key(connection, key)
    with replica.member() as member:
        member.store.facts.url, member.store.facts.key = url, public_key(key)
    return key


# Codes


def _hash(secret: str) -> str:
    """Return what is stored of a code."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _encode_code(content: InvitationContent) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def read_code(code: str) -> InvitationContent:
    """Return the content of an invitation.

    >>> content = InvitationContent("m1", "http://127.0.0.1:8080", "orset", "secret")
    >>> read_code(_encode_code(content)) == content
    True
    """
    try:
        fields = json.loads(base64.urlsafe_b64decode(code + "=" * (-len(code) % 4)))
        content = InvitationContent(*map(str, fields))
    except (ValueError, TypeError, binascii.Error):
        raise BadRequest("This is not the code of an invitation. `mdv peer invite` at the lead prints one.") from None
    return content
