"""The search index of an MDP: one row of words for each resource that a document describes.

Registrations do not write the index. The log tells later which resources have changed (`collect`), and they are indexed
in small transactions (`index_next`). So the index costs a registration nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from mdv.db.load_sql import load_sql
from mdv.db.tables import vocabulary
from mdv.model import RDF_TYPE
from mdv.rdf.words import ResourceWords

MAX_VALUES_PER_RESOURCE = 2_000
"""Literals and classes of one resource that are indexed."""
RESOURCES_PER_READ = 50
"""Resources whose texts are in memory at a time."""
MAX_CHARACTERS_PER_VALUE = 50_000
"""Characters of one literal that are indexed."""
MAX_ROW_BYTES = 900_000
"""Limit of a row of words. Postgres allows a little more."""
LABEL_MARK, CLASS_MARK = "=", "@"
"""Prefixes of words of labels and of IDs of classes. No word contains them."""


@dataclass(frozen=True, slots=True)
class ResourceTexts:
    """The stored texts of resources: `uris` by ID, and for each literal or class the ID of the resource, the ID of the
    property, and the ID of the class or the text."""

    uris: Sequence[tuple[int, str]]
    texts: Sequence[tuple[int, int, int | None, str | None]]
    label_ids: Collection[int]


MakeLexemes = Callable[[ResourceTexts], dict[int, list[str]]]


def is_current(connection: Connection, labels: Sequence[str]) -> tuple[bool, int]:
    """Return whether all changes are indexed with these label properties, and the position of the index."""
    ((current, position),) = _rows(connection, "is_current", labels=json.dumps(labels))
    return bool(current), int(position)


def collect(connection: Connection, labels: Sequence[str]) -> None:
    """Lock the index, and add the resources that have changed to those that have to be indexed."""
    ((after, indexed_with),) = _rows(connection, "lock")
    ((position,),) = _rows(connection, "last_position")  # before the changes are read, so that none is missed
    if indexed_with != list(labels):
        _run(connection, "add_all")
    elif position > after:
        _run(connection, "add_changed", after=after)
    else:
        return
    _run(connection, "set_state", position=position, labels=json.dumps(labels))


def index_next(connection: Connection, labels: Sequence[str], most: int, make: MakeLexemes) -> bool:
    """Index at most `most` resources. Return whether more have to be indexed. The caller has called `collect`. `make`
    is `make_lexemes`, or runs it in a thread."""
    ids = sorted(number for (number,) in _rows(connection, "take_pending", most=most))
    if not ids:
        return False
    found: dict[int, list[str]] = {}
    for first in range(0, len(ids), RESOURCES_PER_READ):
        found |= _read_words(connection, ids[first : first + RESOURCES_PER_READ], labels, make)
    if found:
        _run(connection, "write_words", rows=json.dumps(list(found.items()), ensure_ascii=False))
    if len(found) < len(ids):
        _run(connection, "delete_words", ids=[number for number in ids if number not in found])
    ((more,),) = _rows(connection, "has_pending")
    return bool(more)


def _read_words(
    connection: Connection, ids: Collection[int], labels: Sequence[str], make: MakeLexemes
) -> dict[int, list[str]]:
    names = vocabulary.c
    known = connection.execute(select(names.uri, names.id).where(names.uri.in_((RDF_TYPE, *labels))))
    numbers: dict[str, int] = {row.uri: row.id for row in known}
    type_id = numbers.pop(RDF_TYPE, 0)
    described = _rows(connection, "find_described", ids=list(ids))
    limits = {"characters": MAX_CHARACTERS_PER_VALUE, "each": MAX_VALUES_PER_RESOURCE, "type": type_id}
    texts = _rows(connection, "read_texts", ids=list(ids), **limits)
    return make(ResourceTexts(described, texts, frozenset(numbers.values())))


def make_lexemes(read: ResourceTexts) -> dict[int, list[str]]:
    """Return the words of resources, by ID."""
    words = {number: ResourceWords.of_uri(uri) for number, uri in read.uris}
    classes: dict[int, list[int]] = {}
    for number, name, target, text in read.texts:
        if text is not None and number in words:
            words[number].add(text, name in read.label_ids)
        elif target is not None:
            classes.setdefault(number, []).append(target)
    return {number: lexemes(found, classes.get(number, ())) for number, found in words.items()}


def lexemes(found: ResourceWords, classes: Collection[int]) -> list[str]:
    """Return the words of a resource and the IDs of its classes, within the size of a row.

    >>> lexemes(ResourceWords({"e", "green"}, {"green"}), [7])
    ['@7', '=green', 'e', 'green']
    """
    kept: list[str] = []
    size = 0
    marked = (*(f"{CLASS_MARK}{number}" for number in classes), *(LABEL_MARK + word for word in sorted(found.labels)))
    for lexeme in (*marked, *sorted(found.all)):
        size += len(lexeme.encode()) + 8
        if size > MAX_ROW_BYTES:
            break
        kept.append(lexeme)
    return kept


def _rows(connection: Connection, name: str, **values: Any) -> list[Any]:
    return list(connection.exec_driver_sql(load_sql("search")[name], values).all())


def _run(connection: Connection, name: str, **values: Any) -> None:
    connection.exec_driver_sql(load_sql("search")[name], values)
