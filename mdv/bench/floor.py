"""The floor: a durable COPY of encoded statements into a table with the same indexes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

from sqlalchemy import Engine

from mdv.bench.sql.copy_floor import COPY_INTO_FLOOR, create_floor_table
from mdv.db.engine import driver
from mdv.db.postgres_copy import COPY_NULL, copy_text
from mdv.mdp.register import Prepared
from mdv.rdf.digest import statement_hash


class CopyFloor:
    """A table like filter_data that is filled by COPY alone."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._numbers = itertools.count(1)
        with engine.begin() as connection:
            create_floor_table(connection)

    def copy(self, batch: Sequence[Prepared]) -> float:
        """Return the seconds for COPY and commit of the batch's statements."""
        rows = b"".join(self._encode(item) for item in batch)
        with self._engine.connect() as connection:
            # This is a transaction of the driver. SQLAlchemy does not know of it and would not commit it.
            session = driver(connection)
            began = time.perf_counter()
            with session.cursor() as cursor, cursor.copy(COPY_INTO_FLOOR) as copy:
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
            target = str(ids.setdefault(term.value, document * 1000 + len(ids))) if term.is_uri else COPY_NULL
            value = COPY_NULL if term.is_uri else copy_text(term.value)
            number = value if value.isascii() and value.isdigit() else COPY_NULL
            lines.append(
                f"{document}\t{subject}\t{target}\t{statement_hash(statement)}\t{document}\t1\tt\t{value}\t{number}\n"
            )
        return "".join(lines).encode()
