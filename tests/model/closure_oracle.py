"""What an LMR should hold, said naively: what its rules select, and what that reaches over strong references."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rules_oracle import World

from mdv.model import Statement, is_blank
from mdv.rdf.schema import Schema
from mdv.rules.ast import ParsedRule


@dataclass(frozen=True)
class Closure:
    """What an LMR selects, what it holds (also what nothing is said of), and what is said of that."""

    selected: frozenset[str]
    held: frozenset[str]
    said: Mapping[str, frozenset[Statement]]


def is_strong(schema: Schema, statement: Statement) -> bool:
    if not statement.object.is_uri:
        return False
    declared = schema.property_of(statement.property)
    return is_blank(statement.object.value) or (declared is not None and declared.strong)


def closure_of(
    schema: Schema, statements: Iterable[Statement], rules: Iterable[ParsedRule], named: Mapping[str, ParsedRule]
) -> Closure:
    """The closure of an LMR with these rules."""
    every = frozenset(statements)
    world = World(schema, every, named)
    selected = frozenset().union(*(world.registered(rule) for rule in rules))
    about: dict[str, set[Statement]] = defaultdict(set)
    for statement in every:
        about[statement.subject].add(statement)
    held = reached(schema, about, selected)
    return Closure(selected, held, {uri: frozenset(about[uri]) for uri in held if about.get(uri)})


def reached(schema: Schema, about: Mapping[str, Iterable[Statement]], roots: Iterable[str]) -> frozenset[str]:
    held = set(roots)
    todo = list(held)
    while todo:
        for statement in about.get(todo.pop(), ()):
            if is_strong(schema, statement) and statement.object.value not in held:
                held.add(statement.object.value)
                todo.append(statement.object.value)
    return frozenset(held)
