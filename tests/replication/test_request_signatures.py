"""Signed requests: what a member accepts, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from mdv.errors import Unauthenticated
from mdv.replication.http_signatures import MAX_AGE_SECONDS, read_signature, sign_request, verify_request
from mdv.replication.keys import (
    check_public_key,
    make_private_key,
    public_key,
    sign_operation,
    verify_operation,
)

NOW = 1_800_000_000
URL = "https://m1.example/api/v1/backbone/log?have=%7B%7D&wait=5"
NONCE = "n0nce-of-sixteen"


def check(private: bytes, public: str, *sent: Any, **arrives: Any) -> None:
    """Sign a request, and verify it as it arrives."""
    method, url, body = sent or ("GET", URL, b"")
    headers = sign_request(private, "m2", method, url, body, NOW, NONCE)
    signature = read_signature(headers)
    assert signature is not None
    assert signature.key_id == "m2" and signature.nonce == NONCE
    arrived = {"method": method, "url": url, "body": body, "now": NOW} | arrives
    verify_request(public, signature, headers=headers, **arrived)


def test_a_signed_request_is_accepted() -> None:
    key = make_private_key()
    check(key, public_key(key))
    check(key, public_key(key), "POST", "http://127.0.0.1:8090/api/v1/backbone/messages", b'{"messages":[]}')
    check(key, public_key(key), now=NOW + MAX_AGE_SECONDS)


@pytest.mark.parametrize(
    "changed",
    [
        {"method": "DELETE"},
        {"url": URL.replace("wait=5", "wait=6")},
        {"url": URL.replace("/log", "/state")},
        {"url": URL.replace("m1.example", "m3.example")},
        {"body": b"another"},
        {"now": NOW + MAX_AGE_SECONDS + 1},
        {"now": NOW - MAX_AGE_SECONDS - 1},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_changed_or_old_request_is_refused(changed: dict[str, Any]) -> None:
    key = make_private_key()
    with pytest.raises(Unauthenticated):
        check(key, public_key(key), **changed)


def test_a_request_with_a_changed_time_or_name_is_refused() -> None:
    key = make_private_key()
    headers = sign_request(key, "m2", "GET", URL, b"", NOW, NONCE)
    for before, after in ((str(NOW), str(NOW + 1)), ('"m2"', '"m3"'), (NONCE, NONCE[::-1])):
        changed = headers | {"Signature-Input": headers["Signature-Input"].replace(before, after)}
        signature = read_signature(changed)
        assert signature is not None
        with pytest.raises(Unauthenticated, match="not one of the member"):
            verify_request(public_key(key), signature, "GET", URL, changed, b"", NOW)


def test_another_key_is_refused() -> None:
    with pytest.raises(Unauthenticated, match="not one of the member 'm2'"):
        check(make_private_key(), public_key(make_private_key()))


@pytest.mark.parametrize(
    "headers",
    [
        {"Signature": "mdv=:AAAA:"},
        {"Signature-Input": "mdv=()"},
        {"Signature-Input": 'mdv=("@method");created=1;nonce="0123456789abcdef";keyid="m1";alg="ed25519"',
         "Signature": "x"},
        {"Signature-Input": 'mdv=("@method" "@authority" "@path" "@query" "content-digest");created=1;'
                            'nonce="0123456789abcdef";keyid="m1";alg="hmac-sha256"', "Signature": "mdv=:AAAA:"},
        {"Signature-Input": 'mdv=("@method" "@authority" "@path" "@query" "content-digest");created=1;'
                            'nonce="0123456789abcdef";keyid="m1";alg="ed25519"', "Signature": "mdv=:A:"},
    ],
)  # fmt: skip
def test_a_malformed_signature_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Unauthenticated):
        read_signature(headers)


def test_a_request_without_a_signature_has_none() -> None:
    assert read_signature({"Authorization": "Bearer x"}) is None


def test_an_operation_is_signed_with_its_life_its_number_and_its_chain() -> None:
    key = make_private_key()
    signature = sign_operation(key, "life", 7, b"chain")
    assert verify_operation(public_key(key), "life", 7, b"chain", signature)
    for life, seq, chain in (("other", 7, b"chain"), ("life", 8, b"chain"), ("life", 7, b"another")):
        assert not verify_operation(public_key(key), life, seq, chain, signature)
    assert not verify_operation(public_key(key), "life", 7, b"chain", b"")
    assert not verify_operation("", "life", 7, b"chain", signature)


@pytest.mark.parametrize("text", ["", "AAAA", "é", "A" * 44, "not base64!"])
def test_a_text_that_is_no_key_is_found(text: str) -> None:
    assert not check_public_key(text)
    assert check_public_key(public_key(make_private_key()))
