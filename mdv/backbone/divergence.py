"""Find documents that differ at two members although nothing is pending, and choose whose content is right.

Both members list documents with their vectors. A document has diverged if it differs, and neither of the two has
applied an operation that the other lacks and that could explain the difference:

- both lists were made at the same vector, or
- the document was the same in a later pair of lists, and each later vector includes the other's earlier one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mdv.backbone.vector import Vector, covers

Content = tuple[int, int]
"""The version and the digest of a document; (0, 0) if it was never registered."""

ABSENT: Content = (0, 0)


class DocumentList(NamedTuple):
    """Some documents of a member with their contents, at a vector."""

    vector: Vector
    documents: Mapping[str, Content]

    def content(self, uri: str) -> Content:
        return self.documents.get(uri, ABSENT)


class Difference(NamedTuple):
    """The contents of a document here and at a peer."""

    here: Content
    there: Content


class DivergenceSearch:
    """Compares lists of two members until every difference is explained, or certain. `certain`: the documents that have
    diverged. `pending`: those whose difference may still go away."""

    def __init__(self) -> None:
        self.certain: dict[str, Difference] = {}
        self._first: dict[str, tuple[Difference, Vector, Vector]] = {}

    @property
    def pending(self) -> list[str]:
        return sorted(self._first)

    def compare(self, ours: DocumentList, theirs: DocumentList) -> None:
        """Compare two lists of the same documents, the peer's made after ours.

        >>> search = DivergenceSearch()
        >>> search.compare(DocumentList({"a": 1}, {"d": (1, 7)}), DocumentList({"a": 1}, {"d": (1, 8)}))
        >>> search.certain
        {'d': Difference(here=(1, 7), there=(1, 8))}
        """
        is_equal_vector = dict(ours.vector) == dict(theirs.vector)
        for uri in sorted({*ours.documents, *theirs.documents, *self._first}):
            found = Difference(ours.content(uri), theirs.content(uri))
            first = self._first.pop(uri, None)
            if found.here == found.there:
                continue
            if is_equal_vector or (
                first is not None and first[0] == found
                and covers(ours.vector, first[2]) and covers(theirs.vector, first[1])
            ):  # fmt: skip
                self.certain[uri] = found
            elif first is not None and first[0] == found:
                self._first[uri] = first
            else:
                self._first[uri] = (found, ours.vector, theirs.vector)


def majority_content(contents: Mapping[str, Content], members: int) -> Content | None:
    """Return the content that more than half of all members have; None if there is no such content. `contents`: by
    member, as far as they are known. `members`: how many there are.

    >>> majority_content({"a": (1, 7), "b": (1, 8), "c": (1, 8)}, 3), majority_content({"a": (1, 7), "b": (1, 8)}, 2)
    ((1, 8), None)
    """
    counted = Counter(contents.values()).most_common(1)
    return counted[0][0] if counted and 2 * counted[0][1] > members else None


def group_sums(sums: Mapping[int, int]) -> dict[int, int]:
    """Return the sums of the groups of 256 buckets.

    >>> group_sums({0: 5, 255: 7, 256: 9})
    {0: 12, 1: 9}
    """
    found: dict[int, int] = {}
    for bucket, number in sums.items():
        found[bucket // 256] = (found.get(bucket // 256, 0) + number) % 2**64
    return found


def in_groups(sums: Mapping[int, int], groups: Iterable[int]) -> dict[int, int]:
    """Return the sums of the buckets of some groups."""
    wanted = set(groups)
    return {bucket: number for bucket, number in sums.items() if bucket // 256 in wanted}
