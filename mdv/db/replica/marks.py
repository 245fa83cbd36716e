"""Marks: the replicated states of statements that do not follow from their rows."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from mdv.backbone.replicated_set import ElementState, SetKind
from mdv.db.engine import driver
from mdv.db.load_sql import load_sql
from mdv.db.replica.effects import MarkRow
from mdv.model import Statement, Term
from mdv.rdf.digest import statement_hash

MarkKey = tuple[int, Statement]
"""The ID of a document, and a statement."""


def statement_text(statement: Statement) -> str:
    """Return a statement as JSON. Equal statements give equal texts."""
    subject, name, term = statement
    return json.dumps([subject, name, term.as_dict()], ensure_ascii=False, separators=(",", ":"))


def read_statement_text(text: str) -> Statement:
    """
    >>> one = Statement("urn:a", "urn:p", Term.literal("x", "en"))
    >>> read_statement_text(statement_text(one)) == one
    True
    """
    subject, name, term = json.loads(text)
    return Statement(subject, name, Term(term["type"], term["value"], term.get("lang"), term.get("datatype")))


def find_marks(
    connection: Connection, kind: SetKind, wanted: Iterable[tuple[int, Sequence[tuple[Statement, int]]]]
) -> dict[MarkKey, ElementState]:
    """Return the marks of some statements. `wanted`: IDs of documents with statements and their hashes."""
    items = [{"document_id": number, "hash": digest} for number, some in wanted for _, digest in some]
    if not items:
        return {}
    rows = driver(connection).execute(
        load_sql("replica")["find_marks"], {"statements": json.dumps(items)}, prepare=True
    )
    return {(number, read_statement_text(text)): kind.from_json(state) for number, text, state in rows.fetchall()}


def find_document_marks(
    connection: Connection, kind: SetKind, documents: Collection[int]
) -> dict[MarkKey, ElementState]:
    """Return all marks of some documents."""
    rows = driver(connection).execute(
        load_sql("replica")["find_document_marks"], {"documents": list(documents)}, prepare=True
    )
    return {(number, read_statement_text(text)): kind.from_json(state) for number, text, state in rows.fetchall()}


def mark_rows(
    kind: SetKind, before: Mapping[MarkKey, ElementState], after: Mapping[MarkKey, ElementState | None]
) -> list[MarkRow]:
    """Return the rows that change. `after`: the new marks, None where there is none."""
    return [
        MarkRow(number, statement_hash(statement), statement_text(statement),
                None if state is None else kind.to_json(state))
        for (number, statement), state in after.items()
        if state != before.get((number, statement))
    ]  # fmt: skip


def more_marks(rows: Iterable[MarkRow], before: Mapping[MarkKey, Any]) -> int:
    """Return by how much the number of marks grows."""
    known = {(number, statement_text(statement)) for number, statement in before}
    return sum((row.state is not None) - ((row.document_id, row.statement) in known) for row in rows)


def mark_changes(rows: Sequence[MarkRow]) -> dict[str, str]:
    """Return the statements that write marks, each with its rows as JSON."""
    every = [row._asdict() for row in rows]
    kept = [row for row in every if row["state"] is not None]
    changes = {"delete_marks": json.dumps(every, ensure_ascii=False)}
    return changes | ({"insert_marks": json.dumps(kept, ensure_ascii=False)} if kept else {})


def count_marks(connection: Connection) -> int:
    """Return the number of marks."""
    return int(driver(connection).execute(load_sql("replica")["count_marks"], prepare=True).fetchall()[0][0])


def settle_marks(connection: Connection, stable: Mapping[str, int], most: int) -> int:
    """Remove marks of the add-wins set whose operations are stable. Return their number. The lock is taken."""
    session, sql = driver(connection), load_sql("replica")
    row = session.execute(sql["settle_marks"], {"stable": json.dumps(dict(stable)), "most": most}).fetchone()
    settled = int(row[0]) if row is not None else 0
    if settled:
        session.execute(sql["add_marks"], {"more": -settled})
    return settled
