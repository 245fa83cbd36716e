"""Found a federation, invite, join, leave, and set privileges: what administrators do. Each is one transaction."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from mdv.db.federation.site_store import (
    CONNECT,
    GRANTS,
    INTRODUCE,
    LEAVE,
    SiteRow,
    add_to_inbox,
    delete_link,
    forget_federation,
    insert_invitation,
    insert_link,
    insert_site,
    read_link,
    read_site,
    store_grants,
    use_invitation,
)
from mdv.errors import BadRequest, Conflict, Forbidden, NotFound
from mdv.federation.encode import encode
from mdv.federation.superpeer_state import OWN_STORE
from mdv.mdp.federation.grants import read_grants
from mdv.mdp.provider import Provider
from mdv.mdp.transaction import Transaction
from mdv.rdf.schema import Schema, UnknownName
from mdv.replication.member_url import check_member_name, check_member_url

INVITATION_SECONDS = 3600.0


class NewNeighbour(NamedTuple):
    """A site that connects with the code of an invitation: its name, its public key, and what it is."""

    name: str
    key: str
    is_superpeer: bool
    code: str


class Neighbour(NamedTuple):
    """The superpeer that has accepted a neighbour."""

    name: str
    key: str


Introduce = Callable[[NewNeighbour], Neighbour]
"""Sends a new neighbour to the superpeer of an invitation."""


def in_no_federation() -> NotFound:
    return NotFound(
        "This MDP is in no federation. Found one with `mdv federation init NAME`, or join one with"
        " `mdv federation join URL CODE --as NAME`."
    )


def find_site(connection: Connection) -> SiteRow:
    """Return what this MDP is in a federation. Raise `NotFound` if it is in none."""
    site = read_site(connection)
    if site is None:
        raise in_no_federation()
    return site


def found_federation(provider: Provider, name: str, url: str, allows_plain: bool = False) -> None:
    """Make this MDP a superpeer. `url`: where others find it; empty if they cannot."""
    from mdv.replication.keys import make_private_key

    check_site_name(name)
    url = check_member_url(url, allows_plain) if url else ""
    with provider.engine.begin() as connection:
        tx = _locked(provider, connection)
        insert_site(connection, name, None, url, make_private_key(), str(tx.state.epoch))
        tx.number_classes()
        add_to_inbox(connection, [(INTRODUCE, "", "null")])


def check_site_name(name: str) -> str:
    """Return the name of a superpeer or peer. Raise `BadRequest`."""
    if check_member_name(name) == OWN_STORE:
        raise BadRequest("The name 0 is that of the own store of each superpeer. Choose another one.")
    return name


def _locked(provider: Provider, connection: Connection) -> Transaction:
    tx = Transaction(provider, connection)
    tx.lock()
    site = read_site(connection)
    if site is not None:
        raise Conflict(f"This MDP is {site.name} in a federation already. It can leave with `mdv federation leave`.")
    return tx


def invite(provider: Provider) -> str:
    """Return a code with which one MDP can connect to this superpeer within an hour."""
    code = secrets.token_urlsafe(24)
    with provider.engine.begin() as connection:
        site = find_site(connection)
        if site.superpeer is not None:
            raise Conflict(f"{site.name} is a peer. Invite at its superpeer, {site.superpeer}.")
        insert_invitation(connection, code, INVITATION_SECONDS)
    return code


def accept_neighbour(provider: Provider, new: NewNeighbour) -> Neighbour:
    """Add a neighbour that has the code of an invitation. It calls this MDP."""
    from mdv.replication.keys import check_public_key, public_key

    check_site_name(new.name)
    if not check_public_key(new.key):
        raise BadRequest("`key` is no Ed25519 public key.")
    with provider.engine.begin() as connection:
        Transaction(provider, connection).lock()
        site = find_site(connection)
        if site.superpeer is not None or not use_invitation(connection, new.code):
            raise Forbidden("The code of the invitation is wrong, was used, or has expired. Ask for another one.")
        known = read_link(connection, new.name)
        if new.name == site.name or (known is not None and known.peer_epoch is not None):
            raise Conflict(f"{site.name} has a neighbour {new.name} already. Choose another name.")
        if known is not None:
            delete_link(connection, new.name)  # it was never used: its answer was lost
        insert_link(connection, new.name, new.is_superpeer, None, new.key, time.time())
        if new.is_superpeer and known is None:
            add_to_inbox(connection, [(CONNECT, new.name, "null")])
        return Neighbour(site.name, public_key(site.private_key))


def join_as_peer(provider: Provider, name: str, url: str, code: str, introduce: Introduce) -> None:
    """Make this MDP a peer of the superpeer at a URL."""
    from mdv.replication.keys import make_private_key, public_key

    check_site_name(name)
    key = make_private_key()
    with provider.engine.begin() as connection:
        tx = _locked(provider, connection)
        superpeer = introduce(NewNeighbour(name, public_key(key), False, code))
        insert_site(connection, name, superpeer.name, "", key, str(tx.state.epoch))
        insert_link(connection, superpeer.name, True, url, superpeer.key, time.time())
        tx.number_classes()
        add_to_inbox(connection, [(INTRODUCE, "", "null")])


def connect_superpeer(provider: Provider, url: str, code: str, introduce: Introduce) -> None:
    """Connect this superpeer with the one at a URL."""
    from mdv.replication.keys import public_key

    with provider.engine.begin() as connection:
        Transaction(provider, connection).lock()
        site = find_site(connection)
        if site.superpeer is not None:
            raise Conflict(f"{site.name} is a peer of {site.superpeer}. Only superpeers are connected with others.")
        other = introduce(NewNeighbour(site.name, public_key(site.private_key), True, code))
        if other.name == site.name or read_link(connection, other.name) is not None:
            raise Conflict(f"{site.name} has a neighbour {other.name} already.")
        insert_link(connection, other.name, True, url, other.key, time.time())
        add_to_inbox(connection, [(CONNECT, other.name, "null")])


def leave_federation(provider: Provider, at_once: bool = False) -> None:
    """Leave: the others are informed, then everything about the federation is forgotten. `at_once`: only forget. The
    documents remain."""
    with provider.engine.begin() as connection:
        Transaction(provider, connection).lock()
        find_site(connection)
        if at_once:
            forget_federation(connection)
        else:
            add_to_inbox(connection, [(LEAVE, "", "null")])


def set_grants(provider: Provider, grants: Iterable[Sequence[str]]) -> list[list[str]]:
    """Set what other superpeers may read and write here. Classes and properties can be given by their local names.
    Return the privileges with URIs."""
    with provider.engine.begin() as connection:
        tx = Transaction(provider, connection)
        tx.lock()
        stored = [[kind, _resolve(kind, name, tx.schema.schema), privilege] for kind, name, privilege in grants]
        found = read_grants(stored)
        site = find_site(connection)
        if site.superpeer is not None:
            raise Conflict(f"{site.name} is a peer: the privileges of its group are set at {site.superpeer}.")
        store_grants(connection, stored)
        add_to_inbox(connection, [(GRANTS, "", encode(found))])
    return stored


def _resolve(kind: str, name: str, schema: Schema) -> str:
    """Return the URI of a class or property that is given by a name of the schema."""
    if kind not in ("class", "property") or "://" in name or name.startswith("urn:"):
        return name
    try:
        return schema.resolve_class(name) if kind == "class" else schema.resolve_property(name)
    except UnknownName as error:
        raise BadRequest(str(error)) from None
