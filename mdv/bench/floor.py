"""The floor: the bare COPY of statements that were encoded beforehand, durable, into an equally indexed table."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

from sqlalchemy import Engine

from mdv.db.copy import NULL, text_field
from mdv.db.engine import driver
from mdv.db.floor import COPY_FLOOR, make_floor
from mdv.mdp.register import Prepared
from mdv.rdf.digest import statement_hash


class Floor:
    """A table like filter_data, filled with nothing but COPY."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._numbers = itertools.count(1)
        with engine.begin() as connection:
            make_floor(connection)

    def copy(self, batch: Sequence[Prepared]) -> float:
        """The seconds that COPY and commit of the batch's statements take."""
        rows = b"".join(self._encode(item) for item in batch)
        with self._engine.connect() as connection:
            # The driver's own transaction: SQLAlchemy knows nothing of it, and would not commit it.
            session = driver(connection)
            began = time.perf_counter()
            with session.cursor() as cursor, cursor.copy(COPY_FLOOR) as copy:
                copy.write(rows)
            session.commit()
            return time.perf_counter() - began

    def _encode(self, item: Prepared) -> bytes:
        document = next(self._numbers)
        ids: dict[str, int] = {}
        lines = []
        for statement in item.document.statements if item.document else ():
            subject = ids.setdefault(statement.subject, document * 1000 + len(ids))
            term = statement.object
            target = str(ids.setdefault(term.value, document * 1000 + len(ids))) if term.is_uri else NULL
            value = NULL if term.is_uri else text_field(term.value)
            number = value if value.isascii() and value.isdigit() else NULL
            lines.append(
                f"{document}\t{subject}\t{target}\t{statement_hash(statement)}\t{document}\t1\tt\t{value}\t{number}\n"
            )
        return "".join(lines).encode()
