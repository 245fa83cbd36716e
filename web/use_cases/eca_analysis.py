"""Check event-condition-action rules, and analyse the active ones."""

from __future__ import annotations

from typing import Any

from mdv.errors import NotFound
from mdv.inspect.eca_check import MAX_CHECKED_RULES, RuleCheckReport, check_eca_rules, warn_about, warning_json
from mdv.inspect.eca_graph import AnalysedRules, analyse_active
from mdv.mdp.eca.change_rules import find_rule
from mdv.rdftl.compile import compile_rules
from mdv.rdftl.triggering import AnalysisMode
from web.negotiate import run_in_thread
from web.services import services


def check_text(text: str, replaced: str | None = None) -> RuleCheckReport:
    """Check the rules of a text. `replaced`: the name or ID of the rule that the text replaces."""
    s = services()
    with s.engine.connect() as connection:
        snapshot = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        label = None
        if replaced:
            found = find_rule(snapshot, replaced)
            label = found.name or f"rule {found.id}"
        return check_eca_rules(snapshot, text, s.schemas, s.rule_bases, label, run_in_thread)


def add_analysis_warnings(items: list[dict[str, Any]]) -> None:
    """Add the warnings of the analysis to rules that were registered, given as JSON: to the first of them only, if
    there are many."""
    s = services()
    some = items[:MAX_CHECKED_RULES]
    with s.engine.connect() as connection:
        snapshot = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        schema = s.schemas.now(snapshot)
        rules = {item["name"] or f"rule {item['id']}": compile_rules(item["normal"], schema.schema) for item in some}
        compiled = {name: found[0].rule for name, found in rules.items()}
        warnings = warn_about(snapshot, compiled, schema, s.rule_bases, run_in_thread)
    for item, found in zip(some, warnings.values(), strict=True):
        item["warnings"] = [*item["warnings"], *map(warning_json, found)]


def analyse_rules(mode: str) -> AnalysedRules:
    """Analyse the active rules. `mode`: paper or strict."""
    if mode not in ("paper", "strict"):
        raise NotFound(f"There is no mode of analysis {mode[:20]!r}. Use paper or strict.")
    s = services()
    with s.engine.connect() as connection:
        snapshot = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        return analyse_active(snapshot, s.schemas, s.rule_bases, AnalysisMode(mode), run_in_thread)
