"""Authentication and authorisation of API callers."""

from __future__ import annotations

from collections.abc import Callable

from flask import g, request

from mdv.accounts.callers import Caller, find_caller, may_act_for
from mdv.errors import Forbidden, NotFound, Unauthenticated
from mdv.mdp.lmr_definitions import refuse_unless_home
from mdv.mdp.lmrs import SELF_NAME, Lmr, get_lmr
from web.services import Services, services


def require_reader() -> Caller:
    """Return the caller if it may read. LMR tokens are rejected."""
    caller = require_reader_or_lmr()
    if caller.lmr is not None:
        raise Forbidden(f"The token of the LMR {caller.name!r} does not allow this call. Use an admin or viewer token.")
    return caller


def require_reader_or_lmr() -> Caller:
    """Return the caller if it may read. LMR tokens are accepted: for the calls that an LMR needs."""
    if services().config.public_read and "Authorization" not in request.headers:
        return Caller("anyone", "viewer")
    return _caller()


def require_lmr_access(name: str, reads: bool = False, anywhere: bool = False) -> Lmr:
    """Return the LMR if the caller may act for it: an administrator or the LMR itself. `reads`: a viewer may, too.
    Raise `NotHome` if it is at home at another member of the backbone, unless `anywhere`."""
    found = _require_lmr_access(name, reads)
    if found.home is not None and not anywhere:
        with services().single.connect() as connection:
            refuse_unless_home(connection, found, services().provider)
    return found


def _require_lmr_access(name: str, reads: bool) -> Lmr:
    caller = _caller()
    if name == SELF_NAME and caller.lmr is None:
        raise NotFound(f"{SELF_NAME!r} stands for the LMR of the token, but this token does not belong to an LMR.")
    if caller.lmr is not None:
        own = _lmr(str(caller.lmr))
        if name not in (SELF_NAME, own.name, str(own.id)):
            raise Forbidden(f"The token of the LMR {own.name!r} allows only its own paths, not those of {name!r}.")
        return own
    if caller.role != "admin" and not reads:
        raise Forbidden(
            f"The token {caller.name!r} is read-only. This call requires an admin token or the token of the LMR."
        )
    if caller.is_limited and not reads:
        raise Forbidden(
            f"The token {caller.name!r} is limited to URI prefixes. This call requires an unlimited admin token."
        )
    return _lmr(name)


def access_check(s: Services, lmr: Lmr) -> Callable[[], bool]:
    """Return a function that checks later whether this caller may still act for the LMR: its token may be revoked."""
    secret = request.headers.get("Authorization", "").partition(" ")[2].strip()
    return lambda: may_act_for(s.single, secret, s.config.admin_token, lmr)


def _lmr(name: str) -> Lmr:
    with services().single.connect() as connection:
        return get_lmr(connection, name)


def require_admin() -> Caller:
    """Return the caller if it has the admin role."""
    caller = _caller()
    if caller.role != "admin":
        what = "belongs to an LMR" if caller.lmr is not None else "is read-only"
        raise Forbidden(f"The token {caller.name!r} {what}. This call requires an admin token.")
    return caller


def require_unlimited_admin() -> Caller:
    """Return the caller if it has an admin token without URI limits: for changes that affect all users."""
    caller = require_admin()
    if caller.is_limited:
        raise Forbidden(
            f"The token {caller.name!r} is limited to URI prefixes. This call requires an unlimited admin token."
        )
    return caller


def _caller() -> Caller:
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret:
        raise Unauthenticated()
    s = services()
    g.caller = caller = find_caller(s.single, secret, s.config.admin_token, s.token_uses)
    return caller


def current_caller() -> Caller:
    """Return the caller of this request. One of the functions above has accepted it."""
    caller: Caller = g.caller
    return caller
