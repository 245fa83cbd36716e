"""What is said of a rule: its parts as they would stand in the graph, as JSON and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

RuleId: TypeAlias = int | str
"""The number of an atomic rule that there is; a letter for one that there would be."""


@dataclass(frozen=True, slots=True)
class FilterRow:
    """Where a triggering rule stands among those of its operator (Figure 8); it may have a class alone."""

    table: str
    class_iri: str
    property: str | None = None
    value: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {"table": self.table, "class": self.class_iri, "property": self.property, "value": self.value}


@dataclass(frozen=True, slots=True)
class AtomicPart:
    """An atomic rule: whether it exists already, and how many use it."""

    id: RuleId
    text: str
    class_iri: str
    kind: str
    exists: bool
    uses: int
    inputs: tuple[RuleId, ...] = ()
    row: FilterRow | None = None
    """Of a triggering rule."""

    def as_dict(self) -> dict[str, Any]:
        return {"id": self.id, "text": self.text, "class": self.class_iri, "kind": self.kind, "exists": self.exists,
                "uses": self.uses, "inputs": list(self.inputs),
                "filter_rule": self.row.as_dict() if self.row is not None else None}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GroupPart:
    """A group of join rules (3.3.3), with those of this rule in it, and how many it has already."""

    id: int | None
    text: str
    members: int
    rules: tuple[RuleId, ...]

    def as_dict(self) -> dict[str, Any]:
        return {"id": self.id, "text": self.text, "members": self.members, "rules": list(self.rules)}


@dataclass(frozen=True, slots=True)
class Driver:
    """The triggering rule by which the rules of a whole group are found, and the table that it stands in."""

    leaf: int
    """Which leaf of the pattern it is."""
    rule: RuleId
    text: str
    table: str

    def as_dict(self) -> dict[str, Any]:
        return {"rule": self.rule, "text": self.text, "table": self.table}


@dataclass(frozen=True, slots=True)
class WholeGroup:
    """The rules that differ from this one in their constants alone: they are evaluated together."""

    id: int | None
    text: str
    members: int
    driver: Driver | None

    def as_dict(self) -> dict[str, Any]:
        driver = self.driver.as_dict() if self.driver is not None else None
        return {"id": self.id, "text": self.text, "members": self.members, "driver": driver}


@dataclass(frozen=True, slots=True)
class Sql:
    """The statement that the filter runs for the whole group, and the one that evaluates the rule on all there is."""

    filter: str
    evaluation: str

    def as_dict(self) -> dict[str, Any]:
        return {"filter": self.filter, "evaluation": self.evaluation}


@dataclass(frozen=True, slots=True)
class ConjunctionPart:
    """One conjunction of the rule, taken apart."""

    normal: str
    atomic_rules: tuple[AtomicPart, ...]
    tree: str
    groups: tuple[GroupPart, ...]
    whole_group: WholeGroup
    sql: Sql | None = None

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
class Scan:
    """A class that a change elsewhere may concern as a whole. `instances` is None where they were too many to count in
    time; with `more` there are more than so many."""

    changed: str
    looks_at: str
    instances: int | None
    more: bool

    def __str__(self) -> str:
        if self.instances is None:
            count = "all"
        else:
            count = f"all of more than {self.instances:,}" if self.more else f"all {self.instances:,}"
        return f"every change of a {self.changed} looks at {count} instances of {self.looks_at}"

    def as_dict(self) -> dict[str, Any]:
        return {"changed": self.changed, "looks_at": self.looks_at, "instances": self.instances, "more": self.more,
                "text": str(self)}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cost:
    """What a change may cost at worst. Without scans, only what it leads to by references and equal values is looked
    at."""

    scans: tuple[Scan, ...]

    def as_dict(self) -> dict[str, Any]:
        counts = [scan.instances for scan in self.scans]
        worst = None if None in counts else max((count for count in counts if count is not None), default=0)
        return {"bounded": not self.scans, "worst": worst, "scans": [scan.as_dict() for scan in self.scans]}


@dataclass(frozen=True, slots=True)
class Explanation:
    """A rule, explained. `matches` is None where they could not be counted in time."""

    rule: str
    normal: str
    conjunctions: tuple[ConjunctionPart, ...]
    matches: int | None
    cost: Cost

    def as_dict(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "normal": self.normal,
            "conjunctions": [part.as_dict() for part in self.conjunctions],
            "matches": self.matches,
            "cost": self.cost.as_dict(),
        }


def tree(rules: Mapping[RuleId, AtomicPart], end: RuleId) -> str:
    """The dependency tree (3.3.2), the end rule as its root.

    >>> leaves = {name: AtomicPart(name, "search C c register c", "C", "triggering", False, 0) for name in "AB"}
    >>> text = "search view(A, C) a, view(B, C) b register a where a = b"
    >>> join = AtomicPart("D", text, "C", "join", False, 0, ("A", "B"))
    >>> print(tree(leaves | {"D": join}, "D"))
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


def render(body: Mapping[str, Any]) -> str:
    """An explanation, as JSON, in words."""
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
        yield (f"found by {driver['rule']}  {_line(driver['text'])}  (in {driver['table']})" if driver is not None
               else "found by its class: it has no constant")  # fmt: skip
        yield ""
        for name, sql in part.get("sql", {}).items():
            yield from _heading(f"SQL, {name}")
            yield from sql.splitlines()
            yield ""
    matches = body["matches"]
    yield (
        "Matches: not counted, since that would take too long"
        if matches is None
        else f"Matches: {_counted(matches, 'resource')} now"
    )
    scans = body["cost"]["scans"]
    yield from (f"Cost: {scan['text']}" for scan in scans)
    if not scans:
        yield "Cost: a change looks only at what references and equal values lead to"


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
    """A text on one line: a constant may hold line breaks."""
    return "\\n".join(text.splitlines())
