"""SQL dialects for the cache of an LMR, in Postgres and in SQLite.

Both store numbers and instants as texts that sort like the numbers. SQLite has no statistics about values, so joins are
made in the order in which they are written: the compiler starts with the most selective predicate.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from sqlalchemy import FromClause, Integer, Join, Text, and_, cast, func, literal, literal_column, true
from sqlalchemy.ext.compiler import compiles

from mdv.query.compile import Condition, Dialect, Expression
from mdv.query.operator_sql import compare
from mdv.rdf.sortkey import sort_key
from mdv.rules.normal import Constant, Sort
from mdv.rules.operators import Operator


class _CacheInPostgres(Dialect):
    flat_branches = True

    def constant(self, constant: Constant, sort: Sort) -> Expression:
        value = constant.value
        if isinstance(value, bool):
            return literal(int(value), Integer())
        return literal(value if isinstance(value, str) else sort_key(value), Text())

    def typed_column(self, atom: FromClause, sort: Sort) -> Expression:
        if sort is Sort.TRUTH:
            # Postgres has no min() of booleans.
            return cast(atom.c.truth, Integer)
        return atom.c.number if sort is Sort.NUMBER else atom.c.instant

    def text_prefix(self, text: Expression) -> Expression:
        return func.substr(text, literal_column("1"), literal_column("64"))


class _CacheInSqlite(_CacheInPostgres):
    lateral_lookups = False

    def compare(self, left: Expression, operator: Operator, right: Expression) -> Condition:
        return compare(left, operator, right, sqlite=True)

    def is_text(self, value: Expression, constant: Expression) -> Condition:
        # With = SQLite would also substitute the constant into the prefix, and would not use its index.
        same_prefix = self.text_prefix(value) == self.text_prefix(constant)
        return and_(value.is_not(None), same_prefix, value.is_not_distinct_from(constant))

    def may_start_with(self, value: Expression, constant: Expression) -> Condition:
        # Required for the use of the partial index on values.
        return and_(value.is_not(None), super().may_start_with(value, constant))

    def without_index(self, conditions: Sequence[Condition]) -> Sequence[Condition]:
        # SQLite does not use an index for an expression that is compared with 1.
        return [and_(*conditions) == literal_column("1")]

    def join(self, source: FromClause, table: FromClause) -> FromClause:
        return _OrderedJoin(source, table, true())


class _OrderedJoin(Join):
    """A join whose sides SQLite does not reorder (CROSS JOIN)."""

    inherit_cache = True


@compiles(_OrderedJoin)
def _compile_ordered_join(
    join: _OrderedJoin, compiler: Any, asfrom: bool = False, from_linter: Any = None, **options: Any
) -> str:
    if from_linter is not None:
        from_linter.edges.update(product(join.left._from_objects, join.right._from_objects))
    left, right = (compiler.process(side, asfrom=True, from_linter=from_linter, **options)
                   for side in (join.left, join.right))  # fmt: skip
    return f"{left} CROSS JOIN {right}"


CACHE_IN_POSTGRES, CACHE_IN_SQLITE = _CacheInPostgres(), _CacheInSqlite()
