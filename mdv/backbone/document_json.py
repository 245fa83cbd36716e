"""The replicated state of a document as JSON, without what other columns have. Values that are usual are left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from mdv.backbone.document_state import RecentOperation, ReplicatedDocument
from mdv.backbone.vector import NO_DOT, Dot


def document_to_json(document: ReplicatedDocument) -> dict[str, Any]:
    """Return the last and recent operations of a document, and what merges left.

    >>> document_to_json(ReplicatedDocument())
    {}
    """
    fields: dict[str, Any] = {}
    last, recent = document.last, document.recent
    if recent:
        fields["recent"] = [[*one.dot, one.at, int(one.is_deletion)] for one in recent]
    if last != NO_DOT and (not recent or recent[-1].dot != last):
        fields["last"] = list(last)
    if document.prefixes_by[0]:
        is_last = bool(recent) and document.prefixes_by == (recent[-1].at, recent[-1].dot[0])
        fields["by"] = True if is_last else list(document.prefixes_by)
    if document.merges:
        fields["merges"] = dict(document.merges)
    if document.merged_at:
        fields["merged_at"] = document.merged_at
    if document.remnants:
        fields["remnants"] = [[list(one), list(other)] for one, other in sorted(document.remnants)]
    return fields


def document_from_json(
    version: int, digest: int, statements: int, prefixes: Mapping[str, str], fields: Mapping[str, Any]
) -> ReplicatedDocument:
    """Return a document from its columns.

    >>> recent = (RecentOperation(("a", 1), 17, False),)
    >>> document = ReplicatedDocument(5, 3, 1, {}, (17, "a"), ("a", 1), recent)
    >>> document_from_json(5, 3, 1, {}, document_to_json(document)) == document
    True
    """
    recent = tuple([RecentOperation((life, seq), at, bool(gone)) for life, seq, at, gone in fields.get("recent", ())])
    last = _dot(fields["last"]) if "last" in fields else recent[-1].dot if recent else NO_DOT
    by = fields.get("by", (0, ""))
    at, life = (recent[-1].at, recent[-1].dot[0]) if by is True else by
    remnants = frozenset((_dot(one), _dot(other)) for one, other in fields.get("remnants", ()))
    return ReplicatedDocument(
        version, digest, statements, prefixes, (at, life), last, recent, fields.get("merges", {}),
        fields.get("merged_at", 0), remnants,
    )  # fmt: skip


def document_text(document: ReplicatedDocument) -> str:
    """Return the same as text."""
    if document.merges or document.merged_at or document.remnants:
        return json.dumps(document_to_json(document), separators=(",", ":"))
    return _usual_text(document.last, document.recent, document.prefixes_by)


@lru_cache(maxsize=100)
def _usual_text(last: Dot, recent: tuple[RecentOperation, ...], prefixes_by: tuple[int, str]) -> str:
    """Return the text of a document without conflicts. All new documents of an operation have the same."""
    document = ReplicatedDocument(last=last, recent=recent, prefixes_by=prefixes_by)
    return json.dumps(document_to_json(document), separators=(",", ":"))


def signed(digest: int) -> int:
    """Return a digest as a signed integer, as Postgres stores it.

    >>> signed(2**64 - 1), unsigned(-1) == 2**64 - 1
    (-1, True)
    """
    return digest - 2**64 if digest >= 2**63 else digest


def unsigned(stored: int) -> int:
    return stored % 2**64


def _dot(given: list[Any]) -> Dot:
    return given[0], given[1]
