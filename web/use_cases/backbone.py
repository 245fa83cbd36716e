"""The backbone: what members exchange, and what administrators see and change."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any

import structlog
from flask import request
from sqlalchemy import Connection

import mdv
from mdv.backbone.divergence import group_sums, in_groups
from mdv.backbone.kinds import SET_KINDS
from mdv.backbone.messages import BackboneMessage, JoinRequest, LogPage, LogPoll
from mdv.backbone.replica_store import MemberFacts
from mdv.backbone.replicated_set import SetKind
from mdv.backbone.sums import BUCKETS
from mdv.backbone.vector import Life
from mdv.client import is_loopback
from mdv.errors import BadRequest, Conflict, Forbidden, Unauthenticated, Unavailable
from mdv.http_client import HttpClient
from mdv.mdp.backbone_members import Contacts, InvitationContent, NewMember
from mdv.mdp.replica import in_no_backbone
from mdv.replication.http_signatures import read_signature, verify_request
from mdv.replication.link_status import LINKS_KEY, LINKS_SECONDS, ReplicationStatus, missing_operations
from mdv.replication.peer_client import problem_of
from web.auth import require_unlimited_admin
from web.models import BackboneChecksumQuery
from web.services import Services, services

log = structlog.get_logger()

JOIN_SECONDS = 20.0


def find_facts(s: Services) -> MemberFacts | None:
    """Return what this member knows; None if this MDP is in no backbone."""
    with s.single.connect() as connection:
        facts = s.replica.facts(connection)
    return facts if facts is not None and facts.table.members else None


def origin_names(s: Services) -> Callable[[Life], str]:
    """Return a function from a life to the name of its member; the life itself if it is not known."""
    facts = find_facts(s)
    return lambda life: (facts.table.owner_of(life) if facts is not None else None) or life


def read_facts(s: Services) -> tuple[MemberFacts, SetKind]:
    """Return what this member knows, and the kind of its set."""
    with s.single.connect() as connection:
        facts, mode = s.replica.facts(connection), s.replica.mode(connection)
    if facts is None or mode is None or not facts.table.members:
        raise in_no_backbone()
    return facts, SET_KINDS[mode]


# Signed requests


def signing_member(body: bytes) -> tuple[str, MemberFacts, SetKind]:
    """Return the name of the member that has signed this request, what we know, and the kind of the set."""
    s = services()
    signature = read_signature(request.headers)
    if signature is None:
        raise Unauthenticated("This call needs the signature of a member of the backbone.")
    facts, kind = read_facts(s)
    member = facts.table.members.get(signature.key_id)
    if member is None or member.is_removed or not member.key:
        raise Unauthenticated(f"{signature.key_id!r} is not a member of the backbone.")
    query = request.query_string.decode("ascii", "replace")
    url = facts.url + request.path + (f"?{query}" if query else "")
    verify_request(member.key, signature, request.method, url, request.headers, body, int(time.time()))
    if not s.used_nonces.use(signature.nonce):
        raise Unauthenticated("This request was sent before. Sign each request with a nonce of its own.")
    return signature.key_id, facts, kind


def require_member_or_admin(body: bytes = b"") -> str | None:
    """Return the name of the member that has signed this request; None if it has the token of an administrator."""
    if "Signature" in request.headers:
        return signing_member(body)[0]
    require_unlimited_admin()
    return None


# Messages


def exchange(
    messages: list[BackboneMessage], sender: str, wait: float, wants: Collection[str]
) -> list[BackboneMessage]:
    """Process the messages of a member. Return the answers to it. If it only polls and there is nothing new, wait."""
    s = services()
    for message in messages:
        if message.sender != sender:
            raise Forbidden(f"The messages of {message.sender!r} were sent by {sender!r}.")
    # A request to join is repeated until the state arrives. `POST /backbone/members` has processed it.
    messages = [message for message in messages if not isinstance(message, JoinRequest)]
    answers = _process(s, messages, sender)
    if wait > 0 and len(messages) == 1 and isinstance(messages[0], LogPoll) and messages[0].of is None:
        poll = messages[0]
        if all(isinstance(answer, LogPage) and not answer.rows for answer in answers):
            _wait_for_news(s, poll, wait, wants)
            answers = _process(s, [poll], sender)
    return answers


def _process(s: Services, messages: list[BackboneMessage], sender: str) -> list[BackboneMessage]:
    with s.replica_lock:
        found = [answer for message in messages for answer in s.replica.receive(message)]
    return [answer for to, answer in found if to == sender]


def _wait_for_news(s: Services, poll: LogPoll, wait: float, wants: Collection[str]) -> None:
    """Wait until there are operations that the poll asks for: ours, or those of the lives in `wants`."""
    deadline = time.monotonic() + min(wait, s.config.max_wait_seconds)
    facts, _ = read_facts(s)
    known = {*facts.table.lives_of(facts.name), *wants}

    def has_news(connection: Connection) -> bool:
        facts = s.replica.progress(connection)
        if facts is None:
            return True
        lives = {facts.life, *known}
        return any(facts.vector.get(life, 0) > poll.have.get(life, 0) for life in lives)

    with s.waits.slot(f"member {poll.sender}") as has_slot:
        if not has_slot:
            raise Unavailable("Too many requests are waiting.")
        s.log_notifier.wait_until(has_news, deadline)


def wait_for_operations(s: Services, life: str, after: int, wait: float) -> None:
    """Wait until this MDP has applied more operations of a life."""

    def has_more(connection: Connection) -> bool:
        facts = s.replica.progress(connection)
        return facts is None or facts.vector.get(life, 0) > after

    with s.waits.slot("log") as has_slot:
        if has_slot:
            s.log_notifier.wait_until(has_more, time.monotonic() + min(wait, s.config.max_wait_seconds))


def read_buckets(text: str | None, name: str = "buckets", below: int = BUCKETS) -> set[int] | None:
    """Return the numbers of buckets, or of groups of them, in a parameter; None if it is absent."""
    if text is None:
        return None
    try:
        found = {int(part) for part in text.split(",")}
    except ValueError:
        found = {-1}
    if not all(0 <= number < below for number in found):
        raise BadRequest(f"`{name}` is a comma-separated list of numbers from 0 to {below - 1}.")
    return found


def describe_checksum(s: Services, connection: Connection, query: BackboneChecksumQuery) -> dict[str, Any]:
    """Return sums of documents, or the documents of buckets, with our vector."""
    buckets = read_buckets(query.buckets) if query.bucket is None else {query.bucket}
    groups = read_buckets(query.groups, "groups", BUCKETS // 256)
    if buckets is not None:
        found = s.replica.documents_of_buckets(connection, buckets)
        items = [{"uri": uri, "version": version, "content": f"{digest:016x}"}
                 for uri, (version, digest) in sorted(found.documents.items())]  # fmt: skip
        answer: dict[str, Any] = {"vector": dict(found.vector), "documents": items}
        return answer if query.bucket is None else answer | {"bucket": query.bucket}
    facts, sums = s.replica.facts(connection), s.replica.sums(connection)
    if query.level == "groups":
        sums = group_sums(sums)
    elif groups is not None:
        sums = in_groups(sums, groups)
    return {
        "vector": dict(facts.vector) if facts is not None else {},
        "sums": {str(number): f"{value:016x}" for number, value in sorted(sums.items())},
    }


# Status


def read_replication(s: Services) -> ReplicationStatus | None:
    """Return the last report of `mdv replicate`; None if there is none of the last minute."""
    status = ReplicationStatus.from_json(s.redis_client.use(lambda client: client.get(LINKS_KEY)))  # type: ignore[arg-type]
    return status if status is not None and time.time() - status.at < LINKS_SECONDS else None


def describe_backbone(s: Services) -> dict[str, Any]:
    """Return the members, the vector, and how far this MDP is behind."""
    facts, kind = read_facts(s)
    status = read_replication(s) or ReplicationStatus()
    missing = missing_operations(status.known_vector(), facts.vector)
    since = min(status.behind_since.values(), default=0.0) if missing else 0.0
    term, _, lead = facts.table.lead
    with s.single.connect() as connection:
        log_bytes = s.replica.log_bytes(connection)
    return {
        "id": facts.table.backbone_id,
        "mode": kind.name,
        "name": facts.name,
        "life": facts.life,
        "lead": lead,
        "term": term,
        "state": member_state(facts, facts.name),
        "members": [describe_member(facts, name, status) for name in sorted(facts.table.members)
                    if not facts.table.members[name].is_removed],
        "vector": dict(facts.vector),
        "lag": missing,
        "lag_seconds": round(time.time() - since, 3) if since else 0,
        "waiting": status.waiting,
        "forked": sorted(facts.forked),
        "diverged": sorted(facts.diverged)[:1000],
        "replicating": bool(status.at),
        "log_bytes": log_bytes,
        "version": mdv.__version__,
    }  # fmt: skip


def describe_member(facts: MemberFacts, name: str, status: ReplicationStatus | None) -> dict[str, Any]:
    """Return a member, as this one sees it."""
    member, link = facts.table.members[name], status.links.get(name) if status is not None else None
    lives = sorted(member.current) or sorted(member.begun)
    item: dict[str, Any] = {
        "name": name,
        "url": member.url,
        "key": member.key,
        "life": facts.life if name == facts.name else (lives[-1] if lives else None),
        "state": member_state(facts, name),
        "paused": name in facts.paused,
    }
    if name != facts.name:
        reported = [facts.reports[life] for life in lives if life in facts.reports]
        item |= {
            "last_contact": link.contact or None if link is not None else None,
            "error": link.error if link is not None else "",
            "clock_skew": round(link.clock_skew, 1) if link is not None else None,
            "version": link.version or None if link is not None else None,
            "transport": link.transport if link is not None else None,
            "lag": missing_operations(link.offered, facts.vector) if link is not None else None,
            "behind_us": missing_operations(facts.vector, reported[0]) if reported else None,
        }
    return item


def member_state(facts: MemberFacts, name: str) -> str:
    """Return the state of a member in one word."""
    member = facts.table.members[name]
    if name == facts.name:
        return "returning" if facts.has_new_schema else facts.status.value
    if name in facts.removing:
        return "leaving"
    return "active" if member.current else "lapsed" if member.begun else "unknown"


# Changes


def refuse_documents(documents: int, merge: bool) -> None:
    """Raise `Conflict` if a new member has documents that are not to be merged."""
    if documents and not merge:
        raise Conflict(
            f"The new member has {documents:,} documents. Start with an empty MDP, or register its documents in the"
            " backbone with merge (`mdv peer join --merge`)."
        )


def announce_to_lead(content: InvitationContent, new: NewMember, documents: int, merge: bool) -> Contacts:
    """Send the request of this MDP to become a member to the lead. Return the URLs and keys of the members."""
    body = {"name": new.name, "url": new.url, "key": new.key, "life": new.life, "code": new.code,
            "documents": documents, "merge": merge}  # fmt: skip
    url = f"{content.url}/api/v1/backbone/members"
    with HttpClient(timeout=JOIN_SECONDS, follow_redirects=False, trust_env=not is_loopback(content.url)) as http:
        try:
            response = http.post(url, json=body)
        except Exception as error:
            raise Unavailable(f"The lead at {content.url} cannot be reached: {error}.") from error
    if not response.is_success:
        raise problem_of(response, content.url)
    return {str(one["name"]): (str(one["url"]), str(one["key"])) for one in response.json()["members"]}
