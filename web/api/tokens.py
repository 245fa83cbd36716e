"""/tokens: tokens of admins and viewers. Those of LMRs are listed, and can be revoked."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from mdv.accounts.tokens import Token, TokenDraft, get_token, list_newest_tokens
from web.auth import require_unlimited_admin
from web.json_bodies import describe_json_body, read_json_body
from web.models import NewToken, TokenCreated, TokenListQuery, TokenShown
from web.number_params import read_after, read_token_id
from web.openapi import describe_json, describe_problems, page_schema
from web.routing import RouteGroup
from web.services import services
from web.use_cases.tokens import create_token, revoke_token

routes = RouteGroup("tokens", "Tokens, their expiry and their last use")

_EXAMPLE = {"name": "crawler", "document_prefixes": ["http://example.org/"], "expires": "90d"}
_PAGE = describe_json(page_schema({"$ref": "#/components/schemas/TokenShown"}), "A page")


@routes.route("GET", "/tokens", "List tokens", {200: _PAGE} | describe_problems(), query=TokenListQuery)
def list_(query: TokenListQuery) -> dict[str, Any]:
    """Newest first. Secrets are not shown."""
    require_unlimited_admin()
    before = read_after(query.after) if query.after is not None else None
    with services().single.connect() as connection:
        rows = list_newest_tokens(connection, before, query.limit + 1, query.state == "valid")
    items = [_token_as_dict(row) for row in rows[: query.limit]]
    return {"items": items, "next": str(items[-1]["id"]) if len(rows) > query.limit else None}


@routes.route("POST", "/tokens", "Create a token", {201: TokenCreated} | describe_problems(408, 413, 415),
            body=describe_json_body(NewToken, _EXAMPLE))  # fmt: skip
def create() -> tuple[dict[str, Any], int]:
    """The response contains the token, which is shown only once. `expires` is a date (`2031-12-24`), a time
    (`2031-12-24T18:00Z`) or a duration from now (`90d`, `12h`, `8w`). From then on, the token is refused with 401."""
    caller = require_unlimited_admin()
    draft = read_json_body(NewToken)
    secret, made = create_token(
        TokenDraft(draft.name, draft.role, draft.document_prefixes, draft.resource_prefixes, draft.expires or ""),
        caller,
    )
    return _token_as_dict(made) | {"token": secret}, 201


@routes.route("GET", "/tokens/<number>", "Get a token", {200: TokenShown} | describe_problems(404))
def get(number: str) -> dict[str, Any]:
    require_unlimited_admin()
    return _read(read_token_id(number))


@routes.route("DELETE", "/tokens/<number>", "Revoke a token", {200: TokenShown} | describe_problems(404, 409))
def revoke(number: str) -> dict[str, Any]:
    """It is refused from now on, and sessions that were started with it end. Rejected for the last token that can
    administer, if no user and no token of the settings can."""
    caller = require_unlimited_admin()
    revoke_token(read_token_id(number), caller, knows_last=False)
    return _read(read_token_id(number))


def _read(number: int) -> dict[str, Any]:
    with services().single.connect() as connection:
        return _token_as_dict(get_token(connection, number))


def _token_as_dict(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role,
        "lmr": token.lmr_id,
        "document_prefixes": token.document_prefixes,
        "resource_prefixes": token.resource_prefixes,
        "state": token.state,
        "created_at": _text(token.created_at),
        "created_by": token.created_by,
        "expires_at": _text(token.expires_at),
        "revoked_at": _text(token.revoked_at),
        "used_at": _text(token.used_at),
    }


def _text(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
