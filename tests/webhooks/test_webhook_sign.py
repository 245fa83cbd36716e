"""Signatures, checked by the library that receivers use."""

from __future__ import annotations

import base64
import time

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from mdv.webhooks.sign import make_secret, signature_headers

BODY = '{"type": "feed.advanced", "data": {"lmr": "Bücher"}}'.encode()


def test_the_standard_webhooks_library_accepts_a_signature() -> None:
    secret = make_secret()
    headers = signature_headers("msg_1", int(time.time()), BODY, [secret])
    assert Webhook(secret).verify(BODY, headers)["data"] == {"lmr": "Bücher"}


def test_any_other_body_id_timestamp_or_secret_is_refused() -> None:
    secret, now = make_secret(), int(time.time())
    headers = signature_headers("msg_1", now, BODY, [secret])
    for body, changed, key in (
        (BODY + b" ", headers, secret),
        (BODY, headers | {"webhook-id": "msg_2"}, secret),
        (BODY, headers | {"webhook-timestamp": str(now + 1)}, secret),
        (BODY, headers, make_secret()),
    ):
        with pytest.raises(WebhookVerificationError, match="No matching signature"):
            Webhook(key).verify(body, changed)


def test_with_two_secrets_either_verifies() -> None:
    new, old = make_secret(), make_secret()
    headers = signature_headers("msg_1", int(time.time()), BODY, [new, old])
    assert len(headers["webhook-signature"].split(" ")) == 2
    Webhook(new).verify(BODY, headers)
    Webhook(old).verify(BODY, headers)


def test_secrets_have_the_length_of_the_standard_and_are_unique() -> None:
    made = {make_secret() for _ in range(50)}
    assert len(made) == 50
    assert all(secret.startswith("whsec_") and 24 <= len(base64.b64decode(secret[6:])) <= 64 for secret in made)
