"""The atomic stage (paper, section 3.3.1): a conjunction as triggering rules and join rules.

A triggering rule speaks of one class with at most one constant. A join rule combines results: it takes all predicates
between its inputs, and more than two inputs where the join graph has a cycle, since splitting those would register a
resource that finds one partner for one predicate and another for the next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from mdv.rules.ast import Operator
from mdv.rules.normal import Comparison, Conjunction, Constant, Link, Sort

ShortName: TypeAlias = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Triggering:
    """`search class v register v where v.property operator constant`, or without `where`."""

    class_iri: str
    property: str | None = None
    operator: Operator | None = None
    sort: Sort | None = None
    constant: Constant | None = None


@dataclass(frozen=True, slots=True)
class Tied:
    """A predicate of a join rule between two of its inputs, by their number."""

    left: int
    left_property: str | None
    operator: Operator
    right: int
    right_property: str | None
    sort: Sort


@dataclass(frozen=True, slots=True)
class Join:
    """`search input a, input b … register one of them where predicates`. Inputs are places in the list of atomic
    rules that it stands in."""

    inputs: tuple[int, ...]
    classes: tuple[str, ...]
    register: int
    predicates: tuple[Tied, ...]

    @property
    def class_iri(self) -> str:
        return self.classes[self.register]

    def as_json(self) -> dict[str, Any]:
        """The rule without its inputs: what it has in common with the others of its group."""
        predicates = [[p.left, p.left_property, p.operator.value, p.right, p.right_property, p.sort.value]
                      for p in self.predicates]  # fmt: skip
        return {"classes": list(self.classes), "register": self.register, "predicates": predicates}

    @classmethod
    def from_json(cls, inputs: Sequence[int], body: dict[str, Any]) -> Join:
        predicates = tuple(
            Tied(left, left_property, Operator(operator), right, right_property, Sort(sort))
            for left, left_property, operator, right, right_property, sort in body["predicates"]
        )
        return cls(tuple(inputs), tuple(body["classes"]), body["register"], predicates)


AtomicRule: TypeAlias = Triggering | Join

_SAME = Tied(0, None, Operator.EQ, 1, None, Sort.REFERENCE)


def decompose(conjunction: Conjunction) -> tuple[AtomicRule, ...]:
    """The atomic rules of `conjunction`: triggering rules first, then joins, the end rule last.

    Its variables are joined from the farthest to the one that is registered, so that each join rule registers the
    variable that leads on.
    """
    return _Decomposition(conjunction).run()


class _Decomposition:
    def __init__(self, conjunction: Conjunction) -> None:
        self._conjunction = conjunction
        self._class_of = {variable.name: variable.class_iri for variable in conjunction.variables}
        self._triggering: list[Triggering] = []
        self._joins: list[Join] = []

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
        """The variables, farthest first, each with the blocks of the join graph that hang on it."""
        blocks = _blocks(self._conjunction)
        root = self._conjunction.register
        hanging = defaultdict(list)
        seen = {root}
        queue = [root]
        for name in queue:
            for block in blocks:
                if name in block and not (set(block) - {name}) & seen:
                    others = tuple(other for other in block if other != name)
                    hanging[name].append(others)
                    seen.update(others)
                    queue += others
        done: list[tuple[str, list[tuple[str, ...]]]] = []
        stack = [(root, False)]
        while stack:
            name, left = stack.pop()
            if left:
                done.append((name, hanging[name]))
                continue
            stack.append((name, True))
            stack += [(other, False) for block in reversed(hanging[name]) for other in reversed(block)]
        return iter(done)

    def _trigger(self, name: str) -> list[int]:
        """A triggering rule for each predicate with a constant; one without predicate where there is none."""
        found = [
            Triggering(self._class_of[name], p.access.property, p.operator, p.sort, p.constant)
            for p in self._conjunction.predicates
            if isinstance(p, Comparison) and p.access.variable == name
        ]
        places = []
        for rule in found or [Triggering(self._class_of[name])]:
            if rule not in self._triggering:
                self._triggering.append(rule)
            places.append(self._triggering.index(rule))
        return list(dict.fromkeys(places))

    def _conjoin(self, places: list[int], class_iri: str) -> int:
        """`a = b`: what satisfies one predicate and the other."""
        result = places[0]
        for place in places[1:]:
            both = Join((result, place), (class_iri, class_iri), 0, (_SAME,))
            result = self._add(both)
        return result

    def _compare_with_itself(self, name: str, place: int) -> int:
        """`a.x = a.y`: a join rule with one input."""
        predicates = tuple(
            Tied(0, p.left.property, p.operator, 0, p.right.property, p.sort)
            for p in self._conjunction.predicates
            if isinstance(p, Link) and p.left.variable == p.right.variable == name
        )
        return self._add(Join((place,), (self._class_of[name],), 0, predicates)) if predicates else place

    def _join(self, name: str, others: tuple[str, ...], result: dict[str, int]) -> int:
        names = (*others, name)
        number = {other: index for index, other in enumerate(names)}
        predicates = tuple(
            Tied(number[left.variable], left.property, p.operator, number[right.variable], right.property, p.sort)
            for p in self._conjunction.predicates
            if isinstance(p, Link)
            for left, right in [(p.left, p.right)]
            if left.variable != right.variable and left.variable in number and right.variable in number
        )
        inputs = tuple(result[other] for other in names)
        classes = tuple(self._class_of[other] for other in names)
        return self._add(Join(inputs, classes, len(others), predicates))

    def _add(self, join: Join) -> int:
        # Join rules refer to places among all atomic rules; triggering rules come first and are all known by now.
        if join not in self._joins:
            self._joins.append(join)
        return len(self._triggering) + self._joins.index(join)


def _blocks(conjunction: Conjunction) -> list[tuple[str, ...]]:
    """The join graph in its biconnected parts: two variables, or more where they form a cycle. What hangs on nothing
    is a pair with the registered variable."""
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
    """Tarjan's way, with a stack of its own."""
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


