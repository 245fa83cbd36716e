"""The search of an LMR: reads the index of words of its cache, in SQLite or Postgres, and the statements of results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection, bindparam, func, select

from mdv.db.cache import is_sqlite, read_state
from mdv.db.cache_read import read_classes, time_limited_read
from mdv.db.cache_search import CLASS_PREFIX
from mdv.db.cache_tables import resources, statements, vocabulary
from mdv.inspect.search import MAX_MATCH_CHARACTERS, SEARCH_SECONDS, TOO_COSTLY, MatchingValue
from mdv.inspect.sql.cache import list_uris_with_prefix, read_labels
from mdv.inspect.sql.search import MAX_LITERALS_READ, find_by_words, sample_by_words, sample_query, text_query
from mdv.rdf.words import QueryWord


class CacheSearch:
    """Searches the cache of an LMR. The transaction reads one snapshot."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def find(
        self, words: Sequence[QueryWord], in_labels: bool, classes: Sequence[str] | None, after: int, most: int
    ) -> list[int]:
        numbers = None if classes is None else self._ids(classes)
        if numbers == []:
            return []
        if not is_sqlite(self._connection):
            return find_by_words(self._connection, text_query(words, in_labels, numbers), after, most)
        return self._match(match_query(words, in_labels, numbers), after, most)

    def sample(self, words: Sequence[QueryWord], classes: Sequence[str] | None, most: int) -> list[int]:
        numbers = None if classes is None else self._ids(classes)
        if not is_sqlite(self._connection):
            return sample_by_words(self._connection, sample_query(words, numbers), most)
        return self._match(match_query(words, None, numbers), 0, most)

    def find_uris(self, prefix: str, after: str, most: int) -> list[tuple[int, str]]:
        return list_uris_with_prefix(self._connection, prefix, after, most)

    def uris(self, ids: Sequence[int]) -> Mapping[int, str]:
        named = select(resources.c.id, resources.c.uri).where(resources.c.id.in_(ids))
        return {row.id: row.uri for row in self._connection.execute(named)}

    def classes(self, ids: Sequence[int]) -> Mapping[int, list[str]]:
        return read_classes(self._connection, ids)

    def labels(self, uris: Sequence[str], properties: Sequence[str], languages: Sequence[str]) -> Mapping[str, str]:
        return read_labels(self._connection, uris, properties, languages)

    def literals(self, ids: Sequence[int]) -> Mapping[int, list[MatchingValue]]:
        s = statements.c
        rows = (
            select(vocabulary.c.uri, func.substr(s.value, 1, MAX_MATCH_CHARACTERS), s.lang)
            .join_from(statements, vocabulary, vocabulary.c.id == s.property_id)
            .where(s.resource_id == bindparam("number"), s.value.is_not(None))
            .limit(MAX_LITERALS_READ)
        )
        found = {number: self._connection.execute(rows, {"number": number}).all() for number in ids}
        return {number: sorted((MatchingValue(*row) for row in values), key=_order) for number, values in found.items()}

    def _match(self, query: str, after: int, most: int) -> list[int]:
        sql = "select rowid from search_texts where search_texts match ? and rowid > ? order by rowid limit ?"
        return list(self._connection.exec_driver_sql(sql, (query, after, most)).scalars())

    def _ids(self, uris: Sequence[str]) -> list[int]:
        return list(self._connection.execute(select(resources.c.id).where(resources.c.uri.in_(uris))).scalars())


@contextmanager
def reading_cache_index(connection: Connection) -> Iterator[int]:
    """Read within the time limit of a search. Gives the position of the cache."""
    with time_limited_read(connection, SEARCH_SECONDS, TOO_COSTLY):
        yield read_state(connection).position


def match_query(words: Sequence[QueryWord], in_labels: bool | None, classes: Sequence[int] | None) -> str:
    """Return a query of FTS5: all words in labels, or all words but not all of them in labels, or (None) all words; and
    one of the classes.

    >>> match_query([QueryWord("uni"), QueryWord("pass", True)], True, [7, 8])
    '(classes : ("c7" OR "c8")) AND (labels : ("uni" AND "pass" *))'
    >>> match_query([QueryWord("uni")], False, None)
    '(words : ("uni")) NOT (labels : ("uni"))'
    >>> match_query([QueryWord("uni")], None, None)
    '(words : ("uni"))'
    """
    every = " AND ".join(f'"{word.text}"' + (" *" if word.is_prefix else "") for word in words)
    either = " OR ".join(f'"{CLASS_PREFIX}{number}"' for number in classes or ())
    scope = "" if classes is None else f"(classes : ({either})) AND "
    if in_labels is None:
        return f"{scope}(words : ({every}))"
    return f"{scope}(labels : ({every}))" if in_labels else f"{scope}(words : ({every})) NOT (labels : ({every}))"


def _order(value: MatchingValue) -> tuple[str, str, str]:
    return value.property, value.text, value.lang or ""
