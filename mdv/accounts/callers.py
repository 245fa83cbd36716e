"""Callers: the owners of tokens, and what they may do."""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from sqlalchemy import Engine

from mdv.accounts.expiry import expired_error
from mdv.accounts.token_uses import TokenUses
from mdv.db.tokens import find_token
from mdv.errors import Forbidden, Unauthenticated
from mdv.mdp.lmrs import Lmr
from mdv.mdp.write_limits import is_below_prefix
from mdv.uris import has_dot_segments


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of a token: a name for idempotency keys and logs, a role, and the URI prefixes that it may write."""

    name: str
    role: str
    document_prefixes: tuple[str, ...] | None = None
    resource_prefixes: tuple[str, ...] | None = None
    lmr: int | None = None
    """The LMR that owns the token."""
    kind: str = "token"
    """`user`, `token` or `lmr`."""
    token_id: int | None = None
    """The number of the token, unless it is that of the settings."""

    @property
    def by(self) -> str:
        """The caller as it is kept with its changes.

        >>> Caller("anna", "admin", kind="user").by, Caller("ci#7", "admin").by
        ('user anna', 'token ci#7')
        """
        return f"{self.kind} {self.name}"

    @property
    def is_limited(self) -> bool:
        return self.document_prefixes is not None or self.resource_prefixes is not None


def find_caller(engine: Engine, secret: str, admin_token: str | None, uses: TokenUses | None = None) -> Caller:
    """Return the owner of a token. Raise Unauthenticated if it is unknown or revoked, or has expired. `admin_token`:
    the token of the settings. `uses` records the use of the token."""
    if is_admin_token(secret, admin_token):
        return Caller("admin", "admin")
    with engine.connect() as connection:
        token = find_token(connection, secret)
    if token is None:
        raise Unauthenticated("The token is unknown or was revoked.")
    if token.is_expired:
        raise expired_error(token.expires_at)
    if uses is not None:
        uses.record(token)
    is_lmr = token.lmr_id is not None
    name = token.name if is_lmr else f"{token.name}#{token.id}"
    kind = "lmr" if is_lmr else "token"
    return Caller(name, token.role, token.document_prefixes, token.resource_prefixes, token.lmr_id, kind, token.id)


def may_act_for(engine: Engine, secret: str, admin_token: str | None, lmr: Lmr) -> bool:
    """True if the owner of a token may act for an LMR: an administrator or the LMR itself."""
    try:
        caller = find_caller(engine, secret, admin_token)
    except Unauthenticated:
        return False
    return caller.lmr == lmr.id or caller.role == "admin"


def is_admin_token(secret: str, admin_token: str | None) -> bool:
    """True if this is the admin token of the settings. Timing reveals nothing."""
    if not admin_token:
        return False
    return hmac.compare_digest(secret.encode("utf-8", "replace"), admin_token.encode())


def check_may_write(caller: Caller, document: str) -> None:
    """Raise Forbidden if the document is outside of the caller's prefixes."""
    allowed = caller.document_prefixes
    if caller.is_limited and has_dot_segments(document):
        raise Forbidden(
            f"The token {caller.name!r} is limited to URI prefixes and may not write {document}: the URI has a '.' or"
            " '..' segment, plain or percent-encoded. Use a URI without such segments."
        )
    if allowed is not None and not is_below_prefix(document, allowed):
        raise Forbidden(f"The token {caller.name!r} may not write {document}: it is limited to {', '.join(allowed)}.")
