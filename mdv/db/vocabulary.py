"""Properties and datatypes as small integers."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Engine, NullPool, create_engine, select
from sqlalchemy.dialects.postgresql import insert

from mdv.db.tables import vocabulary


class Vocabulary:
    """The numbers of properties and datatypes, remembered by this process.

    New names are committed at once and on their own, so that a number that is remembered is never rolled back. They
    take a connection beside those of `engine`: whoever asks may hold the last of these, and the lock that all the
    others wait for.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = create_engine(engine.url, poolclass=NullPool, hide_parameters=True)
        self._ids: dict[str, int] = {}

    def ids(self, uris: Iterable[str]) -> dict[str, int]:
        """A mapping that holds at least `uris`."""
        missing = {uri for uri in uris if uri not in self._ids}
        if missing:
            known = select(vocabulary.c.uri, vocabulary.c.id).where(vocabulary.c.uri.in_(missing))
            with self._engine.begin() as connection:
                found = {row.uri: row.id for row in connection.execute(known)}
                rows = [{"uri": uri} for uri in sorted(missing - found.keys())]
                if rows:
                    connection.execute(insert(vocabulary).values(rows).on_conflict_do_nothing())
                    found = {row.uri: row.id for row in connection.execute(known)}
            self._ids |= found
        return self._ids
