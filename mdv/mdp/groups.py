"""The rule groups that this process has cached, with their compiled statements, and the changes that affect them.

A group here is a whole group: the rules that differ in their constants alone. They are evaluated together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Connection,
    Integer,
    Numeric,
    Text,
    bindparam,
    literal_column,
    select,
    true,
    union,
)

from mdv.db.delta import EncodedStatement
from mdv.db.filter import (
    CompiledStatement,
    compile_statement,
    evaluate,
    insert_ranges,
    insert_results,
    statements_before,
    statements_before_and_after,
    statements_now,
)
from mdv.db.rule_graph import KnownGroups, PredicateKey, RuleGraph
from mdv.db.selection_counts import insert_selection_changes
from mdv.db.state import State as MdpState
from mdv.db.suspensions import Suspensions
from mdv.db.tables import FILTER_RULES_TABLES, end_rules, resources
from mdv.db.vocabulary import Vocabulary
from mdv.query import vocabulary_ids as numbered
from mdv.query.compile import (
    Group,
    RuleTables,
    StatementView,
    VocabularyIds,
    filter_group,
    filter_range,
    matches,
    needs_existence_check,
)
from mdv.rdf.schema import Schema
from mdv.rules.normal import Constant, Sort
from mdv.rules.pattern import Pattern, Tie

RULE_TABLES = RuleTables(end_rules, FILTER_RULES_TABLES)


@dataclass(frozen=True)
class CompiledGroup:
    """A group with the statement that finds the match changes of its rules. It is compiled on first use."""

    group: Group
    names: VocabularyIds

    @cached_property
    def numbers(self) -> tuple[object, ...]:
        """The ids that its statements contain. If they change, the statements must be compiled again."""
        pattern, names = self.group.pattern, self.names
        classes = tuple(tuple(names.classes.get(iri, ())) for node in pattern.nodes for iri in node)
        properties = sorted(pattern.properties)
        below = tuple((tuple(names.properties[iri]), iri in names.literal_only) for iri in properties)
        return (classes, below, tuple(names.types))

    @property
    def nodes(self) -> int:
        return len(self.group.pattern.nodes)

    @cached_property
    def statement(self) -> CompiledStatement:
        now, before, either = statement_states(self.names)
        if self.group.pattern.is_range:
            return insert_ranges(filter_range(now, before, either, RULE_TABLES, self.group))
        return insert_results(filter_group(now, before, either, RULE_TABLES, self.group))

    @cached_property
    def first_results(self) -> CompiledStatement:
        """The statement that stores all matches of one rule of the group (`:end`), given its constants."""
        now, _, _ = statement_states(self.names)
        pattern = self.group.pattern
        found = matches(now, pattern, constant_parameters(pattern), self.group.driver).subquery("found")
        return insert_results(select(bindparam("end", type_=BigInteger), found.c.resource_id, true()))

    @cached_property
    def range_counts(self) -> CompiledStatement:
        """For a range group, the statement that adds `:more` to the selection counts of an LMR (`:lmr`) for all matches
        of its least and greatest constants."""
        now, _, _ = statement_states(self.names)
        pattern, (constant,) = self.group.pattern, constant_parameters(self.group.pattern)
        found = union(
            *(
                matches(now, pattern, [bindparam(end, type_=constant.type)], self.group.driver)
                for end in ("least", "greatest")
            )
        ).subquery("found")
        lmr, more = bindparam("lmr", type_=BigInteger), bindparam("more", type_=Integer)
        return insert_selection_changes(select(lmr, found.c.resource_id, more))


ChangedStatement = tuple[int, int, int | None]
"""Resource, property and target."""


class _Everything:
    """A container that contains everything."""

    def __contains__(self, _: object) -> bool:
        return True


_EVERYTHING = _Everything()


class Groups:
    """All whole groups at one version of the graph and of the schema."""

    def __init__(
        self,
        version: tuple[int, int],
        names: VocabularyIds,
        groups: Sequence[CompiledGroup],
        known: KnownGroups,
        revise_at_resources: int,
        suspended: bool = False,
    ) -> None:
        self.version = version
        self.suspended = suspended
        """True if there are suspended rules."""
        self.known = known
        self.revise_at_resources = revise_at_resources
        """When there are this many resources, a driving predicate should be chosen again."""
        self.names = names
        self.groups = groups
        self.by_id = {group.group.group_id: group for group in groups}
        self._subjects: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._targets: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._classes: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._untyped_nodes: list[tuple[int, int]] = []
        self._types = frozenset(names.types)
        for index, group in enumerate(groups):
            self._watch(index, group.group.pattern)
        watched = {*self._subjects, *self._targets, *self._types}
        self._watched: Container[int] = _EVERYTHING if self._untyped_nodes else watched
        """The properties whose changes can affect matches."""

    def _watch(self, index: int, pattern: Pattern) -> None:
        """Record which statements can affect the matches of a group's rules, and at which node."""
        for leaf in pattern.leaves:
            if leaf.property is not None:
                self._watch_property(leaf.property, self._subjects, index, leaf.node)
        for tie in (*pattern.ties, *(b.tie for b in pattern.branches if b is not None and b.tie is not None)):
            self._watch_tie(index, tie)
        for node, classes in enumerate(pattern.nodes):
            for class_iri in classes:
                for number in self.names.classes.get(class_iri, ()):
                    self._classes[number].append((index, node))
            if needs_existence_check(pattern, node):
                self._untyped_nodes.append((index, node))

    def _watch_tie(self, index: int, tie: Tie) -> None:
        if tie.left_property is None:
            return
        if tie.is_reference and tie.right < tie.left:
            # The target of the reference is nearer to the registered variable.
            self._watch_property(tie.left_property, self._targets, index, tie.right)
        else:
            self._watch_property(tie.left_property, self._subjects, index, tie.left)
        if tie.right_property is not None:
            self._watch_property(tie.right_property, self._subjects, index, tie.right)

    def _watch_property(self, iri: str, where: dict[int, list[tuple[int, int]]], index: int, node: int) -> None:
        for number in self.names.properties[iri]:
            if (index, node) not in where[number]:
                where[number].append((index, node))

    def affected(self, changes: Iterable[EncodedStatement | ChangedStatement]) -> dict[int, list[set[int]]]:
        """Return the groups that changes of these statements affect, each with the changed resources at its nodes."""
        found: dict[int, list[set[int]]] = {}
        subjects, targets, classes, types = self._subjects, self._targets, self._classes, self._types
        for key in changes:
            resource, name, target = key[0], key[1], key[2]
            if name not in self._watched:
                continue
            for index, node in subjects.get(name, ()):
                self._changed_nodes(found, index)[node].add(resource)
            if target is not None:
                for index, node in targets.get(name, ()):
                    self._changed_nodes(found, index)[node].add(target)
                if name in types:
                    for index, node in classes.get(target, ()):
                        self._changed_nodes(found, index)[node].add(resource)
            for index, node in self._untyped_nodes:
                self._changed_nodes(found, index)[node].add(resource)
        return found

    def _changed_nodes(self, found: dict[int, list[set[int]]], index: int) -> list[set[int]]:
        sets = found.get(index)
        if sets is None:
            sets = found[index] = [set() for _ in range(self.groups[index].nodes)]
        return sets


