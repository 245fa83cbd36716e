"""The triggering graph of the active rules, and their analysis, as JSON and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.inspect.eca_check import cycle_json, finding_json, name_units, unit_json
from mdv.inspect.eca_rule_base import RuleBase, RuleBaseCache
from mdv.mdp.schemas import SchemaCache
from mdv.query.offload import Offload, run_inline
from mdv.rdftl.analysis import Analysis
from mdv.rdftl.triggering import AnalysisMode
from mdv.rdftl.write import write_event

MAX_PAIRS = 1_000
"""Pairs of rules that do not commute in one response. Further ones are counted."""


class AnalysedRules(NamedTuple):
    """The active rules of an MDP with their analysis."""

    base: RuleBase
    analysis: Analysis


def analyse_active(
    connection: Connection,
    schemas: SchemaCache,
    bases: RuleBaseCache,
    mode: AnalysisMode,
    apart: Offload = run_inline,
) -> AnalysedRules:
    """Return the analysis of the active and shadow rules. `apart` runs what is not a query."""
    base = bases.at(connection, schemas.now(connection), apart)
    return AnalysedRules(base, apart(base.analysis, mode))


def graph_json(found: AnalysedRules, after: int, limit: int) -> dict[str, Any]:
    """Return a page of the triggering graph: `limit` units after the unit `after`, with the units that each of them may
    trigger, and all cycles."""
    base, analysis = found
    units = analysis.units[after + 1 : after + 1 + limit]
    following = after + 1 + limit < len(analysis.units)
    return _head(found) | {
        "items": [
            unit_json(unit)
            | {
                "event": write_event(base.examples[unit.number].event, base.schema),
                "coupling": base.listed[unit.number].footprint.coupling.value,
                "triggers": list(unit.triggers),
            }
            for unit in units
        ],
        "cycles": [cycle_json(cycle, analysis.units) for cycle in analysis.cycles],
        "next": str(units[-1].number) if following and units else None,
    }


def analysis_json(found: AnalysedRules) -> dict[str, Any]:
    """Return the analysis: rules that are not well defined, pairs that do not commute, and cycles."""
    units, analysis = found.analysis.units, found.analysis
    return _head(found) | {
        "instances": [finding_json(finding, units) for finding in analysis.instances],
        "pairs": [finding_json(finding, units) for finding in analysis.pairs[:MAX_PAIRS]],
        "pair_count": len(analysis.pairs),
        "cycles": [cycle_json(cycle, units) for cycle in analysis.cycles],
    }


def _head(found: AnalysedRules) -> dict[str, Any]:
    return {
        "mode": found.analysis.mode,
        "rules": found.base.total,
        "units": len(found.analysis.units),
        "left_out": found.base.left_out,
    }


def render_graph(page: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a graph page, given as JSON: each unit with what it may trigger."""
    names = {unit["number"]: name_units([unit]) for unit in page["items"]}
    for unit in page["items"]:
        yield f"{names[unit['number']]}  ON {unit['event']}"
        for number in unit["triggers"]:
            yield f"  may trigger {names.get(number, f'unit {number}')}"
    for cycle in page["cycles"]:
        reason = f": {cycle['reason']['text']}" if cycle["reason"] else ""
        yield f"cycle of {name_units(cycle['units'])}: {cycle['termination']}{reason}"


def render_analysis(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of an analysis, given as JSON."""
    for finding in found["instances"]:
        yield f"{finding['test']}  {name_units(finding['units'])}: {finding['reason']['text']}"
    for finding in found["pairs"]:
        yield f"{finding['test']}  {name_units(finding['units'])}: {finding['reason']['text']}"
    if found["pair_count"] > len(found["pairs"]):
        yield f"and {found['pair_count'] - len(found['pairs']):,} pairs more"
    if not found["instances"] and not found["pairs"]:
        yield "The order of rules does not matter."
