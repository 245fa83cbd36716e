"""Groups: the whole groups of rules as this process remembers them, compiled, and which changes concern them."""

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

from mdv.db.filter import (
    Compiled,
    compiled,
    evaluate,
    keep_ranges,
    keep_results,
    statements_before,
    statements_either,
    statements_now,
)
from mdv.db.graph import FILTER_RULES, Graph, Known, PredicateKey
from mdv.db.reasons import keep_reasons
from mdv.db.state import State as MdpState
from mdv.db.store import Encoded
from mdv.db.tables import end_rules, resources
from mdv.db.vocabulary import Vocabulary
from mdv.query import names as numbered
from mdv.query.compile import Group, Names, RuleTables, State, filter_group, filter_range, matches, needs_proof
from mdv.rdf.schema import Schema
from mdv.rules.normal import Constant, Sort
from mdv.rules.pattern import Pattern, Tie

TABLES = RuleTables(end_rules, FILTER_RULES)


@dataclass(frozen=True)
class CompiledGroup:
    """A group with the statement that finds what changed for its rules, which is made when it is first needed."""

    group: Group
    names: Names

    @cached_property
    def numbers(self) -> tuple[object, ...]:
        """The numbers that its statements are made with."""
        pattern, names = self.group.pattern, self.names
        classes = tuple(tuple(names.classes.get(iri, ())) for node in pattern.nodes for iri in node)
        properties = sorted(pattern.properties)
        below = tuple((tuple(names.properties[iri]), iri in names.literal_only) for iri in properties)
        return (classes, below, tuple(names.types))

    @property
    def nodes(self) -> int:
        return len(self.group.pattern.nodes)

    @cached_property
    def statement(self) -> Compiled:
        now, before, either = states(self.names)
        if self.group.pattern.is_range:
            return keep_ranges(filter_range(now, before, either, TABLES, self.group))
        return keep_results(filter_group(now, before, either, TABLES, self.group))

    @cached_property
    def first_results(self) -> Compiled:
        """The statement that keeps all that one rule of the group (`:end`) matches, given its constants."""
        now, _, _ = states(self.names)
        pattern = self.group.pattern
        found = matches(now, pattern, constant_parameters(pattern), self.group.driver).subquery("found")
        return keep_results(select(bindparam("end", type_=BigInteger), found.c.resource_id, true()))

    @cached_property
    def range_reasons(self) -> Compiled:
        """Of a group that matches stretches of constants, the statement that counts what one LMR's (`:lmr`) least and
        greatest constants match, as `:more` reasons."""
        now, _, _ = states(self.names)
        pattern, (constant,) = self.group.pattern, constant_parameters(self.group.pattern)
        found = union(
            *(
                matches(now, pattern, [bindparam(end, type_=constant.type)], self.group.driver)
                for end in ("least", "greatest")
            )
        ).subquery("found")
        lmr, more = bindparam("lmr", type_=BigInteger), bindparam("more", type_=Integer)
        return keep_reasons(select(lmr, found.c.resource_id, more))


class _Everything:
    """Holds whatever there is."""

    def __contains__(self, _: object) -> bool:
        return True


EVERYTHING = _Everything()


