"""The triggering graph of the active event rules, with cycles and pairs that do not commute."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from textwrap import wrap
from typing import Any

from flask import Response, request, url_for

from mdv.inspect.eca_check import cycle_json, finding_json, unit_json
from mdv.inspect.eca_graph import AnalysedRules
from mdv.inspect.eca_rules import find_rule
from mdv.rdftl.analysis import AnalysedUnit, Analysis, OrderFinding
from mdv.rdftl.termination import Termination
from mdv.rdftl.write import write_event
from web.number_params import read_after
from web.pages.base import pages, render_page, require_viewer
from web.services import services
from web.template_filters import cut
from web.use_cases.eca_analysis import analyse_rules

MAX_DRAWN_UNITS = 40
"""Units of one diagram, and of one page."""
MAX_LISTED = 100
"""Findings of one kind on a page."""
LABEL_WIDTH, LABEL_LINES = 34, 2


@pages.get("/event-rules/graph")
def eca_graph() -> Response:
    """Show a page of the triggering graph; with `rule`, this rule with those next to it."""
    require_viewer()
    mode, name = request.args.get("mode", "strict"), request.args.get("rule", "").strip()
    after = read_after(request.args.get("after"))
    found = analyse_rules(mode)
    analysis, chosen = found.analysis, None
    if name:
        with services().engine.connect() as connection:
            rule = find_rule(connection, name)
        chosen = _unit_of(found, rule.id)
        numbers = _neighbourhood(analysis, chosen) if chosen is not None else []
    else:
        rule = None
        numbers = list(range(after, min(after + MAX_DRAWN_UNITS, len(analysis.units))))
    shown = set(numbers)
    pairs = [finding for finding in analysis.pairs if shown.issuperset(finding.units)]
    instances = [finding for finding in analysis.instances if shown.issuperset(finding.units)]
    found_rows = _findings([*instances, *pairs], analysis.units)
    cycles = [cycle for cycle in analysis.cycles if not shown.isdisjoint(cycle.units)]
    more = after + MAX_DRAWN_UNITS if not name and after + MAX_DRAWN_UNITS < len(analysis.units) else None
    return render_page(
        "eca_graph.html",
        mode=mode,
        rule=rule,
        is_analysed=chosen is not None,
        drawing=_drawing(found, numbers, pairs, chosen),
        units=[_row(found, number) for number in numbers],
        findings=found_rows[:MAX_LISTED],
        more_findings=max(0, len(found_rows) - MAX_LISTED),
        cycles=[cycle_json(cycle, analysis.units) for cycle in cycles[:MAX_LISTED]],
        total=found.base.total,
        unit_count=len(analysis.units),
        left_out=found.base.left_out,
        more=url_for("pages.eca_graph", mode=mode, after=more) if more is not None else None,
        first=url_for("pages.eca_graph", mode=mode) if after else None,
    )


def _unit_of(found: AnalysedRules, rule: int) -> int | None:
    """Return the unit of a rule; None if it is not active, or not listed in its unit."""
    label = next((label for label, number in found.base.ids.items() if number == rule), None)
    return found.analysis.unit_of.get(label) if label is not None else None


def _neighbourhood(analysis: Analysis, number: int) -> list[int]:
    """Return a unit, those that it may trigger, and those that may trigger it."""
    before = [unit.number for unit in analysis.units if number in unit.triggers]
    near = dict.fromkeys([number, *analysis.units[number].triggers, *before])
    return sorted(list(near)[:MAX_DRAWN_UNITS])


def _row(found: AnalysedRules, number: int) -> dict[str, Any]:
    """Return a unit with the units that it may trigger, for the table."""
    units = found.analysis.units
    triggers = units[number].triggers
    return unit_json(units[number]) | {
        "ids": [found.base.ids[label] for label in units[number].rules[:1]],
        "event": write_event(found.base.examples[number].event, found.base.schema),
        "coupling": found.base.listed[number].footprint.coupling.value,
        "triggers": [unit_json(units[other]) for other in triggers[:20]],
        "more": max(0, len(triggers) - 20),
    }


def _findings(findings: Sequence[OrderFinding], units: Sequence[AnalysedUnit]) -> list[dict[str, Any]]:
    """Return the findings by units: the tests that fail, and the reason for the first."""
    rows: dict[tuple[int, ...], dict[str, Any]] = {}
    for finding in findings:
        if finding.units in rows:
            rows[finding.units]["tests"].append(finding.test)
        else:
            rows[finding.units] = finding_json(finding, units) | {"tests": [finding.test]}
    return list(rows.values())


def _drawing(
    found: AnalysedRules, numbers: Sequence[int], pairs: Sequence[OrderFinding], chosen: int | None
) -> Mapping[str, Any]:
    """Return the diagram for the script of the page: units, what they may trigger, and pairs that do not commute."""
    units, shown = found.analysis.units, set(numbers)
    kinds = _cycle_kinds(found.analysis)
    edges = [
        {"from": str(number), "to": str(other), "kind": _edge_kind(found.analysis, number, other), "label": ""}
        for number in numbers
        for other in units[number].triggers
        if other in shown
    ]
    drawn = {frozenset((edge["from"], edge["to"])) for edge in edges}
    for finding in pairs:
        ends = tuple(str(number) for number in finding.units)
        if len(set(ends)) == 2 and frozenset(ends) not in drawn:
            drawn.add(frozenset(ends))
            edges.append({"from": ends[0], "to": ends[1], "kind": "conflict", "label": ""})
    return {
        "direction": "TB",
        "nodes": [_node(found, number, kinds.get(number, ""), number == chosen) for number in numbers],
        "edges": edges,
    }


def _node(found: AnalysedRules, number: int, kind: str, is_chosen: bool) -> dict[str, Any]:
    unit, event = found.analysis.units[number], found.base.examples[number].event
    count = len(unit.rules) + unit.more
    name = cut(unit.rules[0], 40) + (f" and {count - 1:,} like it" if count > 1 else "")
    text = f"ON {write_event(event, found.base.schema)}"
    lines = wrap(text, LABEL_WIDTH, max_lines=LABEL_LINES, placeholder=" …", break_on_hyphens=False)
    return {
        "id": str(number), "label": "\n".join([name, *lines]), "title": cut(f"{name}: {text}", 600), "kind": kind,
        "marks": ["lit"] if is_chosen else [], "group": None, "block": None,
        "href": url_for("pages.eca_rule", name=found.base.ids[unit.rules[0]]),
    }  # fmt: skip


def _cycle_kinds(analysis: Analysis) -> dict[int, str]:
    """Return for each unit on a cycle: `cycle` if all its cycles end, else `endless`."""
    kinds: dict[int, str] = {}
    for cycle in analysis.cycles:
        ends = cycle.termination == Termination.TERMINATES.value
        for number in cycle.units:
            if not ends or number not in kinds:
                kinds[number] = "cycle" if ends else "endless"
    return kinds


def _edge_kind(analysis: Analysis, first: int, second: int) -> str:
    """Return the kind of an edge: whether it is on a cycle."""
    on: Collection[str] = [
        cycle.termination for cycle in analysis.cycles if first in cycle.units and second in cycle.units
    ]
    if not on:
        return "triggers"
    return "cycle" if set(on) == {Termination.TERMINATES.value} else "endless"
