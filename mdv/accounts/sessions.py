"""Web sessions: sign in with a token or with a name and a password, and sign out."""

from __future__ import annotations

from sqlalchemy import Connection, Engine

from mdv.accounts.callers import is_admin_token
from mdv.accounts.expiry import expired_error
from mdv.db import users as db
from mdv.db.tokens import find_token, record_token_uses
from mdv.db.users import SESSION_MAX_SECONDS, Session
from mdv.errors import TooMany, Unauthenticated
from mdv.query.offload import Offload, run_inline

__all__ = [
    "MAX_FAILURES_PER_IP",
    "MAX_FAILURES_PER_NAME",
    "SESSION_MAX_SECONDS",
    "WINDOW_SECONDS",
    "Session",
    "end_session",
    "find_session",
    "start_session",
]

WINDOW_SECONDS = 900.0
MAX_FAILURES_PER_NAME = 10
"""Failed attempts for one name from one IP address within the window."""
MAX_FAILURES_PER_IP = 50
"""Failed attempts from one IP address within the window, for any name."""


def start_session(
    engine: Engine, name: str, secret: str, address: str, admin_token: str | None, apart: Offload = run_inline
) -> str:
    """Start a session for a name and its password or, without a name, for a token. Return the secret of the session.

    Raise `TooMany` after too many failed attempts from the IP address. `apart` runs the hash of the password.
    """
    both = f"{address} {name}"
    refused = Unauthenticated("The name or the password is wrong." if name else "The token is unknown or was revoked.")
    if len(name) > db.MAX_NAME_LENGTH:
        raise refused
    with engine.begin() as connection:
        attempts = _record_attempt(connection, both, address)
    with engine.begin() as connection:
        cookie = _by_password(connection, name, secret, apart) if name else _by_token(connection, secret, admin_token)
        if cookie is None:
            raise refused
        db.clear_failures(connection, both, attempts)
    return cookie


def _record_attempt(connection: Connection, both: str, address: str) -> list[int]:
    """Count the attempt as failed until it succeeds, so that attempts at the same time are counted, too."""
    db.lock_sign_in(connection, address)
    of_name = db.count_failures(connection, both, WINDOW_SECONDS)
    of_address = db.count_failures(connection, address, WINDOW_SECONDS)
    if of_name >= MAX_FAILURES_PER_NAME or of_address >= MAX_FAILURES_PER_IP:
        raise TooMany(f"Too many failed attempts. Try again in {round(WINDOW_SECONDS / 60)} minutes.")
    return db.record_attempt(connection, both, address)


def _by_password(connection: Connection, name: str, password: str, apart: Offload) -> str | None:
    kept = db.read_password_hash(connection, name)
    if not apart(db.verify_password, password, kept):
        return None
    # The password may have been changed while it was verified, or the user removed.
    is_current = db.lock_password_hash(connection, name) == kept
    return db.begin_session(connection, user=name) if is_current else None


def _by_token(connection: Connection, secret: str, admin_token: str | None) -> str | None:
    if is_admin_token(secret, admin_token):
        return db.begin_session(connection, admin_token=admin_token)
    token = find_token(connection, secret) if secret else None
    if token is None or token.lmr_id is not None:
        return None
    if token.is_expired:
        raise expired_error(token.expires_at)
    record_token_uses(connection, [token.id])
    return db.begin_session(connection, token_id=token.id)


def find_session(engine: Engine, secret: str, admin_token: str | None) -> Session | None:
    """Return the session with this secret; None if it has ended, or if its user or token is no longer valid."""
    with engine.connect() as connection:
        return db.find_session(connection, secret, admin_token)


def end_session(engine: Engine, secret: str) -> None:
    """End a session if it exists."""
    with engine.begin() as connection:
        db.end_session(connection, secret)
