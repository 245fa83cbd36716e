"""Start the process of a federation where there is one, also if it is founded or joined while `mdv up` runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

CHECK_SECONDS = 2.0


class FederationStarts:
    """Databases of MDPs that are not in a federation yet, each with what starts the process of its federation."""

    def __init__(self) -> None:
        self._waiting: dict[str, Callable[[], object]] = {}
        self._checked = 0.0

    def add(self, database_url: str, start: Callable[[], object]) -> None:
        """Start now, or as soon as the MDP of a database is in a federation."""
        self._waiting[database_url] = start

    def check(self) -> None:
        """Look at the databases, if this was not done in the last seconds."""
        if not self._waiting or time.monotonic() - self._checked < CHECK_SECONDS:
            return
        self._checked = time.monotonic()
        for url in list(self._waiting):
            if is_federated(url):
                self._waiting.pop(url)()


def is_federated(database_url: str) -> bool:
    """True if the MDP of this database is in a federation. A database that does not answer means no."""
    from sqlalchemy.exc import SQLAlchemyError

    from mdv.db.engine import make_engine
    from mdv.db.state import read_state

    engine = make_engine(database_url)
    try:
        with suppress(SQLAlchemyError), engine.connect() as connection:
            return bool(read_state(connection).federated)
        return False
    finally:
        engine.dispose()
