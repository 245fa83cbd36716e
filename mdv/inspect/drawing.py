"""Drawings of atomic rules: those of one rule (paper, Figures 5 and 6), those that several rules share, and those of a
run of the filter (Figure 9). The rows of the paper's tables (Figures 7 and 8) are shown with them.

The number of atomic rules in a drawing is limited. `Drawing.more` is set if some are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from mdv.inspect.filter_replay import FilterReplay
from mdv.inspect.rule_explanation import ExplainedAtomicRule, RuleExplanation, RuleId
from mdv.inspect.sql import rule_parts as db
from mdv.rules.operators import Operator

MAX_DRAWN_ATOMIC_RULES = 500
MAX_DRAWN_SUBSCRIPTIONS = 250
MAX_RULES_WITH_NEIGHBOURS = 60
"""If a run matched fewer atomic rules than this, the rules that depend on them directly are shown, too."""

GroupId = int | str


@dataclass(frozen=True, slots=True)
class DrawnRule:
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
class DrawnDependency:
    """`source` is input number `param` of the join rule `target`, which is in `group`."""

    source: RuleId
    target: RuleId
    param: int
    group: GroupId | None


@dataclass(frozen=True, slots=True)
class DrawnGroup:
    """A group of join rules with the same where part. `members`: the number of its rules, drawn or not."""

    id: GroupId
    text: str
    members: int
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class DrawnFilterRule:
    """A row of a FilterRules table: a triggering rule with its constant."""

    rule: RuleId
    table: str
    class_iri: str
    property: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class Drawing:
    """Atomic rules with their dependencies, groups and filter table rows. `more`: some were left out."""

    parts: list[DrawnRule] = field(default_factory=list)
    dependencies: list[DrawnDependency] = field(default_factory=list)
    groups: list[DrawnGroup] = field(default_factory=list)
    operands: list[DrawnFilterRule] = field(default_factory=list)
    more: bool = False

    def __contains__(self, rule: RuleId) -> bool:
        return any(part.id == rule for part in self.parts)


# One rule


def draw_rule(explanation: RuleExplanation) -> Drawing:
    """Draw the atomic rules of an explained rule, both existing and new ones."""
    parts: dict[RuleId, DrawnRule] = {}
    dependencies: dict[tuple[RuleId, int], DrawnDependency] = {}
    groups: dict[str, DrawnGroup] = {}
    operands: dict[RuleId, DrawnFilterRule] = {}
    for conjunction in explanation.conjunctions:
        group_of: dict[RuleId, GroupId] = {}
        for group in conjunction.groups:
            number = _group_id(groups, group.text, group.id)
            groups[group.text] = DrawnGroup(number, group.text, group.members, group.id is None)
            group_of |= dict.fromkeys(group.rules, number)
        end = conjunction.atomic_rules[-1].id
        for rule in conjunction.atomic_rules:
            is_end = rule.id == end or (rule.id in parts and parts[rule.id].is_end)
            parts[rule.id] = _drawn_rule(rule, is_end, group_of.get(rule.id))
            for param, source in enumerate(rule.inputs, 1):
                dependencies[rule.id, param] = DrawnDependency(source, rule.id, param, group_of.get(rule.id))
            if rule.row is not None:
                operands[rule.id] = DrawnFilterRule(rule.id, rule.row.table, rule.row.class_iri, rule.row.property,
                                            rule.row.value)  # fmt: skip
    return Drawing(list(parts.values()), list(dependencies.values()), list(groups.values()), list(operands.values()))


def _group_id(groups: dict[str, DrawnGroup], text: str, number: int | None) -> GroupId:
    if number is not None:
        return number
    return groups[text].id if text in groups else f"new {1 + sum(group.is_new for group in groups.values())}"


def _drawn_rule(rule: ExplainedAtomicRule, is_end: bool, group: GroupId | None) -> DrawnRule:
    return DrawnRule(rule.id, rule.text, rule.class_iri, rule.kind, rule.uses, not rule.exists, is_end, group)


# Registered rules


def draw_rules(
    connection: Connection, rules: Collection[int], most: int = MAX_DRAWN_ATOMIC_RULES
) -> tuple[Drawing, int]:
    """Draw as many of these subscriptions as fit, with their atomic rules, each once. Return how many are drawn, too.

    Suspended subscriptions have no atomic rules.
    """
    ends = db.read_rule_ends(connection, rules)
    return _draw(connection, [ends.get(rule, []) for rule in sorted(rules)], most)


def draw_atomic_rules(connection: Connection, numbers: Sequence[int], most: int = MAX_DRAWN_ATOMIC_RULES) -> Drawing:
    """Draw as many of these atomic rules as fit, with the rules that they depend on."""
    return _draw(connection, [[number] for number in numbers], most)[0]


def _draw(connection: Connection, sets: Sequence[Sequence[int]], most: int) -> tuple[Drawing, int]:
    """Draw as many sets of atomic rules as fit, at least one, with the rules that they depend on."""
    dependencies = db.read_dependencies(connection, [number for ids in sets for number in ids])
    inputs: dict[int, list[int]] = {}
    for row in dependencies:
        inputs.setdefault(row.target, []).append(row.source)
    drawn_ids: dict[int, None] = {}
    count = 0
    for ids in sets:
        tree = {found: None for number in ids for found in _tree(number, inputs) if found not in drawn_ids}
        if drawn_ids and len(drawn_ids) + len(tree) > most:
            break
        drawn_ids |= tree
        count += 1
    drawn = _read_drawing(
        connection, drawn_ids, (row for row in dependencies if row.target in drawn_ids), count < len(sets)
    )
    return drawn, count


def _tree(number: int, inputs: dict[int, list[int]]) -> Iterator[int]:
    todo = [number]
    while todo:
        at = todo.pop()
        yield at
        todo += inputs.get(at, [])


def _read_drawing(
    connection: Connection, numbers: Collection[int], dependencies: Iterable[db.Dependency], more: bool
) -> Drawing:
    stored = db.read_parts(connection, numbers)
    groups = db.read_group_texts(connection, {part.group for part in stored if part.group is not None})
    parts = [
        DrawnRule(part.id, part.text, part.class_iri, "triggering" if part.group is None else "join", part.uses, False,
                  part.is_end, part.group)
        for part in stored
    ]  # fmt: skip
    rows = db.read_operator_rows(connection, [part.id for part in stored if part.group is None])
    operands = [DrawnFilterRule(row.rule, _table(row.operator), row.class_iri, row.property, row.value) for row in rows]
    return Drawing(
        parts,
        [DrawnDependency(row.source, row.target, row.param, row.group) for row in dependencies],
        [DrawnGroup(number, text, members) for number, (text, members) in sorted(groups.items())],
        operands,
        more,
    )


# Filter runs


def draw_replay(connection: Connection, run: FilterReplay, rules: Collection[int] = ()) -> Drawing:
    """Draw the atomic rules that matched in a run, with their dependencies; or those of some subscriptions."""
    if rules:
        return draw_rules(connection, rules)[0]
    touched = list(dict.fromkeys(row.rule for rows in reversed(run.iterations) for row in rows))
    near = list(touched)
    if len(touched) < MAX_RULES_WITH_NEIGHBOURS:  # add the rules that depend on them directly
        users = db.read_dependents(connection, touched, 0, MAX_RULES_WITH_NEIGHBOURS) if touched else []
        near += [user for user in users if user not in set(touched)]
    return draw_atomic_rules(connection, near)


def _table(operator: str | None) -> str:
    return "filter_rules" if operator is None else Operator(operator).constants_table
