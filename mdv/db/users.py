"""Users with their password hashes, and web sessions."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, delete, false, func, insert, select, true, update
from sqlalchemy.exc import IntegrityError
from werkzeug.security import check_password_hash, generate_password_hash

from mdv.db.tables import sign_in_failures, tokens, users, web_sessions
from mdv.db.tokens import ROLES, hash_token, record_token_uses
from mdv.errors import BadRequest, Conflict

MAX_NAME_LENGTH = 100
MIN_PASSWORD_LENGTH = 10
MAX_PASSWORD_LENGTH = 1000
SESSION_IDLE_SECONDS = 12 * 3600.0
"""A session ends if it is not used for this long."""
SESSION_MAX_SECONDS = 7 * 86400.0
"""A session ends at this age in any case."""
SEEN_INTERVAL_SECONDS = 60.0
"""The time of last use of a session is updated at most this often."""

_METHOD = "scrypt:32768:8:1"
_DUMMY_HASH = f"{_METHOD}${'0' * 16}${'0' * 128}"
"""A hash that no password has."""


@dataclass(frozen=True, slots=True)
class User:
    """A user who signs in with a name and a password."""

    name: str
    role: str
    created_at: datetime
    sessions: int
    """The number of sessions that have not ended."""
    seen_at: datetime | None
    """The last use of one of these sessions, exact to `SEEN_INTERVAL_SECONDS`."""


@dataclass(frozen=True, slots=True)
class Administrators:
    """How many may change everything: users with the role admin, and valid admin tokens without limits."""

    users: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Session:
    """A web session, started with a user name, with a token, or with the administrator token of the settings."""

    name: str
    role: str
    csrf: str
    document_prefixes: tuple[str, ...] | None = None
    resource_prefixes: tuple[str, ...] | None = None
    is_user: bool = False
    """Started with a user name."""
    token_id: int | None = None
    """The token that it was started with; None for a user, and for the administrator token of the settings."""

    @property
    def is_unlimited_admin(self) -> bool:
        """True if the session may change everything."""
        return self.role == "admin" and self.document_prefixes is None and self.resource_prefixes is None


# Users


def hash_password(password: str) -> str:
    """Return the scrypt hash of a password, with its salt, as it is stored."""
    if not MIN_PASSWORD_LENGTH <= len(password) <= MAX_PASSWORD_LENGTH:
        raise BadRequest(f"A password must have {MIN_PASSWORD_LENGTH} to {MAX_PASSWORD_LENGTH:,} characters.")
    if password != password.strip():
        raise BadRequest("A password must not begin or end with a space: the sign-in form removes it.")
    try:
        return generate_password_hash(password, _METHOD)
    except UnicodeEncodeError:
        raise BadRequest("The password is not valid Unicode text: set the terminal to UTF-8.") from None


def verify_password(password: str, kept: str | None) -> bool:
    """True if a password matches the stored hash. Without a hash it takes as long, so that timing reveals nothing. A
    stored hash that cannot be read matches no password."""
    given = password[:MAX_PASSWORD_LENGTH].encode("utf-8", "replace").decode()
    try:
        return check_password_hash(kept or _DUMMY_HASH, given) and kept is not None
    except (ValueError, TypeError):
        return False


def create_user(
    connection: Connection, name: str, role: str, password: str, hash_with: Callable[[str], str] = hash_password
) -> None:
    """Create a user. `hash_with` hashes the password, which takes long."""
    if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable() or name != name.strip():
        raise BadRequest(f"A user name must have 1 to {MAX_NAME_LENGTH} printable characters.")
    _check_role(role)
    kept = hash_with(password)
    try:
        with connection.begin_nested():
            connection.execute(insert(users).values(name=name, role=role, password=kept))
    except IntegrityError:
        raise Conflict(f"A user named {name} already exists. Choose another name.") from None


def list_users(connection: Connection, after: str = "", limit: int | None = None) -> list[User]:
    """Return the users by name, after a name."""
    query = _select_users().where(users.c.name > after).order_by(users.c.name).limit(limit)
    return [User(*row) for row in connection.execute(query)]


def find_user(connection: Connection, name: str) -> User | None:
    row = connection.execute(_select_users().where(users.c.name == name)).one_or_none()
    return User(*row) if row else None


def _select_users() -> Select[Any]:
    s = web_sessions.c
    is_open = s.created_at > _seconds_ago(SESSION_MAX_SECONDS), s.seen_at > _seconds_ago(SESSION_IDLE_SECONDS)
    open_ones = (
        select(func.count(), func.max(s.seen_at).label("seen_at"))
        .where(s.user_name == users.c.name, *is_open)
        .lateral("open_sessions")
    )
    return select(users.c.name, users.c.role, users.c.created_at, *open_ones.c).join(open_ones, true())


def change_role(connection: Connection, name: str, role: str) -> bool:
    """Change a user's role, also in the user's sessions. Return False if there is no such user."""
    _check_role(role)
    return connection.execute(update(users).where(users.c.name == name).values(role=role)).rowcount == 1


def change_password(
    connection: Connection, name: str, password: str, hash_with: Callable[[str], str] = hash_password
) -> bool:
    """Change a user's password and end the user's sessions. Return False if there is no such user."""
    kept = hash_with(password)
    # The update waits for sign-ins that have locked the old hash. Their sessions are ended, too.
    is_changed = connection.execute(update(users).where(users.c.name == name).values(password=kept)).rowcount == 1
    connection.execute(delete(web_sessions).where(web_sessions.c.user_name == name))
    return is_changed


def delete_user(connection: Connection, name: str) -> bool:
    """Delete a user and the user's sessions. Return False if there is no such user."""
    return connection.execute(delete(users).where(users.c.name == name)).rowcount == 1


