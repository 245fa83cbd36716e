"""Queries of `filter_replay`: read the rule graph step by step, like the filter of the paper."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import Connection

from mdv.db.filter import CompiledStatement
from mdv.db.load_sql import load_sql
from mdv.rules.atomic import JoinRule


class RuleGraphReader:
    """Runs the statements of filter_replay.sql in one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, name: str, **values: Any) -> list[Any]:
        return list(self._connection.exec_driver_sql(load_sql("filter_replay", __package__)[name], values).all())

    def column(self, name: str, **values: Any) -> list[int]:
        return [row[0] for row in self.rows(name, **values)]

    def run(self, statement: CompiledStatement, **values: Any) -> list[Any]:
        """Return the rows of a compiled statement."""
        return list(self._connection.exec_driver_sql(statement.sql, statement.fixed | values).all())

    def join_groups(self) -> dict[int, dict[str, Any]]:
        """Return the pattern of each group of join rules."""
        return {number: body for number, body in self.rows("join_groups") if body is not None}

    def climb(self, rules: Collection[int], groups: dict[int, JoinRule]) -> list[int]:
        own = [
            {"group_id": number, "param": place + 1, "inputs": len(same)}
            for number, join in groups.items()
            for same in [registered_inputs(join)]
            for place in same
        ]
        return self.column("climb", rules=list(rules), own=json.dumps(own))

    def candidates(
        self, allowed: Iterable[int], fresh: Iterable[int], groups: dict[int, JoinRule], most: int
    ) -> list[int]:
        sizes = [{"group_id": number, "inputs": len(join.classes)} for number, join in groups.items()]
        return self.column(
            "candidates", allowed=list(allowed), fresh=list(fresh), groups=json.dumps(sizes), most=most
        )  # fmt: skip


def registered_inputs(join: JoinRule) -> list[int]:
    """Return the indexes of the inputs that are the resource that a join rule registers.

    >>> from mdv.rules.atomic import _SAME
    >>> registered_inputs(JoinRule((), ("C", "C"), 0, (_SAME,))), registered_inputs(JoinRule((), ("C", "D"), 1, ()))
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
