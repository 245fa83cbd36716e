"""ETags of documents, and tokens of changes."""

from __future__ import annotations

from mdv.backbone.vector import Dot

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
