"""The atomic stage (paper, section 3.3.1): a conjunction decomposed into triggering rules and join rules.

A triggering rule has one class and at most one predicate with a constant. A join rule combines results of other rules.
It has all predicates between its inputs. It has more than two inputs if the join graph has a cycle: if the cycle were
split, a resource could match with different partners for different predicates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from mdv.rules.normal import Comparison, Conjunction, Constant, Link, Sort
from mdv.rules.operators import Operator

Shorten: TypeAlias = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class TriggeringRule:
    """`search class v register v where v.property operator constant`, or without `where`."""

    class_iri: str
    property: str | None = None
    operator: Operator | None = None
    sort: Sort | None = None
    constant: Constant | None = None


@dataclass(frozen=True, slots=True)
class JoinPredicate:
    """A predicate of a join rule between two of its inputs, given by number."""

    left: int
    left_property: str | None
    operator: Operator
    right: int
    right_property: str | None
    sort: Sort


@dataclass(frozen=True, slots=True)
class JoinRule:
    """`search input a, input b … register one of them where predicates`. Inputs are indexes into the list of atomic
    rules that contains this rule."""

    inputs: tuple[int, ...]
    classes: tuple[str, ...]
    register: int
    predicates: tuple[JoinPredicate, ...]

    @property
    def class_iri(self) -> str:
        return self.classes[self.register]

    def as_json(self) -> dict[str, Any]:
        """Return the rule as JSON without its inputs. All rules of a group have the same JSON."""
        predicates = [[p.left, p.left_property, p.operator.value, p.right, p.right_property, p.sort.value]
                      for p in self.predicates]  # fmt: skip
        return {"classes": list(self.classes), "register": self.register, "predicates": predicates}

    @classmethod
    def from_json(cls, inputs: Sequence[int], body: dict[str, Any]) -> JoinRule:
        predicates = tuple(
            JoinPredicate(left, left_property, Operator(operator), right, right_property, Sort(sort))
            for left, left_property, operator, right, right_property, sort in body["predicates"]
        )
        return cls(tuple(inputs), tuple(body["classes"]), body["register"], predicates)


AtomicRule: TypeAlias = TriggeringRule | JoinRule

_SAME = JoinPredicate(0, None, Operator.EQ, 1, None, Sort.REFERENCE)


def decompose(conjunction: Conjunction) -> tuple[AtomicRule, ...]:
    """Return the atomic rules of `conjunction`: triggering rules, then join rules, with the end rule last.

    Variables are joined from the farthest towards the registered one. Each join rule registers the variable that the
    next one uses.
    """
    return _Decomposition(conjunction).run()


class _Decomposition:
    def __init__(self, conjunction: Conjunction) -> None:
        self._conjunction = conjunction
        self._class_of = {variable.name: variable.class_iri for variable in conjunction.variables}
        self._triggering: list[TriggeringRule] = []
        self._joins: list[JoinRule] = []

    def run(self) -> tuple[AtomicRule, ...]:
        order = list(self._post_order())
        own = {name: self._trigger(name) for name in dict.fromkeys(name for name, _ in order)}
        result: dict[str, int] = {}
        for name, blocks in order:
            result[name] = self._compare_with_itself(name, self._conjoin(own[name], self._class_of[name]))
            for block in blocks:
                result[name] = self._join(name, block, result)
        return (*self._triggering, *self._joins)

    def _post_order(self) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
        """Return the variables, farthest first, each with the blocks of the join graph that are attached to it."""
        blocks = _blocks(self._conjunction)
        root = self._conjunction.register
        attached = defaultdict(list)
        seen = {root}
        queue = [root]
        for name in queue:
            for block in blocks:
                if name in block and not (set(block) - {name}) & seen:
                    others = tuple(other for other in block if other != name)
                    attached[name].append(others)
                    seen.update(others)
                    queue += others
        done: list[tuple[str, list[tuple[str, ...]]]] = []
        stack = [(root, False)]
        while stack:
            name, is_done = stack.pop()
            if is_done:
                done.append((name, attached[name]))
                continue
            stack.append((name, True))
            stack += [(other, False) for block in reversed(attached[name]) for other in reversed(block)]
        return iter(done)

    def _trigger(self, name: str) -> list[int]:
        """Add a triggering rule for each predicate with a constant, or one without a predicate if there is none."""
        found = [
            TriggeringRule(self._class_of[name], p.access.property, p.operator, p.sort, p.constant)
            for p in self._conjunction.predicates
            if isinstance(p, Comparison) and p.access.variable == name
        ]
        indexes = []
        for rule in found or [TriggeringRule(self._class_of[name])]:
            if rule not in self._triggering:
                self._triggering.append(rule)
            indexes.append(self._triggering.index(rule))
        return list(dict.fromkeys(indexes))

    def _conjoin(self, indexes: list[int], class_iri: str) -> int:
        """Add join rules with `a = b`, which register the resources that satisfy all of the rules."""
        result = indexes[0]
        for index in indexes[1:]:
            conjoined = JoinRule((result, index), (class_iri, class_iri), 0, (_SAME,))
            result = self._add(conjoined)
        return result

    def _compare_with_itself(self, name: str, index: int) -> int:
        """Add a join rule with one input for predicates such as `a.x = a.y`."""
        predicates = tuple(
            JoinPredicate(0, p.left.property, p.operator, 0, p.right.property, p.sort)
            for p in self._conjunction.predicates
            if isinstance(p, Link) and p.left.variable == p.right.variable == name
        )
        return self._add(JoinRule((index,), (self._class_of[name],), 0, predicates)) if predicates else index

    def _join(self, name: str, others: tuple[str, ...], result: dict[str, int]) -> int:
        names = (*others, name)
        number = {other: index for index, other in enumerate(names)}
        predicates = tuple(
            JoinPredicate(
                number[left.variable], left.property, p.operator, number[right.variable], right.property, p.sort
            )
            for p in self._conjunction.predicates
            if isinstance(p, Link)
            for left, right in [(p.left, p.right)]
            if left.variable != right.variable and left.variable in number and right.variable in number
        )
        inputs = tuple(result[other] for other in names)
        classes = tuple(self._class_of[other] for other in names)
        return self._add(JoinRule(inputs, classes, len(others), predicates))

    def _add(self, join: JoinRule) -> int:
        # Join rules refer to indexes among all atomic rules. Triggering rules come first and are all known by now.
        if join not in self._joins:
            self._joins.append(join)
        return len(self._triggering) + self._joins.index(join)


def _blocks(conjunction: Conjunction) -> list[tuple[str, ...]]:
    """Return the biconnected components of the join graph: pairs of variables, or more variables in a cycle.

    A variable without predicates forms a pair with the registered variable.
    """
    edges: dict[str, dict[str, None]] = {variable.name: {} for variable in conjunction.variables}
    for p in conjunction.predicates:
        if isinstance(p, Link) and p.left.variable != p.right.variable:
            edges[p.left.variable][p.right.variable] = None
            edges[p.right.variable][p.left.variable] = None
    blocks: list[tuple[str, ...]] = []
    found: dict[str, int] = {}
    order = {variable.name: number for number, variable in enumerate(conjunction.variables)}
    for start in (conjunction.register, *edges):
        if start in found:
            continue
        if start != conjunction.register:
            blocks.append((conjunction.register, start))
        for block in _biconnected(start, edges, found):
            blocks.append(tuple(sorted(block, key=order.__getitem__)))
    return blocks


def _biconnected(start: str, edges: dict[str, dict[str, None]], found: dict[str, int]) -> list[set[str]]:
    """Return the biconnected components from `start`, by Tarjan's algorithm without recursion."""
    low: dict[str, int] = {}
    blocks: list[set[str]] = []
    trail: list[tuple[str, str]] = []
    found[start] = low[start] = len(found)
    stack = [(start, "", iter(edges[start]))]
    while stack:
        name, parent, rest = stack[-1]
        other = next(rest, None)
        if other is None:
            stack.pop()
            if parent:
                low[parent] = min(low[parent], low[name])
                if low[name] >= found[parent]:
                    block: set[str] = set()
                    while trail and (edge := trail.pop()):
                        block.update(edge)
                        if edge == (parent, name):
                            break
                    blocks.append(block)
        elif other not in found:
            trail.append((name, other))
            found[other] = low[other] = len(found)
            stack.append((other, name, iter(edges[other])))
        elif other != parent and found[other] < found[name]:
            trail.append((name, other))
            low[name] = min(low[name], found[other])
    return blocks


