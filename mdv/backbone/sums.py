"""Sums of documents by bucket: how two members find the documents that differ without sending them.

A document counts with its URI, version and digest. Documents with the same content can differ in their versions and in
the states of their statements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b

from mdv.backbone.document_state import ReplicatedDocument

BUCKETS = 256 * 256
"""The number of buckets. Each has few documents, even in a large store."""


def bucket_of(uri: str) -> int:
    """Return the bucket of a document.

    >>> bucket_of("http://a/d") == bucket_of("http://a/d") < BUCKETS
    True
    """
    return _place(uri)


@lru_cache(maxsize=10_000)
def _place(uri: str) -> int:
    return int.from_bytes(blake2b(uri.encode(), digest_size=2).digest(), "big") % BUCKETS


def document_hash(uri: str, version: int, digest: int) -> int:
    """Return the hash of a document for the sum of its bucket."""
    return int.from_bytes(blake2b(f"{uri}\0{version}\0{digest:x}".encode(), digest_size=8).digest(), "big")


def document_sums(documents: Iterable[tuple[str, int, int]]) -> dict[int, int]:
    """Return the sums of all buckets that are not empty. `documents`: URIs, versions and digests."""
    sums: dict[int, int] = {}
    for uri, version, digest in documents:
        bucket = bucket_of(uri)
        sums[bucket] = (sums.get(bucket, 0) + document_hash(uri, version, digest)) % 2**64
    return sums


def sums_of(documents: Iterable[tuple[str, ReplicatedDocument]]) -> dict[int, int]:
    """Return the sums of documents with their state."""
    return document_sums((uri, document.version, document.digest) for uri, document in documents)


def differing_buckets(sums: Mapping[int, int], others: Mapping[int, int]) -> frozenset[int]:
    """Return the buckets whose sums differ.

    >>> sorted(differing_buckets({1: 5, 2: 7}, {1: 5, 3: 7}))
    [2, 3]
    """
    return frozenset(bucket for bucket in sums.keys() | others.keys() if sums.get(bucket) != others.get(bucket))
