"""The active rules as the analysis sees them: single rules where there are few, else templates.

A process loads them once for each version of the rules and the schema. The cost depends on the number of templates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection

from mdv.inspect.action_access import called_actions, read_accesses, with_accesses
from mdv.inspect.sql.eca_units import (
    TemplateRow,
    TemplateRule,
    count_template_rules,
    find_template,
    list_rules_of,
    list_templates,
    read_rule_version,
)
from mdv.mdp.eca.templates import compile_template, digest_of
from mdv.mdp.schemas import SchemaInForce
from mdv.query.offload import Offload, run_inline
from mdv.rdf.schema import Schema
from mdv.rdftl.analysis import Analysis, analyse
from mdv.rdftl.footprint import footprint
from mdv.rdftl.model import CallAccess, EcaRule
from mdv.rdftl.rule_index import MAX_SINGLE_RULES, RuleUnit
from mdv.rdftl.template import bind_slots
from mdv.rdftl.triggering import AnalysisMode

MAX_UNITS = 1_000
"""Units that are analysed: all pairs of units are compared. Templates with many rules come first."""
MAX_LISTED_RULES = 5
"""Rules of a large unit that are listed."""


@dataclass(frozen=True)
class RuleBase:
    """The active and shadow rules of one version, as units.

    `rules`: those that are units of their own. `examples`: a rule of each unit. `ids`: the ID of each listed rule.
    `total`: the number of all rules. `left_out`: how many of them are not analysed.
    """

    schema: Schema
    listed: tuple[RuleUnit, ...]
    rules: Mapping[str, EcaRule]
    examples: tuple[EcaRule, ...]
    ids: Mapping[str, int]
    total: int
    left_out: int
    accesses: Mapping[str, CallAccess] = field(default_factory=dict)
    """What the actions that rules call may do, where it is known."""
    _analyses: dict[AnalysisMode, Analysis] = field(default_factory=dict, repr=False, compare=False)

    def units(self) -> list[RuleUnit]:
        return list(self.listed)

    def analysis(self, mode: AnalysisMode) -> Analysis:
        """Return the analysis of all rules."""
        known = self._analyses.get(mode)
        if known is None:
            self._analyses[mode] = known = analyse(self, self.schema, mode)
        return known


class RuleBaseCache:
    """Caches the rule base of an MDP. It is loaded again if the rules or the schema have changed."""

    def __init__(self) -> None:
        self._known: tuple[tuple[int, int], RuleBase] | None = None
        self._templates: tuple[int, dict[int, EcaRule]] = (0, {})

    def at(self, connection: Connection, schema: SchemaInForce, apart: Offload = run_inline) -> RuleBase:
        """Return the active and shadow rules. `schema`: the schema in force. `apart` runs what is not a query."""
        version = (read_rule_version(connection), schema.version)
        known = self._known  # another thread may replace it
        called = called_actions(known[1].examples) if known is not None and known[0] == version else frozenset()
        accesses = read_accesses(connection, called, schema.schema)
        if known is None or known[0] != version or known[1].accesses != accesses:
            templates = list_templates(connection)
            single, grouped = _split(templates)
            rules = list_rules_of(connection, [row.id for row in single])
            first = list_rules_of(connection, [row.id for row in grouped], MAX_LISTED_RULES)
            total = sum(row.rules for row in templates)
            base = apart(self._build, schema, single, grouped, rules, first, total, {})
            if called := called_actions(base.examples):
                accesses = read_accesses(connection, called, schema.schema)
                base = apart(self._build, schema, single, grouped, rules, first, total, accesses)
            self._known = known = version, base
        return known[1]

    def _build(
        self,
        schema: SchemaInForce,
        single: Sequence[TemplateRow],
        grouped: Sequence[TemplateRow],
        rules: Sequence[TemplateRule],
        first: Sequence[TemplateRule],
        total: int,
        accesses: Mapping[str, CallAccess],
    ) -> RuleBase:
        """Return the rule base. `single`: the templates of `rules`. `first`: the first rules of the others. `accesses`:
        of the actions that they call."""
        compiled = self._compile([*single, *grouped], schema)
        templates = {number: with_accesses(rule, accesses) for number, rule in compiled.items()}
        labels: dict[str, int] = {}
        own: dict[str, EcaRule] = {}
        units: list[RuleUnit] = []
        examples: list[EcaRule] = []
        for row in rules:
            label = _label(row, labels)
            own[label] = rule = _bind(templates[row.template], row)
            units.append(RuleUnit((label,), footprint(rule, schema.schema)))
            examples.append(rule)
        listed: dict[int, list[TemplateRule]] = defaultdict(list)
        for row in first:
            listed[row.template].append(row)
        for template in grouped:
            names = tuple(_label(row, labels) for row in listed[template.id])
            # The constants of a template are unknown, also those that are classes.
            key = footprint(templates[template.id], schema.schema).without_constants()
            units.append(RuleUnit(names, key, template.rules - len(names)))
            examples.append(_bind(templates[template.id], listed[template.id][0]))
        left_out = total - sum(unit.count for unit in units)
        return RuleBase(schema.schema, tuple(units), own, tuple(examples), labels, total, left_out, accesses)

    def _compile(self, rows: Sequence[TemplateRow], schema: SchemaInForce) -> dict[int, EcaRule]:
        known = self._templates[1] if self._templates[0] == schema.version else {}
        compiled = {row.id: known.get(row.id) or compile_template(row.text, schema.schema).template for row in rows}
        self._templates = (schema.version, compiled)
        return compiled


def _split(rows: Sequence[TemplateRow]) -> tuple[list[TemplateRow], list[TemplateRow]]:
    """Return the templates whose rules are units of their own, and those that are one unit each."""
    single: list[TemplateRow] = []
    left = MAX_SINGLE_RULES
    for row in rows:
        if row.rules > left:
            break
        left -= row.rules
        single.append(row)
    grouped = sorted(rows[len(single) :], key=lambda row: (-row.rules, row.id))
    return single, grouped[: MAX_UNITS - (MAX_SINGLE_RULES - left)]


def _bind(template: EcaRule, row: TemplateRule) -> EcaRule:
    rule = bind_slots(template, row.constants)
    return replace(rule, name=row.name, precedes=tuple(row.precedes), follows=tuple(row.follows))


def _label(row: TemplateRule, labels: dict[str, int]) -> str:
    """Return the name of a rule, or its ID, and note it."""
    label = row.name or f"rule {row.id}"
    while label in labels:  # a rule can be named "rule 7"
        label = f"{label} ({row.id})"
    labels[label] = row.id
    return label


def count_like(connection: Connection, template: EcaRule) -> int:
    """Return the number of active and shadow rules with the same template."""
    number = find_template(connection, digest_of(template))
    return 0 if number is None else count_template_rules(connection, number)
