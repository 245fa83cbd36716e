"""The log of a backbone: the operations of all members, until they are stable."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Connection

from mdv.backbone.operation import LogRow
from mdv.backbone.vector import Life, Vector
from mdv.db.engine import driver
from mdv.db.load_sql import load_sql

PAGE_BYTES = 8 * 2**20
"""The size of the bodies of one page."""


def log_fields(row: LogRow) -> dict[str, Any]:
    """Return a row as JSON."""
    return {
        "life": row.life,
        "seq": row.seq,
        "chain": row.chain.hex(),
        "body": row.body.hex(),
        "signature": row.signature.hex(),
    }


def append_operation(connection: Connection, row: LogRow) -> None:
    """Add an operation outside of a change of documents."""
    _execute(connection, "insert_operation", **row._asdict())


def list_operations(
    connection: Connection, life: Life, after: int, limit: int, most_bytes: int = PAGE_BYTES
) -> list[LogRow]:
    """Return operations of a life in order. The first is returned whatever its size."""
    return _rows(_execute(connection, "list_operations", life=life, after=after, most=limit, bytes=most_bytes))


def list_operations_beyond(connection: Connection, bounds: Mapping[Life, int]) -> Iterator[LogRow]:
    """Return the operations of these lives after the bounds, in the order in which they were applied."""
    return iter(_rows(_execute(connection, "list_operations_beyond", bounds=json.dumps(dict(bounds)))))


def cut_operations(connection: Connection, bounds: Mapping[Life, int]) -> None:
    """Remove these operations."""
    _execute(connection, "cut_operations", bounds=json.dumps(dict(bounds)))


def find_chain(connection: Connection, life: Life, seq: int) -> bytes | None:
    """Return the chain at an operation that is in the log."""
    row = _execute(connection, "find_chain", life=life, seq=seq).fetchone()
    return None if row is None else row[0]


def delete_life(connection: Connection, life: Life) -> None:
    """Remove all operations of a life."""
    _execute(connection, "delete_life", life=life)


def delete_stable(connection: Connection, stable: Vector) -> dict[Life, tuple[int, bytes]]:
    """Remove the stable operations. Return the last one of each life, and its chain."""
    if not stable:
        return {}
    given = json.dumps(dict(stable))
    found = {life: (seq, chain) for life, seq, chain in _execute(connection, "last_stable", stable=given).fetchall()}
    if found:
        _execute(connection, "delete_stable", stable=given)
    return found


def measure_log(connection: Connection) -> tuple[int, int]:
    """Return the number of operations in the log, and the bytes of their bodies."""
    count, size = _execute(connection, "measure_log").fetchall()[0]
    return int(count), int(size)


def _rows(cursor: Any) -> list[LogRow]:
    return [LogRow(*row) for row in cursor.fetchall()]


def _execute(connection: Connection, query: str, /, **values: object) -> Any:
    return driver(connection).execute(load_sql("replica")[query], values, prepare=True)
