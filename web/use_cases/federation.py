"""The federation: what neighbours exchange, and what administrators see and change."""

from __future__ import annotations

import time
from typing import Any

from flask import request
from sqlalchemy import Connection

from mdv.errors import Forbidden, Unauthenticated, Unavailable
from mdv.inspect.federation import describe_federation
from mdv.mdp.federation.exchange import ExchangeBody, accept_exchange
from mdv.mdp.federation.members import Neighbour, NewNeighbour, find_site, in_no_federation
from mdv.mdp.federation.neighbours import has_messages_for, key_of_neighbour
from mdv.mdp.federation.runner import make_call
from mdv.replication.federation_client import send_new_neighbour
from mdv.replication.http_signatures import read_signature, verify_request
from mdv.replication.member_url import check_member_url
from web.services import Services, services


def read_federation(s: Services) -> dict[str, Any]:
    """Return what this MDP is in a federation. Raise `NotFound` if it is in none."""
    with s.snapshot() as connection:
        found = describe_federation(connection)
    if found is None:
        raise in_no_federation()
    return found


def introduce_at(s: Services, url: str) -> Any:
    """Return a function that sends a new neighbour to the superpeer at a URL."""
    url = check_member_url(url, s.config.backbone_plain)

    def introduce(new: NewNeighbour) -> Neighbour:
        answer = send_new_neighbour(url, new._asdict())
        return Neighbour(str(answer["name"]), str(answer["key"]))

    return introduce


def exchange(body: bytes, wait: float) -> str:
    """Take the messages of a neighbour, and return those for it. If there is nothing for either side, wait."""
    s = services()
    given = ExchangeBody.from_json(body)
    if given.sender != _signing_neighbour(s, body):
        raise Forbidden(f"The messages of {given.sender!r} were sent by another neighbour.")
    with s.engine.begin() as connection:
        accept_exchange(connection, given)
    if given.messages:
        s.notify_commit()
    elif wait:
        _wait_for_messages(s, given.sender, wait)
    with s.engine.connect() as connection:
        _, answer = make_call(connection, given.sender)
    if answer is None:
        raise Unauthenticated(f"{given.sender!r} is not a neighbour in the federation any more.")
    return answer.to_json()


def _signing_neighbour(s: Services, body: bytes) -> str:
    """Return the name of the neighbour that has signed this request."""
    signature = read_signature(request.headers)
    if signature is None:
        raise Unauthenticated("This call needs the signature of a neighbour in the federation.")
    with s.single.connect() as connection:
        site = find_site(connection)
        key = key_of_neighbour(connection, signature.key_id)
    query = request.query_string.decode("ascii", "replace")
    base = site.url or request.host_url.rstrip("/")
    verify_request(
        key, signature, request.method, base + request.path + (f"?{query}" if query else ""), request.headers, body,
        int(time.time()),
    )  # fmt: skip
    if not s.used_nonces.use(signature.nonce):
        raise Unauthenticated("This request was sent before. Sign each request with a nonce of its own.")
    return signature.key_id


def _wait_for_messages(s: Services, name: str, wait: float) -> None:
    def has_messages(connection: Connection) -> bool:
        return has_messages_for(connection, name)

    with s.waits.slot(f"neighbour {name}") as has_slot:
        if not has_slot:
            raise Unavailable("Too many requests are waiting.")
        s.log_notifier.wait_until(has_messages, time.monotonic() + min(wait, s.config.max_wait_seconds))
