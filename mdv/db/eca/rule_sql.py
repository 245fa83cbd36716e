"""The query of a template: which rules with this template fire for which instantiations of `$delta`.

The instantiations are passed as JSON and joined with the rules. Rules are found by a key, the constant of the most
selective comparison, so that the cost does not depend on the number of rules that do not fire.
"""

# ruff: noqa: S608 (the parts are SQL written here, numbers, and quoted names of the schema)

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from mdv.db.eca.path_sql import BEFORE, FromWhere, PathWriter, ValueSql, compare_identity
from mdv.rdf.schema import Schema
from mdv.rdf.values import ValueKind
from mdv.rdftl.model import (
    AllNodes,
    AllOf,
    Always,
    ChangeKind,
    Condition,
    ConstantValue,
    DeltaField,
    DeltaValue,
    EcaRule,
    NamedNode,
    NodeEvent,
    NodePath,
    TripleNode,
    ValueComparison,
)
from mdv.rdftl.template import TYPED_SLOT, arc_kind, mentions, slot_number
from mdv.rules.operators import Operator

MAX_KEY = 64
"""Characters of a key. Longer constants are found by their first characters, then compared."""

_PLAN_SETTINGS = ("enable_hashjoin", "enable_mergejoin", "enable_bitmapscan")
REUSE_PLANS = (
    "select set_config('plan_cache_mode', 'force_generic_plan', true),"
    " set_config('mdv.statement_timeout', current_setting('statement_timeout'), true),"
    " set_config('statement_timeout', $1, true), "
    + ", ".join(f"set_config('{name}', 'off', true)" for name in _PLAN_SETTINGS)
)
"""Before the queries of templates: planning them takes longer than running them, and they read few rows by indexes.
Their time is limited."""
LIMIT_TIME = (
    "select set_config('mdv.statement_timeout', current_setting('statement_timeout'), true),"
    " set_config('statement_timeout', $1, true)"
)
"""Before queries that a rule may make slow."""
LIFT_LIMIT = "select set_config('statement_timeout', current_setting('mdv.statement_timeout'), true)"
"""After them."""
CHOOSE_PLANS = (
    "select set_config('plan_cache_mode', 'auto', true),"
    " set_config('statement_timeout', current_setting('mdv.statement_timeout'), true), "
    + ", ".join(f"set_config('{name}', 'on', true)" for name in _PLAN_SETTINGS)
)

DELTAS = """(
    select j.*,
        (select r.id from resources r where r.uri = j.source_uri) as source,
        (select r.id from resources r where r.uri = j.target_uri) as target,
        (select r.id from resources r where r.uri = j.new_target_uri) as new_target,
        (select v.id from vocabulary v where v.uri = j.datatype_uri) as datatype,
        (select v.id from vocabulary v where v.uri = j.new_datatype_uri) as new_datatype
    from jsonb_to_recordset(%(deltas)s::jsonb) j (
        n int, source_uri text, arc text, target_uri text, value text, lang text, datatype_uri text, number numeric,
        instant numeric, truth boolean, new_target_uri text, new_value text, new_lang text, new_datatype_uri text,
        new_number numeric, new_instant numeric, new_truth boolean) offset 0) d"""
"""The instantiations of `$delta`, with the IDs of their terms. OFFSET 0: each is looked up once."""


_IS_RULE = "r.id = %(rule)s::bigint"
"""Of the queries for one rule."""


def delta_value(field: DeltaField) -> ValueSql:
    """Return the columns of a component of `$delta`."""
    match field:
        case DeltaField.SOURCE:
            return ValueSql("d.source", uri="d.source_uri")
        case DeltaField.ARC_NAME:
            return ValueSql("(select u.id from resources u where u.uri = d.arc)", "d.arc", only="name")
        case DeltaField.NEW_TARGET:
            return ValueSql("d.new_target", "d.new_value", "d.new_lang", "d.new_datatype", "d.new_number",
                            "d.new_instant", "d.new_truth", None, "d.new_target_uri")  # fmt: skip
        case _:
            return ValueSql("d.target", "d.value", "d.lang", "d.datatype", "d.number", "d.instant", "d.truth", None,
                            "d.target_uri")  # fmt: skip


@dataclass(frozen=True, slots=True)
class TemplateQueries:
    """The queries of a template. Each returns the number of an instantiation and the ID of a rule; `after` also returns
    the rule.

    `key_slots`: the slots whose texts are the keys of a rule; none if all rules have the empty key.
    `before_flush`, `before`: the part of the event that looks at the state before the change, if it has one; on the
    statements as they are before they are written, and after. Its result is passed to `after` as JSON.
    `bad_elements`: the rules that fail under STRICT, with the same two variants for the state before.
    """

    key_slots: tuple[int, ...]
    after: str
    before_flush: str | None = None
    before: str | None = None
    bad_elements: str | None = None
    bad_elements_before_flush: str | None = None
    bad_elements_before: str | None = None