def atomic_rule_text(rule: AtomicRule, ids: Sequence[object], short: Shorten, any_of: Callable[[str], str]) -> str:
    """Return the text of a rule as in the paper's table AtomicRules. `ids` are the ids of the atomic rules by index.

    `any_of` returns the name of a property as written in rules, with `?` if it is set-valued.
    """
    if isinstance(rule, TriggeringRule):
        name = class_initial(short(rule.class_iri))
        where = ""
        if rule.operator is not None and rule.constant is not None:
            access = name if rule.property is None else f"{name}.{any_of(rule.property)}"
            where = f" where {rule.operator.text(access, rule.constant.shown)}"
        return f"search {short(rule.class_iri)} {name} register {name}{where}"
    inputs = [f"view({ids[index]}, {short(class_iri)})" for index, class_iri in zip(rule.inputs, rule.classes,
                                                                                     strict=True)]  # fmt: skip
    return _join_text(rule, inputs, short, any_of)


def group_text(rule: JoinRule, short: Shorten, any_of: Callable[[str], str]) -> str:
    """Return the text that the join rules of a group have in common (3.3.3): the where part and the input classes."""
    return _join_text(rule, [f"group({short(class_iri)})" for class_iri in rule.classes], short, any_of)


def _join_text(rule: JoinRule, inputs: Sequence[str], short: Shorten, any_of: Callable[[str], str]) -> str:
    names = _names(rule, short)

    def access(index: int, name: str | None) -> str:
        return names[index] if name is None else f"{names[index]}.{any_of(name)}"

    search = ", ".join(f"{view} {name}" for view, name in zip(inputs, names, strict=True))
    where = " and ".join(
        p.operator.text(access(p.left, p.left_property), access(p.right, p.right_property)) for p in rule.predicates
    )
    return f"search {search} register {names[rule.register]}" + (f" where {where}" if where else "")


def _names(rule: JoinRule, short: Shorten) -> list[str]:
    """Return the variables of the inputs: `a`, `b`, … The registered one is named after its class, as in Figure 7,
    unless it is the first."""
    letters = [chr(ord("a") + number) if number < 26 else f"v{number}" for number in range(len(rule.inputs))]
    if rule.register == 0:
        return letters
    own = class_initial(short(rule.class_iri))
    letters[rule.register] = own if own not in letters[: rule.register] else letters[rule.register]
    return letters


def class_initial(class_name: str) -> str:
    """Return the variable for a class: the first letter of its local name.

    >>> class_initial("pgterms:ebook"), class_initial("<http://a/#1>")
    ('e', 'x')
    """
    local = class_name.strip("<>").replace("#", "/").replace(":", "/").rsplit("/", 1)[-1]
    return next((letter.lower() for letter in local[:1] if letter.isalpha()), "x")
