"""Write rules, actions, conditions, paths and deltas as normal text.

Law: if the normal text of a rule or update is compiled under the same schema, the result is the same model. Names are
written with the prefixes of the schema. LETs are expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mdv.model import Term
from mdv.rdf.schema import Schema
from mdv.rdf.values import ValueKind
from mdv.rdftl.model import (
    AbortDependency,
    Action,
    AllNodes,
    AllOf,
    Always,
    AnyOf,
    ArcAction,
    ArcEvent,
    Axis,
    CallAction,
    ChangeKind,
    Condition,
    ConstantValue,
    ContextNode,
    Coupling,
    Delta,
    DeltaField,
    DeltaValue,
    EcaRule,
    Event,
    Exists,
    NamedNode,
    Negation,
    NodeAction,
    NodeEvent,
    NodePath,
    NodeStep,
    Operand,
    SequenceNext,
    Triple,
    TripleNode,
    ValueComparison,
)
from mdv.rules.operators import Operator

_NAME = re.compile(r"(?:[^\W\d]\w*(?:-+\w+)*)?:\w+(?:-+\w+)*|(?!_(?!\w))[^\W\d]\w*(?:-+\w+)*")
_RULE_NAME = re.compile(r"\w(?:[\w.-]*\w)?")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def write_rule(rule: EcaRule, schema: Schema) -> str:
    """Return the normal text of a rule, with one clause and one action per line."""
    lines = [*_headers(rule), *_base((rule.event, rule.condition, rule.actions), schema)]
    lines.append(f"ON {write_event(rule.event, schema)}")
    lines.append(f"IF {write_condition(rule.condition, schema)}")
    lines.append("DO " + ";\n   ".join(write_action(action, schema) for action in rule.actions))
    return "\n".join(lines)


def write_update(actions: Iterable[Action], schema: Schema) -> str:
    """Return the normal text of an update, with one action per line."""
    actions = tuple(actions)
    return "\n".join([*_base(actions, schema), ";\n".join(write_action(action, schema) for action in actions)])


def write_event(event: Event, schema: Schema) -> str:
    """Return the normal text of an event."""
    if isinstance(event, ArcEvent):
        return _changes(event.kind, (event.triple,), schema)
    return _node_change(event, schema)


def write_action(action: Action, schema: Schema) -> str:
    """Return the normal text of an action, without BASE: a relative constant is written as in the rule."""
    match action:
        case CallAction(name, arguments):
            return f"CALL {_action(name, schema)}({', '.join(_node(TripleNode(one), schema) for one in arguments)})"
        case ArcAction():
            return _changes(action.kind, action.triples, schema)
    return _node_change(action, schema)


def write_condition(condition: Condition, schema: Schema) -> str:
    """Return the normal text of a condition.

    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> write_condition(Negation(AllOf((Always(), Exists(NodePath(AllNodes()))))), EMPTY_SCHEMA)
    'not (TRUE and resource())'
    """
    match condition:
        case Always():
            return "TRUE"
        case Exists(path):
            return write_path(path, schema)
        case ValueComparison(left, operator, right, kind):
            sides = _operand(left, operator, kind, schema), _operand(right, operator, kind, schema)
            return operator.text(*sides)
        case Negation(part):
            return f"not {_grouped(part, schema, AllOf, AnyOf)}"
        case AllOf(parts):
            return " and ".join(_grouped(part, schema, AllOf, AnyOf) for part in parts)
        case AnyOf(parts):
            return " or ".join(_grouped(part, schema, AnyOf) for part in parts)


def write_path(path: NodePath, schema: Schema) -> str:
    """Return the normal text of a path.

    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> write_path(NodePath(NamedNode("http://a/b"), steps=(NodeStep(Axis.ELEMENT, index=2),)), EMPTY_SCHEMA)
    'resource(<http://a/b>)/element(2)'
    """
    match path.head:
        case AllNodes():
            head = ["resource()"]
        case NamedNode(uri):
            head = [f"resource(<{uri}>)"]
        case DeltaValue(field):
            head = ["$delta" if field is DeltaField.SOURCE else f"$delta.{field.value}"]
        case ContextNode():
            return "/".join(_step(step, schema) for step in path.steps)
    head[0] += _qualifiers(path.qualifiers, schema)
    return "/".join(head + [_step(step, schema) for step in path.steps])


def write_delta(delta: Delta, schema: Schema) -> str:
    """Return the text of a delta: a node, an arc, or an updated arc.

    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> write_delta(Delta("http://a/b", "http://a/p", Term.literal("1"), Term.uri("http://a/c")), EMPTY_SCHEMA)
    "(<http://a/b>, <http://a/p>, '1' -> <http://a/c>)"
    """
    if delta.target is None:
        return f"<{delta.source}>"
    target = _term(delta.target, schema)
    if delta.new_target is not None:
        target = f"{target} -> {_term(delta.new_target, schema)}"
    return f"(<{delta.source}>, {_name(delta.arc_name, schema)}, {target})"


# --- headers ---


def _headers(rule: EcaRule) -> Iterator[str]:
    if rule.name is not None:
        yield f"RULE {_rule_name(rule.name)}"
    if rule.coupling is not Coupling.IMMEDIATE:
        yield f"COUPLING {rule.coupling.value}"
    if rule.abort is not AbortDependency.MUTUAL or rule.coupling is Coupling.DETACHED:
        yield f"ABORT {rule.abort.value}"
    if rule.precedes:
        yield f"PRECEDES {', '.join(map(_rule_name, rule.precedes))}"
    if rule.follows:
        yield f"FOLLOWS {', '.join(map(_rule_name, rule.follows))}"
    if rule.local:
        yield "LOCAL"
    if rule.strict:
        yield "STRICT"


def _rule_name(name: str) -> str:
    return name if _RULE_NAME.fullmatch(name) else _quoted(name)


def _base(parts: object, schema: Schema) -> list[str]:
    """Return the BASE header, if a constant is relative to another base than the schema's."""
    for constant in _constants(parts):
        if constant.uri != constant.text:
            base = constant.uri.removesuffix(constant.text)
            return [f"BASE <{base}>"] if base != schema.prefixes.get("", "") else []
    return []


