"""The naive closure of an LMR: the resources its rules select, and those reached over strong references."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mdv.model import Statement, is_blank
from mdv.rdf.schema import Schema
from mdv.rules.ast import ParsedRule
from tests.support.rule_oracle import World


@dataclass(frozen=True)
class Closure:
    """The selected resources of an LMR, the held ones (also those without statements), and their statements."""

    selected: frozenset[str]
    held: frozenset[str]
    said: Mapping[str, frozenset[Statement]]


def is_strong(schema: Schema, statement: Statement) -> bool:
    if not statement.object.is_uri:
        return False
    declared = schema.property_of(statement.property)
    return is_blank(statement.object.value) or (declared is not None and declared.strong)


def closure_of(
    schema: Schema,
    statements: Iterable[Statement],
    rules: Iterable[ParsedRule],
    named: Mapping[str, ParsedRule],
    frozen: frozenset[str] = frozenset(),
) -> Closure:
    """Return the closure of an LMR with these rules. `frozen`: the matches of suspended rules when suspended."""
    every = frozenset(statements)
    world = World(schema, every, named)
    selected = frozen.union(*(world.registered(rule) for rule in rules))
    about: dict[str, set[Statement]] = defaultdict(set)
    for statement in every:
        about[statement.subject].add(statement)
    held = reached(schema, about, selected)
    there = frozenset(uri for uri in selected if about.get(uri))
    return Closure(there, held, {uri: frozenset(about[uri]) for uri in held if about.get(uri)})


def reached(schema: Schema, about: Mapping[str, Iterable[Statement]], roots: Iterable[str]) -> frozenset[str]:
    held = set(roots)
    todo = list(held)
    while todo:
        for statement in about.get(todo.pop(), ()):
            if is_strong(schema, statement) and statement.object.value not in held:
                held.add(statement.object.value)
                todo.append(statement.object.value)
    return frozenset(held)
