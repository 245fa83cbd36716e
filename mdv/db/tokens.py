"""API tokens with their permissions. A token is shown once, when it is created. Only its hash is stored."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, insert, select, update

from mdv.db.engine import driver
from mdv.db.tables import tokens

ROLES = ("admin", "viewer")


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its permissions. Prefixes restrict the documents and resources that it may change; None: any."""

    id: int
    name: str
    role: str
    document_prefixes: tuple[str, ...] | None
    resource_prefixes: tuple[str, ...] | None
    created_at: datetime
    revoked_at: datetime | None
    lmr_id: int | None = None
    """The LMR that the token belongs to."""


def make_secret() -> tuple[str, bytes]:
    """Return a new secret, and its hash, which is stored."""
    secret = "mdv_" + secrets.token_urlsafe(32)
    return secret, hash_token(secret)


def hash_token(secret: str) -> bytes:
    """Return the hash that is stored. A token has 256 random bits, so a hash without salt cannot be reversed."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def create_token(
    connection: Connection,
    name: str,
    role: str = "admin",
    document_prefixes: Sequence[str] | None = None,
    resource_prefixes: Sequence[str] | None = None,
) -> tuple[str, Token]:
    """Create a token. Return its secret, which cannot be recovered later, and the token."""
    secret, digest = make_secret()
    row = connection.execute(
        insert(tokens)
        .values(
            name=name,
            role=role,
            hash=digest,
            document_prefixes=None if document_prefixes is None else list(document_prefixes),
            resource_prefixes=None if resource_prefixes is None else list(resource_prefixes),
        )
        .returning(*_COLUMNS)
    ).one()
    return secret, _token(*row)


def find_token(connection: Connection, secret: str) -> Token | None:
    """Return the token with this secret; None if it is unknown or revoked. It is found by its hash, so that timing
    reveals nothing."""
    # Called for nearly every request, so it avoids the cost of SQLAlchemy expressions.
    row = driver(connection).execute(_FIND, {"hash": hash_token(secret)}, prepare=True).fetchone()
    return _token(*row) if row else None


def list_tokens(connection: Connection) -> list[Token]:
    return [_token(*row) for row in connection.execute(select(*_COLUMNS).order_by(tokens.c.id))]


def revoke_token(connection: Connection, number: int) -> bool:
    """Revoke a token. Return False if it is unknown or already revoked."""
    change = update(tokens).where(tokens.c.id == number, tokens.c.revoked_at.is_(None)).values(revoked_at=func.now())
    return connection.execute(change).rowcount == 1


_COLUMNS = (tokens.c.id, tokens.c.name, tokens.c.role, tokens.c.document_prefixes, tokens.c.resource_prefixes,
            tokens.c.created_at, tokens.c.revoked_at, tokens.c.lmr_id)  # fmt: skip


_FIND = (
    "select id, name, role, document_prefixes, resource_prefixes, created_at, revoked_at, lmr_id from tokens"
    " where hash = %(hash)s and revoked_at is null"
)


def _token(
    number: int,
    name: str,
    role: str,
    document_prefixes: list[str] | None,
    resource_prefixes: list[str] | None,
    created_at: datetime,
    revoked_at: datetime | None,
    lmr_id: int | None,
) -> Token:
    return Token(
        number,
        name,
        role,
        None if document_prefixes is None else tuple(document_prefixes),
        None if resource_prefixes is None else tuple(resource_prefixes),
        created_at,
        revoked_at,
        lmr_id,
    )
