"""Beginnings: how far a resource gets with a rule, predicate after predicate of its normal form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Connection, FromClause, Select, bindparam, literal_column, select, true

from mdv.db.filter import Compiled, compiled
from mdv.db.why import Evidence
from mdv.mdp.groups import constant_parameters, constant_values, states
from mdv.model import RDFS_RESOURCE
from mdv.query.compile import Conditions, Names, State, needs_proof
from mdv.rdf.schema import Schema
from mdv.rules.normal import (
    Access,
    Comparison,
    Conjunction,
    NormalPredicate,
    Variable,
)
from mdv.rules.pattern import Pattern, pattern_with_nodes


@dataclass(frozen=True, slots=True)
class Stage:
    """One more thing that is asked: a predicate, and the classes of the variables that come with it."""

    variables: tuple[Variable, ...]
    predicate: NormalPredicate | None


def accesses(predicate: NormalPredicate) -> tuple[Access, ...]:
    return (predicate.access,) if isinstance(predicate, Comparison) else (predicate.left, predicate.right)


def stages(conjunction: Conjunction) -> list[Stage]:
    """What a conjunction asks, in order: the class of what it registers, its predicates, and at last that there is
    something for each variable of which no predicate speaks."""
    left = {variable.name: variable for variable in conjunction.variables}
    found = [Stage((left.pop(conjunction.register),), None)]
    for predicate in conjunction.predicates:
        fresh = dict.fromkeys(access.variable for access in accesses(predicate))
        found.append(Stage(tuple(left.pop(name) for name in fresh if name in left), predicate))
    return found + [Stage((variable,), None) for variable in left.values()]


def beginning(conjunction: Conjunction, count: int) -> Conjunction:
    """The conjunction of the first stages alone."""
    some = stages(conjunction)[:count]
    variables = tuple(variable for stage in some for variable in stage.variables)
    predicates = tuple(stage.predicate for stage in some if stage.predicate is not None)
    return Conjunction(variables, conjunction.register, predicates)


class Beginnings:
    """Conjunctions, asked of one resource; those that differ in constants alone are compiled once."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._evidence, self._names = Evidence(connection), names
        self._whether: dict[Pattern, Compiled] = {}
        self._which: dict[tuple[Pattern, int], Compiled] = {}

    def holds(self, conjunction: Conjunction, number: int) -> bool:
        """Whether a conjunction registers the resource of that number."""
        pattern, constants, _ = pattern_with_nodes(conjunction)
        if pattern not in self._whether:
            self._whether[pattern] = compiled(_whether(states(self._names)[0], pattern))
        return bool(self._evidence.run(self._whether[pattern], root=number, **constant_values(constants)))

    def bindings(self, conjunction: Conjunction, number: int, most: int) -> list[dict[str, int]]:
        """Some choices of resources that satisfy a conjunction, by variable."""
        pattern, constants, nodes = pattern_with_nodes(conjunction)
        if (pattern, most) not in self._which:
            self._which[pattern, most] = compiled(_which(states(self._names)[0], pattern, most))
        rows = self._evidence.run(self._which[pattern, most], root=number, **constant_values(constants))
        return [{name: row[node] for name, node in nodes.items()} for row in rows]


def _root() -> FromClause:
    return select(bindparam("root", type_=BigInteger).label("id")).subquery("root")


def _whether(now: State, pattern: Pattern) -> Select[Any]:
    conditions, root = Conditions(now, pattern, constant_parameters(pattern)), _root()
    conditions.bind(0, root.c.id)
    return select(root.c.id).select_from(root).where(*conditions.of_node(0))


def _which(now: State, pattern: Pattern, most: int) -> Select[Any]:
    """Every node is bound in the outer select, the nearer ones first."""
    constants = constant_parameters(pattern)
    conditions, root = Conditions(now, pattern, constants), _root()
    source: FromClause = root
    asked: list[Any] = []
    for node, classes in enumerate(pattern.nodes):
        if node == 0:
            conditions.bind(0, root.c.id)
        else:
            for table in conditions.step(node):
                source = source.join(table, true())
        asked += now.of_classes(conditions.at(node), classes, known=not needs_proof(pattern, node))
        asked += [conditions.leaf(leaf, constants[n]) for n, leaf in enumerate(pattern.leaves) if leaf.node == node]
        asked += [conditions.tie(tie) for tie in pattern.ties if max(tie.left, tie.right) == node]
    bound = [conditions.at(node).label(f"n{node}") for node in range(len(pattern.nodes))]
    return select(*bound).select_from(source).where(*asked).limit(literal_column(str(most)))


def is_instance(classes: Sequence[str], class_iri: str, schema: Schema) -> bool:
    """Whether what has these direct classes is an instance of a class.

    >>> from mdv.rdf.schema import EMPTY
    >>> is_instance([], RDFS_RESOURCE, EMPTY), is_instance(["http://a/B"], "http://a/C", EMPTY)
    (True, False)
    """
    if class_iri == RDFS_RESOURCE:
        return True
    declared = schema.classes.get(class_iri)
    below = declared.subclasses if declared is not None else (class_iri,)
    return any(direct in below for direct in classes)
