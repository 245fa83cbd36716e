"""The pattern of a conjunction: its structure without constants and variable names.

Rules that differ only in their constants have the same pattern. They form one rule group and are evaluated together. A
pattern is a tree of nodes. Its root, node 0, is the registered variable. The tree is built depth first, so a predicate
between two nodes that is not a branch of the tree (from a cycle in the join graph, or a second predicate between the
same nodes) always connects a node with one of its ancestors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from mdv.model import RDFS_RESOURCE
from mdv.rules.normal import Access, Comparison, Conjunction, Constant, Link, Sort, Variable
from mdv.rules.operators import Lookup, Operator


class Leaf(NamedTuple):
    """A predicate with a constant, without the constant. `class_iri` is the declared class of its variable."""

    node: int
    class_iri: str
    property: str | None
    operator: Operator
    sort: Sort


class Tie(NamedTuple):
    """A join predicate between two nodes."""

    left: int
    left_property: str | None
    operator: Operator
    right: int
    right_property: str | None
    sort: Sort

    @property
    def is_reference(self) -> bool:
        """True if the predicate means that the left node refers to the right one."""
        return self.operator is Operator.EQ and self.left_property is not None and self.right_property is None

    @property
    def is_bounded(self) -> bool:
        """True if each node joins with few others: by a reference or by equal values."""
        return self.operator is Operator.EQ and self.left_property is not None and self.sort is not Sort.TRUTH

    def accesses(self) -> tuple[tuple[int, str | None], tuple[int, str | None]]:
        return (self.left, self.left_property), (self.right, self.right_property)


class Branch(NamedTuple):
    """How a node is connected to its parent: by a predicate, or by None if it only occurs in the same rule."""

    parent: int
    tie: Tie | None


@dataclass(frozen=True)
class Pattern:
    """The classes of the nodes, the branches of all nodes but the root, the predicates with constants, and the join
    predicates that are not branches."""

    nodes: tuple[tuple[str, ...], ...]
    branches: tuple[Branch | None, ...]
    leaves: tuple[Leaf, ...]
    ties: tuple[Tie, ...]

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        found: list[list[int]] = [[] for _ in self.nodes]
        for node, branch in enumerate(self.branches):
            if branch is not None:
                found[branch.parent].append(node)
        return tuple(map(tuple, found))

    def path(self, node: int) -> tuple[int, ...]:
        """Return the nodes from the root to `node`, including both."""
        nodes = [node]
        while (branch := self.branches[nodes[-1]]) is not None:
            nodes.append(branch.parent)
        return tuple(reversed(nodes))

    @property
    def depth(self) -> int:
        """The number of branches on the longest path from the root."""
        depths: list[int] = []
        for branch in self.branches:  # parents come before their children
            depths.append(0 if branch is None else depths[branch.parent] + 1)
        return max(depths)

    def has_leaf(self, node: int) -> bool:
        """True if `node` or one of its descendants has a predicate with a constant."""
        return any(node in self.path(leaf.node) for leaf in self.leaves)

    @cached_property
    def properties(self) -> frozenset[str]:
        """All properties in the pattern."""
        ties = (*self.ties, *(branch.tie for branch in self.branches if branch is not None and branch.tie is not None))
        names = [name for tie in ties for _, name in tie.accesses()] + [leaf.property for leaf in self.leaves]
        return frozenset(name for name in names if name is not None)

    @property
    def is_range(self) -> bool:
        """True if the matching constants form a range: there is one constant, compared by order or by !=."""
        return len(self.leaves) == 1 and self.leaves[0].operator.lookup in (Lookup.ORDER, Lookup.UNEQUAL)

    @property
    def unbounded(self) -> tuple[int, ...]:
        """The nodes whose change can affect every instance of their parent's class."""
        return tuple(
            node
            for node, branch in enumerate(self.branches)
            if branch is not None and (branch.tie is None or not branch.tie.is_bounded)
        )

    def as_json(self) -> dict[str, Any]:
        """Return the pattern as JSON, for `from_json`."""
        return {
            "nodes": self.nodes,
            "branches": [b and [b.parent, b.tie and _tie_json(b.tie)] for b in self.branches],
            "leaves": [[leaf.node, leaf.class_iri, leaf.property, leaf.operator.value, leaf.sort.value]
                       for leaf in self.leaves],
            "ties": [_tie_json(tie) for tie in self.ties],
        }  # fmt: skip

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Pattern:
        return cls(
            tuple(map(tuple, body["nodes"])),
            tuple(b and Branch(b[0], b[1] and _tie(b[1])) for b in body["branches"]),
            tuple(Leaf(n, c, p, Operator(o), Sort(s)) for n, c, p, o, s in body["leaves"]),
            tuple(map(_tie, body["ties"])),
        )

    def as_conjunction(self, constants: Iterable[Constant]) -> Conjunction:
        """Return a conjunction with this pattern and these constants. Variables are named by number."""
        names = [f"n{number}" for number in range(len(self.nodes))]
        variables = tuple(Variable(name, classes[0]) for name, classes in zip(names, self.nodes, strict=True))
        ties = [b.tie for b in self.branches if b and b.tie] + list(self.ties)
        links = [
            Link(Access(names[t.left], t.left_property), t.operator, Access(names[t.right], t.right_property), t.sort)
            for t in ties
        ]
        comparisons = [
            Comparison(Access(names[leaf.node], leaf.property), leaf.operator, leaf.sort, constant)
            for leaf, constant in zip(self.leaves, constants, strict=True)
        ]
        return Conjunction(variables, names[0], (*links, *comparisons))


def _tie_json(tie: Tie) -> list[Any]:
    return [tie.left, tie.left_property, tie.operator.value, tie.right, tie.right_property, tie.sort.value]


