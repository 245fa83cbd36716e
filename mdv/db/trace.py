"""The graph of atomic rules, for who follows the paper's filter through it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import Connection

from mdv.db.filter import Compiled
from mdv.db.statements import statements
from mdv.rules.atomic import Join


class Walk:
    """The statements of sql/trace.sql, for one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, name: str, **values: Any) -> list[Any]:
        return list(self._connection.exec_driver_sql(statements("trace")[name], values).all())

    def column(self, name: str, **values: Any) -> list[int]:
        return [row[0] for row in self.rows(name, **values)]

    def run(self, statement: Compiled, **values: Any) -> list[Any]:
        """The rows of a compiled statement."""
        return list(self._connection.exec_driver_sql(statement.sql, statement.fixed | values).all())

    def join_groups(self) -> dict[int, dict[str, Any]]:
        """What the rules of each group of join rules have in common."""
        return {number: body for number, body in self.rows("join_groups") if body is not None}

    def climb(self, rules: Collection[int], groups: dict[int, Join]) -> list[int]:
        own = [
            {"group_id": number, "param": place + 1, "inputs": len(same)}
            for number, join in groups.items()
            for same in [same_inputs(join)]
            for place in same
        ]
        return self.column("climb", rules=list(rules), own=json.dumps(own))

    def candidates(self, allowed: Iterable[int], fresh: Iterable[int], groups: dict[int, Join], most: int) -> list[int]:
        sizes = [{"group_id": number, "inputs": len(join.classes)} for number, join in groups.items()]
        return self.column(
            "candidates", allowed=list(allowed), fresh=list(fresh), groups=json.dumps(sizes), most=most
        )  # fmt: skip


def same_inputs(join: Join) -> list[int]:
    """The inputs that are the very resource that a join rule registers, by their places.

    >>> from mdv.rules.atomic import _SAME
    >>> same_inputs(Join((), ("C", "C"), 0, (_SAME,))), same_inputs(Join((), ("C", "D"), 1, ()))
    ([0, 1], [1])
    """
    same = {join.register}
    while True:
        ends = [{p.left, p.right} for p in join.predicates
                if p.left_property is None and p.right_property is None and p.operator.value == "="]  # fmt: skip
        more = {end for pair in ends if pair & same for end in pair} | same
        if more == same:
            return sorted(same)
        same = more
