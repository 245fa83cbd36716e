"""Queries of `propose`: sample statements of a resource."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from mdv.db.tables import filter_data
from mdv.inspect.sql.encoded_statements import decode_statements, encoded_columns
from mdv.model import Statement


def sample_statements(connection: Connection, resource: int, each: int) -> list[Statement]:
    """Return statements about a resource, with at most `each` values of a property."""
    now = filter_data.c
    rows = select(*encoded_columns(now)).where(now.resource_id == resource).distinct().subquery("rows")
    order = (rows.c.target_id, rows.c.value, rows.c.lang, rows.c.datatype_id)
    rank = func.row_number().over(partition_by=rows.c.property_id, order_by=order).label("rank")
    numbered = select(rows, rank).subquery("numbered")
    return decode_statements(connection, select(numbered).where(numbered.c.rank <= each).subquery("few"))
