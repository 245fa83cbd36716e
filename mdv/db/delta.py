"""What a transaction changes in the stored statements, as values. Nothing here reads or writes the database."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from mdv.cause import REGISTERED, Cause
from mdv.model import Statement

TypedValue = tuple[Decimal | None, Decimal | None, bool | None]
"""A value as a number, an instant and a boolean. The schema decides which of them is set."""


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A stored document without its statements. The last three are None without a backbone: its digest, the number of
    its statements, and its recent operations as JSON."""

    id: int
    uri: str
    version: int
    present: bool
    content: bytes
    digest: int | None = None
    statements: int | None = None
    replica: str | None = None


@dataclass(frozen=True, slots=True)
class Replacement:
    """The new statements of a document; none if it is deleted."""

    uri: str
    stored: StoredDocument | None
    content: bytes
    statements: tuple[Statement, ...]
    hashes: tuple[int, ...]
    typed: tuple[TypedValue, ...]
    prefixes: Mapping[str, str]
    by: str | None = None
    """The caller."""
    agent: str | None = None


class ResourceCounts(NamedTuple):
    """The effect on a document: numbers of resources whose visible statements changed, or did not change."""

    version: int
    inserted: int
    updated: int
    deleted: int
    unchanged: int


class EncodedStatement(NamedTuple):
    """A statement with IDs instead of URIs. It is equal for two documents with the same statement."""

    resource: int
    property: int
    target: int | None
    value: str | None
    lang: str | None
    datatype: int | None
    hash: int


class StatementEdit(NamedTuple):
    """A statement to be added or removed, with its hash and its typed value.

    `document`: the URI of a document. None means: for an addition, the document of the cause, unless some document
    contains the statement already; for a deletion, every document that contains it.
    """

    document: str | None
    statement: Statement
    hash: int
    typed: TypedValue


class EffectiveEdits(NamedTuple):
    """The edits of one round that changed something, each with the URI of its document; and the statements that became
    visible (`gained`) or invisible (`lost`) by the whole round."""

    added: list[tuple[str, Statement]]
    removed: list[tuple[str, Statement]]
    gained: list[Statement]
    lost: list[Statement]


class StoredRow(NamedTuple):
    """The row of a stored statement, and its position."""

    row: str
    position: int
    shows: bool
    blank: bool
    typed: TypedValue


@dataclass(slots=True, eq=False)
class DocumentDifference:
    """The net change of one document in a transaction: its added and removed statements, and the resources that it
    describes now, as far as they were read.

    `content`: the digest of its statements, empty if it was edited. `prefixes`: None if they do not change.
    """

    document: int
    uri: str
    stored: StoredDocument | None
    content: bytes = b""
    prefixes: Mapping[str, str] | None = None
    present: bool = True
    cause: Cause = REGISTERED
    """Of several causes in one transaction, the first."""
    added: dict[EncodedStatement, TypedValue] = field(default_factory=dict)
    removed: dict[EncodedStatement, StoredRow] = field(default_factory=dict)
    described: set[int] = field(default_factory=set)
    written: dict[EncodedStatement, bool] = field(default_factory=dict)
    """Added statements that an earlier round has written already, and whether their rows say that they are visible."""
    dropped: dict[EncodedStatement, tuple[StoredRow, bool]] = field(default_factory=dict)
    """Removed statements whose rows an earlier round has moved to the history already, and whether these rows say that
    the removal is visible."""
    is_kept: bool = False
    """It gets a version even if no statement changes: an operation of another member that changes nothing visible."""

    @property
    def is_empty(self) -> bool:
        return not self.added and not self.removed

    @property
    def version(self) -> int:
        """The next version, without a backbone."""
        return 1 if self.stored is None else self.stored.version + 1


class StoreChange(NamedTuple):
    """The statements that became visible (`gains`) and invisible (`losses`). `known`: the last resource ID before."""

    position: int
    known: int
    gains: Collection[EncodedStatement]
    losses: Collection[EncodedStatement]
    described: Mapping[str, Collection[int]]
    """The resources that each document describes."""
    gone: Collection[int]
    """Resources without any statement after the change."""
    returned: Collection[int]
    """Known resources that have statements now, and had none before."""
    blank: Set[int]
    """Objects of gains and losses that are blank nodes."""


def cancel_moved_statements(
    gains: dict[EncodedStatement, DocumentDifference], losses: dict[EncodedStatement, DocumentDifference]
) -> None:
    """Remove statements that one document dropped and another one added: they do not change."""
    for moved in gains.keys() & losses.keys() if losses else ():
        del gains[moved], losses[moved]


def described_before_and_after(differences: Iterable[DocumentDifference], kept: Set[int]) -> tuple[set[int], set[int]]:
    """Return the resources that had statements before the transaction, and those that have statements after it.
    `kept`: known resources that other statements describe."""
    before, after = set(kept), set(kept)
    for difference in differences:
        before.update(key[0] for key in difference.removed)
        after.update(key[0] for key in difference.added)
    return before, after