def _tie(body: list[Any]) -> Tie:
    left, left_property, operator, right, right_property, sort = body
    return Tie(left, left_property, Operator(operator), right, right_property, Sort(sort))


def pattern(conjunction: Conjunction) -> tuple[Pattern, tuple[Constant, ...]]:
    """Return the pattern of `conjunction`, and its constants in the order of the pattern's leaves."""
    return _Builder(conjunction).build()


def pattern_with_nodes(conjunction: Conjunction) -> tuple[Pattern, tuple[Constant, ...], dict[str, int]]:
    """Return the pattern, its constants, and the node of each variable."""
    builder = _Builder(conjunction)
    return *builder.build(), builder.nodes()


class _Builder:
    def __init__(self, conjunction: Conjunction) -> None:
        self._conjunction = conjunction
        self._links = [p for p in conjunction.predicates if isinstance(p, Link)]
        self._comparisons = [p for p in conjunction.predicates if isinstance(p, Comparison)]
        self._representative = self._unite()
        self._classes: dict[str, list[str]] = defaultdict(list)
        self._class_of = {variable.name: variable.class_iri for variable in conjunction.variables}
        for variable in conjunction.variables:
            self._classes[self._representative[variable.name]].append(variable.class_iri)
        self._number: dict[str, int] = {}
        self._branches: list[Branch | None] = []
        self._used: set[int] = set()

    def build(self) -> tuple[Pattern, tuple[Constant, ...]]:
        self._visit(self._representative[self._conjunction.register], None)
        for variable in self._conjunction.variables:
            # A variable without join predicates is still part of the rule: an instance must exist.
            if self._representative[variable.name] not in self._number:
                self._visit(self._representative[variable.name], Branch(0, None))
        leaves = sorted(((self._leaf(c), c.constant) for c in self._comparisons), key=_leaf_order)
        kept = (link for index, link in enumerate(self._links) if index not in self._used)
        ties = sorted({self._tie(link) for link in kept if not self._is_identity(link)}, key=_tie_json_text)
        nodes = sorted(self._number, key=self._number.__getitem__)
        return (
            Pattern(
                tuple(_specific_classes(self._classes[name]) for name in nodes),
                tuple(self._branches),
                tuple(leaf for leaf, _ in leaves),
                tuple(ties),
            ),
            tuple(constant for _, constant in leaves),
        )

    def nodes(self) -> dict[str, int]:
        return {name: self._number[one] for name, one in self._representative.items()}

    def _unite(self) -> dict[str, str]:
        """Merge variables that must be the same resource (`a = b`) into one node."""
        one = {variable.name: variable.name for variable in self._conjunction.variables}

        def find(name: str) -> str:
            while one[name] != name:
                name = one[name]
            return name

        for link in self._links:
            if self._is_identity(link):
                one[find(link.left.variable)] = find(link.right.variable)
        return {name: find(name) for name in one}

    @staticmethod
    def _is_identity(link: Link) -> bool:
        return link.operator is Operator.EQ and link.left.property is None and link.right.property is None

    def _visit(self, start: str, branch: Branch | None) -> None:
        """Visit nodes depth first, following the most selective predicates first."""
        stack = [(start, branch)]
        while stack:
            name, branch = stack.pop()
            if name in self._number:
                continue
            number = self._number[name] = len(self._number)
            if branch is not None and branch.tie is not None:
                # `promised` below holds the index of the link, because the node had no number at that time.
                index = int(branch.tie.left)
                self._used.add(index)
                branch = Branch(branch.parent, self._tie(self._links[index]))
            self._branches.append(branch)
            onward = []
            for index, link in enumerate(self._links):
                ends = {self._representative[link.left.variable], self._representative[link.right.variable]}
                if name in ends and len(ends) == 2:
                    (other,) = ends - {name}
                    if other not in self._number:
                        onward.append((self._rank(link, name, other), other, index))
            for _, other, index in sorted(onward, reverse=True):
                promised = Tie(index, None, Operator.EQ, 0, None, Sort.REFERENCE)
                stack.append((other, Branch(number, promised)))

    def _rank(self, link: Link, near: str, far: str) -> tuple[Any, ...]:
        reference = link.operator is Operator.EQ and link.right.property is None
        value = link.operator is Operator.EQ and link.sort is not Sort.TRUTH
        outward = self._representative[link.left.variable] == near
        what = sorted((c.access.property or "", c.operator.value) for c in self._comparisons
                      if self._representative[c.access.variable] == far)  # fmt: skip
        classes = _specific_classes(self._classes[far])
        return (0 if reference else 1 if value else 2, not outward, link.left.property or "",
                link.right.property or "", link.operator.value, classes, what)  # fmt: skip

    def _leaf(self, c: Comparison) -> Leaf:
        variable = c.access.variable
        node = self._number[self._representative[variable]]
        return Leaf(node, self._class_of[variable], c.access.property, c.operator, c.sort)

    def _tie(self, link: Link) -> Tie:
        left, right = (self._number[self._representative[side.variable]] for side in (link.left, link.right))
        return Tie(left, link.left.property, link.operator, right, link.right.property, link.sort)


def _specific_classes(classes: list[str]) -> tuple[str, ...]:
    """Return the classes of a node, without rdfs:Resource if there is another."""
    return tuple(sorted(set(classes) - {RDFS_RESOURCE})) or (RDFS_RESOURCE,)


def _leaf_order(item: tuple[Leaf, Constant]) -> tuple[Any, ...]:
    leaf, constant = item
    return leaf.node, leaf.property or "", leaf.operator.value, leaf.class_iri, leaf.sort.value, constant.shown


def _tie_json_text(tie: Tie) -> str:
    return repr(_tie_json(tie))
