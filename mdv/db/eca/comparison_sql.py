"""The query of the values that the comparisons of a condition compare, for the trace of a run."""

# ruff: noqa: S608 (the parts are SQL written here, numbers, and quoted names of the schema)

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from mdv.db.eca.path_sql import FromWhere, PathWriter, ValueSql, mentions_elements
from mdv.db.eca.rule_sql import DELTAS, delta_value
from mdv.rdf.schema import Schema
from mdv.rdftl.model import AllOf, AnyOf, Condition, DeltaValue, Exists, Negation, NodePath, ValueComparison

MAX_VALUES = 5
"""Values of one side of a comparison that a trace shows."""
MAX_VALUE_CHARS = 200


class ComparisonPlace(NamedTuple):
    """A comparison in a condition. `must_hold`: it holds if the condition does."""

    comparison: Exists | ValueComparison
    must_hold: bool

    @property
    def is_known(self) -> bool:
        """True if it holds, and only `$delta` and constants are compared. Then the statements need not be read."""
        paths = paths_of(self.comparison)
        return self.must_hold and all(
            isinstance(path.head, DeltaValue) and not path.steps and not path.qualifiers for path in paths
        )


def comparisons_of(condition: Condition, must_hold: bool = True) -> Iterator[ComparisonPlace]:
    """Yield the comparisons of a condition in the order of its text, without those of qualifiers."""
    match condition:
        case Exists() | ValueComparison():
            yield ComparisonPlace(condition, must_hold)
        case Negation(part):
            yield from comparisons_of(part, must_hold=False)
        case AllOf(parts):
            for part in parts:
                yield from comparisons_of(part, must_hold)
        case AnyOf(parts):
            for part in parts:
                yield from comparisons_of(part, must_hold=False)


def paths_of(comparison: Exists | ValueComparison) -> list[NodePath]:
    """Return the sides of a comparison that are paths."""
    sides = [comparison.path] if isinstance(comparison, Exists) else [comparison.left, comparison.right]
    return [side for side in sides if isinstance(side, NodePath)]


def write_values_query(condition: Condition, schema: Schema, property_id: Callable[[str], int]) -> str | None:
    """Return the query of the values of a condition; None if all are known without it.

    Its rows are the number of an instantiation and, for each comparison that is not known, whether it holds, the values
    of its paths, and, if it has `element` steps, whether one is applied to something that is no collection.
    """
    writer = PathWriter(schema, property_id, lambda number: f"r.constants[{number + 1}]", delta_value)
    columns = [
        column
        for comparison in (place.comparison for place in comparisons_of(condition) if not place.is_known)
        for column in (
            writer.condition(comparison),
            *(_values(writer, path) for path in paths_of(comparison)),
            *_bad_elements(writer, comparison),
        )
    ]
    if not columns:
        return None
    rules = "jsonb_to_recordset(%(rules)s::jsonb) k (n int, rule_id bigint)"
    return (
        f"select k.n, {', '.join(columns)} from {rules}, {DELTAS}, eca_rules r where d.n = k.n and r.id = k.rule_id"
    )  # fmt: skip


def _bad_elements(writer: PathWriter, comparison: Exists | ValueComparison) -> Iterator[str]:
    if mentions_elements(comparison):
        yield f"({' or '.join(one.exists() for one in writer.bad_elements_of(comparison, FromWhere()))})"


def _values(writer: PathWriter, path: NodePath) -> str:
    """Return the values of a path as SQL: a list of terms as JSON. More values than are shown are not looked for."""
    query = FromWhere()
    value = writer.path(path, query)
    tables = f" from {', '.join(query.tables)}" if query.tables else ""
    where = f" where {' and '.join(query.conditions)}" if query.conditions else ""
    return (
        f"(select jsonb_agg(distinct v.term) from (select {_term(value)} as term{tables}{where} limit {MAX_VALUES}) v)"
    )


def _term(value: ValueSql) -> str:
    uri = value.uri or f"(select u.uri from resources u where u.id = {value.id})"
    resource = f"jsonb_build_object('type', 'uri', 'value', {uri})"
    if value.only == "node":
        return resource
    if value.only == "name":
        return f"jsonb_build_object('type', 'uri', 'value', {value.value})"
    literal = (
        f"jsonb_strip_nulls(jsonb_build_object('type', 'literal', 'value', left({value.value}, {MAX_VALUE_CHARS}),"
        f" 'lang', {value.lang}))"
    )
    return f"case when {value.value} is null then {resource} else {literal} end"
