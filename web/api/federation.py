"""/federation: superpeers and peers that share rules, their links, and the transactions of their rules."""

from __future__ import annotations

from typing import Any

from flask import Response, request

from mdv.errors import Unauthenticated
from mdv.inspect.federation import list_global_rules, list_transactions, transaction_tree
from mdv.mdp.federation.members import (
    NewNeighbour,
    accept_neighbour,
    connect_superpeer,
    find_site,
    found_federation,
    invite,
    join_as_peer,
    leave_federation,
    set_grants,
)
from web.auth import require_reader, require_unlimited_admin
from web.json_bodies import JSON, describe_json_body, read_json_body
from web.models import (
    FederationEntry,
    FederationExchangeQuery,
    FederationInvitationShown,
    FederationLinkShown,
    FederationPrivileges,
    LimitQuery,
    NewFederation,
    NewFederationLink,
)
from web.negotiate import read_body
from web.openapi import describe_json, describe_problems, object_schema, page_schema
from web.routing import RouteGroup
from web.services import services
from web.use_cases.federation import exchange, introduce_at, read_federation

routes = RouteGroup("federation", "The federation: superpeers and peers that share event-condition-action rules")

_SHOWN = describe_json(object_schema(name="string", links="array", superpeers="array", peers="array"), "The federation")
_ITEMS = describe_json(page_schema({"type": "object"}), "A list")
_EXCHANGE = {"required": True, "content": {JSON: {"schema": object_schema(sender="string", messages="array")}}}
MAX_PRIVILEGES_BYTES = 1_000_000


@routes.route("GET", "/federation", "Get the federation", {200: _SHOWN} | describe_problems(404))
def get_federation() -> dict[str, Any]:
    """Returns what this MDP is in a federation, its neighbours with the messages that wait for them, and which classes
    and properties each peer group has data of. 404 if it is in none."""
    require_reader()
    return read_federation(services())


@routes.route("POST", "/federation", "Found a federation, or become a superpeer of one",
              {201: _SHOWN} | describe_problems(409, 413, 415),
              body=describe_json_body(NewFederation, {"name": "lib-a", "url": "https://a.example"}))  # fmt: skip
def init() -> tuple[dict[str, Any], int]:
    """This MDP becomes a superpeer. Its documents are the peer `0` of its group. Rules that it has already are LOCAL
    ones."""
    require_unlimited_admin()
    given, s = read_json_body(NewFederation), services()
    url = given.url if given.url is not None else request.host_url.rstrip("/")
    found_federation(s.provider, given.name, url, s.config.backbone_plain)
    s.notify_commit()
    return read_federation(s), 201


@routes.route("POST", "/federation/invitations", "Invite a peer or a superpeer",
              {201: FederationInvitationShown} | describe_problems(404, 409))  # fmt: skip
def invite_neighbour() -> tuple[dict[str, Any], int]:
    """Returns a code with which one MDP can connect to this superpeer within an hour."""
    require_unlimited_admin()
    return {"code": invite(services().provider)}, 201


@routes.route("POST", "/federation/links", "Accept a neighbour",
              {201: FederationLinkShown} | describe_problems(404, 409, 413, 415), needs_code=True,
              body=describe_json_body(NewFederationLink, {"name": "p3", "key": "…", "is_superpeer": False,
                                                          "code": "…"}))  # fmt: skip
def add_link() -> tuple[dict[str, Any], int]:
    """The MDP that joins calls this (see `POST /federation/entry`). From then on its exchanges are signed with its
    key."""
    given, s = read_json_body(NewFederationLink), services()
    if not given.code:
        raise Unauthenticated("This call needs the code of an invitation: `mdv federation invite` prints one.")
    found = accept_neighbour(s.provider, NewNeighbour(given.name, given.key, given.is_superpeer, given.code))
    s.notify_commit()
    return found._asdict(), 201


@routes.route("POST", "/federation/entry", "Join a federation", {201: _SHOWN} | describe_problems(404, 409, 413, 415),
              body=describe_json_body(FederationEntry, {"url": "https://a.example", "code": "…",
                                                        "name": "p3"}))  # fmt: skip
