"""Templates: rules that differ only in their constants have the same template, and are evaluated together.

In a template, a constant is the name of a slot: `?0`, `?1`, … A rule is a template with one text for each slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from mdv.rdf.schema import Schema
from mdv.rdf.values import ValueKind, typed_text
from mdv.rdftl.model import ArcAction, ArcEvent, ConstantValue, EcaRule, NamedNode, Triple, TripleNode, ValueComparison

T = TypeVar("T")

TYPED_SLOT = 2
"""The slots of a constant: its text, its URI, and its value as text in the kind that it is compared as."""


def abstract_rule(rule: EcaRule, schema: Schema) -> tuple[EcaRule, tuple[str, ...]]:
    """Return the template of a rule, and the texts of its slots. The template has no name and no order."""
    return abstract_part(replace(rule, name=None, precedes=(), follows=()), schema)


def abstract_part(part: T, schema: Schema) -> tuple[T, tuple[str, ...]]:
    """Return a rule or a part of one with slots instead of constants, and the texts of its slots."""
    slots: list[str] = []
    return _abstract(part, slots, schema, ValueKind.TEXT), tuple(slots)


def slot_number(name: str) -> int:
    """Return the number of a slot.

    >>> slot_number("?12")
    12
    """
    return int(name[1:])


def bind_slots(part: T, texts: Sequence[str]) -> T:
    """Return a part of a template with its constants.

    >>> bind_slots(NamedNode("?1"), ["a", "http://b"])
    NamedNode(uri='http://b')
    """
    bound: T = _bind(part, texts)
    return bound


def _bind(part: Any, texts: Sequence[str]) -> Any:
    match part:
        case NamedNode(name):
            return NamedNode(texts[slot_number(name)])
        case ConstantValue(name):
            number = slot_number(name)
            return replace(part, text=texts[number], uri=texts[number + 1])
    return _map_parts(part, lambda inner: _bind(inner, texts))


def _abstract(part: Any, slots: list[str], schema: Schema, kind: ValueKind) -> Any:
    """Return a part with slots. `kind`: how a constant in its place is compared."""
    match part:
        case NamedNode(uri):
            slots.append(uri)
            return NamedNode(f"?{len(slots) - 1}")
        case ConstantValue(text, uri):
            number = len(slots)
            slots += [text, uri, typed_text(text, kind) or ""]
            return replace(part, text=f"?{number}", uri=f"?{number + 1}")
        case ValueComparison():
            left = _abstract(part.left, slots, schema, part.kind)
            return replace(part, left=left, right=_abstract(part.right, slots, schema, part.kind))
        case Triple():
            return _abstract_triple(part, slots, schema)
    inner_kind = kind if isinstance(part, TripleNode) else ValueKind.TEXT
    return _map_parts(part, lambda inner: _abstract(inner, slots, schema, inner_kind))


def _abstract_triple(triple: Triple, slots: list[str], schema: Schema) -> Triple:
    kind = arc_kind(triple, schema)
    source: TripleNode = _abstract(triple.source, slots, schema, ValueKind.TEXT)
    target: TripleNode = _abstract(triple.target, slots, schema, kind)
    new: TripleNode | None = _abstract(triple.new_target, slots, schema, kind)
    return replace(triple, source=source, target=target, new_target=new)


def arc_kind(triple: Triple, schema: Schema) -> ValueKind:
    """Return how the constants in the place of the target are compared with stored values."""
    declared = schema.property_of(triple.arc) if isinstance(triple.arc, str) else None
    return ValueKind.TEXT if declared is None else declared.kind


def arc_kinds(rule: EcaRule, schema: Schema) -> tuple[ValueKind, ...]:
    """Return how the constants of all triples of a rule are compared."""
    actions = [triple for action in rule.actions if isinstance(action, ArcAction) for triple in action.triples]
    event = [rule.event.triple] if isinstance(rule.event, ArcEvent) else []
    return tuple(arc_kind(triple, schema) for triple in (*event, *actions))


def mentions(part: object, *kinds: type) -> bool:
    """True if a value of one of these kinds occurs in a part of a rule."""
    if isinstance(part, kinds):
        return True
    if isinstance(part, tuple):
        return any(mentions(one, *kinds) for one in part)
    return _has_parts(part) and any(mentions(getattr(part, one.name), *kinds) for one in fields(cast(Any, part)))


def find_parts(part: object, kind: type[T]) -> Iterator[T]:
    """Yield all values of a kind that occur in a part of a rule, outer ones first."""
    if isinstance(part, kind):
        yield part
    if isinstance(part, tuple):
        for one in part:
            yield from find_parts(one, kind)
    elif _has_parts(part):
        for field in fields(cast(Any, part)):
            yield from find_parts(getattr(part, field.name), kind)


def _map_parts(part: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value of the model with each of its parts changed."""
    if isinstance(part, tuple):
        return tuple(change(one) for one in part)
    if not is_dataclass(part) or isinstance(part, type):
        return part
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    changed = {name: change(value) for name, value in values.items() if _has_parts(value)}
    return replace(part, **changed) if changed else part


def _has_parts(value: object) -> bool:
    return isinstance(value, tuple) or (is_dataclass(value) and not isinstance(value, type))
