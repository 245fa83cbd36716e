"""ETags of documents, and tokens of changes."""

from __future__ import annotations

from mdv.backbone.vector import Dot, Vector
from mdv.errors import BadRequest

TOKEN_CHARACTERS = 12
"""The characters of the life in a token."""


def document_etag(version: int, digest: int | None) -> str:
    """Return the ETag of a document without quotes: the version, and with a backbone the first digits of the digest.
    `digest`: as it is stored; None without a backbone.

    >>> document_etag(5, None), document_etag(5, 0x1F0C9A2E00000000), document_etag(2, -1)
    ('5', '5-1f0c9a2e', '2-ffffffff')
    """
    return str(version) if digest is None else f"{version}-{digest % 2**64:016x}"[: len(str(version)) + 9]


def token_of(dot: Dot) -> str:
    """Return the token of a change. It tells any member which operation to wait for.

    >>> token_of(("93a11c6e-f546-4e8c-893e-a5ea94fd34a7", 7))
    '93a11c6e-f54-7'
    """
    life, seq = dot
    return f"{life[:TOKEN_CHARACTERS]}-{seq}"


def parse_token(text: str) -> tuple[str, int]:
    """Return the first characters of the life and the number in a token. Raise `BadRequest` if it is none.

    >>> parse_token("93a11c6e-f54-7")
    ('93a11c6e-f54', 7)
    >>> parse_token("7")
    Traceback (most recent call last):
    mdv.errors.BadRequest: '7' is not the token of a change, such as 93a11c6e-f54-7.
    """
    life, _, seq = text.rpartition("-")
    if len(life) != TOKEN_CHARACTERS or not (seq.isascii() and seq.isdigit() and len(seq) < 19):
        raise BadRequest(f"{text[:60]!r} is not the token of a change, such as 93a11c6e-f54-7.")
    return life, int(seq)


def has_token(vector: Vector, token: tuple[str, int]) -> bool:
    """True if a vector includes the operation of a token.

    >>> has_token({"93a11c6e-f546-4e8c-893e-a5ea94fd34a7": 7}, ("93a11c6e-f54", 7))
    True
    """
    prefix, number = token
    return any(seq >= number for life, seq in vector.items() if life.startswith(prefix))
