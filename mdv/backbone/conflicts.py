"""Conflicts: what merges left to be decided. They never block, and are equal at every member at rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, NamedTuple

from mdv.backbone.document_state import ReplicatedDocument
from mdv.model import Statement, Term

MERGED_SECONDS = 7 * 24 * 3600
"""How long a merge without another conflict is listed."""

VALUES, REMNANT, REFUSED, MERGED = "values", "remnant", "schema", "merged"
"""The kinds: several values of a property that is not set-valued; a deletion that left something; a statement that the
schema in force refuses; concurrent changes without a clash."""


class BackboneConflict(NamedTuple):
    """A conflict of a document. `about`: the subject and property, or the statement. `values`: those to choose from."""

    id: str
    kind: str
    document: str
    about: tuple[str, ...] = ()
    values: tuple[Term, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        body: dict[str, Any] = {"id": self.id, "kind": self.kind, "document": self.document}
        if self.about:
            body["about"] = list(self.about)
        if self.values:
            body["values"] = [value.as_dict() for value in self.values]
        return body


class ConflictRules(NamedTuple):
    """What the schema says. `is_single`: the property is not set-valued. `refuses`: the statement is invalid."""

    is_single: Callable[[str], bool]
    refuses: Callable[[Statement], bool]


ANYTHING_GOES = ConflictRules(lambda _: False, lambda _: False)
"""A schema without conflicts."""


def find_conflicts(
    uri: str, document: ReplicatedDocument, statements: Iterable[Statement], rules: ConflictRules, now: int
) -> list[BackboneConflict]:
    """Return the open conflicts of a document, sorted. `statements`: the visible ones. `now`: in microseconds."""
    found = []
    values: dict[tuple[str, str], list[Term]] = defaultdict(list)
    for statement in statements:
        if rules.refuses(statement):
            about = (statement.subject, statement.property)
            found.append(_conflict(REFUSED, uri, about, (statement.object,), str(statement.object.sort_key())))
        if rules.is_single(statement.property):
            values[statement.subject, statement.property].append(statement.object)
    found += [_conflict(VALUES, uri, about, tuple(sorted(some))) for about, some in values.items() if len(some) > 1]
    if document.is_present and document.remnants:
        found.append(_conflict(REMNANT, uri))
    if not found and document.merged_at and now < document.merged_at + MERGED_SECONDS * 1_000_000:
        found.append(_conflict(MERGED, uri))
    return sorted(found)


def _conflict(
    kind: str, uri: str, about: tuple[str, ...] = (), values: tuple[Term, ...] = (), key: str = ""
) -> BackboneConflict:
    identity = blake2b("\0".join((kind, uri, *about, key)).encode(), digest_size=8).hexdigest()
    return BackboneConflict(identity, kind, uri, about, values)
