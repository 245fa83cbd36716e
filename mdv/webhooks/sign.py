"""Signatures of messages, as in Standard Webhooks (https://www.standardwebhooks.com)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence

PREFIX = "whsec_"
SECRET_BYTES = 32


def make_secret(random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> str:
    """Return a new secret, which the receiver needs to verify signatures.

    >>> make_secret(bytes)
    'whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='
    """
    return PREFIX + base64.b64encode(random_bytes(SECRET_BYTES)).decode()


def signature_headers(message_id: str, moment: int, body: bytes, keys: Sequence[str]) -> dict[str, str]:
    """Return the headers with the signatures of a message, one for each secret: the receiver may know any of them.

    >>> signature_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}',
    ...        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])["webhook-signature"]
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    content = f"{message_id}.{moment}.".encode() + body
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(moment),
        "webhook-signature": " ".join(f"v1,{_digest(key, content)}" for key in keys),
    }


def _digest(key: str, content: bytes) -> str:
    secret = base64.b64decode(key.removeprefix(PREFIX))
    return base64.b64encode(hmac.new(secret, content, hashlib.sha256).digest()).decode()
