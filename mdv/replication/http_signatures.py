"""Signed requests: the part of RFC 9421 (HTTP Message Signatures) that members use.

A signature covers the method, the authority, the path, the query and the digest of the body (RFC 9530), with the time
and a nonce, so that neither a changed nor a repeated request is accepted. The only algorithm is ed25519.

    headers = sign_request(key, "m1", "POST", url, body, now, nonce)
    signer = read_signature(headers).key_id                     # whose key to look up
    verify_request(public, signature, "POST", url, body, now)   # raises Unauthenticated
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from mdv.errors import Unauthenticated
from mdv.replication.keys import sign, verify

COMPONENTS = ("@method", "@authority", "@path", "@query", "content-digest")
MAX_AGE_SECONDS = 300
"""How old a signature may be, and how far in the future."""

_LABEL = "mdv"
_INPUT = re.compile(
    r'mdv=(\("@method" "@authority" "@path" "@query" "content-digest"\)'
    r';created=(\d{1,15});nonce="([\w-]{16,64})";keyid="([\w.~-]{1,200})";alg="ed25519")'
)
_SIGNATURE = re.compile(r"mdv=:([A-Za-z0-9+/=]{1,200}):")


@dataclass(frozen=True, slots=True)
class RequestSignature:
    """The signature of a request. `key_id`: the name of the member. `parameters`: the text that is signed with it."""

    key_id: str
    created: int
    nonce: str
    parameters: str
    signature: bytes


def sign_request(
    private_key: bytes, key_id: str, method: str, url: str, body: bytes, created: int, nonce: str
) -> dict[str, str]:
    """Return the headers that sign a request.

    >>> headers = sign_request(bytes(32), "m1", "POST", "http://h/p", b"", 1_700_000_000, "n" * 16)
    >>> headers["Signature-Input"].partition(";")[2]
    'created=1700000000;nonce="nnnnnnnnnnnnnnnn";keyid="m1";alg="ed25519"'
    """
    names = " ".join(f'"{name}"' for name in COMPONENTS)
    parameters = f'({names});created={created};nonce="{nonce}";keyid="{key_id}";alg="ed25519"'
    digest = content_digest(body)
    signature = base64.b64encode(sign(private_key, _base(method, url, digest, parameters))).decode()
    return {
        "Content-Digest": digest,
        "Signature-Input": f"{_LABEL}={parameters}",
        "Signature": f"{_LABEL}=:{signature}:",
    }


def content_digest(body: bytes) -> str:
    """Return the value of the header Content-Digest.

    >>> content_digest(b"")
    'sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:'
    """
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"


class RequestHeaders(Protocol):
    """The headers of a request. Names are case-insensitive in requests that were received."""

    def get(self, name: str, /) -> str | None: ...


def read_signature(headers: RequestHeaders) -> RequestSignature | None:
    """Return the signature of a request; None if it has none. Raise `Unauthenticated` if it is malformed."""
    given, value = headers.get("Signature-Input"), headers.get("Signature")
    if given is None and value is None:
        return None
    described, signed = _INPUT.fullmatch(given or ""), _SIGNATURE.fullmatch(value or "")
    if described is None or signed is None:
        raise Unauthenticated(
            f"The signature of the request is malformed: sign {', '.join(COMPONENTS)} with ed25519, as label {_LABEL}."
        )
    try:
        signature = base64.b64decode(signed[1], validate=True)
    except binascii.Error:
        raise Unauthenticated("The signature of the request is not base64.") from None
    return RequestSignature(described[4], int(described[2]), described[3], described[1], signature)


def verify_request(
    public_key: str,
    signature: RequestSignature,
    method: str,
    url: str,
    headers: RequestHeaders,
    body: bytes,
    now: int,
) -> None:
    """Raise `Unauthenticated` unless the request was signed recently with this key. The caller checks the nonce."""
    digest = content_digest(body)
    if headers.get("Content-Digest") != digest:
        raise Unauthenticated("The body of the request does not have the digest of the header Content-Digest.")
    if not verify(public_key, _base(method, url, digest, signature.parameters), signature.signature):
        raise Unauthenticated(f"The signature of the request is not one of the member {signature.key_id!r}.")
    if abs(now - signature.created) > MAX_AGE_SECONDS:
        raise Unauthenticated("The signature of the request is too old, or from the future.", server_time=now)


def _base(method: str, url: str, digest: str, parameters: str) -> bytes:
    """Return the signature base: what is signed.

    >>> print(_base("GET", "HTTP://M1:80/a?b=c", "sha-256=:x:", "()").decode())
    "@method": GET
    "@authority": m1
    "@path": /a
    "@query": ?b=c
    "content-digest": sha-256=:x:
    "@signature-params": ()
    """
    parts = urlsplit(url)
    port = parts.port
    is_default = port in (None, {"http": 80, "https": 443}.get(parts.scheme.lower()))
    authority = (parts.hostname or "") if is_default else f"{parts.hostname}:{port}"
    values = (method, authority, parts.path or "/", f"?{parts.query}", digest)
    lines = [f'"{name}": {value}' for name, value in zip(COMPONENTS, values, strict=True)]
    return "\n".join([*lines, f'"@signature-params": {parameters}']).encode()
