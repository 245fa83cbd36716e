"""The search index of an LMR's cache: SQLite's FTS5, or a column of words in Postgres.

`mdv.db.cache` notes which resources have changed. They are indexed later, in small transactions, so that applying the
feed does not wait for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete, func, insert, or_, select, update

from mdv.db.cache import is_sqlite
from mdv.db.cache_read import select_type_id
from mdv.db.cache_tables import resources, search_pending, search_state, statements, vocabulary
from mdv.db.load_sql import load_sql
from mdv.db.search_index import MAX_CHARACTERS_PER_VALUE, MAX_VALUES_PER_RESOURCE, lexemes
from mdv.rdf.words import ResourceWords

CLASS_PREFIX = "c"
"""In SQLite, the ID of a class is a word with this prefix, in a column of its own."""


def is_indexed(connection: Connection, labels: Sequence[str]) -> bool:
    """True if all resources are indexed with these label properties."""
    stored = connection.execute(select(search_state.c.label_properties)).scalar_one()
    waiting = select(search_pending.c.resource_id).limit(1)
    return stored == list(labels) and connection.execute(waiting).scalar_one_or_none() is None


def index_next(connection: Connection, labels: Sequence[str], most: int) -> bool:
    """Index at most `most` resources. Return whether more have to be indexed."""
    if connection.execute(select(search_state.c.label_properties)).scalar_one() != list(labels):
        _add_all(connection)
        connection.execute(update(search_state).values(label_properties=list(labels)))
    p = search_pending.c.resource_id
    ids = list(connection.execute(select(p).order_by(p).limit(most)).scalars())
    if ids:
        connection.execute(delete(search_pending).where(p.in_(ids)))
        _index(connection, ids, labels)
    return len(ids) == most


def _add_all(connection: Connection) -> None:
    connection.execute(delete(search_pending))
    described = select(statements.c.resource_id).distinct()
    connection.execute(insert(search_pending).from_select(["resource_id"], described))


def _index(connection: Connection, ids: Sequence[int], labels: Sequence[str]) -> None:
    names = select(vocabulary.c.id).where(vocabulary.c.uri.in_(labels))
    label_ids = frozenset(connection.execute(names).scalars())
    named = select(resources.c.id, resources.c.uri).where(resources.c.id.in_(ids))
    uris = {row.id: row.uri for row in connection.execute(named)}
    rows = [row for number in ids if number in uris and (row := _read(connection, number, uris[number], label_ids))]
    if is_sqlite(connection):
        connection.exec_driver_sql("delete from search_texts where rowid = ?", [(number,) for number in ids])
        made = [
            (number, " ".join(found.all), " ".join(found.labels), " ".join(f"{CLASS_PREFIX}{c}" for c in classes))
            for number, found, classes in rows
        ]
        if made:
            sql = "insert into search_texts (rowid, words, labels, classes) values (?, ?, ?, ?)"
            connection.exec_driver_sql(sql, made)
        return
    named_sql = load_sql("search")
    connection.exec_driver_sql(named_sql["delete_words"], {"ids": list(ids)})
    texts = [(number, lexemes(found, classes)) for number, found, classes in rows]
    connection.exec_driver_sql(named_sql["write_words"], {"rows": json.dumps(texts, ensure_ascii=False)})


def _read(
    connection: Connection, number: int, uri: str, label_ids: frozenset[int]
) -> tuple[int, ResourceWords, list[int]] | None:
    """Return the words and classes of a resource; None if it has no statements."""
    found, classes = ResourceWords.of_uri(uri), list[int]()
    is_described = False
    for name, target, text in connection.execute(_TEXTS, {"number": number}):
        is_described = True
        if text is not None:
            found.add(text, name in label_ids)
        elif target is not None:
            classes.append(target)
    if not is_described and connection.execute(_ANY, {"number": number}).first() is None:
        return None
    return number, found, classes


def _texts() -> Select[Any]:
    s = statements.c
    columns = (s.property_id, s.target_id, func.substr(s.value, 1, MAX_CHARACTERS_PER_VALUE))
    wanted = or_(s.value.is_not(None), s.property_id == select_type_id())
    return select(*columns).where(s.resource_id == bindparam("number"), wanted).limit(MAX_VALUES_PER_RESOURCE)


_TEXTS = _texts()
_ANY = select(statements.c.resource_id).where(statements.c.resource_id == bindparam("number")).limit(1)
