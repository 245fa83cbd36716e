"""Statements as they are stored, with IDs in place of URIs, and how they are decoded."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, select

from mdv.db.tables import resources, vocabulary
from mdv.model import Statement, Term


def encoded_columns(columns: Any) -> tuple[ColumnElement[Any], ...]:
    return (columns.resource_id, columns.property_id, columns.target_id, columns.value, columns.lang,
            columns.datatype_id)  # fmt: skip


def decode_statements(connection: Connection, rows: Any) -> list[Statement]:
    return [decode_statement(row) for row in connection.execute(select_decoded(rows))]


def select_decoded(rows: Any) -> Select[Any]:
    target, subject, name, datatype = (
        resources.alias("target"),
        resources.alias("subject"),
        vocabulary.alias("name"),
        vocabulary.alias("datatype"),
    )
    return (
        select(subject.c.uri, name.c.uri, target.c.uri, rows.c.value, rows.c.lang, datatype.c.uri)
        .join_from(rows, subject, subject.c.id == rows.c.resource_id)
        .join(name, name.c.id == rows.c.property_id)
        .outerjoin(target, target.c.id == rows.c.target_id)
        .outerjoin(datatype, datatype.c.id == rows.c.datatype_id)
    )


def decode_statement(row: Any) -> Statement:
    s, p, o, value, lang, kind = row
    return Statement(s, p, Term("uri", o) if o is not None else Term("literal", value, lang, kind))
