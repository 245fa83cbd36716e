"""People: users with their passwords, and who has signed in to the pages."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from mdv.db.tables import sign_in_failures, tokens, users, web_sessions
from mdv.db.tokens import ROLES, hash_token
from mdv.errors import BadRequest, Conflict

LONGEST_NAME = 100
SHORTEST_PASSWORD = 10
LONGEST_PASSWORD = 1000
IDLE_SECONDS = 12 * 3600.0
"""A session that is not used for so long ends,"""
LONGEST_SECONDS = 7 * 86400.0
"""and so does one that is as old as this."""
SEEN_EVERY = 60.0
"""To so many seconds it is noted when a session was used."""

_COST = {"n": 2**15, "r": 8, "p": 1, "maxmem": 2**26}


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who signs in by name."""

    name: str
    role: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who has signed in: by name, by a token, or by the admin token of the settings."""

    name: str
    role: str
    csrf: str
    document_prefixes: tuple[str, ...] | None = None
    resource_prefixes: tuple[str, ...] | None = None


# Users


def hash_password(password: str) -> str:
    """What is kept of a password: its scrypt hash, with the salt."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise BadRequest(f"A password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD:,} characters.")
    salt = secrets.token_bytes(16)
    digest = hashlib.scrypt(_bytes(password), salt=salt, **_COST)
    return f"scrypt${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def fits(password: str, kept: str | None) -> bool:
    """Whether a password is the one that is kept. Without one the same work is done, so that time tells nothing."""
    _, salt, digest = (kept or _NOBODYS).split("$")
    found = hashlib.scrypt(_bytes(password[:LONGEST_PASSWORD]), salt=base64.b64decode(salt), **_COST)
    return hmac.compare_digest(found, base64.b64decode(digest)) and kept is not None


_NOBODYS = f"scrypt${base64.b64encode(bytes(16)).decode()}${base64.b64encode(bytes(64)).decode()}"


def _bytes(password: str) -> bytes:
    return password.encode("utf-8", "surrogateescape")


def create_user(connection: Connection, name: str, role: str, password: str) -> None:
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable() or name != name.strip():
        raise BadRequest("A name has 1 to 100 printable characters.")
    if role not in ROLES:
        raise BadRequest(f"A role is one of {', '.join(ROLES)}.")
    kept = hash_password(password)
    try:
        with connection.begin_nested():
            connection.execute(insert(users).values(name=name, role=role, password=kept))
    except IntegrityError:
        raise Conflict(f"There is a user of the name {name} already.") from None


def list_users(connection: Connection) -> list[User]:
    rows = connection.execute(select(users.c.name, users.c.role, users.c.created_at).order_by(users.c.name))
    return [User(*row) for row in rows]


def change_password(connection: Connection, name: str, password: str) -> bool:
    """Give a user another password, and end the sessions; False where there is no such user."""
    kept = hash_password(password)
    connection.execute(delete(web_sessions).where(web_sessions.c.user_name == name))
    return connection.execute(update(users).where(users.c.name == name).values(password=kept)).rowcount == 1


def delete_user(connection: Connection, name: str) -> bool:
    """Drop a user, and the sessions; False where there is no such user."""
    return connection.execute(delete(users).where(users.c.name == name)).rowcount == 1


def password_of(connection: Connection, name: str) -> str | None:
    return connection.execute(select(users.c.password).where(users.c.name == name)).scalar_one_or_none()


# Sessions


def begin_session(
    connection: Connection, user: str | None = None, token_id: int | None = None, admin_token: str | None = None
) -> str:
    """Let somebody in; what the cookie is to hold."""
    secret = secrets.token_urlsafe(32)
    connection.execute(
        insert(web_sessions).values(
            hash=hash_token(secret),
            user_name=user,
            token_id=token_id,
            token_hash=None if admin_token is None else hash_token(admin_token),
            csrf=secrets.token_urlsafe(32),
        )
    )
    old = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, LONGEST_SECONDS)
    connection.execute(delete(web_sessions).where(web_sessions.c.created_at < old))
    return secret


def find_session(connection: Connection, secret: str, admin_token: str | None) -> Session | None:
    """Whose session a cookie is; None where it has ended, or what it was begun with holds no longer."""
    s, t, u = web_sessions.c, tokens.c, users.c
    age = func.extract("epoch", func.now() - s.created_at)
    idle = func.extract("epoch", func.now() - s.seen_at)
    row = connection.execute(
        select(s.user_name, u.role, s.token_id, t.name, t.role, t.document_prefixes, t.resource_prefixes, t.revoked_at,
               s.token_hash, s.csrf, age, idle)
        .join_from(web_sessions, tokens, t.id == s.token_id, isouter=True)
        .join(users, u.name == s.user_name, isouter=True)
        .where(s.hash == hash_token(secret))
    ).one_or_none()  # fmt: skip
    if row is None:
        return None
    user, users_role, token, name, role, documents, resources, revoked, token_hash, csrf, age_now, idle_now = row
    if age_now > LONGEST_SECONDS or idle_now > IDLE_SECONDS or revoked is not None:
        return None
    if idle_now > SEEN_EVERY:
        connection.execute(update(web_sessions).where(s.hash == hash_token(secret)).values(seen_at=func.now()))
    if user is not None:
        return Session(user, users_role, csrf)
    if token is not None:
        return Session(f"{name}#{token}", role, csrf, _prefixes(documents), _prefixes(resources))
    if admin_token is not None and hmac.compare_digest(hash_token(admin_token), token_hash):
        return Session("admin", "admin", csrf)
    return None


def _prefixes(given: list[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(given)


def end_session(connection: Connection, secret: str) -> None:
    connection.execute(delete(web_sessions).where(web_sessions.c.hash == hash_token(secret)))


# Attempts


def one_at_a_time(connection: Connection, who: str) -> None:
    """Attempts of one origin wait for each other until this transaction ends, so that none goes uncounted."""
    connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(who))))


def count_failures(connection: Connection, who: str, seconds: float) -> int:
    """How often somebody has failed to sign in, of late."""
    since = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, seconds)
    f = sign_in_failures.c
    counted = select(func.count()).where(f.who == who, f.at > since)
    return connection.execute(counted).scalar_one()


def note_attempt(connection: Connection, *who: str) -> list[int]:
    """Count an attempt as failed, until it is forgiven; its numbers."""
    new = insert(sign_in_failures).values([{"who": name} for name in who]).returning(sign_in_failures.c.id)
    return list(connection.scalars(new))


def forget_failures(connection: Connection, seconds: float) -> None:
    """Those that are older."""
    before = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, seconds)
    connection.execute(delete(sign_in_failures).where(sign_in_failures.c.at < before))


def forgive(connection: Connection, who: str, attempts: Sequence[int]) -> None:
    """Somebody has signed in after all."""
    f = sign_in_failures.c
    connection.execute(delete(sign_in_failures).where((f.who == who) | f.id.in_(attempts)))
