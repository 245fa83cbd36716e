"""Reads of programs in SQL. A cursor is a pattern, a scope, a position and the last statement that was read.

The order of a cursor is resource, property, hash: that of an index. With a bound subject, or with a bound property and
resource as object, a chunk reads its own rows alone. So does a read of a property, or of everything, which skips the
rows of other properties. A read of a literal, of an object with any property, or of a document collects its rows for
each chunk and sorts them.
"""

# ruff: noqa: S608 (the parts are SQL written here)

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import psycopg

from mdv.db.engine import pipelined, postgres_duration
from mdv.db.load_sql import load_sql
from mdv.model import XSD, Statement, Term
from mdv.rdf.digest import statement_hash
from mdv.rdf.values import ValueKind, value_kind
from mdv.real.store import ReadPattern, ReadScope
from mdv.real.terms import typed_value

_NUMBER_NAMES = (
    "decimal integer nonPositiveInteger negativeInteger nonNegativeInteger positiveInteger long int short byte"
    " unsignedLong unsignedInt unsignedShort unsignedByte float double"
)
_TYPED_DATATYPES = [
    iri
    for name in (*_NUMBER_NAMES.split(), "boolean")
    if value_kind(iri := XSD + name) in (ValueKind.NUMBER, ValueKind.TRUTH)
]

_COLUMNS = "f.resource_id, f.property_id, f.hash, f.target_id, f.value, f.lang, f.datatype_id"
_KEY = (
    "f.resource_id, f.property_id, f.hash, coalesce(f.target_id, 0), coalesce(f.value, ''), coalesce(f.lang, ''),"
    " coalesce(f.datatype_id, 0)"
)
_CURRENT = "f.position + 0 <= %(position)s::bigint"
_PAST = f"f.until_position > %(position)s::bigint and {_CURRENT}"


class ReadShape(NamedTuple):
    """Which parts of a pattern are bound. `object`: uri, plain, lang, datatype, typed, number or empty."""

    subject: bool
    property: bool
    object: str
    is_scoped: bool
    goes_on: bool


def read_shape(pattern: ReadPattern, scope: ReadScope, after: Statement | None, range_kind: ValueKind) -> ReadShape:
    """Return the shape of a read. `range_kind`: how the schema types the property."""
    term, kind = pattern.object, ""
    if term is not None and pattern.is_typed:
        wanted = typed_value(term, range_kind)
        is_number = wanted is not None and wanted[0] is ValueKind.NUMBER and range_kind is ValueKind.NUMBER
        kind = "number" if is_number and pattern.property is not None else "typed"
    elif term is not None:
        kind = "uri" if term.is_uri else "lang" if term.lang is not None else "datatype" if term.datatype else "plain"
    return ReadShape(
        pattern.subject is not None, pattern.property is not None, kind, scope is not None, after is not None
    )


