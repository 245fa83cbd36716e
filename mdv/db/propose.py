"""What proposals are made from: some of what is said of a resource."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from mdv.db.read import decode, encoded
from mdv.db.tables import filter_data
from mdv.model import Statement


def some_statements(connection: Connection, resource: int, each: int) -> list[Statement]:
    """What is said of a resource: a few values of each property, however many there are."""
    now = filter_data.c
    said = select(*encoded(now)).where(now.resource_id == resource).distinct().subquery("said")
    order = (said.c.target_id, said.c.value, said.c.lang, said.c.datatype_id)
    place = func.row_number().over(partition_by=said.c.property_id, order_by=order).label("place")
    placed = select(said, place).subquery("placed")
    return decode(connection, select(placed).where(placed.c.place <= each).subquery("few"))
