"""Integer IDs of properties and datatypes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Engine, NullPool, any_, create_engine, func, literal, select
from sqlalchemy.dialects.postgresql import ARRAY, insert

from mdv.db.tables import vocabulary


class Vocabulary:
    """The IDs of properties and datatypes, cached in this process.

    New names are committed in a transaction of their own, so that a cached ID is never rolled back. This uses a
    separate connection: the caller may hold the last connection of `engine`, and the lock that all others wait for.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = create_engine(engine.url, poolclass=NullPool, hide_parameters=True)
        self._ids: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def ids(self, uris: Iterable[str]) -> dict[str, int]:
        """Return a mapping that contains at least `uris`."""
        missing = {uri for uri in uris if uri not in self._ids}
        if missing:
            # Names are sent as one array, since a statement takes at most 65,535 parameters.
            known = select(vocabulary.c.uri, vocabulary.c.id).where(vocabulary.c.uri == any_(_array(missing)))
            with self._engine.begin() as connection:
                found = {row.uri: row.id for row in connection.execute(known)}
                if new := missing - found.keys():
                    rows = select(func.unnest(_array(new)))
                    connection.execute(insert(vocabulary).from_select(["uri"], rows).on_conflict_do_nothing())
                    found = {row.uri: row.id for row in connection.execute(known)}
            self._ids |= found
        return self._ids

    def names(self, ids: Iterable[int]) -> dict[int, str]:
        """Return a mapping that contains at least `ids`, the IDs of properties and datatypes."""
        missing = {number for number in ids if number not in self._names}
        if missing:
            with self._engine.begin() as connection:
                query = select(vocabulary.c.id, vocabulary.c.uri).where(vocabulary.c.id.in_(missing))
                self._names |= {row.id: row.uri for row in connection.execute(query)}
        return self._names


def _array(uris: Iterable[str]) -> ColumnElement[Any]:
    """Return a sorted array, so that two transactions that add the same names do not deadlock."""
    return literal(sorted(uris), ARRAY(vocabulary.c.uri.type))
