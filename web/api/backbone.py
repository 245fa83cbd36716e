"""/backbone: the members of the backbone, its log and its checksums."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from flask import Response, request

import mdv
from mdv.accounts.callers import Caller
from mdv.backbone.messages import StateRequest
from mdv.backbone.operation import LogRow
from mdv.backbone.operation import read_body as read_operation
from mdv.backbone.vector import Life
from mdv.errors import BadRequest, Forbidden, Forked, StateIsNeeded, Unauthenticated
from mdv.mdp.backbone_members import (
    NewMember,
    accept_member,
    activate_member,
    change_lead,
    found_backbone,
    invite_member,
    join_backbone,
    pause_member,
    remove_member,
)
from mdv.mdp.leave_backbone import leave_backbone
from mdv.replication.peer_client import VERSION_HEADER
from mdv.replication.wire import decode_messages, document_fields, encode_messages
from web.auth import require_reader, require_unlimited_admin
from web.json_bodies import JSON, describe_json_body, parse_json_body, read_json_body
from web.models import (
    BackboneChecksumQuery,
    BackboneEntry,
    BackboneExit,
    BackboneInvitationShown,
    BackboneLeft,
    BackboneLogQuery,
    BackboneMemberShown,
    BackboneShown,
    BackboneStateQuery,
    ExchangeQuery,
    MarksQuery,
    MemberChange,
    NewBackbone,
    NewBackboneMember,
    NewLead,
    SchemaTrial,
)
from web.negotiate import read_body, run_in_thread
from web.openapi import describe_json, describe_problems, object_schema
from web.routing import RouteGroup
from web.services import services
from web.use_cases.backbone import (
    announce_to_lead,
    describe_backbone,
    describe_checksum,
    describe_member,
    exchange,
    read_buckets,
    read_facts,
    read_replication,
    refuse_documents,
    require_member_or_admin,
    signing_member,
    wait_for_operations,
)
from web.use_cases.schema import answer_trial

routes = RouteGroup("backbone", "The backbone: several MDPs that replicate all documents")

NDJSON = "application/x-ndjson"
MAX_PAGE_BYTES = 8 * 2**20

_VECTOR = {"type": "object", "additionalProperties": {"type": "integer"}}
_MESSAGES = {"required": True, "content": {JSON: {"schema": object_schema(messages="array")}}}


@routes.route("GET", "/backbone", "Get the backbone", {200: BackboneShown} | describe_problems(404))
def get_backbone() -> dict[str, Any]:
    """Returns the members and how far this MDP is behind. 404 if it is in no backbone. The vector counts operations of
    all kinds, also of this MDP."""
    require_reader()
    return describe_backbone(services())


@routes.route("POST", "/backbone", "Found a backbone", {201: BackboneShown} | describe_problems(409, 413, 415),
              body=describe_json_body(NewBackbone, {"name": "m1", "url": "https://m1.example"}))  # fmt: skip
def found() -> tuple[dict[str, Any], int]:
    """This MDP is the first member, and the lead. Its documents and its schema become those of the backbone."""
    require_unlimited_admin()
    given, s = read_json_body(NewBackbone), services()
    with s.replica_lock:
        found_backbone(s.replica, s.provider, given.name, given.url, given.mode, s.config.backbone_plain)
    return describe_backbone(s), 201


@routes.route("POST", "/backbone/invitations", "Invite a member",
              {201: BackboneInvitationShown} | describe_problems(404, 409))  # fmt: skip
def invite() -> tuple[dict[str, Any], int]:
    """Returns a code with which one MDP can join within an hour. Only the lead invites (409 `not-lead`)."""
    require_unlimited_admin()
    s = services()
    _, kind = read_facts(s)
    with s.replica_lock:
        invitation = invite_member(s.replica, kind.name)
    return invitation._asdict(), 201


@routes.route("POST", "/backbone/members", "Add a member",
              {201: BackboneShown} | describe_problems(404, 409, 413, 415), needs_code=True,
              body=describe_json_body(NewBackboneMember, {"name": "m2", "url": "https://m2.example", "key": "…",
                                                          "life": "…", "code": "…"}))  # fmt: skip
def add_member() -> tuple[dict[str, Any], int]:
    """The MDP that joins calls this at the lead (see `POST /backbone/entry`). The code is that of an invitation, in the
    body or in the header `Authorization: Bearer CODE`. 409 if the new member has documents, unless `merge` is true."""
    given, s = read_json_body(NewBackboneMember), services()
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    code = given.code or (secret.strip() if scheme.lower() == "bearer" else "")
    if not code:
        raise Unauthenticated("This call needs the code of an invitation: `mdv peer invite` at the lead prints one.")
    refuse_documents(given.documents, given.merge)
    with s.replica_lock:
        accept_member(s.replica, NewMember(given.name, given.url, given.key, given.life, code), s.config.backbone_plain)
    s.notify_commit()
    return describe_backbone(s), 201


@routes.route("POST", "/backbone/entry", "Join a backbone", {201: BackboneShown} | describe_problems(409, 413, 415),
              body=describe_json_body(BackboneEntry, {"name": "m2", "url": "https://m2.example",
                                                      "code": "…"}))  # fmt: skip
def join() -> tuple[dict[str, Any], int]:
    """This MDP becomes a member of the backbone of an invitation. 409 if it has documents, unless `merge` is true: then
    they are registered in the backbone after its state was transferred."""
    require_unlimited_admin()
    given, s = read_json_body(BackboneEntry), services()
    documents = s.count_documents()
    refuse_documents(documents, given.merge)
    with s.replica_lock:
        join_backbone(
            s.replica, s.provider, given.name, given.url, given.code,
            lambda content, new: announce_to_lead(content, new, documents, given.merge), s.config.backbone_plain,
        )  # fmt: skip
    return describe_backbone(s), 201


@routes.route("POST", "/backbone/exit", "Leave the backbone",
              {200: BackboneLeft} | describe_problems(404, 409, 413, 415),
              body=describe_json_body(BackboneExit, {"force": False}))  # fmt: skip
def leave() -> dict[str, Any]:
    """This MDP goes on alone, with all documents. 409 `not-replicated` until all members have its changes; 409 if it is
    the lead of others. It may join again under another name."""
    require_unlimited_admin()
    given, s = read_json_body(BackboneExit), services()
    with s.replica_lock:
        facts = leave_backbone(s.replica, s.provider, s.config.backbone_plain, given.force)
    s.notify_commit()
    return {"id": facts.table.backbone_id, "name": facts.name}


@routes.route("PATCH", "/backbone/members/<name>", "Pause or resume a member",
              {200: BackboneMemberShown} | describe_problems(404, 413, 415),
              body=describe_json_body(MemberChange, {"paused": True}))  # fmt: skip
def change_member(name: str) -> dict[str, Any]:
    """When this is answered, nothing that was pulled from a paused member is applied here. Its operations may still
    arrive through other members."""
    require_unlimited_admin()
    given, s = read_json_body(MemberChange), services()
    read_facts(s)
    with s.replica_lock:
        facts = pause_member(s.replica, name, given.paused)
    s.notify_commit()
    return describe_member(facts, name, read_replication(s))


@routes.route("DELETE", "/backbone/members/<name>", "Remove a member",
              {200: BackboneShown} | describe_problems(404, 409), is_for_members=True)  # fmt: skip
def delete_member(name: str) -> dict[str, Any]:
    """Only the lead removes members (409 `not-lead`). The others promise first to accept no more of its operations. A
    member can ask for its own removal with its signature."""
    sender = require_member_or_admin()
    if sender not in (None, name):
        raise Forbidden("A member can remove only itself.")
    s = services()
    read_facts(s)
    with s.replica_lock:
        remove_member(s.replica, name)
    s.notify_commit()
    return describe_backbone(s)


@routes.route("POST", "/backbone/activation", "Let this member go first",
              {200: BackboneShown} | describe_problems(404, 409))  # fmt: skip
def activate() -> dict[str, Any]:
    """Only if all members were restored from backups: then none is active, and none can give its state to the others.
    Choose the member with the latest backup; the others take over its state, and what their backups have besides is
    repeated on it. 409 if this member is active, or has changes that it must repeat first."""
    require_unlimited_admin()
    s = services()
    read_facts(s)
    with s.replica_lock:
        activate_member(s.replica)
    s.notify_commit()
    return describe_backbone(s)


@routes.route("PUT", "/backbone/lead", "Change the lead",
              {200: BackboneShown} | describe_problems(404, 409, 413, 415),
              body=describe_json_body(NewLead, {"member": "m2"}))  # fmt: skip
def put_lead() -> dict[str, Any]:
    """The lead hands over to another member, in the next term. If it is lost, any member names another with `force`.
    The highest term counts, at every member: a lead that comes back learns that it is none."""
    require_unlimited_admin()
    given, s = read_json_body(NewLead), services()
    read_facts(s)
    with s.replica_lock:
        change_lead(s.replica, given.member, given.force)
    s.notify_commit()
    return describe_backbone(s)


# Between members


@routes.route("POST", "/backbone/schema/try", "Try a schema",
              {200: describe_json({"type": "object", "required": ["problem"],
                                   "properties": {"problem": {"type": ["object", "null"]}}}, "The problem, or null")}
              | describe_problems(404, 413, 415, 503), is_for_members=True,
              body=describe_json_body(SchemaTrial, {"schema": "", "hold": True}))  # fmt: skip
def try_schema() -> dict[str, Any]:
    """What would a schema break here? The lead asks this of all members before it puts the schema in force. With
    `hold`, new documents must be valid under both schemas for a minute."""
    s = services()
    body = read_body(s.config.body_seconds)
    sender = f"member {signing_member(body)[0]}" if "Signature" in request.headers else require_unlimited_admin().name
    given = parse_json_body(SchemaTrial, body)
    return answer_trial(Caller(sender, "admin", kind="member"), given.text, given.hold)


@routes.route("POST", "/backbone/messages", "Exchange messages with a member",
              {200: describe_json(object_schema(messages="array"), "The answers")} | describe_problems(404, 413),
              query=ExchangeQuery, body=_MESSAGES, is_for_members=True)  # fmt: skip
def messages(query: ExchangeQuery) -> Response:
    """For `mdv replicate` of other members. The request is signed with the key of the member (RFC 9421): `@method`,
    `@authority`, `@path`, `@query` and `content-digest`, with `created`, `nonce`, `keyid` and `alg="ed25519"`."""
    s = services()
    body = read_body(s.config.body_seconds)
    sender, facts, kind = signing_member(body)
    given = run_in_thread(decode_messages, body, kind)
    answers = exchange(given, sender, query.wait, query.wants.split())
    is_joining = any(isinstance(message, StateRequest) for message in given)
    table = facts.table if is_joining else None
    answer = Response(run_in_thread(encode_messages, answers, kind, table), content_type=JSON)
    answer.headers[VERSION_HEADER] = mdv.__version__
    return answer


@routes.route("GET", "/backbone/log", "Read the log",
              {200: {"description": "Operations in order, one JSON object a line. The first line has the vector.",
                     "content": {NDJSON: {"schema": {"type": "string"}}}}} | describe_problems(404, 409, 410),
              query=BackboneLogQuery, is_for_members=True)  # fmt: skip
def read_log(query: BackboneLogQuery) -> Response:
    """The first line is `{"vector", "up_to_date"}`. Each other line is an operation, with its `chain` (the hash over
    all operations of its life so far) and the `signature` of its origin. Operations that every member has are no longer
    kept: 410 `state-needed`."""
    require_member_or_admin()
    s = services()
    have = _read_vector(query.have)
    facts, _ = read_facts(s)
    life = query.of or facts.life
    if life in facts.forked:
        raise Forked(f"Two databases have continued the life {life}, so its operations are not applied.")
    after = have.get(life, 0)
    if query.wait and facts.vector.get(life, 0) <= after:
        wait_for_operations(s, life, after, query.wait)
    with s.single.connect() as connection:
        rows = s.replica.read_rows(connection, life, after, query.limit)
        facts = s.replica.facts(connection) or facts
    if rows is None:
        raise StateIsNeeded(f"The operations of {life} after {after} are no longer kept: transfer the state.")
    rows = _first_bytes(rows)
    last = rows[-1].seq if rows else after
    first = {"vector": dict(facts.vector), "up_to_date": last >= facts.vector.get(life, 0)}
    lines = [json.dumps(first), *(_operation_line(row) for row in rows)]
    return Response("\n".join(lines) + "\n", content_type=NDJSON)


def _read_vector(text: str) -> Mapping[Life, int]:
    try:
        given = json.loads(text)
        if not isinstance(given, dict) or not all(type(seq) is int and seq >= 0 for seq in given.values()):
            raise ValueError
    except ValueError:
        raise BadRequest('`have` is a vector as JSON: {"LIFE": NUMBER, …}.') from None
    return given


def _first_bytes(rows: list[LogRow]) -> list[LogRow]:
    """Return the first rows, until they are as many bytes as an answer has."""
    size = 0
    for number, row in enumerate(rows):
        size += len(row.body)
        if size > MAX_PAGE_BYTES and number:
            return rows[:number]
    return rows


def _operation_line(row: LogRow) -> str:
    return json.dumps(
        read_operation(row.body) | {"chain": row.chain.hex(), "signature": row.signature.hex()}, ensure_ascii=False
    )


@routes.route("GET", "/backbone/state", "Read the state of documents",
              {200: describe_json({"type": "object", "required": ["vector", "documents", "next"],
                                   "properties": {"vector": _VECTOR, "documents": {"type": "array", "items": {}},
                                                  "next": {"type": ["string", "null"]}}}, "A page of documents")}
              | describe_problems(404), query=BackboneStateQuery, is_for_members=True)  # fmt: skip
def read_state(query: BackboneStateQuery) -> dict[str, Any]:
    """Returns documents with their versions and the replicated states of their statements, also deleted documents, with
    the vector of the page. Joining members get the same in one message (`POST /backbone/messages`)."""
    require_member_or_admin()
    s = services()
    _, kind = read_facts(s)
    buckets = read_buckets(query.buckets)
    with s.snapshot() as connection:
        facts = s.replica.facts(connection)
        found = s.replica.state_page(connection, query.after or "", query.limit, buckets)
    documents = [document_fields(one, kind) for one in found]
    return {"vector": dict(facts.vector) if facts is not None else {}, "documents": documents,
            "next": documents[-1]["uri"] if len(documents) == query.limit else None}  # fmt: skip


# Checks


@routes.route("GET", "/backbone/checksum", "Get the checksums of documents",
              {200: describe_json({"type": "object", "required": ["vector"],
                                   "properties": {"vector": _VECTOR, "sums": {"type": "object"}}}, "The sums")}
              | describe_problems(404), query=BackboneChecksumQuery, is_for_members=True)  # fmt: skip
def checksum(query: BackboneChecksumQuery) -> dict[str, Any]:
    """Returns sums over the URIs, versions and contents of all documents, by bucket (65,536, empty ones left out). Two
    members with equal vectors have equal sums. `level=groups` returns the sums of 256 groups, each of 256 buckets in a
    row; `groups` those of the buckets of some groups; `bucket` and `buckets` the documents of buckets. A cset also
    counts counters other than 0 and 1."""
    s = services()
    if "Signature" in request.headers:
        signing_member(b"")
    else:
        require_reader()
    read_facts(s)
    with s.snapshot() as connection:
        return describe_checksum(s, connection, query)


@routes.route("GET", "/backbone/marks", "Get the counters of statements",
              {200: describe_json({"type": "object", "required": ["items"],
                                   "properties": {"items": {"type": "array", "items": {"type": "object"}}}},
                                  "The counters")} | describe_problems(404), query=MarksQuery)  # fmt: skip
def marks(query: MarksQuery) -> dict[str, Any]:
    """Returns `{"statement": [s, p, o], "k": n}` for the statements of a document that are or were there: the counter
    of a `cset`, or the number of insertions that a statement of an `orset` has. By default those other than 0 and 1."""
    require_reader()
    s = services()
    read_facts(s)
    with s.single.connect() as connection:
        found = s.replica.marks(connection, query.uri, query.all)
    return {"items": [
        {"statement": [one.subject, one.property, one.object.as_dict()], "k": number} for one, number in found
    ]}  # fmt: skip


routes.blueprint.add_url_rule("/backbone/", endpoint="found_slash", view_func=found, methods=["POST"])
routes.blueprint.add_url_rule("/backbone/", endpoint="get_backbone_slash", view_func=get_backbone, methods=["GET"])
