"""The pattern of a conjunction: what is left of it when its constants are taken out and its names forgotten.

Rules that differ in constants alone have the same pattern; they are one rule group and are evaluated together. A
pattern is a tree of nodes that starts at what the rule registers (node 0). It is found depth first, so that a
predicate between two nodes that is no branch of the tree (a cycle in the join graph, or a second predicate between the
same two) always ties a node to one of its ancestors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from mdv.model import RDFS_RESOURCE
from mdv.rules.ast import Operator
from mdv.rules.normal import Access, Comparison, Conjunction, Constant, Link, Sort, Variable


class Leaf(NamedTuple):
    """A predicate with a constant, the constant taken out. `class_iri` is what its variable was declared as."""

    node: int
    class_iri: str
    property: str | None
    operator: Operator
    sort: Sort


class Tie(NamedTuple):
    """A predicate between two nodes."""

    left: int
    left_property: str | None
    operator: Operator
    right: int
    right_property: str | None
    sort: Sort

    @property
    def is_reference(self) -> bool:
        """Whether it says that the left node refers to the right one."""
        return self.operator is Operator.EQ and self.left_property is not None and self.right_property is None

    @property
    def is_bounded(self) -> bool:
        """Whether one side leads to few others: a reference, or equal values."""
        return self.operator is Operator.EQ and self.left_property is not None and self.sort is not Sort.TRUTH

    def accesses(self) -> tuple[tuple[int, str | None], tuple[int, str | None]]:
        return (self.left, self.left_property), (self.right, self.right_property)


class Branch(NamedTuple):
    """How a node hangs on its parent: by a predicate, or (None) by nothing but standing in the same rule."""

    parent: int
    tie: Tie | None


@dataclass(frozen=True)
class Pattern:
    """Nodes by their classes, each but the first with its branch; predicates with constants; further predicates."""

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
        """The nodes from the root to `node`, both included."""
        nodes = [node]
        while (branch := self.branches[nodes[-1]]) is not None:
            nodes.append(branch.parent)
        return tuple(reversed(nodes))

    @cached_property
    def properties(self) -> frozenset[str]:
        """Every property that it speaks of."""
        ties = (*self.ties, *(branch.tie for branch in self.branches if branch is not None and branch.tie is not None))
        said = [name for tie in ties for _, name in tie.accesses()] + [leaf.property for leaf in self.leaves]
        return frozenset(name for name in said if name is not None)

    @property
    def is_range(self) -> bool:
        """Whether what it matches is a stretch of its constants: one constant alone, compared by order or by !=."""
        return len(self.leaves) == 1 and (self.leaves[0].operator.orders or self.leaves[0].operator is Operator.NE)

    @property
    def unbounded(self) -> tuple[int, ...]:
        """The nodes whose change may concern every instance of their parent's class."""
        return tuple(
            node
            for node, branch in enumerate(self.branches)
            if branch is not None and (branch.tie is None or not branch.tie.is_bounded)
        )

    def as_json(self) -> dict[str, Any]:
        """The pattern as JSON, from which `from_json` makes it again."""
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
        """The conjunction again, variables named by number."""
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
    """The pattern of `conjunction`, and its constants in the order of the pattern's leaves."""
    return _Builder(conjunction).build()


def pattern_with_nodes(conjunction: Conjunction) -> tuple[Pattern, tuple[Constant, ...], dict[str, int]]:
    """The pattern, its constants, and the node that each variable became."""
    builder = _Builder(conjunction)
    return *builder.build(), builder.nodes()


class _Builder:
    def __init__(self, conjunction: Conjunction) -> None:
        self._conjunction = conjunction
        self._links = [p for p in conjunction.predicates if isinstance(p, Link)]
        self._comparisons = [p for p in conjunction.predicates if isinstance(p, Comparison)]
        self._one = self._unite()
        self._classes: dict[str, list[str]] = defaultdict(list)
        self._class_of = {variable.name: variable.class_iri for variable in conjunction.variables}
        for variable in conjunction.variables:
            self._classes[self._one[variable.name]].append(variable.class_iri)
        self._number: dict[str, int] = {}
        self._branches: list[Branch | None] = []
        self._used: set[int] = set()

    def build(self) -> tuple[Pattern, tuple[Constant, ...]]:
        self._visit(self._one[self._conjunction.register], None)
        for variable in self._conjunction.variables:
            # What hangs on nothing stands in the rule all the same: it must exist.
            if self._one[variable.name] not in self._number:
                self._visit(self._one[variable.name], Branch(0, None))
        leaves = sorted(((self._leaf(c), c.constant) for c in self._comparisons), key=_leaf_order)
        kept = (link for index, link in enumerate(self._links) if index not in self._used)
        ties = sorted({self._tie(link) for link in kept if not self._is_identity(link)}, key=_tie_json_text)
        nodes = sorted(self._number, key=self._number.__getitem__)
        return (
            Pattern(
                tuple(_least(self._classes[name]) for name in nodes),
                tuple(self._branches),
                tuple(leaf for leaf, _ in leaves),
                tuple(ties),
            ),
            tuple(constant for _, constant in leaves),
        )

    def nodes(self) -> dict[str, int]:
        return {name: self._number[one] for name, one in self._one.items()}

    def _unite(self) -> dict[str, str]:
        """Variables that must be the same resource (`a = b`) become one node."""
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
        """Depth first, the most selective predicates first."""
        stack = [(start, branch)]
        while stack:
            name, branch = stack.pop()
            if name in self._number:
                continue
            number = self._number[name] = len(self._number)
            if branch is not None and branch.tie is not None:
                # The predicate was written with the names in hand when the node had no number yet.
                index = int(branch.tie.left)
                self._used.add(index)
                branch = Branch(branch.parent, self._tie(self._links[index]))
            self._branches.append(branch)
            onward = []
            for index, link in enumerate(self._links):
                ends = {self._one[link.left.variable], self._one[link.right.variable]}
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
        outward = self._one[link.left.variable] == near
        what = sorted((c.access.property or "", c.operator.value) for c in self._comparisons
                      if self._one[c.access.variable] == far)  # fmt: skip
        return (0 if reference else 1 if value else 2, not outward, link.left.property or "",
                link.right.property or "", link.operator.value, _least(self._classes[far]), what)  # fmt: skip

    def _leaf(self, c: Comparison) -> Leaf:
        variable = c.access.variable
        node = self._number[self._one[variable]]
        return Leaf(node, self._class_of[variable], c.access.property, c.operator, c.sort)

    def _tie(self, link: Link) -> Tie:
        left, right = (self._number[self._one[side.variable]] for side in (link.left, link.right))
        return Tie(left, link.left.property, link.operator, right, link.right.property, link.sort)


def _least(classes: list[str]) -> tuple[str, ...]:
    """The classes of a node, without the class of everything where there is another."""
    return tuple(sorted(set(classes) - {RDFS_RESOURCE})) or (RDFS_RESOURCE,)


def _leaf_order(item: tuple[Leaf, Constant]) -> tuple[Any, ...]:
    leaf, constant = item
    return leaf.node, leaf.property or "", leaf.operator.value, leaf.class_iri, leaf.sort.value, constant.shown


def _tie_json_text(tie: Tie) -> str:
    return repr(_tie_json(tie))