def write_template(
    template: EcaRule, template_id: int, schema: Schema, property_id: Callable[[str], int], one_rule: bool = False
) -> TemplateQueries:
    """Return the queries of a template. `one_rule`: those for the rule with the ID `rule` alone."""
    writer = PathWriter(schema, property_id, lambda number: f"r.constants[{number + 1}]", delta_value)
    parts = list(_event_parts(template, schema))
    old = [part for part in parts if part.before and part.reads_state]
    new = [part for part in parts if part not in old]
    strict = _strict_queries(writer, template_id, old, new, template.condition, one_rule) if template.strict else ()
    if not old:
        keys, sql = _query(writer, template_id, new, template.condition, one_rule)
        return TemplateQueries(keys, _describe(sql), None, None, *strict)
    keys, before_flush = _query(writer, template_id, old, Always(), one_rule)
    _, before = _query(replace(writer, statements=BEFORE), template_id, old, Always(), one_rule)
    body = _of_pairs(one_rule)
    _add_parts(writer, body, new, template.condition)
    return TemplateQueries(keys, _describe(_select(body)), before_flush, before, *strict)


def _of_pairs(one_rule: bool) -> FromWhere:
    """Return the tables of the rules and instantiations that satisfied the part of the event before the change."""
    pairs = "jsonb_to_recordset(%(pairs)s::jsonb) k (n int, rule_id bigint)"
    restriction = [_IS_RULE] if one_rule else []
    return FromWhere([DELTAS, pairs, "eca_rules r"], ["k.n = d.n", "r.id = k.rule_id", *restriction])


def _strict_queries(
    writer: PathWriter, template_id: int, old: list[_EventPart], new: list[_EventPart], condition: Condition,
    one_rule: bool,
) -> tuple[str | None, str | None, str | None]:  # fmt: skip
    """Return the queries of the rules of a STRICT template that apply `element` to something that is no collection: in
    the event, for any change that it watches; in the condition, for the instantiations that the event selects."""
    of_template = f"k.template_id = {template_id} and r.id = k.rule_id"
    if one_rule:
        of_template += f" and {_IS_RULE}"
    found = [_bad_event(writer, new, of_template)]
    body = _of_pairs(one_rule) if old else FromWhere([DELTAS, "eca_keys k", "eca_rules r"], [of_template])
    _add_parts(writer, body, new, Always())
    if bad := [one.exists() for one in writer.bad_elements_of(condition, FromWhere())]:
        body.conditions.append(f"({' or '.join(bad)})")
        found.append(f"select 0, r.id from {', '.join(body.tables)} where {' and '.join(body.conditions)}")
    after = " union ".join(one for one in found if one is not None)
    before_flush = _bad_event(writer, old, of_template)
    before = _bad_event(replace(writer, statements=BEFORE), old, of_template)
    return tuple(_describe(one) if one else None for one in (after, before_flush, before))  # type: ignore[return-value]


def _bad_event(writer: PathWriter, parts: list[_EventPart], of_template: str) -> str | None:
    paths = [part.node.value for part in parts if isinstance(part.node.value, NodePath)]
    bad = [one.exists() for path in paths for one in writer.bad_elements(path, FromWhere())]
    return f"select 0, r.id from eca_keys k, eca_rules r where {of_template} and ({' or '.join(bad)})" if bad else None


@dataclass(frozen=True, slots=True)
class _EventPart:
    """A node of the event: `$delta`'s component `field` must be one of the nodes. `before`: in the state before."""

    field: DeltaField
    node: TripleNode
    kind: ValueKind
    before: bool

    @property
    def reads_state(self) -> bool:
        """True if the state decides; false if the component alone does."""
        value = self.node.value
        if self.node.class_iri is not None:
            return True
        if not isinstance(value, NodePath):
            return False
        is_any_object = isinstance(value.head, AllNodes) and self.field is not DeltaField.SOURCE  # may be no node
        return bool(value.steps) or bool(value.qualifiers) or is_any_object


def running_rules(template_id: int) -> str:
    """Return the query of the rules of a template that are evaluated, with a number before each."""
    return _describe(f"select distinct 0, k.rule_id from eca_keys k where k.template_id = {template_id}")


