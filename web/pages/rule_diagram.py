"""Diagrams of atomic rules as JSON for the script of the page: nodes with labels, edges and groups."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any
from unicodedata import east_asian_width

from flask import url_for

from mdv.inspect.drawing import Drawing, DrawnFilterRule, DrawnGroup, DrawnRule
from mdv.inspect.filter_replay import ReplayRow
from mdv.inspect.rule_explanation import RuleId
from mdv.rules.operators import Operator
from web.layered_layout import LayoutBox, LayoutPoint, layered_layout
from web.template_filters import cut, short

LABEL_WIDTH, LABEL_LINES = 34, 3
"""Characters per line and lines of a label."""
MIN_NODES_FOR_MAP = 60
"""Larger diagrams are maps, as in graph.js."""
FONT_SIZE, LINE_HEIGHT, CHARACTER_WIDTH = 13, 1.35, 0.61
"""Of the monospaced labels: in pixels, in font sizes and in font sizes."""
BOX_PADDING = 22.0
MAX_RESOURCES_SHOWN = 3
"""Resources that a node lists."""
ReplaySteps = Sequence[Sequence[Mapping[str, Any]]]
"""Of each step, the nodes (`node`) with the lines that it adds (`lines`)."""
_WHERE = re.compile(r"\swhere\s(.*)\Z", re.DOTALL)


def diagram_json(
    drawing: Drawing, links: bool = True, lit: int | None = None, steps: ReplaySteps = ()
) -> dict[str, Any]:
    """Return the diagram of atomic rules: triggering rules below, join rules above, rule groups as boxes. `lit` is the
    highlighted rule. `steps`: the lines that the steps of a replay add to the nodes, which get space for them.

    Small diagrams are laid out here. The script lays out large ones as a map.
    """
    blocks = {row.rule: _block(row) for row in drawing.operands}
    shown = Counter(rule.group for rule in drawing.parts if not rule.is_new)
    diagram = {
        "direction": "BT",
        "nodes": [_node(rule, blocks.get(rule.id), links, rule.id == lit) for rule in drawing.parts],
        "edges": [{"from": str(row.source), "to": str(row.target), "kind": "input", "label": ""}
                  for row in drawing.dependencies],
        "groups": [{"id": str(group.id), "label": group_label(group, shown[group.id])} for group in drawing.groups],
    }  # fmt: skip
    return _laid_out(diagram, steps) if len(drawing.parts) < MIN_NODES_FOR_MAP else diagram


def _laid_out(diagram: dict[str, Any], steps: ReplaySteps) -> dict[str, Any]:
    """Return a diagram with the places and sizes of its nodes and groups, and the corners of its edges."""
    added: dict[str, list[str]] = {}
    for row in (row for rows in steps for row in rows):
        added.setdefault(row["node"], []).extend(row["lines"])
    labels = {group["id"]: group["label"] for group in diagram["groups"]}
    boxes = []
    for node in diagram["nodes"]:
        text = node["label"].split("\n") + added.get(node["id"], [])
        wide, high = max(map(_text_width, text)), len(text) * LINE_HEIGHT * FONT_SIZE
        named = _text_width(labels.get(node["group"], "")) if node["group"] is not None else 0.0
        boxes.append(LayoutBox(node["id"], wide + BOX_PADDING, high + BOX_PADDING, node["group"], named))
    found = layered_layout(boxes, [(edge["from"], edge["to"]) for edge in diagram["edges"]])
    group_of = {member: f"{name} {number}" for number, (name, members) in enumerate(found.groups) for member in members}
    sizes = {box.id: {"width": round(box.width, 1), "height": round(box.height, 1)} for box in boxes}
    edges = {(edge["from"], edge["to"]): edge for edge in diagram["edges"]}
    return diagram | {
        "width": round(found.width),
        "height": round(found.height),
        "fontSize": FONT_SIZE,
        "lineHeight": LINE_HEIGHT,
        "nodes": [node | sizes[node["id"]] | {"place": _rounded(found.places[node["id"]]),
                                              "group": group_of.get(node["id"])} for node in diagram["nodes"]],
        "edges": [edge | {"line": [_rounded(point) for point in found.lines[ends]]}
                  for ends, edge in edges.items() if ends in found.lines],
        "groups": [{"id": f"{name} {number}", "label": labels.get(name, name)}
                   for number, (name, _) in enumerate(found.groups)],
    }  # fmt: skip


def _rounded(point: LayoutPoint) -> list[float]:
    return [round(point.x, 1), round(point.y, 1)]


def _text_width(text: str) -> float:
    """Return the width of a line of text in a monospaced font. Wide characters, for example Chinese ones, take two
    places.

    >>> _text_width("ab") == 2 * CHARACTER_WIDTH * FONT_SIZE, _text_width("中") == _text_width("ab")
    (True, True)
    """
    places = sum(2 if east_asian_width(character) in "WF" else 1 for character in text)
    return places * CHARACTER_WIDTH * FONT_SIZE


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