def text_of(rule: AtomicRule, ids: Sequence[object], short: ShortName, any_of: Callable[[str], str]) -> str:
    """The rule as the paper writes it in AtomicRules; `ids` are those of the atomic rules by place.

    `any_of` gives the property's name as it is written in rules, `?` included.
    """
    if isinstance(rule, Triggering):
        name = initial(short(rule.class_iri))
        where = ""
        if rule.operator is not None and rule.constant is not None:
            access = name if rule.property is None else f"{name}.{any_of(rule.property)}"
            where = f" where {compared(access, rule.operator, rule.constant.shown)}"
        return f"search {short(rule.class_iri)} {name} register {name}{where}"
    inputs = [f"view({ids[place]}, {short(class_iri)})" for place, class_iri in zip(rule.inputs, rule.classes,
                                                                                     strict=True)]  # fmt: skip
    return _join_text(rule, inputs, short, any_of)


def group_text(rule: Join, short: ShortName, any_of: Callable[[str], str]) -> str:
    """What join rules of one group have in common (3.3.3): the where part, and the classes of the variables."""
    return _join_text(rule, [f"group({short(class_iri)})" for class_iri in rule.classes], short, any_of)


def _join_text(rule: Join, inputs: Sequence[str], short: ShortName, any_of: Callable[[str], str]) -> str:
    names = _names(rule, short)

    def access(place: int, name: str | None) -> str:
        return names[place] if name is None else f"{names[place]}.{any_of(name)}"

    search = ", ".join(f"{view} {name}" for view, name in zip(inputs, names, strict=True))
    where = " and ".join(
        compared(access(p.left, p.left_property), p.operator, access(p.right, p.right_property))
        for p in rule.predicates
    )
    return f"search {search} register {names[rule.register]}" + (f" where {where}" if where else "")


def _names(rule: Join, short: ShortName) -> list[str]:
    """`a` and `b` where one resource meets itself; else `a` and on for the inputs, and the registered one by its
    class, as in Figure 7."""
    letters = [chr(ord("a") + number) if number < 26 else f"v{number}" for number in range(len(rule.inputs))]
    if rule.register == 0:
        return letters
    own = initial(short(rule.class_iri))
    letters[rule.register] = own if own not in letters[: rule.register] else letters[rule.register]
    return letters


def initial(class_name: str) -> str:
    """The variable that stands for a class: the first letter of its local name.

    >>> initial("pgterms:ebook"), initial("<http://a/#1>")
    ('e', 'x')
    """
    local = class_name.strip("<>").replace("#", "/").replace(":", "/").rsplit("/", 1)[-1]
    return next((letter.lower() for letter in local[:1] if letter.isalpha()), "x")


def compared(left: str, operator: Operator, right: str) -> str:
    if operator is Operator.NOT_CONTAINS:
        return f"not {left} contains {right}"
    return f"{left} {operator.value} {right}"