def _check_role(role: str) -> None:
    if role not in ROLES:
        raise BadRequest(f"A role must be one of {', '.join(ROLES)}.")


def lock_administrators(connection: Connection) -> None:
    """Serialize changes that leave fewer administrators, so that two of them do not remove each other."""
    connection.execute(select(func.pg_advisory_xact_lock(func.hashtext("administrators"))))


def count_administrators(connection: Connection) -> Administrators:
    t = tokens.c
    is_valid = t.revoked_at.is_(None), func.coalesce(t.expires_at > func.now(), true())
    unlimited = t.document_prefixes.is_(None), t.resource_prefixes.is_(None)
    admins = select(func.count()).select_from(users).where(users.c.role == "admin").scalar_subquery()
    others = select(func.count()).select_from(tokens).where(t.role == "admin", *is_valid, *unlimited).scalar_subquery()
    return Administrators(*connection.execute(select(admins, others)).one())


def _seconds_ago(seconds: float) -> ColumnElement[datetime]:
    return func.now() - func.make_interval(0, 0, 0, 0, 0, 0, seconds)


def read_password_hash(connection: Connection, name: str) -> str | None:
    return connection.execute(_select_password(name)).scalar_one_or_none()


def lock_password_hash(connection: Connection, name: str) -> str | None:
    """Return the hash, which does not change until this transaction ends."""
    return connection.execute(_select_password(name).with_for_update(read=True)).scalar_one_or_none()


def _select_password(name: str) -> Select[str]:
    return select(users.c.password).where(users.c.name == name)


# Sessions


def begin_session(
    connection: Connection, user: str | None = None, token_id: int | None = None, admin_token: str | None = None
) -> str:
    """Start a session and return the secret for the cookie."""
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
    connection.execute(delete(web_sessions).where(web_sessions.c.created_at < _seconds_ago(SESSION_MAX_SECONDS)))
    return secret


def find_session(connection: Connection, secret: str, admin_token: str | None) -> Session | None:
    """Return the session of a cookie; None if it has ended, or if its user or token is no longer valid."""
    s, t, u = web_sessions.c, tokens.c, users.c
    age = func.extract("epoch", func.now() - s.created_at)
    idle = func.extract("epoch", func.now() - s.seen_at)
    row = connection.execute(
        select(s.user_name, u.role, s.token_id, t.name, t.role, t.document_prefixes, t.resource_prefixes,
               t.revoked_at.is_not(None) | func.coalesce(t.expires_at <= func.now(), false()), s.token_hash, s.csrf,
               age, idle)
        .join_from(web_sessions, tokens, t.id == s.token_id, isouter=True)
        .join(users, u.name == s.user_name, isouter=True)
        .where(s.hash == hash_token(secret))
    ).one_or_none()  # fmt: skip
    if row is None:
        return None
    user, users_role, token, name, role, documents, resources, is_ended, token_hash, csrf, age_now, idle_now = row
    if age_now > SESSION_MAX_SECONDS or idle_now > SESSION_IDLE_SECONDS or is_ended:
        return None
    if idle_now > SEEN_INTERVAL_SECONDS:
        connection.execute(update(web_sessions).where(s.hash == hash_token(secret)).values(seen_at=func.now()))
        if token is not None:
            record_token_uses(connection, [token])
    if user is not None:
        return Session(user, users_role, csrf, is_user=True)
    if token is not None:
        return Session(f"{name}#{token}", role, csrf, _prefixes(documents), _prefixes(resources), token_id=token)
    if admin_token is not None and hmac.compare_digest(hash_token(admin_token), token_hash):
        return Session("admin", "admin", csrf)
    return None


def _prefixes(given: list[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(given)


def end_session(connection: Connection, secret: str) -> None:
    connection.execute(delete(web_sessions).where(web_sessions.c.hash == hash_token(secret)))


# Sign-in attempts


def lock_sign_in(connection: Connection, who: str) -> None:
    """Serialize sign-in attempts of one origin until this transaction ends, so that each is counted."""
    connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(who))))


def count_failures(connection: Connection, who: str, seconds: float) -> int:
    """Return the number of failed attempts in the last `seconds`."""
    f = sign_in_failures.c
    counted = select(func.count()).where(f.who == who, f.at > _seconds_ago(seconds))
    return connection.execute(counted).scalar_one()


def record_attempt(connection: Connection, *who: str) -> list[int]:
    """Record an attempt as failed until `clear_failures` is called. Return the IDs of the rows."""
    new = insert(sign_in_failures).values([{"who": name} for name in who]).returning(sign_in_failures.c.id)
    return list(connection.scalars(new))


def delete_old_failures(connection: Connection, seconds: float) -> None:
    """Delete failures that are older than `seconds`."""
    connection.execute(delete(sign_in_failures).where(sign_in_failures.c.at < _seconds_ago(seconds)))


def clear_failures(connection: Connection, who: str, attempts: Sequence[int]) -> None:
    """Delete the failures of `who`, and these attempts, after a successful sign-in."""
    f = sign_in_failures.c
    connection.execute(delete(sign_in_failures).where((f.who == who) | f.id.in_(attempts)))
