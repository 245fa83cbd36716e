"""Drawings of atomic rules: those that a rule is made of (Figures 5 and 6), many rules with what they share, and a run
of the filter on them (Figure 9). What they say stands in the paper's tables beside them (Figures 7 and 8).

A drawing has as many atomic rules as can be looked at, and tells that there are more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from mdv.db import parts as db
from mdv.mdp.explanation import AtomicPart, Explanation, RuleId
from mdv.mdp.trace import Trace

MOST = 500
"""Atomic rules of one drawing."""
MOST_RULES = 250
"""Subscriptions that are taken into one drawing."""
NEARBY = 60
"""A run that touches fewer rules than this is shown with the rules that it nearly reached."""

GroupId = int | str


@dataclass(frozen=True, slots=True)
class Part:
    """An atomic rule in a drawing."""

    id: RuleId
    text: str
    class_iri: str
    kind: str
    uses: int
    is_new: bool
    is_end: bool
    group: GroupId | None


@dataclass(frozen=True, slots=True)
class Dependency:
    """`source` is the input number `param` of `target`, which is in a group."""

    source: RuleId
    target: RuleId
    param: int
    group: GroupId | None


@dataclass(frozen=True, slots=True)
class Group:
    """Join rules with the same where part; `members` are all that there are of it, drawn or not."""

    id: GroupId
    text: str
    members: int
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Operand:
    """A row of FilterRulesOP: a triggering rule and the constant that it compares with."""

    rule: RuleId
    table: str
    class_iri: str
    property: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class Drawing:
    """Atomic rules with what leads from one to the other. `more`: some were left out."""

    parts: list[Part] = field(default_factory=list)
    dependencies: list[Dependency] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    operands: list[Operand] = field(default_factory=list)
    more: bool = False

    def __contains__(self, rule: RuleId) -> bool:
        return any(part.id == rule for part in self.parts)


# Of a rule that is explained


def draw_rule(told: Explanation) -> Drawing:
    """The atomic rules of a rule, those that there are and those that there would be."""
    parts: dict[RuleId, Part] = {}
    dependencies: dict[tuple[RuleId, int], Dependency] = {}
    groups: dict[str, Group] = {}
    operands: dict[RuleId, Operand] = {}
    for conjunction in told.conjunctions:
        group_of: dict[RuleId, GroupId] = {}
        for group in conjunction.groups:
            number = _group_number(groups, group.text, group.id)
            groups[group.text] = Group(number, group.text, group.members, group.id is None)
            group_of |= dict.fromkeys(group.rules, number)
        end = conjunction.atomic_rules[-1].id
        for rule in conjunction.atomic_rules:
            is_end = rule.id == end or (rule.id in parts and parts[rule.id].is_end)
            parts[rule.id] = _explained(rule, is_end, group_of.get(rule.id))
            for param, source in enumerate(rule.inputs, 1):
                dependencies[rule.id, param] = Dependency(source, rule.id, param, group_of.get(rule.id))
            if rule.row is not None:
                operands[rule.id] = Operand(rule.id, rule.row.table, rule.row.class_iri, rule.row.property,
                                            rule.row.value)  # fmt: skip
    return Drawing(list(parts.values()), list(dependencies.values()), list(groups.values()), list(operands.values()))


def _group_number(groups: dict[str, Group], text: str, number: int | None) -> GroupId:
    if number is not None:
        return number
    return groups[text].id if text in groups else f"new {1 + sum(group.is_new for group in groups.values())}"


def _explained(rule: AtomicPart, is_end: bool, group: GroupId | None) -> Part:
    return Part(rule.id, rule.text, rule.class_iri, rule.kind, rule.uses, not rule.exists, is_end, group)


# Of what is registered


def draw_rules(connection: Connection, rules: Collection[int], most: int = MOST) -> tuple[Drawing, int]:
    """The first of these subscriptions with all that they are made of, each atomic rule once; and how many they are."""
    ends = db.ends_of(connection, rules)
    return _draw(connection, list(ends.values()), most)


def draw_parts(connection: Connection, numbers: Sequence[int], most: int = MOST) -> Drawing:
    """The first of these atomic rules with all that they are made of."""
    return _draw(connection, [[number] for number in numbers], most)[0]


def _draw(connection: Connection, bunches: Sequence[Sequence[int]], most: int) -> tuple[Drawing, int]:
    """As many bunches of atomic rules as there is room for, one at least, with all that they are made of."""
    below = db.read_below(connection, [number for bunch in bunches for number in bunch])
    inputs: dict[int, list[int]] = {}
    for row in below:
        inputs.setdefault(row.target, []).append(row.source)
    taken: dict[int, None] = {}
    fitting = 0
    for bunch in bunches:
        tree = {found: None for number in bunch for found in _tree(number, inputs) if found not in taken}
        if taken and len(taken) + len(tree) > most:
            break
        taken |= tree
        fitting += 1
    drawn = _drawn(connection, taken, (row for row in below if row.target in taken), fitting < len(bunches))
    return drawn, fitting


def _tree(number: int, inputs: dict[int, list[int]]) -> Iterator[int]:
    todo = [number]
    while todo:
        at = todo.pop()
        yield at
        todo += inputs.get(at, [])


def _drawn(connection: Connection, numbers: Collection[int], below: Iterable[db.Dependency], more: bool) -> Drawing:
    stored = db.read_parts(connection, numbers)
    groups = db.read_group_texts(connection, {part.group for part in stored if part.group is not None})
    parts = [Part(part.id, part.text, part.class_iri, "triggering" if part.group is None else "join", part.uses, False,
                  part.is_end, part.group) for part in stored]  # fmt: skip
    rows = db.read_operator_rows(connection, [part.id for part in stored if part.group is None])
    operands = [Operand(row.rule, _table(row.operator), row.class_iri, row.property, row.value) for row in rows]
    return Drawing(
        parts,
        [Dependency(row.source, row.target, row.param, row.group) for row in below],
        [Group(number, text, members) for number, (text, members) in sorted(groups.items())],
        operands,
        more,
    )


# Of a run of the filter


def draw_run(connection: Connection, run: Trace, rules: Collection[int] = ()) -> Drawing:
    """The atomic rules that found something in a run, and what they are made of; or all those of some subscriptions."""
    if rules:
        return draw_rules(connection, rules)[0]
    touched = list(dict.fromkeys(row.rule for rows in reversed(run.iterations) for row in rows))
    near = list(touched)
    if len(touched) < NEARBY:  # what was nearly reached, one step on
        users = db.read_users(connection, touched, 0, NEARBY) if touched else []
        near += [user for user in users if user not in set(touched)]
    return draw_parts(connection, near)


_TABLES = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "contains": "con",
           "not contains": "ncon"}  # fmt: skip


def _table(operator: str | None) -> str:
    return "filter_rules" if operator is None else f"filter_rules_{_TABLES[operator]}"
