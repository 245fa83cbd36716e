"""Create and revoke tokens, and log it."""

from __future__ import annotations

from datetime import UTC, datetime

import structlog

from mdv.accounts import tokens
from mdv.accounts.callers import Caller
from mdv.accounts.tokens import Token, TokenDraft
from web.services import services

log = structlog.get_logger()


def create_token(draft: TokenDraft, caller: Caller) -> tuple[str, Token]:
    """Create a token. Return its secret, which cannot be read again, and the token."""
    with services().engine.begin() as connection:
        secret, made = tokens.issue_token(connection, draft, datetime.now(UTC), caller.by)
    log.info("token created", token=made.id, name=made.name, role=made.role, by=caller.by)
    return secret, made


def revoke_token(number: int, caller: Caller, knows_last: bool) -> Token:
    """Revoke a token. Raise Conflict if it is the last one that can administer, unless the caller `knows_last`."""
    s = services()
    with s.engine.begin() as connection:
        revoked = tokens.revoke_token(connection, number, s.config.admin_token, knows_last)
    log.info("token revoked", token=number, name=revoked.name, by=caller.by)
    return revoked
