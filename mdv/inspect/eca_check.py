"""Check event-condition-action rules that are not registered: normal form, template, and analysis among the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from sqlalchemy import Connection

from mdv.inspect.action_access import called_actions, read_accesses, with_accesses
from mdv.inspect.eca_rule_base import RuleBase, RuleBaseCache, count_like
from mdv.mdp.schemas import SchemaCache, SchemaInForce
from mdv.query.offload import Offload, run_inline
from mdv.rdf.schema import Schema
from mdv.rdftl.analysis import (
    AddedRuleAnalysis,
    AdditionAnalysis,
    AnalysedUnit,
    AnalysisWarning,
    CycleFinding,
    OrderFinding,
    analyse_addition,
)
from mdv.rdftl.compile import CompiledRule, compile_rules
from mdv.rdftl.model import CallAccess, EcaRule
from mdv.rdftl.template import abstract_rule
from mdv.rdftl.triggering import AnalysisMode
from mdv.rdftl.write import write_rule

MAX_CHECKED_RULES = 20
"""Rules of one text that are analysed. Further rules are only compiled."""
MAX_FINDINGS = 20
"""Findings of one kind about a rule. Further ones are counted."""
MAX_NAMED_UNITS = 20


class CheckedRule(NamedTuple):
    """A rule with its template, the number of active rules with the same template, and its analysis in both modes; no
    analysis if the text has more than `MAX_CHECKED_RULES` rules before it."""

    compiled: CompiledRule
    template: str
    alike: int
    analyses: Mapping[AnalysisMode, AddedRuleAnalysis]

    @property
    def warnings(self) -> tuple[AnalysisWarning, ...]:
        """The warnings of the analysis in strict mode."""
        strict = self.analyses.get(AnalysisMode.STRICT)
        return strict.warnings if strict is not None else ()


class RuleCheckReport(NamedTuple):
    """The check of a text. `units`: those that the analyses name, by mode. `left_out`: rules that are not analysed."""

    rules: tuple[CheckedRule, ...]
    units: Mapping[AnalysisMode, tuple[AnalysedUnit, ...]]
    schema: Schema
    total: int
    left_out: int


def check_eca_rules(
    connection: Connection,
    text: str,
    schemas: SchemaCache,
    bases: RuleBaseCache,
    replaced: str | None = None,
    apart: Offload = run_inline,
) -> RuleCheckReport:
    """Check the rules of a text under the schema in force, among the active rules. Raise `InvalidRule`.

    `replaced`: the name of a rule that the text replaces, or `rule ID`. `apart` runs what is not a query.
    """
    schema = schemas.now(connection)
    base = bases.at(connection, schema, apart)
    compiled = apart(compile_rules, text, schema.schema)
    accesses = read_accesses(connection, called_actions([one.rule for one in compiled]), schema.schema)
    analyses = apart(_analyse, compiled[:MAX_CHECKED_RULES], base, replaced, accesses)
    checked = []
    for number, one in enumerate(compiled):
        template, _ = abstract_rule(one.rule, schema.schema)
        found = {mode: analysis.added[number] for mode, analysis in analyses.items() if number < MAX_CHECKED_RULES}
        text_ = write_rule(template, schema.schema)
        checked.append(CheckedRule(one, text_, count_like(connection, template), found))
    units = {mode: analysis.units for mode, analysis in analyses.items()}
    return RuleCheckReport(tuple(checked), units, schema.schema, base.total, base.left_out)


def warn_about(
    connection: Connection,
    rules: Mapping[str, EcaRule],
    schema: SchemaInForce,
    bases: RuleBaseCache,
    apart: Offload = run_inline,
) -> dict[str, tuple[AnalysisWarning, ...]]:
    """Return the warnings of the analysis about rules that were registered, at most `MAX_CHECKED_RULES` of them.

    `rules`: by name, or `rule ID`. They are left out of the rules that they are compared with.
    """
    base = bases.at(connection, schema, apart)
    accesses = read_accesses(connection, called_actions(rules.values()), schema.schema)
    some = {name: with_accesses(rule, accesses) for name, rule in list(rules.items())[:MAX_CHECKED_RULES]}
    found = apart(analyse_addition, some, base, schema.schema)
    return {name: one.warnings for name, one in zip(some, found.added, strict=True)}


def _analyse(
    compiled: Sequence[CompiledRule], base: RuleBase, replaced: str | None, accesses: Mapping[str, CallAccess]
) -> dict[AnalysisMode, AdditionAnalysis]:
    named = {
        one.rule.name or f"rule {number} of the text": with_accesses(one.rule, accesses)
        for number, one in enumerate(compiled, 1)
    }
    if len(compiled) == 1 and compiled[0].rule.name is None:
        named = {"this rule": with_accesses(compiled[0].rule, accesses)}
    return {mode: analyse_addition(named, base, base.schema, mode, replaced) for mode in AnalysisMode}


# As JSON


def check_json(report: RuleCheckReport) -> dict[str, Any]:
    """Return a report as JSON."""
    return {
        "rules": [_rule_json(one, report) for one in report.rules],
        "compared_with": report.total - report.left_out,
        "left_out": report.left_out,
    }


def _rule_json(checked: CheckedRule, report: RuleCheckReport) -> dict[str, Any]:
    compiled = checked.compiled
    strict, units = checked.analyses.get(AnalysisMode.STRICT), report.units.get(AnalysisMode.STRICT, ())
    return {
        "name": compiled.rule.name,
        "text": compiled.text,
        "normal": compiled.normal,
        "warnings": [flaw.as_dict() for flaw in compiled.warnings],
        "template": {"text": checked.template, "rules": checked.alike},
        "triggers": units_json(units, strict.triggers) if strict else [],
        "triggered_by": units_json(units, strict.triggered_by) if strict else [],
        "analysis": {mode.value: _analysis_json(found, report.units[mode]) for mode, found in checked.analyses.items()},
        "analysis_warnings": [warning_json(warning) for warning in checked.warnings],
    }


def _analysis_json(found: AddedRuleAnalysis, units: Sequence[AnalysedUnit]) -> dict[str, Any]:
    findings = [*found.instances, *found.pairs]
    return {
        "well_defined": not found.instances,
        "commutes": not found.pairs,
        "findings": [finding_json(finding, units) for finding in findings[:MAX_FINDINGS]],
        "more": max(0, len(findings) - MAX_FINDINGS),
        "cycles": [cycle_json(cycle, units) for cycle in found.cycles[:MAX_FINDINGS]],
    }


def warning_json(warning: AnalysisWarning) -> dict[str, Any]:
    """Return a warning as JSON. `rules`: the other rules concerned, at most three of `count`."""
    return asdict(warning) | {"rules": list(warning.rules)}


def finding_json(finding: OrderFinding, units: Sequence[AnalysedUnit]) -> dict[str, Any]:
    """Return a test that fails as JSON, with the rules that it is about."""
    return {"test": finding.test, "units": units_json(units, finding.units), "reason": asdict(finding.reason)}


def cycle_json(cycle: CycleFinding, units: Sequence[AnalysedUnit]) -> dict[str, Any]:
    """Return a cycle as JSON."""
    return {
        "units": units_json(units, cycle.units[:MAX_NAMED_UNITS]),
        "count": len(cycle.units),
        "termination": cycle.termination,
        "reason": asdict(cycle.reason) if cycle.reason is not None else None,
    }


def units_json(units: Sequence[AnalysedUnit], numbers: Iterable[int]) -> list[dict[str, Any]]:
    """Return units as JSON: their first rules, and the number of all."""
    return [unit_json(units[number]) for number in list(numbers)[:MAX_NAMED_UNITS]]


def unit_json(unit: AnalysedUnit) -> dict[str, Any]:
    """Return a unit as JSON. `rules`: the first of its `count` rules."""
    return {"number": unit.number, "rules": list(unit.rules), "count": len(unit.rules) + unit.more}


# As text


def render_check(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a report, given as JSON."""
    for number, rule in enumerate(report["rules"], 1):
        yield f"rule {rule['name'] or number}: ok"
        yield from (f"  {line}" for line in rule["normal"].split("\n"))
        for flaw in rule["warnings"]:
            place = f"line {flaw['line']}, column {flaw.get('column', 1)}: " if flaw.get("line") else ""
            yield f"  warning: {place}{flaw['message']}"
        for warning in rule["analysis_warnings"]:
            yield f"  warning: {warning['message']}"
        alike = rule["template"]["rules"]
        yield f"  template: {alike:,} active {'rule has' if alike == 1 else 'rules have'} the same"
        for key, label in (("triggered_by", "may be triggered by"), ("triggers", "may trigger")):
            yield f"  {label}: {name_units(rule[key]) or 'no rule'}"
        for mode, found in rule["analysis"].items():
            yield f"  {mode} analysis: {_verdict(found)}"
            yield from (f"    {one['test']}: {one['reason']['text']}" for one in found["findings"])
            yield from (f"    cycle {name_units(one['units'])}: {one['termination']}" for one in found["cycles"])
    if report["left_out"]:
        yield f"{report['left_out']:,} active rules were not analysed: there are too many templates."


def name_units(units: Iterable[Mapping[str, Any]]) -> str:
    """Return the names of units.

    >>> name_units([{"rules": ["a"], "count": 1}, {"rules": ["b", "c"], "count": 70}])
    'a, b and 69 like it'
    """
    names = []
    for unit in units:
        others = unit["count"] - 1
        names.append(unit["rules"][0] + (f" and {others:,} like it" if others else ""))
    return ", ".join(names)


def _verdict(found: Mapping[str, Any]) -> str:
    defined = "well defined" if found["well_defined"] else "not well defined"
    return f"{defined}, {'commutes with all rules' if found['commutes'] else 'does not commute with all rules'}"
