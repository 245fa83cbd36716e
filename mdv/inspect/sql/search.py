"""The search of an MDP: reads the index of words and the statements of the results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, select

from mdv.db.load_sql import load_sql
from mdv.db.query import time_limited_read
from mdv.db.search_index import CLASS_MARK, LABEL_MARK
from mdv.db.tables import search_state
from mdv.inspect.search import MAX_MATCH_CHARACTERS, SEARCH_SECONDS, TOO_COSTLY, MatchingValue
from mdv.inspect.sql.browse import find_resource_ids, with_uris
from mdv.inspect.sql.labels import read_labels
from mdv.inspect.sql.resources import read_direct_classes
from mdv.rdf.words import QueryWord

ROWS_READ_FIRST = 2_000
"""The next rows are read without the index of words: a common word has too many entries there."""
MAX_LITERALS_READ = 200
"""Literals of one result that are searched for words of the query."""
_LAST_CHARACTER = "\U0010ffff"


class StoreSearch:
    """Searches the store of an MDP. The transaction reads one snapshot."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def find(
        self, words: Sequence[QueryWord], in_labels: bool, classes: Sequence[str] | None, after: int, most: int
    ) -> list[int]:
        numbers = None if classes is None else find_resource_ids(self._connection, classes)
        if numbers == []:
            return []
        return find_by_words(self._connection, text_query(words, in_labels, numbers), after, most)

    def sample(self, words: Sequence[QueryWord], classes: Sequence[str] | None, most: int) -> list[int]:
        numbers = None if classes is None else find_resource_ids(self._connection, classes)
        return sample_by_words(self._connection, sample_query(words, numbers), most)

    def find_uris(self, prefix: str, after: str, most: int) -> list[tuple[int, str]]:
        values = {"beginning": prefix, "beyond": prefix + _LAST_CHARACTER, "after": after, "most": most}
        return [(number, uri) for number, uri in _rows(self._connection, "find_uris", **values)]

    def uris(self, ids: Sequence[int]) -> Mapping[int, str]:
        return dict(with_uris(self._connection, ids))

    def classes(self, ids: Sequence[int]) -> Mapping[int, list[str]]:
        return read_direct_classes(self._connection, ids)

    def labels(self, uris: Sequence[str], properties: Sequence[str], languages: Sequence[str]) -> Mapping[str, str]:
        return read_labels(self._connection, uris, properties, languages)

    def literals(self, ids: Sequence[int]) -> Mapping[int, list[MatchingValue]]:
        found: dict[int, list[MatchingValue]] = {}
        limits = {"characters": MAX_MATCH_CHARACTERS, "each": MAX_LITERALS_READ}
        for number, *value in _rows(self._connection, "literals", ids=list(ids), **limits):
            found.setdefault(number, []).append(MatchingValue(*value))
        return found


def find_by_words(connection: Connection, query: str, after: int, most: int) -> list[int]:
    """Return the IDs of the next resources that satisfy a tsquery."""
    found = _among_next_rows(connection, query, after, most)
    return found if len(found) == most else _ids(connection, "find", query=query, after=after, most=most)


def sample_by_words(connection: Connection, query: str, most: int) -> list[int]:
    """Return the IDs of any resources that satisfy a tsquery."""
    found = _among_next_rows(connection, query, 0, most)
    return found if len(found) == most else _ids(connection, "sample", query=query, most=most)


def _among_next_rows(connection: Connection, query: str, after: int, most: int) -> list[int]:
    return _ids(connection, "next_rows", query=query, after=after, most=most, rows=ROWS_READ_FIRST)


def text_query(words: Sequence[QueryWord], in_labels: bool, classes: Sequence[int] | None) -> str:
    """Return a tsquery: all words in labels, or all words but not all of them in labels; and one of the classes.

    >>> text_query([QueryWord("uni"), QueryWord("pass", True)], True, [7, 8])
    "'=uni' & '=pass':* & ('@7' | '@8')"
    >>> text_query([QueryWord("uni")], False, None)
    "'uni' & !('=uni')"
    """
    labels = " & ".join(_lexemes(words, LABEL_MARK))
    parts = [labels] if in_labels else [*_lexemes(words, ""), f"!({labels})"]
    return " & ".join([*parts, *_class_query(classes)])


def sample_query(words: Sequence[QueryWord], classes: Sequence[int] | None) -> str:
    """Return a tsquery: all words, in labels or not; and one of the classes.

    >>> sample_query([QueryWord("uni"), QueryWord("pass", True)], [7])
    "('=uni' & '=pass':* | 'uni' & 'pass':*) & ('@7')"
    """
    either = " | ".join(" & ".join(_lexemes(words, mark)) for mark in (LABEL_MARK, ""))
    return " & ".join([f"({either})", *_class_query(classes)])


def _class_query(classes: Sequence[int] | None) -> list[str]:
    return [] if classes is None else ["(" + " | ".join(f"'{CLASS_MARK}{number}'" for number in classes) + ")"]


def _lexemes(words: Iterable[QueryWord], mark: str) -> list[str]:
    return [f"'{mark}{word.text}'" + (":*" if word.is_prefix else "") for word in words]


@contextmanager
def reading_index(connection: Connection) -> Iterator[int]:
    """Read one snapshot of the store and the index within the time limit of a search. Gives the position up to which
    all changes are in the index, or waiting to be indexed."""
    with time_limited_read(connection, SEARCH_SECONDS, TOO_COSTLY):
        yield connection.execute(select(search_state.c.position)).scalar_one()


def _ids(connection: Connection, name: str, **values: Any) -> list[int]:
    return [number for (number,) in _rows(connection, name, **values)]


def _rows(connection: Connection, name: str, **values: Any) -> list[Any]:
    return list(connection.exec_driver_sql(load_sql("search", __package__)[name], values).all())
