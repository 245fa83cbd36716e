"""The Ed25519 keys of members.

A private key is its seed of 32 bytes. A public key is text, base64url without padding, as in the table of members. The
package `cryptography` is loaded with the first use, since most MDPs are in no backbone.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SEED_BYTES = 32
_OPERATION = b"mdv backbone operation\0"


def make_private_key() -> bytes:
    return secrets.token_bytes(SEED_BYTES)


def public_key(private_key: bytes) -> str:
    """Return the public part of a key.

    >>> public_key(bytes(32))
    'O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik'
    """
    return _encode(_private(private_key).public_key().public_bytes_raw())


def sign(private_key: bytes, message: bytes) -> bytes:
    return _private(private_key).sign(message)


def verify(public: str, message: bytes, signature: bytes) -> bool:
    """True if the signature of a message was made with the private part of this key.

    >>> verify(public_key(bytes(32)), b"a", sign(bytes(32), b"a")), verify(public_key(bytes(32)), b"b", bytes(64))
    (True, False)
    """
    from cryptography.exceptions import InvalidSignature

    try:
        _public(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def check_public_key(public: str) -> bool:
    """True if the text is a public key."""
    try:
        _public(public)
    except ValueError:
        return False
    return True


def fingerprint(public: str) -> str:
    """Return a short form of a public key, for people to compare.

    >>> fingerprint(public_key(bytes(32)))
    '3b6a-27bc-ceb6-a42d'
    """
    digits = _decode(public)[:8].hex()
    return "-".join(digits[at : at + 4] for at in range(0, 16, 4))


def sign_operation(private_key: bytes, life: str, seq: int, chain: bytes) -> bytes:
    """Return the signature of an operation by its origin. The chain covers its body and all before it."""
    return sign(private_key, _operation(life, seq, chain))


def verify_operation(public: str, life: str, seq: int, chain: bytes, signature: bytes) -> bool:
    """True if the member with this key has made the operation.

    >>> signature = sign_operation(bytes(32), "m1", 1, b"chain")
    >>> [verify_operation(public_key(bytes(32)), "m1", seq, b"chain", signature) for seq in (1, 2)]
    [True, False]
    """
    return verify(public, _operation(life, seq, chain), signature)


def _operation(life: str, seq: int, chain: bytes) -> bytes:
    return _OPERATION + f"{life}\0{seq}\0".encode() + blake2b(chain, digest_size=32).digest()


@lru_cache(maxsize=16)
def _private(seed: bytes) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(seed)


@lru_cache(maxsize=256)
def _public(text: str) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(_decode(text))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(str(error)) from None
