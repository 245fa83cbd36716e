"""Check event-condition-action rules, and analyse the active ones."""

from __future__ import annotations

from mdv.errors import NotFound
from mdv.inspect.eca_check import RuleCheckReport, check_eca_rules
from mdv.inspect.eca_graph import AnalysedRules, analyse_active
from mdv.mdp.eca.change_rules import find_rule
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


def analyse_rules(mode: str) -> AnalysedRules:
    """Analyse the active rules. `mode`: paper or strict."""
    if mode not in ("paper", "strict"):
        raise NotFound(f"There is no mode of analysis {mode[:20]!r}. Use paper or strict.")
    s = services()
    with s.engine.connect() as connection:
        snapshot = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        return analyse_active(snapshot, s.schemas, s.rule_bases, AnalysisMode(mode), run_in_thread)
