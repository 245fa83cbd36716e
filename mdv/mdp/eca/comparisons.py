"""The comparisons of the conditions of rules that fired, with the values that they compared: for traces.

They are read on the state that the conditions were evaluated on. Rules that do not fire cost nothing.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple

from psycopg.errors import QueryCanceled
from sqlalchemy import Connection

from mdv.db.eca.comparison_sql import MAX_VALUE_CHARS, comparisons_of, paths_of
from mdv.db.eca.path_sql import mentions_elements
from mdv.db.eca.rule_sql import CHOOSE_PLANS, REUSE_PLANS
from mdv.db.engine import postgres_duration
from mdv.db.pipeline import Pipeline
from mdv.mdp.eca.actions import NO_COLLECTION, encode_delta
from mdv.mdp.eca.rule_set import LoadedTemplate
from mdv.mdp.schemas import SchemaInForce
from mdv.model import Term
from mdv.rdftl.model import (
    Always,
    ConstantValue,
    Delta,
    DeltaField,
    DeltaValue,
    Exists,
    NodePath,
    ValueComparison,
)
from mdv.rdftl.template import bind_slots
from mdv.rdftl.write import write_condition

MAX_SECONDS = 1.0


class FiredCondition(NamedTuple):
    """The condition of a rule that fires, by its template and its constants, for one instantiation of `$delta`."""

    template: LoadedTemplate
    rule: int
    constants: Sequence[str]
    delta: Delta | None


def read_comparisons(
    connection: Connection, schema: SchemaInForce, fired: Sequence[FiredCondition], seconds: float
) -> dict[int, list[dict[str, Any]]]:
    """Return the comparisons of conditions, by their index. Each is JSON: its text, whether it `holds`, and the values
    of its sides, `left` and `right`; with a `note` if `element` was applied to something that is no collection.
    Conditions whose values are not found within `seconds` have no comparisons."""
    with_comparisons = [number for number, one in enumerate(fired) if one.template.rule.condition != Always()]
    rows = _read_values(connection, schema, fired, seconds) if with_comparisons else {}
    return {
        number: list(_comparisons(fired[number], rows.get(number, []), schema))
        for number in with_comparisons
        if fired[number].template.values is None or number in rows
    }


def _read_values(
    connection: Connection, schema: SchemaInForce, fired: Sequence[FiredCondition], seconds: float
) -> dict[int, list[str | None]]:
    """Return the rows of the queries of values, by the index of the condition; none if they take too long."""
    by_template: dict[int, list[int]] = defaultdict(list)
    for number, one in enumerate(fired):
        if one.template.values is not None:
            by_template[one.template.id].append(number)
    if not by_template:
        return {}
    pipeline, pending = Pipeline(connection), []
    pipeline.queue("savepoint comparisons")
    pipeline.queue(REUSE_PLANS, [postgres_duration(min(seconds, MAX_SECONDS))])
    for numbers in by_template.values():
        sql = fired[numbers[0]].template.values
        assert sql is not None
        deltas = [encode_delta(fired[number].delta, number, schema) for number in numbers]
        rules = [{"n": number, "rule_id": fired[number].rule} for number in numbers]
        pending.append(
            pipeline.queue_named(sql, deltas=json.dumps(deltas, ensure_ascii=False), rules=json.dumps(rules))
        )
    pipeline.queue(CHOOSE_PLANS)
    pipeline.queue("release savepoint comparisons")
    try:
        pipeline.send()
    except QueryCanceled:
        connection.exec_driver_sql("rollback to savepoint comparisons")
        return {}
    return {int(n or 0): values for result in pending for n, *values in result.rows()}


def _comparisons(one: FiredCondition, row: Sequence[str | None], schema: SchemaInForce) -> Iterator[dict[str, Any]]:
    column = count()
    for place in comparisons_of(one.template.rule.condition):
        comparison = bind_slots(place.comparison, one.constants)
        if place.is_known:
            holds, values = True, [_delta_values(path, one.delta) for path in paths_of(comparison)]
        else:
            holds = row[next(column)] == "t"
            values = [json.loads(row[next(column)] or "[]") for _ in paths_of(comparison)]
        found = {"text": write_condition(comparison, schema.schema), "holds": holds, **_sides(comparison, values)}
        is_bad = not place.is_known and mentions_elements(place.comparison) and row[next(column)] == "t"
        yield found | {"note": NO_COLLECTION} if is_bad else found


def _delta_values(path: NodePath, delta: Delta | None) -> list[Any]:
    """Return the value of `$delta` or one of its fields."""
    assert delta is not None and isinstance(path.head, DeltaValue)
    match path.head.field:
        case DeltaField.SOURCE:
            return [Term.uri(delta.source).as_dict()]
        case DeltaField.ARC_NAME:
            return [Term.uri(delta.arc_name).as_dict()]
        case DeltaField.NEW_TARGET:
            term = delta.new_target
        case _:
            term = delta.target
    return [term._replace(value=term.value[:MAX_VALUE_CHARS], datatype=None).as_dict()] if term is not None else []


def _sides(comparison: Exists | ValueComparison, values: list[Any]) -> dict[str, Any]:
    if isinstance(comparison, Exists):
        return {"left": values[0]}
    sides = {}
    for name, side in (("left", comparison.left), ("right", comparison.right)):
        sides[name] = values.pop(0) if isinstance(side, NodePath) else [_constant(side)]
    return sides


def _constant(constant: ConstantValue) -> dict[str, Any]:
    return {"type": "literal", "value": constant.text}