class Groups:
    """All whole groups at one version of the graph and of the schema."""

    def __init__(
        self, version: tuple[int, int], names: Names, groups: Sequence[CompiledGroup], known: Known, revise_at: int
    ) -> None:
        self.version = version
        self.known = known
        self.revise_at = revise_at
        """With so many resources, some driver should be chosen again."""
        self.names = names
        self.groups = groups
        self.by_id = {group.group.group_id: group for group in groups}
        self._subjects: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._targets: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._classes: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._anything: list[tuple[int, int]] = []
        self._types = frozenset(names.types)
        for index, group in enumerate(groups):
            self._watch(index, group.group.pattern)
        watched = {*self._subjects, *self._targets, *self._types}
        self._watched: Container[int] = EVERYTHING if self._anything else watched
        """The properties of which a change can make a difference."""

    def _watch(self, index: int, pattern: Pattern) -> None:
        """Note which statements can change what a group's rules match, and at which node."""
        for leaf in pattern.leaves:
            if leaf.property is not None:
                self._watch_property(leaf.property, self._subjects, index, leaf.node)
        for tie in (*pattern.ties, *(b.tie for b in pattern.branches if b is not None and b.tie is not None)):
            self._watch_tie(index, tie)
        for node, classes in enumerate(pattern.nodes):
            for class_iri in classes:
                for number in self.names.classes.get(class_iri, ()):
                    self._classes[number].append((index, node))
            if needs_proof(pattern, node):
                self._anything.append((index, node))

    def _watch_tie(self, index: int, tie: Tie) -> None:
        if tie.left_property is None:
            return
        if tie.is_reference and tie.right < tie.left:
            # The reference's target is nearer to what is registered.
            self._watch_property(tie.left_property, self._targets, index, tie.right)
        else:
            self._watch_property(tie.left_property, self._subjects, index, tie.left)
        if tie.right_property is not None:
            self._watch_property(tie.right_property, self._subjects, index, tie.right)

    def _watch_property(self, iri: str, where: dict[int, list[tuple[int, int]]], index: int, node: int) -> None:
        for number in self.names.properties[iri]:
            if (index, node) not in where[number]:
                where[number].append((index, node))

    def concerned(self, changes: Iterable[Encoded]) -> dict[int, list[set[int]]]:
        """The groups that changes of these statements concern, each with the resources that changed at its nodes."""
        found: dict[int, list[set[int]]] = {}
        subjects, targets, classes, types = self._subjects, self._targets, self._classes, self._types
        for key in changes:
            resource, name, target = key[0], key[1], key[2]
            if name not in self._watched:
                continue
            for index, node in subjects.get(name, ()):
                self._at(found, index)[node].add(resource)
            if target is not None:
                for index, node in targets.get(name, ()):
                    self._at(found, index)[node].add(target)
                if name in types:
                    for index, node in classes.get(target, ()):
                        self._at(found, index)[node].add(resource)
            for index, node in self._anything:
                self._at(found, index)[node].add(resource)
        return found

    def _at(self, found: dict[int, list[set[int]]], index: int) -> list[set[int]]:
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
    """The groups of now. What is `known` of groups that have not changed is kept, with their statements.

    With `last_resource`, the classes of new groups get numbers: before their first instance comes, so that its number
    is in the statements already.
    """
    graph = Graph(connection)
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
        alike = before is not None and before.group == now.group and before.numbers == now.numbers
        groups.append(before if before is not None and alike else now)
    several = [group for group in stored if group.members > 1 and len(patterns[group.group_id].leaves) > 1]
    revise_at = min((2 * group.chosen_with + 1000 for group in several), default=2**62)
    return Groups((state.graph_version, state.schema_version), names, groups, known_now, revise_at)


def constant_parameters(pattern: Pattern) -> list[BindParameter[Any]]:
    """The constants of a pattern as parameters: `constant0`, `constant1` …"""
    return [
        bindparam(f"constant{number}", type_=Text() if leaf.sort in (Sort.TEXT, Sort.REFERENCE) else Numeric())
        for number, leaf in enumerate(pattern.leaves)
    ]


def constant_values(constants: Iterable[Constant]) -> dict[str, Any]:
    """The values of those parameters. A truth is compared as 1 or 0."""
    return {
        f"constant{number}": int(constant.value) if isinstance(constant.value, bool) else constant.value
        for number, constant in enumerate(constants)
    }


def states(names: Names) -> tuple[State, State, State]:
    now = State(statements_now, resources, names)
    return now, replace(now, make=statements_before), replace(now, make=statements_either)


def read_names(
    graph: Graph, patterns: Iterable[Pattern], schema: Schema, vocabulary: Vocabulary, last_resource: int | None
) -> Names:
    """The numbers of all classes and properties of these patterns, with those below them.

    With the last number that was given out, classes get numbers where they have none; the caller holds the lock.
    Without it, a class that has no number has no instances.
    """

    def of_classes(uris: set[str]) -> Mapping[str, int]:
        return graph.numbers(uris) if last_resource is None else graph.number_resources(uris, last_resource)

    return numbered.read_names(patterns, schema, of_classes, vocabulary.ids)


def instances(connection: Connection, names: Names, classes: tuple[str, ...], most: int | None = None) -> list[int]:
    """The resources of some classes, or the youngest of them."""
    now, _, _ = states(names)
    found = matches(now, Pattern((classes,), (None,), (), ()), [], None)
    if most is not None:
        found = found.order_by(found.selected_columns.resource_id.desc()).limit(literal_column(str(most)))
    return [number for (number,) in evaluate(connection, compiled(found), {})]
