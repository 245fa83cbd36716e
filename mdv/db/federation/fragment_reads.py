"""Read the statements of this MDP for a federation: now, or before a transaction."""

# ruff: noqa: S608 (the parts are SQL written here)

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

from sqlalchemy import Connection

from mdv.db.engine import driver
from mdv.db.federation.site_store import execute
from mdv.model import Statement, Term

_NOW = "filter_data"
_COLUMNS = "resource_id, property_id, target_id, value, lang, datatype_id"
_BEFORE = f"""(select {_COLUMNS} from filter_data where position + 0 < %(before)s::bigint
 union all
 select {_COLUMNS} from filter_data_history
 where until_position >= %(before)s::bigint and position + 0 < %(before)s::bigint)"""
"""The statements before the transaction at a position."""
_DECODED = """select distinct r.uri, p.uri, t.uri, f.value, f.lang, d.uri
from {statements} f
join resources r on r.id = f.resource_id
join vocabulary p on p.id = f.property_id
left join resources t on t.id = f.target_id
left join vocabulary d on d.id = f.datatype_id"""
_BATCH = 10_000
"""Rows that are read at a time when everything is read."""


def _table(before: int | None) -> str:
    return _NOW if before is None else _BEFORE


def _read(connection: Connection, where: str, before: int | None, **values: object) -> list[Statement]:
    sql = f"{_DECODED.format(statements=_table(before))} where {where}"
    found = driver(connection).execute(sql, {"before": before, **values}, prepare=True).fetchall()
    return [_statement(row) for row in found]


def _statement(row: Any) -> Statement:
    subject, name, target, value, lang, datatype = row
    return Statement(subject, name, Term.uri(target) if target is not None else Term.literal(value, lang, datatype))


def statements_about(connection: Connection, uri: str, before: int | None = None) -> list[Statement]:
    """Return the statements about a resource. `before`: on the state before the transaction at this position."""
    return _read(connection, "f.resource_id = (select id from resources where uri = %(uri)s)", before, uri=uri)


def statements_with_object(connection: Connection, uris: Collection[str], before: int | None = None) -> list[Statement]:
    """Return the statements whose object is one of these resources."""
    where = "f.target_id = any (array(select id from resources where uri = any (%(uris)s)))"
    return _read(connection, where, before, uris=list(uris))


def statements_with_literal(connection: Connection, term: Term, before: int | None = None) -> list[Statement]:
    """Return the statements whose object is a literal, with the same language tag and datatype."""
    where = (
        "left(f.value, 64) = left(%(value)s, 64) and f.value = %(value)s and f.lang is not distinct from %(lang)s"
        " and d.uri is not distinct from %(datatype)s"
    )
    return _read(connection, where, before, value=term.value, lang=term.lang, datatype=term.datatype)


def all_subjects(connection: Connection, before: int | None = None) -> list[str]:
    """Return the resources that statements describe."""
    sql = f"select uri from resources where id in (select distinct resource_id from {_table(before)} f)"
    found = driver(connection).execute(sql, {"before": before}, prepare=True).fetchall()
    return [uri for (uri,) in found]


def all_statements(connection: Connection) -> Iterator[Statement]:
    """Yield all statements, those of a subject one after another."""
    sql = f"{_DECODED.format(statements=_NOW)} order by 1"
    with driver(connection).cursor(name="federation_contents") as cursor:
        cursor.itersize = _BATCH
        cursor.execute(sql)
        for row in cursor:
            yield _statement(row)


def mentioned_now(connection: Connection, uris: Collection[str]) -> set[str]:
    """Return those of these resources that are a subject or object in the closure."""
    sql = """select r.uri from resources r where r.uri = any (%(uris)s) and (
        exists (select from filter_data f where f.resource_id = r.id)
        or exists (select from filter_data f where f.target_id = r.id)
        or exists (select from eca_classes c join filter_data f on f.target_id = c.class_id
                   where c.superclass_id = r.id))"""
    return {uri for (uri,) in driver(connection).execute(sql, {"uris": list(uris)}, prepare=True).fetchall()}


def stated_classes(connection: Connection, uris: Collection[str]) -> dict[str, list[str]]:
    """Return the classes that are stated of resources."""
    sql = """select r.uri, t.uri from resources r
        join filter_data f on f.resource_id = r.id
            and f.property_id = (select id from vocabulary where uri = %(type)s)
        join resources t on t.id = f.target_id
        where r.uri = any (%(uris)s)"""
    values = {"uris": list(uris), "type": "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"}
    found: dict[str, list[str]] = {}
    for uri, class_iri in driver(connection).execute(sql, values, prepare=True).fetchall():
        found.setdefault(uri, []).append(class_iri)
    return found


def count_arcs(connection: Connection, changes: dict[str, int]) -> tuple[set[str], set[str]]:
    """Add to the numbers of arcs of schema nodes. Return the nodes that came, and those that went."""
    rows = [{"node": node, "arcs": number} for node, number in changes.items() if number]
    if not rows:
        return set(), set()
    found = execute(connection, "count_arcs", rows=json.dumps(rows, ensure_ascii=False)).fetchall()
    came = {node for node, arcs in found if arcs > 0 and arcs - changes[node] <= 0}
    went = {node for node, arcs in found if arcs <= 0 and arcs - changes[node] > 0}
    return came, went


def clear_presence(connection: Connection) -> None:
    execute(connection, "clear_presence")
