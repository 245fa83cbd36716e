"""Messages of a federation and stored records as JSON values.

A class is written with its name, and its fields are checked when it is read. Messages are made of messages and of
RDFTL; records also of the state of a superpeer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import ModuleType, NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from mdv.federation import fragment, indexes, levels, link, messages, privileges, superpeer_state
from mdv.model import Statement, Term
from mdv.rdf.values import ValueKind
from mdv.rdftl import model as rdftl
from mdv.rules.operators import Operator


class UnreadableMessage(ValueError):
    """A text that is no message of a federation."""


def encode(value: Any) -> str:
    """Return a value as JSON text.

    >>> encode(messages.RuleEnded("lib-a.3"))
    '{"RuleEnded":["lib-a.3"]}'
    """
    return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False)


def decode(text: str) -> Any:
    """Return the value of a JSON text. Raise `UnreadableMessage` if it is none.

    >>> decode('{"RuleEnded":["lib-a.3"]}')
    RuleEnded(rule='lib-a.3')
    """
    try:
        return _value(json.loads(text), _message_classes())
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UnreadableMessage(f"not a message of a federation: {error}") from error


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Enum):
        return {type(value).__name__: value.value}
    if is_dataclass(value):
        return {type(value).__name__: [_plain(getattr(value, field.name)) for field in fields(value)]}
    if isinstance(value, tuple):
        parts = [_plain(one) for one in value]
        return {type(value).__name__: parts} if hasattr(value, "_fields") else parts
    if isinstance(value, frozenset | set):
        name = "set" if isinstance(value, frozenset) else "mutable set"
        return {name: [_plain(one) for one in sorted(value, key=repr)]}
    if isinstance(value, list):
        return {"list": [_plain(one) for one in value]}
    if isinstance(value, dict):
        return {"map": [[_plain(key), _plain(one)] for key, one in value.items()]}
    raise TypeError(f"{type(value).__name__} is not part of a message")


def decode_record(text: str) -> Any:
    """Return the value of a stored record, which may be part of the state of a superpeer."""
    return _value(json.loads(text), _record_classes())


def _value(plain: Any, classes: Mapping[str, type]) -> Any:
    if isinstance(plain, list):
        return tuple(_value(one, classes) for one in plain)
    if not isinstance(plain, dict):
        return plain
    ((name, content),) = plain.items()
    if name == "map":
        return {_value(key, classes): _value(one, classes) for key, one in content}
    parts = content if isinstance(content, str) else [_value(one, classes) for one in content]
    if name in _CONTAINERS:
        return _CONTAINERS[name](parts)
    kind: Any = classes[name]
    if issubclass(kind, Enum):
        return kind(parts)
    value = kind(*parts)
    for field, hint in _field_types(kind).items():
        if not _fits(getattr(value, field), hint):
            raise TypeError(f"{field} of {name} is {getattr(value, field)!r:.80}")
    return value


@cache
def _field_types(kind: Any) -> Mapping[str, Any]:
    """Return the types of the fields of a class."""
    return get_type_hints(kind)


def _fits(value: Any, hint: Any) -> bool:
    """True if a value has a type. Values of classes were checked when they were made."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return type(value) is tuple and len(value) == len(arguments) and all(map(_fits, value, arguments))
    if origin is dict:
        keys, values = arguments
        return type(value) is dict and all(_fits(key, keys) and _fits(one, values) for key, one in value.items())
    if origin in (tuple, frozenset, set, list):
        return type(value) is origin and all(_fits(one, arguments[0]) for one in value)
    if hint is float:
        return type(value) in (int, float)
    return type(value) is (NoneType if hint is None else hint)


_CONTAINERS: Mapping[str, Callable[[Any], Any]] = {"set": frozenset, "mutable set": set, "list": list}


@cache
def _message_classes() -> Mapping[str, type]:
    found: dict[str, type] = {one.__name__: one for one in (Statement, Term, ValueKind, Operator)}
    for module in (rdftl, fragment, privileges, messages):
        found |= _classes_of(module)
    return found


@cache
def _record_classes() -> Mapping[str, type]:
    found = dict(_message_classes())
    for module in (indexes, levels, link, superpeer_state):
        found |= _classes_of(module)
    return found


def _classes_of(module: ModuleType) -> dict[str, type]:
    own = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
    return {one.__name__: one for one in own if not issubclass(one, Exception)}