def _event_parts(rule: EcaRule, schema: Schema) -> Iterator[_EventPart]:
    event = rule.event
    is_delete = event.kind is ChangeKind.DELETE
    if isinstance(event, NodeEvent):
        yield _EventPart(DeltaField.SOURCE, TripleNode(event.path), ValueKind.TEXT, is_delete)
        return
    triple, kind = event.triple, arc_kind(event.triple, schema)
    yield _EventPart(DeltaField.SOURCE, triple.source, ValueKind.TEXT, is_delete)
    is_update = event.kind is ChangeKind.UPDATE
    yield _EventPart(DeltaField.TARGET, triple.target, kind, is_delete or is_update)
    if triple.new_target is not None:
        yield _EventPart(DeltaField.NEW_TARGET, triple.new_target, kind, False)


def _query(
    writer: PathWriter, template_id: int, parts: list[_EventPart], condition: Condition, one_rule: bool
) -> tuple[tuple[int, ...], str]:
    body, read = FromWhere([DELTAS]), FromWhere()
    key_slots, key = _key(writer, parts, condition, read)
    restriction = " and k.rule_id = %(rule)s::bigint" if one_rule else ""
    # OFFSET 0 keeps this order: the planner would read all statements of the property, or all keys of the template.
    if read.tables:
        body.tables.append(f"lateral ({read.select(key)} offset 0) v (key)")
        key = "v.key"
    body.tables += [
        f"lateral (select k.rule_id from eca_keys k where k.template_id = {template_id}"
        f" and k.key = left({key}, {MAX_KEY}){restriction} offset 0) k",
        "lateral (select r.id, r.constants from eca_rules r where r.id = k.rule_id offset 0) r",
    ]
    _add_parts(writer, body, parts, condition)
    return key_slots, _select(body)


def _select(body: FromWhere) -> str:
    where = " and ".join(body.conditions) or "true"
    return f"select distinct d.n, r.id from {', '.join(body.tables)} where {where}"


def _describe(found: str) -> str:
    """Return the query of the rules that another query finds."""
    return (
        "select q.n, r.id, r.name, r.rule_set, r.state, to_jsonb(r.rank), to_jsonb(r.constants), to_jsonb(r.prefixes),"
        " to_jsonb(r.document_prefixes)"
        f" from ({found}) q (n, id) join eca_rules r on r.id = q.id"
    )


def _add_parts(writer: PathWriter, body: FromWhere, parts: list[_EventPart], condition: Condition) -> None:
    for part in parts:
        body.conditions += _part_conditions(writer, part)
    if condition != Always():
        body.conditions.append(writer.condition(condition))


def _part_conditions(writer: PathWriter, part: _EventPart) -> Iterator[str]:
    value = delta_value(part.field)
    if part.node.class_iri is not None:
        yield writer.is_instance(value, [part.node.class_iri])
    match part.node.value:
        case None:
            return
        case ConstantValue() as constant:
            yield writer.compare_constant(value, Operator.EQ, constant, part.kind)
        case NodePath(AllNodes(), qualifiers, ()):
            inner = replace(writer, context=value)
            yield from map(inner.condition, qualifiers)
            if part.field is not DeltaField.SOURCE:
                yield writer.is_node(value)
        case NodePath(NamedNode(name), (), ()):
            yield f"{value.text} = {writer.slot(slot_number(name))} and {value.id} is not null"
        case NodePath() as path:
            query = FromWhere()
            found = writer.path(path, query)
            query.conditions.append(compare_identity(found, value))
            yield query.exists()


def _key(
    writer: PathWriter, parts: list[_EventPart], condition: Condition, body: FromWhere
) -> tuple[tuple[int, ...], str]:
    """Choose the comparison by which rules are found. Return the slots and the SQL of the key. Its tables are added to
    `body`; the comparison itself is still checked, since it may ask for more than equal texts."""
    for part in parts:
        value = delta_value(part.field)
        match part.node.value:
            case NodePath(NamedNode(name), (), ()):
                return (slot_number(name),), value.text
            case ConstantValue() as constant:
                return _constant_key(value, constant, part.kind)
    for one in condition.parts if isinstance(condition, AllOf) else (condition,):
        if isinstance(one, ValueComparison) and one.operator is Operator.EQ:
            match (one.left, one.right):
                case (NodePath() as path, ConstantValue() as constant) | (
                    ConstantValue() as constant,
                    NodePath() as path,
                ):
                    # The key is computed before a rule is found, so its path cannot have constants of the rule.
                    if isinstance(path.head, DeltaValue) and not mentions(path, ConstantValue, NamedNode):
                        return _constant_key(writer.path(path, body), constant, one.kind)
    return (), "''"


def _constant_key(value: ValueSql, constant: ConstantValue, kind: ValueKind) -> tuple[tuple[int, ...], str]:
    number = slot_number(constant.text)
    if kind is ValueKind.TEXT:
        return (number, number + 1), value.text
    typed = value.typed(kind)
    return (number + TYPED_SLOT,), f"{typed}::text" if kind is ValueKind.TRUTH else f"trim_scale({typed})::text"