def _constants(part: object) -> Iterator[ConstantValue]:
    """Yield the constants of a part of a rule, in the order of its text."""
    if isinstance(part, ConstantValue):
        yield part
    elif isinstance(part, tuple):
        for one in part:
            yield from _constants(one)
    elif hasattr(part, "__dataclass_fields__"):
        for name in part.__dataclass_fields__:
            yield from _constants(getattr(part, name))


# --- parts ---


def _node_change(change: NodeEvent | NodeAction, schema: Schema) -> str:
    return f"{change.kind.value} {write_path(change.path, schema)}{_instance(change.class_iri, schema)}"


def _instance(class_iri: str | None, schema: Schema) -> str:
    return f" AS INSTANCE OF {_name(class_iri, schema)}" if class_iri is not None else ""


def _changes(kind: ChangeKind, triples: Iterable[Triple], schema: Schema) -> str:
    return f"{kind.value} {', '.join(_triple(triple, schema) for triple in triples)}"


def _triple(triple: Triple, schema: Schema) -> str:
    match triple.arc:
        case SequenceNext():
            arc = "seq++"
        case None:
            arc = "_"
        case iri:
            arc = _name(iri, schema)
    target = _node(triple.target, schema)
    if triple.new_target is not None:
        target = f"{target} -> {_node(triple.new_target, schema)}"
    return f"({_node(triple.source, schema)}, {arc}, {target})"


def _node(node: TripleNode, schema: Schema) -> str:
    match node.value:
        case None:
            value = "_"
        case NodePath() as path:
            value = write_path(path, schema)
        case ConstantValue() as constant:
            value = _constant(constant, schema)
    return value + _instance(node.class_iri, schema)


def _step(step: NodeStep, schema: Schema) -> str:
    if step.axis is Axis.ELEMENT:
        argument = "" if step.index is None else str(step.index)
    else:
        argument = "_" if step.property is None else _name(step.property, schema)
    return f"{step.axis.value}({argument}){_qualifiers(step.qualifiers, schema)}"


def _qualifiers(qualifiers: Iterable[Condition], schema: Schema) -> str:
    return "".join(f"[{write_condition(one, schema)}]" for one in qualifiers)


def _grouped(part: Condition, schema: Schema, *kinds: type[AllOf | AnyOf]) -> str:
    text = write_condition(part, schema)
    return f"({text})" if isinstance(part, kinds) else text


def _operand(operand: Operand, operator: Operator, kind: ValueKind, schema: Schema) -> str:
    if isinstance(operand, NodePath):
        return write_path(operand, schema)
    is_plain = operand.lang is None and operand.datatype is None
    if is_plain and kind is ValueKind.NUMBER and _NUMBER.fullmatch(operand.text):
        return operand.text
    if is_plain and kind is ValueKind.TRUTH and operand.text in ("true", "false"):
        return operand.text
    return _constant(operand, schema)


def _constant(constant: ConstantValue, schema: Schema) -> str:
    return _quoted(constant.text) + _suffix(constant.lang, constant.datatype, schema)


def _term(term: Term, schema: Schema) -> str:
    if term.type != "literal":
        return f"<{term.value}>"
    return _quoted(term.value) + _suffix(term.lang, term.datatype, schema)


def _suffix(lang: str | None, datatype: str | None, schema: Schema) -> str:
    if lang is not None:
        return f"@{lang}"
    if datatype is None:
        return ""
    short = _name(datatype, schema)
    return f"^^{short}" if ":" in short else f"^^<{datatype}>"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _action(iri: str, schema: Schema) -> str:
    """Return the name of an action. A bare word would be relative to BASE."""
    short = _name(iri, schema)
    return short if ":" in short else f"<{iri}>"


def _name(iri: str, schema: Schema) -> str:
    short = schema.shorten(iri)
    return short if _NAME.fullmatch(short) else f"<{iri}>"
