"""Manage tokens: create, list and revoke them. Pages, API and commands call these functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from mdv.accounts.expiry import parse_expiry
from mdv.db import tokens as db
from mdv.db.tokens import ROLES, Token
from mdv.db.users import count_administrators, lock_administrators
from mdv.errors import BadRequest, Conflict, NotFound
from mdv.rdf.parse import is_absolute_iri
from mdv.uris import has_dot_segments

__all__ = ["Token", "TokenDraft", "get_token", "is_last_administrator_token", "issue_token", "list_all_tokens",
           "list_newest_tokens", "revoke_token"]  # fmt: skip

MAX_TOKEN_NAME_CHARACTERS = 100
MAX_PREFIXES = 100
MAX_PREFIX_CHARACTERS = 2048

list_all_tokens = db.list_tokens
list_newest_tokens = db.list_newest_tokens


@dataclass(frozen=True, slots=True)
class TokenDraft:
    """A token to be created. Without prefixes it is not limited; `expires`: see `parse_expiry`; empty: never."""

    name: str
    role: str = "admin"
    document_prefixes: Sequence[str] = ()
    resource_prefixes: Sequence[str] = ()
    expires: str = ""


def issue_token(connection: Connection, draft: TokenDraft, now: datetime, by: str) -> tuple[str, Token]:
    """Create a token. Return its secret, which cannot be read again, and the token. `by`: the caller."""
    name = draft.name
    if not 0 < len(name) <= MAX_TOKEN_NAME_CHARACTERS or not name.isprintable() or name != name.strip():
        raise BadRequest(f"A token's name must have 1 to {MAX_TOKEN_NAME_CHARACTERS} printable characters.")
    if draft.role not in ROLES:
        raise BadRequest(f"A role must be one of {', '.join(ROLES)}.")
    if draft.role == "viewer" and (draft.document_prefixes or draft.resource_prefixes):
        raise BadRequest("A viewer cannot write, so there is nothing to limit: give no prefixes.")
    for prefixes in (draft.document_prefixes, draft.resource_prefixes):
        if len(prefixes) > MAX_PREFIXES:
            raise BadRequest(f"There are {len(prefixes)} prefixes; the maximum is {MAX_PREFIXES}.")
        for prefix in prefixes:
            _check_prefix(prefix)
    expires_at = parse_expiry(draft.expires, now) if draft.expires.strip() else None
    documents, resources = draft.document_prefixes or None, draft.resource_prefixes or None
    return db.create_token(connection, name, draft.role, documents, resources, expires_at, by)


def _check_prefix(prefix: str) -> None:
    if len(prefix) > MAX_PREFIX_CHARACTERS:
        raise BadRequest(f"A prefix has {len(prefix)} characters; the maximum is {MAX_PREFIX_CHARACTERS}.")
    if not is_absolute_iri(prefix):
        raise BadRequest(f"{prefix!r} is not the prefix of a URI: use one such as http://example.org/.")
    if has_dot_segments(prefix):
        raise BadRequest(f"{prefix!r} has a '.' or '..' segment: give the prefix without it.")


def get_token(connection: Connection, number: int) -> Token:
    found = db.get_token(connection, number)
    if found is None:
        raise NotFound(f"There is no token {number}.")
    return found


def is_last_administrator_token(connection: Connection, token: Token, admin_token: str | None) -> bool:
    """True if no caller could administer without this token: there is no user with the role admin, no other valid admin
    token without limits, and no `admin_token` in the settings."""
    if token.role != "admin" or token.is_limited or token.state != "valid" or admin_token:
        return False
    left = count_administrators(connection)
    return left.users == 0 and left.tokens <= 1


def revoke_token(
    connection: Connection, number: int, admin_token: str | None = None, knows_last: bool = False
) -> Token:
    """Revoke a token, and end the sessions that were started with it. Raise Conflict if it is the last one that can
    administer, unless the caller `knows_last`."""
    lock_administrators(connection)
    found = db.get_token(connection, number)
    if found is None or found.revoked_at is not None:
        raise NotFound(f"There is no valid token {number}: `mdv token list` shows all tokens.")
    if not knows_last and is_last_administrator_token(connection, found, admin_token):
        raise Conflict(
            f"{found.name} is the last token that can administer, and no user is an administrator: without it, only"
            " commands on the server's machine can create another."
        )
    db.revoke_token(connection, number)
    return found
