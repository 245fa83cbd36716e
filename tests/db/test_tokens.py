"""Tokens are stored as hashes, and a revoked token is refused."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, text

from mdv.db.tokens import (
    create_token,
    find_token,
    get_token,
    list_newest_tokens,
    list_tokens,
    record_token_uses,
    revoke_token,
)


def test_a_token_is_found_by_its_secret(connection: Connection) -> None:
    secret, token = create_token(connection, "ci", "viewer", ["http://a/"], ["http://b/", "http://c#"])
    found = find_token(connection, secret)
    assert found == token
    assert (token.role, token.document_prefixes, token.resource_prefixes) == (
        "viewer", ("http://a/",), ("http://b/", "http://c#"),
    )  # fmt: skip


def test_missing_prefixes_allow_everything_and_an_empty_list_allows_nothing(connection: Connection) -> None:
    assert create_token(connection, "all")[1].document_prefixes is None
    assert create_token(connection, "none", document_prefixes=[])[1].document_prefixes == ()


def test_only_the_hash_of_a_token_is_kept(connection: Connection) -> None:
    secret, _ = create_token(connection, "ci")
    (row,) = connection.execute(text("select t::text, hash from tokens t"))
    assert secret not in row[0]
    assert bytes(row[1]) == hashlib.sha256(secret.encode()).digest()


def test_two_tokens_differ(connection: Connection) -> None:
    secrets = {create_token(connection, "same name")[0] for _ in range(20)}
    assert len(secrets) == 20
    assert len(list_tokens(connection)) == 20


def test_a_revoked_token_is_refused_and_stays_listed(connection: Connection) -> None:
    secret, token = create_token(connection, "ci")
    assert revoke_token(connection, token.id)
    assert find_token(connection, secret) is None
    assert list_tokens(connection)[0].revoked_at is not None
    assert not revoke_token(connection, token.id)


@pytest.mark.parametrize("secret", ["", "mdv_", "mdv_unknown", "\udcff", "x" * 100_000, "é"])
def test_an_unknown_token_is_refused(connection: Connection, secret: str) -> None:
    create_token(connection, "ci")
    assert find_token(connection, secret) is None
    assert not revoke_token(connection, 4711)


def test_an_expired_token_is_found_and_marked(connection: Connection) -> None:
    past, future = (datetime.now(UTC) + timedelta(hours=hours) for hours in (-1, 1))
    for expires_at, state in ((past, "expired"), (future, "valid"), (None, "valid")):
        secret, made = create_token(connection, "ci", expires_at=expires_at, created_by="user ada")
        found = find_token(connection, secret)
        assert found == made == get_token(connection, made.id)
        assert (made.state, made.is_expired, made.expires_at, made.created_by) == (
            state, state == "expired", expires_at, "user ada",
        )  # fmt: skip
    assert revoke_token(connection, made.id)
    revoked = get_token(connection, made.id)
    assert revoked is not None and revoked.state == "revoked"


def test_valid_tokens_are_listed_newest_first(connection: Connection) -> None:
    past = datetime.now(UTC) - timedelta(seconds=1)
    made = [create_token(connection, "ci", expires_at=past if n == 1 else None)[1].id for n in range(4)]
    revoke_token(connection, made[2])
    assert [token.id for token in list_newest_tokens(connection, None, 10, only_valid=True)] == [made[3], made[0]]
    assert [token.id for token in list_newest_tokens(connection, made[3], 2)] == [made[2], made[1]]


def test_a_use_is_recorded_at_most_once_a_minute(connection: Connection) -> None:
    secret, made = create_token(connection, "ci")
    assert made.used_at is None and made.is_use_due
    record_token_uses(connection, [made.id, 4711])
    used = find_token(connection, secret)
    assert used is not None and used.used_at is not None and not used.is_use_due
    back = text("update tokens set used_at = used_at - interval '59 seconds'")
    connection.execute(back)
    record_token_uses(connection, [made.id])
    again = find_token(connection, secret)
    assert again is not None and again.used_at == used.used_at - timedelta(seconds=59) and not again.is_use_due
    connection.execute(back)
    due = find_token(connection, secret)
    assert due is not None and due.is_use_due
    record_token_uses(connection, [made.id])
    assert find_token(connection, secret) == used
