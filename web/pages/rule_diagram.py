"""Diagrams of atomic rules as JSON for the script of the page: nodes with labels, edges and groups."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from flask import url_for

from mdv.inspect.drawing import Drawing, DrawnFilterRule, DrawnGroup, DrawnRule
from mdv.inspect.filter_replay import ReplayRow
from mdv.inspect.rule_explanation import RuleId
from mdv.rules.operators import Operator
from web.template_filters import cut, short

LABEL_WIDTH, LABEL_LINES = 34, 3
"""Characters per line and lines of a label."""
MAX_RESOURCES_SHOWN = 3
"""Resources that a node lists."""
_WHERE = re.compile(r"\swhere\s(.*)\Z", re.DOTALL)


def diagram_json(drawing: Drawing, links: bool = True, lit: int | None = None) -> dict[str, Any]:
    """Return the diagram of atomic rules: triggering rules below, join rules above, rule groups as boxes. `lit` is the
    highlighted rule."""
    blocks = {row.rule: _block(row) for row in drawing.operands}
    shown = Counter(rule.group for rule in drawing.parts if not rule.is_new)
    return {
        "direction": "BT",
        "nodes": [_node(rule, blocks.get(rule.id), links, rule.id == lit) for rule in drawing.parts],
        "edges": [{"from": str(row.source), "to": str(row.target), "kind": "input", "label": ""}
                  for row in drawing.dependencies],
        "groups": [{"id": str(group.id), "label": group_label(group, shown[group.id])} for group in drawing.groups],
    }  # fmt: skip


def group_label(group: DrawnGroup, shown: int) -> str:
    """Return the label of a rule group: its id and how many of its rules are shown.

    >>> group = DrawnGroup(2, "search group(A) a, group(B) b register b where b.p = a", 3)
    >>> [group_label(group, shown) for shown in (3, 2, 0)]
    ['group 2 · 3 rules', 'group 2 · 2 of 3 rules shown', 'group 2 · 3 existing rules']
    """
    if group.is_new:
        return "new group"
    noun = "rule" if group.members == 1 else "rules"
    if shown >= group.members:
        return f"group {group.id} · {group.members:,} {noun}"
    count = f"{shown:,} of {group.members:,} {noun} shown" if shown else f"{group.members:,} existing {noun}"
    return f"group {group.id} · {count}"


def _block(row: DrawnFilterRule) -> str:
    """Return the label under which similar triggering rules are placed together in large diagrams."""
    if row.table == "filter_rules":
        return f"all of {short(row.class_iri)}"
    compared = f".{short(row.property)}" if row.property else ""
    return f"{short(row.class_iri)}{compared} {OPERATOR_SIGNS[row.table]}"


OPERATOR_SIGNS = {operator.constants_table: operator.sign for operator in Operator}


def _node(rule: DrawnRule, block: str | None, links: bool, lit: bool) -> dict[str, Any]:
    marks = [name for name, is_so in (("end", rule.is_end), ("shared", rule.uses > 1),
                                      ("new", rule.is_new), ("lit", lit)) if is_so]  # fmt: skip
    href = url_for("pages.atomic_rule", number=rule.id) if links and not rule.is_new else None
    return {"id": str(rule.id), "label": label(rule), "title": cut(f"{rule.id}  {rule.text}", 600), "kind": rule.kind,
            "marks": marks, "group": str(rule.group) if rule.group is not None else None, "block": block,
            "href": href}  # fmt: skip


def label(rule: DrawnRule) -> str:
    """Return the label of a node: the id of the rule and its condition.

    >>> print(label(DrawnRule(1, "search S s register s where s.m > 64", "S", "triggering", 2, False, False, None)))
    1 · used 2×
    s.m > 64
    >>> print(label(DrawnRule("A", "search S s register s", "S", "triggering", 0, True, False, None)))
    A · new
    search S
    """
    head = f"{rule.id} · new" if rule.is_new else f"{rule.id} · used {rule.uses:,}×" if rule.uses > 1 else f"{rule.id}"
    where = _WHERE.search(rule.text)
    condition = where[1] if where else rule.text.split(" register ")[0].rpartition(" ")[0]
    lines = wrap(
        " ".join(condition.split()), LABEL_WIDTH, max_lines=LABEL_LINES, placeholder=" …", break_on_hyphens=False
    )
    return "\n".join([head, *lines])


def replay_steps(
    iterations: Sequence[Sequence[ReplayRow]], drawing: Drawing, document: str
) -> list[list[dict[str, Any]]]:
    """Return the lines that each step of a replay adds to the nodes."""
    drawn = {rule.id for rule in drawing.parts}
    steps = []
    for rows in iterations:
        found: dict[RuleId, list[str]] = {}
        for row in rows:
            if row.rule in drawn:
                found.setdefault(row.rule, []).append(row.resource)
        steps.append(
            [{"node": str(rule), "lines": _resource_lines(resources, document)} for rule, resources in found.items()]
        )
    return steps


def _resource_lines(resources: Sequence[str], document: str) -> list[str]:
    shown = [
        f"→ {cut(name_relative_to(resource, document), LABEL_WIDTH)}" for resource in resources[:MAX_RESOURCES_SHOWN]
    ]
    left = len(resources) - len(shown)
    return [*shown, f"→ {left:,} more"] if left else shown


def name_relative_to(resource: str, document: str) -> str:
    """Return the name of a resource relative to its document.

    >>> name_relative_to("http://a/doc.rdf#host", "http://a/doc.rdf"), name_relative_to("http://b/x", "http://a/doc.rdf")
    ('doc.rdf#host', 'http://b/x')
    """
    if not resource.startswith(document):
        return resource
    return document.rstrip("/").rpartition("/")[2] + resource[len(document) :]


def paper_tables(drawing: Drawing) -> Mapping[str, Any]:
    """Return the paper's tables (Figures 7 and 8) for a diagram."""
    operators: dict[str, list[Any]] = {}
    for row in drawing.operands:
        operators.setdefault(row.table, []).append(row)
    return {"rules": drawing.parts, "dependencies": drawing.dependencies, "groups": drawing.groups,
            "operators": sorted(operators.items())}  # fmt: skip
