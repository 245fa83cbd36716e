"""The explanation of a rule: its atomic rules, groups, cost and SQL, as JSON and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeAlias

RuleId: TypeAlias = int | str
"""The id of an existing atomic rule, or letters for a new one."""


@dataclass(frozen=True, slots=True)
class FilterRuleRow:
    """The row of a triggering rule in the table of its operator (Figure 8). Without operator: the class only."""

    table: str
    class_iri: str
    property: str | None = None
    value: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {"table": self.table, "class": self.class_iri, "property": self.property, "value": self.value}


@dataclass(frozen=True, slots=True)
class ExplainedAtomicRule:
    """An atomic rule, whether it exists already, and how many rules use it."""

    id: RuleId
    text: str
    class_iri: str
    kind: str
    exists: bool
    uses: int
    inputs: tuple[RuleId, ...] = ()
    row: FilterRuleRow | None = None
    """Set for a triggering rule."""

    def as_dict(self) -> dict[str, Any]:
        return {"id": self.id, "text": self.text, "class": self.class_iri, "kind": self.kind, "exists": self.exists,
                "uses": self.uses, "inputs": list(self.inputs),
                "filter_rule": self.row.as_dict() if self.row is not None else None}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ExplainedJoinGroup:
    """A group of join rules (paper, 3.3.3), the rules of this rule in it, and its current number of members."""

    id: int | None
    text: str
    members: int
    rules: tuple[RuleId, ...]

    def as_dict(self) -> dict[str, Any]:
        return {"id": self.id, "text": self.text, "members": self.members, "rules": list(self.rules)}


@dataclass(frozen=True, slots=True)
class DrivingRule:
    """The driving predicate of a whole group: the triggering rule by which its rules are found, and its table."""

    leaf: int
    """The index of the leaf in the pattern."""
    rule: RuleId
    text: str
    table: str

    def as_dict(self) -> dict[str, Any]:
        return {"rule": self.rule, "text": self.text, "table": self.table}


@dataclass(frozen=True, slots=True)
class WholeGroup:
    """The group of all rules that differ from this one only in their constants. They are evaluated together."""

    id: int | None
    text: str
    members: int
    driver: DrivingRule | None

    def as_dict(self) -> dict[str, Any]:
        driver = self.driver.as_dict() if self.driver is not None else None
        return {"id": self.id, "text": self.text, "members": self.members, "driver": driver}


@dataclass(frozen=True, slots=True)
class ExplainedSql:
    """The SQL statement of the filter for the whole group, and the one that evaluates the rule on all statements."""

    filter: str
    evaluation: str

    def as_dict(self) -> dict[str, Any]:
        return {"filter": self.filter, "evaluation": self.evaluation}


@dataclass(frozen=True, slots=True)
class ExplainedConjunction:
    """The decomposition of one conjunction of the rule."""

    normal: str
    atomic_rules: tuple[ExplainedAtomicRule, ...]
    tree: str
    groups: tuple[ExplainedJoinGroup, ...]
    whole_group: WholeGroup
    sql: ExplainedSql | None = None

    def as_dict(self) -> dict[str, Any]:
        body = {
            "normal": self.normal,
            "atomic_rules": [rule.as_dict() for rule in self.atomic_rules],
            "tree": self.tree,
            "groups": [group.as_dict() for group in self.groups],
            "whole_group": self.whole_group.as_dict(),
        }
        return body if self.sql is None else body | {"sql": self.sql.as_dict()}


@dataclass(frozen=True, slots=True)
class ClassScan:
    """A class of which a change of another class may scan all instances. `instances`: their number; None if they could
    not be counted in time. `more`: there are more than that."""

    changed: str
    looks_at: str
    instances: int | None
    more: bool

    def __str__(self) -> str:
        if self.instances is None:
            count = "all"
        else:
            count = f"more than {self.instances:,}" if self.more else f"all {self.instances:,}"
        return f"every change of a {self.changed} scans {count} instances of {self.looks_at}"

    def as_dict(self) -> dict[str, Any]:
        return {"changed": self.changed, "looks_at": self.looks_at, "instances": self.instances, "more": self.more,
                "text": str(self)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MeasuredCost:
    """The measured time of a change of one resource, in milliseconds, for a sample of resources.

    `stopped`: the last measurement was stopped before it ended, or there was no time for any. `limit`: the time limit
    of a rule in one transaction, in milliseconds.
    """

    milliseconds: tuple[float, ...]
    stopped: bool
    limit: float

    @property
    def would_be_suspended(self) -> bool | None:
        """True if a change can exceed the time limit; None if this is not known.

        >>> samples = [((0.5, 0.7), False), ((2000,), True), ((800,), True), ((), False)]
        >>> [MeasuredCost(values, stopped, 2000).would_be_suspended for values, stopped in samples]
        [False, True, None, None]
        """
        if any(value >= self.limit for value in self.milliseconds):
            return True
        return None if self.stopped or not self.milliseconds else False

    def as_dict(self) -> dict[str, Any]:
        values = self.milliseconds
        return {
            "milliseconds": round(median(values), 3) if values else None,
            "worst_milliseconds": round(max(values), 3) if values else None,
            "stopped": self.stopped,
            "sample": len(values),
            "limit_milliseconds": self.limit,
            "would_be_suspended": self.would_be_suspended,
        }


@dataclass(frozen=True, slots=True)
class ExplainedCost:
    """The maximum cost of a change. Without scans, a change evaluates only resources that it reaches by references and
    equal values."""

    scans: tuple[ClassScan, ...]
    measured: MeasuredCost = field(compare=False)

    def as_dict(self) -> dict[str, Any]:
        counts = [scan.instances for scan in self.scans]
        worst = None if None in counts else max((count for count in counts if count is not None), default=0)
        body = {"bounded": not self.scans, "worst": worst, "scans": [scan.as_dict() for scan in self.scans]}
        return body | self.measured.as_dict()


@dataclass(frozen=True, slots=True)
class RuleExplanation:
    """The explanation of a rule. `matches` is None if they could not be counted in time."""

    rule: str
    normal: str
    conjunctions: tuple[ExplainedConjunction, ...]
    matches: int | None
    cost: ExplainedCost

    def as_dict(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "normal": self.normal,
            "conjunctions": [part.as_dict() for part in self.conjunctions],
            "matches": self.matches,
            "cost": self.cost.as_dict(),
        }


def dependency_tree(rules: Mapping[RuleId, ExplainedAtomicRule], end: RuleId) -> str:
    """Return the dependency tree (paper, 3.3.2) as text, with the end rule as its root.

    >>> leaf = "search C c register c"
    >>> leaves = {name: ExplainedAtomicRule(name, leaf, "C", "triggering", False, 0) for name in "AB"}
    >>> text = "search view(A, C) a, view(B, C) b register a where a = b"
    >>> join = ExplainedAtomicRule("D", text, "C", "join", False, 0, ("A", "B"))
    >>> print(dependency_tree(leaves | {"D": join}, "D"))
    D  search view(A, C) a, view(B, C) b register a where a = b
    ├── A  search C c register c
    └── B  search C c register c
    """
    lines: list[str] = []
    todo: list[tuple[RuleId, str, str]] = [(end, "", "")]
    while todo:
        name, before, below = todo.pop()
        part = rules[name]
        lines.append(f"{before}{name}  {_line(part.text)}")
        last = len(part.inputs) - 1
        for number, source in reversed(list(enumerate(part.inputs))):
            branch, on = ("└── ", "    ") if number == last else ("├── ", "│   ")
            todo.append((source, below + branch, below + on))
    return "\n".join(lines)


def render_explanation(body: Mapping[str, Any]) -> str:
    """Return an explanation, given as JSON, as text."""
    return "\n".join(_rendered(body))


def _rendered(body: Mapping[str, Any]) -> Iterator[str]:
    parts: Sequence[Mapping[str, Any]] = body["conjunctions"]
    for number, part in enumerate(parts, 1):
        yield from _heading("Normal form" if len(parts) == 1 else f"Part {number} of {len(parts)}")
        yield from part["normal"].splitlines()
        yield ""
        yield from _heading("Atomic rules")
        yield from _columns([(rule["id"], _use(rule), _line(rule["text"])) for rule in part["atomic_rules"]])
        yield ""
        yield from _heading("Dependency tree")
        yield from part["tree"].splitlines()
        yield ""
        if part["groups"]:
            yield from _heading("Rule groups")
            yield from _columns([(_number(group), _members(group), _line(group["text"])) for group in part["groups"]])
            yield ""
        whole = part["whole_group"]
        yield from _heading(f"Whole group: {', '.join(filter(None, (_number(whole), _members(whole))))}")
        yield from whole["text"].splitlines()
        driver = whole["driver"]
        if driver is None:
            yield "driving predicate: none, the rule has no constant"
        else:
            yield f"driving predicate: {driver['rule']}  {_line(driver['text'])}  (in {driver['table']})"
        yield ""
        for name, sql in part.get("sql", {}).items():
            yield from _heading(f"SQL, {name}")
            yield from sql.splitlines()
            yield ""
    matches = body["matches"]
    yield (
        "Matches: not counted, counting timed out"
        if matches is None
        else f"Matches: {_counted(matches, 'resource')} now"
    )
    scans = body["cost"]["scans"]
    yield from (f"Cost: {scan['text']}" for scan in scans)
    if not scans:
        yield "Cost: a change evaluates only resources that it reaches by references and equal values"
    if words := measured_cost_text(body["cost"]):
        yield f"Cost: {words}"


def _heading(text: str) -> Iterator[str]:
    yield text
    yield "-" * len(text)


def _columns(rows: Sequence[tuple[object, str, str]]) -> Iterator[str]:
    first, second = (max(len(str(row[column])) for row in rows) for column in (0, 1))
    for one, two, text in rows:
        yield f"{one!s:<{first}}  {two:<{second}}  {text}"


def _use(rule: Mapping[str, Any]) -> str:
    return f"used {rule['uses']}×" if rule["exists"] else "new"


def _number(group: Mapping[str, Any]) -> str:
    return "new" if group["id"] is None else str(group["id"])


def _members(group: Mapping[str, Any]) -> str:
    return "" if group["id"] is None else _counted(group["members"], "rule")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _line(text: str) -> str:
    """Return a text on one line. A constant may contain line breaks."""
    return "\\n".join(text.splitlines())


def measured_cost_text(cost: Mapping[str, Any]) -> str:
    """Return the measured cost as a sentence; empty if there was nothing to measure.

    >>> measured_cost_text(MeasuredCost((0.5, 0.7, 1.5), False, 2000).as_dict())
    'a change of one resource takes 0.7 ms (median of 3 stored resources, at most 1.5 ms; the limit is 2,000 ms)'
    >>> measured_cost_text(MeasuredCost((2000,), True, 2000).as_dict())
    'a change of one resource takes more than 2,000 ms, the limit: the rule would be suspended'
    >>> measured_cost_text(MeasuredCost((800,), True, 2000).as_dict())
    'a change of one resource takes more than 800 ms; the measurement timed out (the limit is 2,000 ms)'
    >>> measured_cost_text(MeasuredCost((), True, 2000).as_dict())
    'the measurement timed out'
    """
    if not cost["sample"]:
        return "the measurement timed out" if cost["stopped"] else ""
    subject = "a change of one resource takes"
    if cost["would_be_suspended"]:
        return (
            f"{subject} more than {_milliseconds(cost['limit_milliseconds'])}, the limit: the rule would be suspended"
        )
    limit = f"the limit is {_milliseconds(cost['limit_milliseconds'])}"
    if cost["stopped"]:
        return f"{subject} more than {_milliseconds(cost['worst_milliseconds'])}; the measurement timed out ({limit})"
    count = f"{cost['sample']} stored resource{'' if cost['sample'] == 1 else 's'}"
    worst = _milliseconds(cost["worst_milliseconds"])
    return f"{subject} {_milliseconds(cost['milliseconds'])} (median of {count}, at most {worst}; {limit})"


def _milliseconds(count: float) -> str:
    """
    >>> _milliseconds(0.04), _milliseconds(12.34), _milliseconds(2000.0)
    ('0.04 ms', '12 ms', '2,000 ms')
    """
    return f"{count:,.0f} ms" if count >= 10 else f"{count:.2g} ms"
