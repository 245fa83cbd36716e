"""Digests of content: the same statement has the same hash at every MDP and LMR."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from mdv.model import Statement


def statement_hash(statement: Statement) -> int:
    """64 bits of a statement, as a signed integer (Postgres' bigint). Equal statements have equal hashes; unequal
    ones almost always differ, so whoever finds two equal hashes compares the statements.

    >>> from mdv.model import Term
    >>> statement_hash(Statement("urn:a", "urn:p", Term.literal("x")))
    3329402656172634833
    """
    return int.from_bytes(blake2b(_bytes(statement), digest_size=8).digest(), "big", signed=True)


def content_hash(statements: Iterable[Statement]) -> bytes:
    """256 bits of a document's distinct statements in their fixed order: equal exactly for identical documents."""
    whole = blake2b(digest_size=32)
    for statement in statements:
        whole.update(_bytes(statement))
    return whole.digest()


def _bytes(statement: Statement) -> bytes:
    subject, name, (kind, value, lang, datatype) = statement
    # No term contains NUL, so these parts cannot run into each other.
    return f"{subject}\0{name}\0{kind}\0{value}\0{lang or ''}\0{datatype or ''}\0\0".encode()
