"""Who is calling, and what that opens."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass

from flask import request

from mdv.db.lmrs import Lmr
from mdv.db.tokens import find_token
from mdv.errors import Forbidden, NotFound, Unauthenticated
from mdv.mdp.register import within
from mdv.mdp.subscribe import SELF, get_lmr
from web.services import Services, services


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody with a token: a name for keys and logs, a role, and the URIs that they may write."""

    name: str
    role: str
    document_prefixes: tuple[str, ...] | None = None
    resource_prefixes: tuple[str, ...] | None = None
    lmr: int | None = None
    """The LMR whose token it is."""

    @property
    def is_limited(self) -> bool:
        return self.document_prefixes is not None or self.resource_prefixes is not None


def refuse_strangers(reads: bool) -> None:
    """Whoever shows no token learns nothing else, not even which parameters a call takes; `reads`: it only reads."""
    if not (reads and services().config.public_read) and "Authorization" not in request.headers:
        raise Unauthenticated()


def reader() -> Caller:
    """Any caller that may read, but for LMRs."""
    caller = lmr_reader()
    if caller.lmr is not None:
        raise Forbidden(f"The token of the LMR {caller.name!r} does not open this call.")
    return caller


def lmr_reader() -> Caller:
    """Any caller that may read, LMRs among them: for the few things that an LMR needs to know."""
    if services().config.public_read and "Authorization" not in request.headers:
        return Caller("anyone", "viewer")
    return _caller()


def lmr_named(name: str, reads: bool = False) -> Lmr:
    """An LMR for whoever may speak for it: an admin, or itself. `reads`: a viewer may look, too."""
    caller = _caller()
    if name == SELF and caller.lmr is None:
        raise NotFound(f"{SELF!r} is an LMR that calls with its own token; this token is no LMR's.")
    if caller.lmr is not None:
        own = _lmr(str(caller.lmr))
        if name not in (SELF, own.name, str(own.id)):
            raise Forbidden(f"The token of the LMR {own.name!r} opens its own paths, not those of {name!r}.")
        return own
    if caller.role != "admin" and not reads:
        raise Forbidden(f"The token {caller.name!r} is for reading; this call needs an admin's or the LMR's own.")
    if caller.is_limited and not reads:
        raise Forbidden(f"The token {caller.name!r} is limited to some URIs; this call concerns all of them.")
    return _lmr(name)


def same_caller(s: Services, lmr: Lmr) -> Callable[[], bool]:
    """Asks later whether who calls now may still speak for an LMR: its token may have been revoked meanwhile."""
    secret = request.headers.get("Authorization", "").partition(" ")[2].strip()
    own = s.config.admin_token

    def is_allowed() -> bool:
        if own and hmac.compare_digest(secret.encode("utf-8", "replace"), own.encode()):
            return True
        with s.single.connect() as connection:
            token = find_token(connection, secret)
        return token is not None and (token.lmr_id == lmr.id or token.role == "admin")

    return is_allowed


def _lmr(name: str) -> Lmr:
    with services().single.connect() as connection:
        return get_lmr(connection, name)


def admin() -> Caller:
    """A caller that may change things."""
    caller = _caller()
    if caller.role != "admin":
        what = "is an LMR's" if caller.lmr is not None else "is for reading"
        raise Forbidden(f"The token {caller.name!r} {what}; this call needs an admin's.")
    return caller


def whole_admin() -> Caller:
    """An admin whose token is not limited to some URIs: for what concerns everybody."""
    caller = admin()
    if caller.is_limited:
        raise Forbidden(f"The token {caller.name!r} is limited to some URIs; this call concerns all of them.")
    return caller


def may_write(caller: Caller, document: str) -> None:
    """Refuse a document outside of the caller's prefixes."""
    allowed = caller.document_prefixes
    if allowed is not None and not within(document, allowed):
        raise Forbidden(f"The token {caller.name!r} may not write {document}: it is limited to {', '.join(allowed)}.")


def _caller() -> Caller:
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret:
        raise Unauthenticated()
    own = services().config.admin_token
    if own and hmac.compare_digest(secret.encode("utf-8", "replace"), own.encode()):
        return Caller("admin", "admin")
    with services().single.connect() as connection:
        token = find_token(connection, secret)
    if token is None:
        raise Unauthenticated("This token is unknown or was revoked.")
    name = token.name if token.lmr_id is not None else f"{token.name}#{token.id}"
    return Caller(name, token.role, token.document_prefixes, token.resource_prefixes, token.lmr_id)