class StatementReader:
    """Reads in one transaction of a connection, which begins with the first read."""

    _begin = "begin_reading"
    _new_documents: Mapping[str, int] | None = None

    def __init__(self, session: psycopg.Connection[Any], seconds: float) -> None:
        self._session, self._seconds = session, seconds
        self._has_begun = False

    def _rows(self, sql: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        if not self._has_begun:
            self._has_begun = True
            with pipelined(self._session):
                timeout = {"timeout": postgres_duration(self._seconds)}
                self._session.execute(load_sql("real")[self._begin], timeout, prepare=True)
                found = self._session.execute(sql, values, prepare=True)
        else:
            found = self._session.execute(sql, values, prepare=True)
        return found.fetchall()

    def position(self) -> tuple[int, int]:
        """Return the last position and the version of the schema."""
        ((position, version),) = self._rows(load_sql("real")["read_position"], {})
        return position, version

    def read(
        self,
        shape: ReadShape,
        patterns: Sequence[ReadPattern],
        scope: ReadScope,
        position: int,
        limit: int,
        after: Statement | None = None,
    ) -> list[list[Statement]]:
        """Return up to `limit` distinct statements for each of some patterns of one shape, as of a position, in order.

        For typed patterns these are all literals that can be equal: the caller compares them.
        """
        with_new = self._new_documents is not None
        if not shape.subject or shape.goes_on:
            return self._read(_sql_of(shape, limit, with_new), patterns, scope, position, after)
        found = self._read(_sql_of(shape, limit, with_new, is_short=True), patterns, scope, position, None)
        # With that many rows there may be more of them, and the same statement may have been counted twice.
        longer = [number for number, rows in enumerate(found) if len(rows) >= limit]
        if longer:
            sql = _sql_of(shape, limit, with_new)
            whole = self._read(sql, [patterns[number] for number in longer], scope, position, None)
            for number, rows in zip(longer, whole, strict=True):
                found[number] = rows
        return [list(dict.fromkeys(rows)) if len(rows) > 1 else rows for rows in found]

    def _read(
        self, sql: str, patterns: Sequence[ReadPattern], scope: ReadScope, position: int, after: Statement | None
    ) -> list[list[Statement]]:
        items = [_item(number, pattern, after) for number, pattern in enumerate(patterns)]
        values = {
            "items": _as_json(items), "position": position, "scope": list(scope or ()), "types": _TYPED_DATATYPES,
            "new_documents": json.dumps(self._new_documents, ensure_ascii=False),
        }  # fmt: skip
        used = {name: value for name, value in values.items() if f"%({name})s" in sql}
        found: list[list[Statement]] = [[] for _ in patterns]
        for number, subject, name, target, value, lang, datatype in self._rows(sql, used):
            term = Term("uri", target) if target is not None else Term("literal", value, lang, datatype)
            found[number].append(Statement(subject, name, term))
        return found

    def documents_with(self, statements: Sequence[Statement], position: int) -> list[frozenset[str]]:
        """Return for each statement the documents that contain it, as of a position."""
        items = [_item(number, ReadPattern(*statement), None) for number, statement in enumerate(statements)]
        found: list[set[str]] = [set() for _ in statements]
        sql = load_sql("real")["find_documents_with"].format(documents=_documents(self._new_documents is not None))
        values = {"items": _as_json(items), "position": position}
        if self._new_documents is not None:
            values["new_documents"] = json.dumps(self._new_documents, ensure_ascii=False)
        for number, document in self._rows(sql, values):
            found[number].add(document)
        return [frozenset(documents) for documents in found]

    def caller_of(self, process: str) -> str | None:
        """Return the caller of a process; None if it has ended or does not exist."""
        rows = self._rows(load_sql("real")["caller_of_process"], {"iri": process})
        return rows[0][0] if rows else None

    def prefixes(self, document: str, position: int) -> dict[str, str]:
        """Return the prefixes of a document as of a position."""
        rows = self._rows(load_sql("real")["read_prefixes"], {"document": document, "position": position})
        return dict(rows[0][0]) if rows else {}


class TransactionReader(StatementReader):
    """Reads within a transaction that changes statements: what it has written is read, too.

    `new_documents`: the IDs of the documents that it registers, by URI. They are not in the table yet.
    """

    _begin = "begin_reading_changes"

    def __init__(self, session: psycopg.Connection[Any], seconds: float, new_documents: Mapping[str, int]) -> None:
        super().__init__(session, seconds)
        self._new_documents = new_documents

    @contextmanager
    def reading(self) -> Iterator[TransactionReader]:
        """Restore the settings of the transaction after the block, unless the transaction has failed in it."""
        try:
            yield self
        finally:
            if self._has_begun and self._session.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS:
                self._session.execute(load_sql("real")["end_reading_changes"], prepare=True)


def _as_json(items: Iterable[dict[str, Any]]) -> str:
    return json.dumps(list(items), ensure_ascii=False)


def _item(number: int, pattern: ReadPattern, after: Statement | None) -> dict[str, Any]:
    subject, name, term, is_typed = pattern
    item: dict[str, Any] = {"n": number, "subject": subject, "property": name}
    if term is not None and is_typed:
        wanted = typed_value(term, ValueKind.TEXT)
        if wanted is not None:
            item["number" if wanted[0] is ValueKind.NUMBER else "truth"] = wanted[1]
    elif term is not None:
        item |= _object_fields(term, "")
        if subject is not None and name is not None:
            item["hash"] = statement_hash(Statement(subject, name, term))
    if after is not None:
        item |= {"after_subject": after.subject, "after_property": after.property, "after_hash": statement_hash(after)}
        item |= _object_fields(after.object, "after_")
    return item


def _object_fields(term: Term, before: str) -> dict[str, Any]:
    if term.is_uri:
        return {before + "target": term.value}
    return {before + "value": term.value, before + "lang": term.lang, before + "datatype": term.datatype}


_ALSO_NEW = (
    "(select id, uri from documents union all"
    " select n.value::int, n.key from jsonb_each_text(%(new_documents)s::jsonb) n)"
)


def _documents(with_new: bool) -> str:
    return _ALSO_NEW if with_new else "documents"


@cache
def _sql_of(shape: ReadShape, limit: int, with_new: bool, is_short: bool = False) -> str:
    """Return the statement for a shape. `with_new`: also for documents that this transaction registers. `is_short`: all
    rows of each pattern are expected within the limit."""
    names, conditions = _conditions(shape, _documents(with_new))
    is_collected = not shape.subject and (
        shape.is_scoped
        or shape.object in ("plain", "lang", "datatype", "number")
        or (shape.object and not shape.property)
    )

    def source(table: str, within: str) -> str:
        where = " and ".join([*conditions, within])
        # OFFSET 0 keeps the planner from reading all statements in order until some match.
        return f"(select f.* from {table} f where {where} offset 0) f" if is_collected else f"{table} f where {where}"

    return load_sql("real")["read_own_rows" if is_short else "read_items"].format(
        names="\n".join(names),
        key=_KEY,
        columns=_COLUMNS,
        current=source("filter_data", _CURRENT),
        history=source("filter_data_history", _PAST),
        limit=limit,
    )


def _conditions(shape: ReadShape, documents: str) -> tuple[list[str], list[str]]:
    """Return the joins that look up the IDs of names, and the conditions on a row. `documents`: the table."""
    names, found = [], []

    def look_up(table: str, column: str, alias: str, join: str = "cross join lateral") -> None:
        end = "" if join.startswith("cross") else " on true"
        names.append(f"{join} (select id from {table} x where x.uri = k.{column} offset 0) {alias}{end}")

    if shape.subject:
        look_up("resources", "subject", "subject")
        found.append("f.resource_id = subject.id")
    if shape.property:
        look_up("vocabulary", "property", "property")
        found.append("f.property_id = property.id")
    if shape.object == "uri":
        look_up("resources", "target", "target")
        found.append("f.target_id = target.id")
    elif shape.object in ("plain", "lang", "datatype"):
        found += ["f.value = k.value", "left(f.value, 64) = left(k.value, 64)"]
        found.append("f.lang = k.lang" if shape.object == "lang" else "f.lang is null")
        if shape.object == "datatype":
            look_up("vocabulary", "datatype", "datatype")
            found.append("f.datatype_id = datatype.id")
        else:
            found.append("f.datatype_id is null")
    elif shape.object == "number":
        found.append("f.number = k.number")
    elif shape.object == "typed":
        found.append(
            "(f.number = k.number or f.truth = k.truth or"
            " f.datatype_id = any (array(select id from vocabulary v where v.uri = any (%(types)s::text[]))))"
        )
    if shape.subject and shape.property and shape.object in ("uri", "plain", "lang", "datatype"):
        found.append("f.hash = k.hash")
    if shape.is_scoped:
        found.append(f"f.document_id = any (array(select id from {documents} d where d.uri = any (%(scope)s::text[])))")
    if shape.goes_on:
        look_up("resources", "after_subject", "after_subject")
        look_up("vocabulary", "after_property", "after_property")
        look_up("resources", "after_target", "after_target", "left join lateral")
        look_up("vocabulary", "after_datatype", "after_datatype", "left join lateral")
        found.append(
            f"({_KEY}) > (after_subject.id, after_property.id, k.after_hash, coalesce(after_target.id, 0),"
            " coalesce(k.after_value, ''), coalesce(k.after_lang, ''), coalesce(after_datatype.id, 0))"
        )
    return names, found
