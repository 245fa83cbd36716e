"""Tokens are stored as hashes, and a revoked token is refused."""

from __future__ import annotations

import hashlib

import pytest
from sqlalchemy import Connection, text

from mdv.db.tokens import create_token, find_token, list_tokens, revoke_token


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
