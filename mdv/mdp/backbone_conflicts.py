"""Conflicts of the backbone: find one by its ID, show the origins of its values, name those that a refusal repeats."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import Connection

from mdv.backbone.conflicts import VALUES, BackboneConflict
from mdv.backbone.kinds import SET_KINDS
from mdv.backbone.vector import Dot
from mdv.db.replica.documents import ReplicatedRow, find_origin_times, find_replicated, read_rows
from mdv.db.replica.marks import find_document_marks
from mdv.errors import InvalidDocument, MdvError, NotFound
from mdv.mdp.provider import Provider
from mdv.mdp.replica import Replica
from mdv.model import Term

_PAGE = 1000


class ValueOrigin(NamedTuple):
    """Where a value of a conflict comes from. `members`: those that inserted it; empty if it was there before the
    backbone. `at`: when that was done, as far as this member knows."""

    value: Term
    members: tuple[str, ...]
    at: datetime | None


def find_conflict(replica: Replica, connection: Connection, identity: str) -> BackboneConflict:
    """Return an open conflict by its ID."""
    after: str | None = ""
    while after is not None:
        found, after = replica.conflict_page(connection, after, _PAGE)
        for conflict in found:
            if conflict.id == identity:
                return conflict
    raise NotFound(
        f"There is no open conflict {identity!r}. It may have been resolved, here or at another member: see"
        " `mdv conflicts`."
    )


def value_origins(
    replica: Replica, connection: Connection, conflicts: Sequence[BackboneConflict]
) -> dict[str, list[ValueOrigin]]:
    """Return the origins of the values of conflicts, by their IDs."""
    facts, mode = replica.facts(connection), replica.mode(connection)
    rows = find_replicated(connection, sorted({one.document for one in conflicts if one.statements}))
    if facts is None or mode is None or not rows:
        return {}
    kind, numbers = SET_KINDS[mode], [row.stored.id for row in rows.values()]
    dots, marks = read_rows(connection, numbers), find_document_marks(connection, kind, numbers)
    times = find_origin_times(connection, numbers)
    found: dict[str, list[ValueOrigin]] = {}
    for conflict in conflicts:
        if not conflict.statements:
            continue
        row = rows[conflict.document]
        number = row.stored.id
        by_value: dict[Term, set[Dot]] = {}
        for statement in conflict.statements:
            live = {dots[number].get(statement, ("", 0))}
            if kind.is_causal:
                live = set(marks.get((number, statement), live))
            by_value.setdefault(statement.object, set()).update(dot for dot in live if dot[0])
        recent = {one.dot: datetime.fromtimestamp(one.at / 1_000_000, UTC) for one in row.document.recent}
        found[conflict.id] = [
            ValueOrigin(
                value,
                tuple(sorted({facts.table.owner_of(life) or life for life, _ in live})),
                max((at for dot in live if (at := recent.get(dot) or times.get((number, dot)))), default=None),
            )
            for value, live in sorted(by_value.items())
        ]
    return found


def name_conflicts(connection: Connection, uri: str, error: MdvError, provider: Provider) -> MdvError:
    """Return the error of a document that is refused, with the conflicts that it repeats: it gives several values to a
    property that has several in the stored document, too."""
    pairs = {(flaw.subject, flaw.property) for flaw in error.flaws}
    if not isinstance(error, InvalidDocument) or not any(subject for subject, _ in pairs):
        return error
    replica = Replica(provider)
    if replica.facts(connection) is None:
        return error
    stored: list[ReplicatedRow] = list(find_replicated(connection, [uri]).values())
    if not stored:
        return error
    open_conflicts, _ = replica.conflict_page(connection, "", 1, uri)
    same = [
        one
        for one in open_conflicts
        if one.kind == VALUES and {(s.subject, s.property) for s in one.statements} & pairs
    ]
    if not same:
        return error
    names = ", ".join(one.id for one in same)
    return InvalidDocument(
        f"{error.detail} The stored document has this open conflict, too: {names}. Register the document with one"
        " value, or choose one with `mdv conflicts resolve`.",
        error.flaws,
        **error.extra,
        conflicts=[one.as_dict() for one in same],
    )
