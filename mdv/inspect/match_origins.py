"""Partial matches: how many predicates of a rule's normal form a resource satisfies, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Connection, FromClause, Select, bindparam, literal_column, select, true

from mdv.db.filter import CompiledStatement, compile_statement
from mdv.inspect.sql.explain_resource import EvidenceReader
from mdv.mdp.groups import constant_parameters, constant_values, statement_states
from mdv.model import RDFS_RESOURCE
from mdv.query.compile import Conditions, StatementView, VocabularyIds, needs_existence_check
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
class MatchStage:
    """A step of a match: a predicate, and the classes of the variables that it introduces."""

    variables: tuple[Variable, ...]
    predicate: NormalPredicate | None


def accesses(predicate: NormalPredicate) -> tuple[Access, ...]:
    return (predicate.access,) if isinstance(predicate, Comparison) else (predicate.left, predicate.right)


def stages(conjunction: Conjunction) -> list[MatchStage]:
    """Return the stages of a conjunction.

    These are the class of the registered variable, the predicates, and finally, for each variable that occurs in no
    predicate, the existence of an instance.
    """
    remaining = {variable.name: variable for variable in conjunction.variables}
    found = [MatchStage((remaining.pop(conjunction.register),), None)]
    for predicate in conjunction.predicates:
        new_names = dict.fromkeys(access.variable for access in accesses(predicate))
        found.append(MatchStage(tuple(remaining.pop(name) for name in new_names if name in remaining), predicate))
    return found + [MatchStage((variable,), None) for variable in remaining.values()]


def first_stages(conjunction: Conjunction, count: int) -> Conjunction:
    """Return the conjunction of the first `count` stages."""
    first = stages(conjunction)[:count]
    variables = tuple(variable for stage in first for variable in stage.variables)
    predicates = tuple(stage.predicate for stage in first if stage.predicate is not None)
    return Conjunction(variables, conjunction.register, predicates)


def needed_variables(stage: MatchStage) -> set[str]:
    """Return the variables of a stage that earlier stages bind."""
    new = {variable.name for variable in stage.variables}
    used = accesses(stage.predicate) if stage.predicate is not None else ()
    return {access.variable for access in used} - new


def with_stage(conjunction: Conjunction, stage: MatchStage) -> Conjunction:
    """Return a conjunction with one more stage."""
    predicates = (stage.predicate,) if stage.predicate is not None else ()
    return Conjunction(
        conjunction.variables + stage.variables, conjunction.register, conjunction.predicates + predicates
    )


class PartialMatcher:
    """Evaluates conjunctions for one resource. Those that differ only in constants are compiled once."""

    def __init__(self, connection: Connection, names: VocabularyIds) -> None:
        self._evidence, self._names = EvidenceReader(connection), names
        self._match_queries: dict[Pattern, CompiledStatement] = {}
        self._which: dict[tuple[Pattern, int], CompiledStatement] = {}

    def holds(self, conjunction: Conjunction, number: int) -> bool:
        """True if a conjunction registers the resource with this id."""
        pattern, constants, _ = pattern_with_nodes(conjunction)
        if pattern not in self._match_queries:
            self._match_queries[pattern] = compile_statement(
                select_if_matching(statement_states(self._names)[0], pattern)
            )
        return bool(self._evidence.run(self._match_queries[pattern], root=number, **constant_values(constants)))

    def bindings(self, conjunction: Conjunction, number: int, most: int) -> list[dict[str, int]]:
        """Return up to `most` choices of resources that satisfy a conjunction, by variable."""
        pattern, constants, nodes = pattern_with_nodes(conjunction)
        if (pattern, most) not in self._which:
            self._which[pattern, most] = compile_statement(_which(statement_states(self._names)[0], pattern, most))
        rows = self._evidence.run(self._which[pattern, most], root=number, **constant_values(constants))
        return [{name: row[node] for name, node in nodes.items()} for row in rows]


def _root() -> FromClause:
    return select(bindparam("root", type_=BigInteger).label("id")).subquery("root")


def select_if_matching(now: StatementView, pattern: Pattern) -> Select[Any]:
    """Return a query that selects the resource `:root` if the pattern registers it."""
    conditions, root = Conditions(now, pattern, constant_parameters(pattern)), _root()
    conditions.bind(0, root.c.id)
    return select(root.c.id).select_from(root).where(*conditions.of_node(0))


def _which(now: StatementView, pattern: Pattern, most: int) -> Select[Any]:
    """Return a query for choices of resources. All nodes are bound in the outer select, from the root outwards."""
    constants = constant_parameters(pattern)
    conditions, root = Conditions(now, pattern, constants), _root()
    source: FromClause = root
    clauses: list[Any] = []
    for node, classes in enumerate(pattern.nodes):
        if node == 0:
            conditions.bind(0, root.c.id)
        else:
            for table in conditions.step(node):
                source = source.join(table, true())
        clauses += now.of_classes(conditions.at(node), classes, known=not needs_existence_check(pattern, node))
        clauses += [conditions.leaf(leaf, constants[n]) for n, leaf in enumerate(pattern.leaves) if leaf.node == node]
        clauses += [conditions.tie(tie) for tie in pattern.ties if max(tie.left, tie.right) == node]
    bound = [conditions.at(node).label(f"n{node}") for node in range(len(pattern.nodes))]
    return select(*bound).select_from(source).where(*clauses).limit(literal_column(str(most)))


def is_instance(classes: Sequence[str], class_iri: str, schema: Schema) -> bool:
    """True if a resource with these direct classes is an instance of a class.

    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> is_instance([], RDFS_RESOURCE, EMPTY_SCHEMA), is_instance(["http://a/B"], "http://a/C", EMPTY_SCHEMA)
    (True, False)
    """
    if class_iri == RDFS_RESOURCE:
        return True
    declared = schema.classes.get(class_iri)
    below = declared.subclasses if declared is not None else (class_iri,)
    return any(direct in below for direct in classes)
