"""What the calls of neighbours need: their keys, and whether there is something for them."""

from __future__ import annotations

from sqlalchemy import Connection

from mdv.db.federation.site_store import read_link, read_outbox
from mdv.errors import Unauthenticated


def key_of_neighbour(connection: Connection, name: str) -> str:
    """Return the public key of a neighbour."""
    link = read_link(connection, name)
    if link is None:
        raise Unauthenticated(f"{name!r} is not a neighbour in the federation.")
    return link.public_key


def has_messages_for(connection: Connection, name: str) -> bool:
    """True if messages for a neighbour wait."""
    return bool(read_outbox(connection, name, 1))
