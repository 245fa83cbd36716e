"""Properties and datatypes as small integers."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Engine, select
from sqlalchemy.dialects.postgresql import insert

from mdv.db.tables import vocabulary


class Vocabulary:
    """The numbers of properties and datatypes, remembered by this process.

    New names are committed at once and on their own, so that a number that is remembered is never rolled back.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ids: dict[str, int] = {}

    def ids(self, uris: Iterable[str]) -> dict[str, int]:
        """A mapping that holds at least `uris`."""
        missing = {uri for uri in uris if uri not in self._ids}
        if missing:
            with self._engine.begin() as connection:
                known = select(vocabulary.c.uri, vocabulary.c.id).where(vocabulary.c.uri.in_(missing))
                self._ids |= dict(connection.execute(known).tuples().all())
                rows = [{"uri": uri} for uri in sorted(missing - self._ids.keys())]
                if rows:
                    connection.execute(insert(vocabulary).values(rows).on_conflict_do_nothing())
                    self._ids |= dict(connection.execute(known).tuples().all())
        return self._ids