def join() -> tuple[dict[str, Any], int]:
    """With `name`, this MDP becomes a peer of the superpeer at the URL. Without, it is a superpeer, and is connected
    with that one. This MDP calls the other, which need not reach it."""
    require_unlimited_admin()
    given, s = read_json_body(FederationEntry), services()
    url, introduce = given.url.rstrip("/"), introduce_at(s, given.url)
    if given.name is not None:
        join_as_peer(s.provider, given.name, url, given.code, introduce)
    else:
        connect_superpeer(s.provider, url, given.code, introduce)
    s.notify_commit()
    return read_federation(s), 201


@routes.route("DELETE", "/federation", "Leave the federation",
              {202: describe_json(object_schema(leaving="boolean"), "It leaves")} | describe_problems(404),
              query=None)  # fmt: skip
def leave() -> tuple[dict[str, Any], int]:
    """The others are informed, then everything about the federation is forgotten here. Documents remain."""
    require_unlimited_admin()
    s = services()
    leave_federation(s.provider)
    s.notify_commit()
    return {"leaving": True}, 202


@routes.route("GET", "/federation/privileges", "Get the privileges of other superpeers",
              {200: FederationPrivileges} | describe_problems(404))  # fmt: skip
def get_privileges() -> dict[str, Any]:
    """Returns what other superpeers may read and write here. The own peer group is not limited."""
    require_reader()
    return {"items": read_federation(services())["privileges"]}


@routes.route("PUT", "/federation/privileges", "Set the privileges of other superpeers",
              {200: FederationPrivileges} | describe_problems(404, 409, 413, 415),
              body=describe_json_body(FederationPrivileges, {"items": [{"kind": "class", "name": "http://v/Book",
                                                                        "privilege": "read-only"}]}))  # fmt: skip
def put_privileges() -> dict[str, Any]:
    """Replaces all privileges."""
    require_unlimited_admin()
    given, s = read_json_body(FederationPrivileges, MAX_PRIVILEGES_BYTES), services()
    stored = set_grants(s.provider, [(one.kind, one.name, one.privilege) for one in given.items])
    s.notify_commit()
    return {"items": [dict(zip(("kind", "name", "privilege"), one, strict=True)) for one in stored]}


@routes.route("GET", "/federation/rules", "List the global rules", {200: _ITEMS} | describe_problems(404))
def rules() -> dict[str, Any]:
    """Lists the global rules that are stored at this superpeer, with the peers to which event, condition and actions
    are relevant."""
    require_reader()
    s = services()
    with s.snapshot() as connection:
        find_site(connection)
        return {"items": list_global_rules(connection, s.schemas.now(connection).schema), "next": None}


@routes.route("GET", "/federation/transactions", "List the transactions", {200: _ITEMS} | describe_problems(404),
              query=LimitQuery)  # fmt: skip
def transactions(query: LimitQuery) -> dict[str, Any]:
    """Lists the newest transactions of this peer group: changes of peers, and copies of rules."""
    require_reader()
    with services().snapshot() as connection:
        find_site(connection)
        return {"items": list_transactions(connection, query.limit), "next": None}


@routes.route("GET", "/federation/transactions/<path:name>", "Get a transaction as a tree",
              {200: describe_json({"type": "object"}, "The transaction")} | describe_problems(404))  # fmt: skip
def transaction(name: str) -> dict[str, Any]:
    """`copies` has the copies of the rules that it triggered, each with what became of it at each superpeer. `aborts`
    has its arcs of the abort graph: what is compensated if it fails."""
    require_reader()
    with services().snapshot() as connection:
        find_site(connection)
        return transaction_tree(connection, name)


@routes.route("POST", "/federation/exchange", "Exchange messages with a neighbour",
              {200: describe_json(object_schema(sender="string", messages="array"), "Messages for the caller")}
              | describe_problems(404, 409, 410, 413), query=FederationExchangeQuery, body=_EXCHANGE,
              is_for_members=True)  # fmt: skip
def exchange_messages(query: FederationExchangeQuery) -> Response:
    """For the neighbours' processes. The request is signed as those of a backbone (RFC 9421). It has the caller's
    messages from number `first` on, and in `have` the number of the last one of this MDP that the caller has stored.
    409 `gap`: with the number that is `expected`. 410 `site-restored`: the link starts again, with another `epoch`."""
    body = read_body(services().config.body_seconds)
    return Response(exchange(body, query.wait), content_type=JSON)
