"""Sums of documents by bucket: how two members find the documents that differ without sending them.

A document counts with its URI, version and digest. Documents with the same content can differ in their versions and in
the states of their statements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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


def document_hash(uri: str, document: ReplicatedDocument) -> int:
    """Return the hash of a document for the sum of its bucket."""
    text = f"{uri}\0{document.version}\0{document.digest:x}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def sums_of(documents: Iterable[tuple[str, ReplicatedDocument]], unknown: Collection[str] = ()) -> dict[int, int]:
    """Return the sums of all buckets that are not empty. `unknown`: documents that must count as different."""
    sums: dict[int, int] = {}
    for uri, document in documents:
        bucket = bucket_of(uri)
        sums[bucket] = (sums.get(bucket, 0) + document_hash(uri, document)) % 2**64
    for uri in unknown:
        sums[bucket_of(uri)] = -1
    return sums


def differing_buckets(sums: Mapping[int, int], others: Mapping[int, int]) -> frozenset[int]:
    """Return the buckets whose sums differ.

    >>> sorted(differing_buckets({1: 5, 2: 7}, {1: 5, 3: 7}))
    [2, 3]
    """
    return frozenset(bucket for bucket in sums.keys() | others.keys() if sums.get(bucket) != others.get(bucket))
