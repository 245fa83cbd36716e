"""Drawings of atomic rules as the page's script takes them: boxes with a few words, and what leads to what."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from flask import url_for

from mdv.mdp.drawing import Drawing, Group, Operand, Part
from mdv.mdp.explanation import RuleId
from mdv.mdp.trace import TraceRow
from web.words import cut, short

WIDTH, LINES = 34, 3
"""The words of a box."""
MOST_SAID = 3
"""Resources that a box names."""
_WHERE = re.compile(r"\swhere\s(.*)\Z", re.DOTALL)


def as_json(drawing: Drawing, links: bool = True, lit: int | None = None) -> dict[str, Any]:
    """The drawing of some atomic rules: triggering rules below, what is joined of them above, groups as boxes; one of
    the rules may stand out."""
    blocks = {row.rule: _block(row) for row in drawing.operands}
    here = Counter(part.group for part in drawing.parts if not part.is_new)
    return {
        "direction": "BT",
        "nodes": [_node(part, blocks.get(part.id), links, part.id == lit) for part in drawing.parts],
        "edges": [{"from": str(row.source), "to": str(row.target), "kind": "input", "label": ""}
                  for row in drawing.dependencies],
        "groups": [{"id": str(group.id), "label": group_words(group, here[group.id])} for group in drawing.groups],
    }  # fmt: skip


def group_words(group: Group, here: int) -> str:
    """Which group it is, and how many of its rules are here.

    >>> group = Group(2, "search group(A) a, group(B) b register b where b.p = a", 3)
    >>> [group_words(group, here) for here in (3, 2, 0)]
    ['group 2 · 3 rules', 'group 2 · 2 of 3 rules here', 'group 2 · 3 rules so far']
    """
    if group.is_new:
        return "a new group"
    rules = f"{group.members:,} rule{'' if group.members == 1 else 's'}"
    if here >= group.members:
        return f"group {group.id} · {rules}"
    return f"group {group.id} · {here:,} of {rules} here" if here else f"group {group.id} · {rules} so far"


def _block(row: Operand) -> str:
    """What triggering rules have in common that lie together where there are many."""
    if row.table == "filter_rules":
        return f"all of {short(row.class_iri)}"
    operator = row.table.rpartition("_")[2]
    compared = f".{short(row.property)}" if row.property else ""
    return f"{short(row.class_iri)}{compared} {SIGNS[operator]}"


SIGNS = {"eq": "=", "ne": "≠", "lt": "<", "le": "≤", "gt": ">", "ge": "≥", "con": "contains", "ncon": "without"}


def _node(part: Part, block: str | None, links: bool, lit: bool) -> dict[str, Any]:
    marks = [name for name, is_so in (("end", part.is_end), ("shared", part.uses > 1),
                                      ("new", part.is_new), ("lit", lit)) if is_so]  # fmt: skip
    href = url_for("pages.atomic_rule", number=part.id) if links and not part.is_new else None
    return {"id": str(part.id), "label": label(part), "title": cut(f"{part.id}  {part.text}", 600), "kind": part.kind,
            "marks": marks, "group": str(part.group) if part.group is not None else None, "block": block,
            "href": href}  # fmt: skip


def label(part: Part) -> str:
    """The words of a box: which rule it is, and what it asks.

    >>> print(label(Part(1, "search S s register s where s.m > 64", "S", "triggering", 2, False, False, None)))
    1 · used 2×
    s.m > 64
    >>> print(label(Part("A", "search S s register s", "S", "triggering", 0, True, False, None)))
    A · new
    search S
    """
    head = f"{part.id} · new" if part.is_new else f"{part.id} · used {part.uses:,}×" if part.uses > 1 else f"{part.id}"
    found = _WHERE.search(part.text)
    asked = found[1] if found else part.text.split(" register ")[0].rpartition(" ")[0]
    lines = wrap(" ".join(asked.split()), WIDTH, max_lines=LINES, placeholder=" …", break_on_hyphens=False)
    return "\n".join([head, *lines])


def as_steps(iterations: Sequence[Sequence[TraceRow]], drawing: Drawing, document: str) -> list[list[dict[str, Any]]]:
    """What each step of a run writes into the boxes."""
    drawn = {part.id for part in drawing.parts}
    steps = []
    for rows in iterations:
        found: dict[RuleId, list[str]] = {}
        for row in rows:
            if row.rule in drawn:
                found.setdefault(row.rule, []).append(row.resource)
        steps.append([{"node": str(rule), "says": _said(resources, document)} for rule, resources in found.items()])
    return steps


def _said(resources: Sequence[str], document: str) -> list[str]:
    shown = [f"→ {cut(name_in(resource, document), WIDTH)}" for resource in resources[:MOST_SAID]]
    left = len(resources) - len(shown)
    return [*shown, f"→ {left:,} more"] if left else shown


def name_in(resource: str, document: str) -> str:
    """A resource as one speaks of it beside its document.

    >>> name_in("http://a/doc.rdf#host", "http://a/doc.rdf"), name_in("http://b/x", "http://a/doc.rdf")
    ('doc.rdf#host', 'http://b/x')
    """
    if not resource.startswith(document):
        return resource
    return document.rstrip("/").rpartition("/")[2] + resource[len(document) :]


def as_tables(drawing: Drawing) -> Mapping[str, Any]:
    """The paper's tables (Figures 7 and 8) for what is drawn."""
    operators: dict[str, list[Any]] = {}
    for row in drawing.operands:
        operators.setdefault(row.table, []).append(row)
    return {"rules": drawing.parts, "dependencies": drawing.dependencies, "groups": drawing.groups,
            "operators": sorted(operators.items())}  # fmt: skip
