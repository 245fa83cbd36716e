"""API tokens with their permissions. A token is shown once, when it is created. Only its hash is stored."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, cast, false, func, insert, or_, select, update

from mdv.db.engine import driver
from mdv.db.tables import tokens

ROLES = ("admin", "viewer")
USE_INTERVAL_SECONDS = 60.0
"""The time of last use is updated at most this often. `_FIND` contains it, too."""


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
    lmr_id: int | None
    """The LMR that the token belongs to."""
    expires_at: datetime | None
    used_at: datetime | None
    """The time of last use, exact to `USE_INTERVAL_SECONDS`."""
    created_by: str | None
    is_expired: bool
    is_use_due: bool
    """True if a use of the token is to be recorded now."""

    @property
    def state(self) -> str:
        """`valid`, `expired` or `revoked`."""
        return "revoked" if self.revoked_at is not None else "expired" if self.is_expired else "valid"

    @property
    def is_limited(self) -> bool:
        return self.document_prefixes is not None or self.resource_prefixes is not None


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
    expires_at: datetime | None = None,
    created_by: str | None = None,
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
            expires_at=expires_at,
            created_by=created_by,
        )
        .returning(*_COLUMNS)
    ).one()
    return secret, _token(*row)


def find_token(connection: Connection, secret: str) -> Token | None:
    """Return the token with this secret; None if it is unknown or revoked. It may have expired. It is found by its
    hash, so that timing reveals nothing."""
    # Called for nearly every request, so it avoids the cost of SQLAlchemy expressions.
    row = driver(connection).execute(_FIND, {"hash": hash_token(secret)}, prepare=True).fetchone()
    return _token(*row) if row else None


def get_token(connection: Connection, number: int) -> Token | None:
    """Return the token with this ID; None if there is none."""
    row = connection.execute(select(*_COLUMNS).where(tokens.c.id == number)).one_or_none()
    return _token(*row) if row else None


def list_tokens(connection: Connection) -> list[Token]:
    return [_token(*row) for row in connection.execute(select(*_COLUMNS).order_by(tokens.c.id))]


def list_newest_tokens(connection: Connection, before: int | None, limit: int, only_valid: bool = False) -> list[Token]:
    """Return a page of tokens, newest first. `only_valid`: without those that are revoked or have expired."""
    query = select(*_COLUMNS).order_by(tokens.c.id.desc()).limit(limit)
    if before is not None:
        query = query.where(tokens.c.id < cast(before, BigInteger))
    if only_valid:
        query = query.where(tokens.c.revoked_at.is_(None), ~_IS_EXPIRED)
    return [_token(*row) for row in connection.execute(query)]


def revoke_token(connection: Connection, number: int) -> bool:
    """Revoke a token. Return False if it is unknown or already revoked."""
    change = update(tokens).where(tokens.c.id == number, tokens.c.revoked_at.is_(None)).values(revoked_at=func.now())
    return connection.execute(change).rowcount == 1


def record_token_uses(connection: Connection, numbers: Collection[int]) -> None:
    """Record that tokens were used now. Tokens whose use was recorded a short time ago are left out, and so are those
    that another transaction is changing."""
    due = (
        select(tokens.c.id)
        .where(tokens.c.id.in_(sorted(numbers)), _IS_USE_DUE)
        .order_by(tokens.c.id)
        .with_for_update(key_share=True, skip_locked=True)
    )
    connection.execute(update(tokens).where(tokens.c.id.in_(due)).values(used_at=func.now()))


_IS_EXPIRED = func.coalesce(tokens.c.expires_at <= func.now(), false())
_IS_USE_DUE = or_(
    tokens.c.used_at.is_(None),
    tokens.c.used_at < func.now() - func.make_interval(0, 0, 0, 0, 0, 0, USE_INTERVAL_SECONDS),
)
_COLUMNS: tuple[ColumnElement[Any], ...] = (
    tokens.c.id, tokens.c.name, tokens.c.role, tokens.c.document_prefixes, tokens.c.resource_prefixes,
    tokens.c.created_at, tokens.c.revoked_at, tokens.c.lmr_id, tokens.c.expires_at, tokens.c.used_at,
    tokens.c.created_by, _IS_EXPIRED, _IS_USE_DUE,
)  # fmt: skip


_FIND = (
    "select id, name, role, document_prefixes, resource_prefixes, created_at, revoked_at, lmr_id, expires_at, used_at,"
    " created_by, expires_at is not null and expires_at <= now(),"
    " used_at is null or used_at < now() - interval '60 seconds'"
    " from tokens where hash = %(hash)s and revoked_at is null"
)


def _token(
    number: int,
    name: str,
    role: str,
    document_prefixes: list[str] | None,
    resource_prefixes: list[str] | None,
    *others: Any,
) -> Token:
    return Token(
        number,
        name,
        role,
        None if document_prefixes is None else tuple(document_prefixes),
        None if resource_prefixes is None else tuple(resource_prefixes),
        *others,
    )