def read_groups(
    connection: Connection,
    state: MdpState,
    schema: Schema,
    vocabulary: Vocabulary,
    known: Groups | None,
    last_resource: int | None,
) -> Groups:
    """Return the current groups. Unchanged groups are taken from `known`, with their compiled statements.

    With `last_resource`, the classes of new groups get ids before their first instance exists, so that the statements
    contain these ids from the start.
    """
    graph = RuleGraph(connection)
    stored = graph.read_groups()
    known_now = graph.read_known()
    patterns = {group.group_id: Pattern.from_json(group.pattern) for group in stored}
    names = read_names(graph, patterns.values(), schema, vocabulary, last_resource)
    still = known.by_id if known is not None and known.version[1] == state.schema_version else {}
    groups = []
    for group in stored:
        pattern = patterns[group.group_id]
        its_predicates = tuple(known_now.predicates[PredicateKey(*leaf[1:])] for leaf in pattern.leaves)
        now = CompiledGroup(Group(group.group_id, pattern, group.driver, its_predicates), names)
        before = still.get(group.group_id)
        unchanged = before is not None and before.group == now.group and before.numbers == now.numbers
        groups.append(before if before is not None and unchanged else now)
    shared = [group for group in stored if group.members > 1 and len(patterns[group.group_id].leaves) > 1]
    revise_at_resources = min((2 * group.chosen_with + 1000 for group in shared), default=2**62)
    suspended = Suspensions(connection).count(pending=True) > 0
    return Groups((state.graph_version, state.schema_version), names, groups, known_now, revise_at_resources, suspended)


def constant_parameters(pattern: Pattern, prefix: str = "constant") -> list[BindParameter[Any]]:
    """Return the constants of a pattern as bind parameters: `constant0`, `constant1` …"""
    return [
        bindparam(f"{prefix}{number}", type_=Text() if leaf.sort in (Sort.TEXT, Sort.REFERENCE) else Numeric())
        for number, leaf in enumerate(pattern.leaves)
    ]


def constant_values(constants: Iterable[Constant]) -> dict[str, Any]:
    """Return the values of these parameters. A boolean is compared as 1 or 0."""
    return {
        f"constant{number}": int(constant.value) if isinstance(constant.value, bool) else constant.value
        for number, constant in enumerate(constants)
    }


def statement_states(names: VocabularyIds) -> tuple[StatementView, StatementView, StatementView]:
    now = StatementView(statements_now, resources, names)
    return now, replace(now, make=statements_before), replace(now, make=statements_before_and_after)


def read_names(
    graph: RuleGraph, patterns: Iterable[Pattern], schema: Schema, vocabulary: Vocabulary, last_resource: int | None
) -> VocabularyIds:
    """Return the ids of all classes and properties of these patterns, with their subclasses and subproperties.

    With `last_resource`, the last assigned id, classes without an id get one. The caller must hold the lock. Without
    it, a class without an id is treated as having no instances.
    """

    def of_classes(uris: set[str]) -> Mapping[str, int]:
        return graph.numbers(uris) if last_resource is None else graph.number_resources(uris, last_resource)

    return numbered.read_vocabulary_ids(patterns, schema, of_classes, vocabulary.ids)


def read_instances(
    connection: Connection, names: VocabularyIds, classes: tuple[str, ...], most: int | None = None
) -> list[int]:
    """Return the instances of some classes, or the `most` newest of them."""
    now, _, _ = statement_states(names)
    found = matches(now, Pattern((classes,), (None,), (), ()), [], None)
    if most is not None:
        found = found.order_by(found.selected_columns.resource_id.desc()).limit(literal_column(str(most)))
    return [number for (number,) in evaluate(connection, compile_statement(found), {})]
