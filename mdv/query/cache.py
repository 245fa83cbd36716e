"""How the cache of an LMR is asked, in Postgres and in SQLite.

In both, numbers and instants are keys that sort as the numbers do. SQLite takes joins in the order in which they are
written: it knows nothing of how often a value occurs, and the compiler begins with what should leave the fewest.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from sqlalchemy import FromClause, Integer, Join, Text, and_, cast, func, literal, literal_column, true
from sqlalchemy.ext.compiler import compiles

from mdv.query.compile import Condition, Dialect, Expression, compare
from mdv.rdf.sortkey import sort_key
from mdv.rules.ast import Operator
from mdv.rules.normal import Constant, Sort


class _InPostgres(Dialect):
    flat = True

    def constant(self, constant: Constant, sort: Sort) -> Expression:
        value = constant.value
        if isinstance(value, bool):
            return literal(int(value), Integer())
        return literal(value if isinstance(value, str) else sort_key(value), Text())

    def typed(self, atom: FromClause, sort: Sort) -> Expression:
        if sort is Sort.TRUTH:
            # There is no least truth in Postgres.
            return cast(atom.c.truth, Integer)
        return atom.c.number if sort is Sort.NUMBER else atom.c.instant

    def beginning(self, text: Expression) -> Expression:
        return func.substr(text, literal_column("1"), literal_column("64"))


class _InSqlite(_InPostgres):
    pinned = False

    def compare(self, left: Expression, operator: Operator, right: Expression) -> Condition:
        if operator is Operator.CONTAINS:
            return func.instr(left, right) > literal_column("0")
        if operator is Operator.NOT_CONTAINS:
            return func.instr(left, right) == literal_column("0")
        return compare(left, operator, right)

    def is_text(self, value: Expression, constant: Expression) -> Condition:
        # With = SQLite would put the constant into the beginning, too, and know its index no more.
        begins = self.beginning(value) == self.beginning(constant)
        return and_(value.is_not(None), begins, value.is_not_distinct_from(constant))

    def only_asked(self, conditions: Sequence[Condition]) -> Sequence[Condition]:
        # What SQLite compares with 1 it does not look into.
        return [and_(*conditions) == literal_column("1")]

    def join(self, source: FromClause, table: FromClause) -> FromClause:
        return _InOrder(source, table, true())


class _InOrder(Join):
    """A join that SQLite does not begin from the other side."""

    inherit_cache = True


@compiles(_InOrder)
def _written(join: _InOrder, compiler: Any, asfrom: bool = False, from_linter: Any = None, **options: Any) -> str:
    if from_linter is not None:
        from_linter.edges.update(product(join.left._from_objects, join.right._from_objects))
    left, right = (compiler.process(side, asfrom=True, from_linter=from_linter, **options)
                   for side in (join.left, join.right))  # fmt: skip
    return f"{left} CROSS JOIN {right}"


IN_POSTGRES, IN_SQLITE = _InPostgres(), _InSqlite()
