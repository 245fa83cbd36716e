"""Content hashes. A statement has the same hash at every MDP and LMR."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from mdv.model import Statement


def statement_hash(statement: Statement) -> int:
    """Return a 64-bit hash of a statement as a signed integer, which fits into Postgres' bigint.

    Different statements can have the same hash: compare the statements when hashes are equal.

    >>> from mdv.model import Term
    >>> statement_hash(Statement("urn:a", "urn:p", Term.literal("x")))
    3329402656172634833
    """
    return int.from_bytes(blake2b(_bytes(statement), digest_size=8).digest(), "big", signed=True)


def content_hash(statements: Iterable[Statement]) -> bytes:
    """Return a 256-bit hash of a document's distinct statements in canonical order. Only identical documents agree."""
    hasher = blake2b(digest_size=32)
    for statement in statements:
        hasher.update(_bytes(statement))
    return hasher.digest()


def _bytes(statement: Statement) -> bytes:
    subject, name, (kind, value, lang, datatype) = statement
    # No term contains NUL, so the encoding is unambiguous.
    return f"{subject}\0{name}\0{kind}\0{value}\0{lang or ''}\0{datatype or ''}\0\0".encode()
