"""Conflicts: what merges left to be decided. They never block, and are equal at every member at rest.

A conflict has values to choose from. `resolve_conflict` returns the change that keeps the chosen ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from mdv.backbone.document_state import ReplicatedDocument
from mdv.errors import BadRequest, Conflict
from mdv.model import Statement, Term

MERGED_SECONDS = 7 * 24 * 3600
"""How long a merge without another conflict is listed."""

VALUES, REMNANT, REFUSED, MERGED = "values", "remnant", "schema", "merged"
"""The kinds: several values of a property that is not set-valued; a deletion that left something; a statement that the
schema in force refuses; concurrent changes without a clash."""


class BackboneConflict(NamedTuple):
    """A conflict of a document. `about`: the subject and property. `values`: those to choose from; of a remnant, the
    document itself. `statements`: those that have the values."""

    id: str
    kind: str
    document: str
    about: tuple[str, ...] = ()
    values: tuple[Term, ...] = ()
    statements: tuple[Statement, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        body: dict[str, Any] = {"id": self.id, "kind": self.kind, "document": self.document}
        if self.about:
            body["about"] = list(self.about)
        if self.values:
            body["values"] = [value.as_dict() for value in self.values]
        return body


class ConflictRules(NamedTuple):
    """What the schema says. `singles`: those of a property and its superproperties that are not set-valued. `refuses`:
    the statement is invalid."""

    singles: Callable[[str], Sequence[str]]
    refuses: Callable[[Statement], bool]


ANYTHING_GOES = ConflictRules(lambda _: (), lambda _: False)
"""A schema without conflicts."""


class Resolution(NamedTuple):
    """The change that resolves a conflict. `is_deletion`: of the whole document. `is_confirmation`: the document stays
    as it is, and gets a new version that has seen everything."""

    removals: tuple[Statement, ...] = ()
    is_deletion: bool = False
    is_confirmation: bool = False


def find_conflicts(
    uri: str, document: ReplicatedDocument, statements: Iterable[Statement], rules: ConflictRules, now: int
) -> list[BackboneConflict]:
    """Return the open conflicts of a document, sorted. `statements`: the visible ones. `now`: in microseconds."""
    found = []
    by_property: dict[tuple[str, str], list[Statement]] = defaultdict(list)
    for statement in statements:
        if rules.refuses(statement):
            about = (statement.subject, statement.property)
            key = str(statement.object.sort_key())
            found.append(_conflict(REFUSED, uri, about, (statement.object,), (statement,), key))
        for single in rules.singles(statement.property):
            by_property[statement.subject, single].append(statement)
    found += _several_values(uri, by_property, rules)
    if document.is_present and document.remnants:
        found.append(_conflict(REMNANT, uri, values=(Term.uri(uri),)))
    if not found and document.merged_at and now < document.merged_at + MERGED_SECONDS * 1_000_000:
        found.append(_conflict(MERGED, uri))
    return sorted(found)


def _several_values(
    uri: str, by_property: dict[tuple[str, str], list[Statement]], rules: ConflictRules
) -> list[BackboneConflict]:
    """Return the conflicts of kind `values`. Values of a subproperty are also values of its superproperty: they are
    reported once, for the lowest property that has all of them."""
    lowest: dict[tuple[str, tuple[Term, ...]], tuple[str, list[Statement]]] = {}

    def height(single: str) -> tuple[int, str]:
        return -len(rules.singles(single)), single

    for (subject, single), some in sorted(by_property.items(), key=lambda item: height(item[0][1])):
        values = tuple(sorted({statement.object for statement in some}))
        if len(values) > 1:
            lowest.setdefault((subject, values), (single, some))
    return [
        _conflict(VALUES, uri, (subject, single), values, tuple(sorted(some)))
        for (subject, values), (single, some) in lowest.items()
    ]


def _conflict(
    kind: str,
    uri: str,
    about: tuple[str, ...] = (),
    values: tuple[Term, ...] = (),
    statements: tuple[Statement, ...] = (),
    key: str = "",
) -> BackboneConflict:
    identity = blake2b("\0".join((kind, uri, *about, key)).encode(), digest_size=8).hexdigest()
    return BackboneConflict(identity, kind, uri, about, values, statements)


def resolve_conflict(conflict: BackboneConflict, keep: Sequence[Term | str]) -> Resolution:
    """Return the change that keeps these values of a conflict, and no others. A text names the value that it is.

    >>> one, two = Statement("urn:d#a", "urn:p", Term.literal("1")), Statement("urn:d#a", "urn:p", Term.literal("2"))
    >>> both = BackboneConflict("c", VALUES, "urn:d", ("urn:d#a", "urn:p"), (one.object, two.object), (one, two))
    >>> resolve_conflict(both, ["2"]).removals == (one,)
    True
    """
    if conflict.kind == MERGED:
        raise Conflict(
            f"The conflict {conflict.id} is a merge without a clash, which needs no decision. It is listed for a week."
        )
    kept = {_chosen(conflict, one) for one in keep}
    if conflict.kind == REMNANT:
        return Resolution(is_confirmation=True) if kept else Resolution(is_deletion=True)
    if conflict.kind == VALUES and len(kept) > 1:
        raise BadRequest(
            f"`keep` has {len(kept)} values of {conflict.about[1]}, which is not set-valued. Keep one value, or none."
        )
    if conflict.kind == REFUSED and kept:
        raise BadRequest(
            "The schema refuses this value. Keep nothing to remove it, register the document with a valid value, or"
            " change the schema."
        )
    return Resolution(tuple(one for one in conflict.statements if one.object not in kept))


def _chosen(conflict: BackboneConflict, given: Term | str) -> Term:
    """Return the value of a conflict that is meant."""
    matching = [value for value in conflict.values if given in (value, value.value)]
    if len(matching) == 1:
        return matching[0]
    shown = given if isinstance(given, str) else given.value
    if matching:
        raise BadRequest(
            f"{shown!r} is the text of {len(matching)} values of the conflict {conflict.id}. Give the value as the list"
            " of conflicts shows it, with its language or datatype."
        )
    raise BadRequest(
        f"{shown!r} is not among the values of the conflict {conflict.id}. They may have changed: list it again."
    )
