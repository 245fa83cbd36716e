"""/rules: explain and propose rules without subscribing."""

from __future__ import annotations

from typing import Any

from mdv.inspect.explain_rule import explain_rule as explain_rule
from mdv.inspect.propose import propose as propose_rules
from mdv.mdp.rules.planning import PROVIDER_OWNER
from web.auth import require_reader_or_lmr
from web.json_bodies import describe_json_body, read_json_body
from web.models import ExplainRuleRequest, Proposed, ProposeRequest, RuleExplained
from web.negotiate import run_in_thread
from web.openapi import describe_problems
from web.routing import RouteGroup
from web.services import services

routes = RouteGroup("rules", "Explain and propose rules without subscribing")

EXAMPLE = {
    "rule": "search CycleProvider c register c\n"
    "where c.serverHost contains 'uni-passau.de' and c.serverInformation.memory > 64"
}


@routes.route(
    "POST",
    "/rules/explain",
    "Explain a rule",
    {200: RuleExplained} | describe_problems(408, 413, 415, 422),
    body=describe_json_body(ExplainRuleRequest, EXAMPLE),
    reads=True,
)
def explain() -> dict[str, Any]:
    """Returns the normal form, the atomic rules and rule groups, which of them already exist, the number of matching
    resources, and the worst-case cost of a change. Changes nothing."""
    require_reader_or_lmr()
    body = read_json_body(ExplainRuleRequest)
    with services().engine.connect() as connection:
        # One snapshot for all parts of the explanation.
        snapshot = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        rules, schemas = services().rules, services().schemas
        explanation = explain_rule(
            snapshot, body.rule, schemas, rules, PROVIDER_OWNER, with_sql=body.sql, apart=run_in_thread
        )
        return explanation.as_dict()


@routes.route(
    "POST",
    "/rules/propose",
    "Propose rules",
    {200: Proposed} | describe_problems(404, 408, 413, 415, 422),
    body=describe_json_body(ProposeRequest, {"resource": "http://mdv.example/doc.rdf#host"}),
    reads=True,
)
def propose() -> dict[str, Any]:
    """Proposes rules that would select a `resource`, or the instances of a `class` with certain `values`. Changes
    nothing."""
    require_reader_or_lmr()
    proposal_request = read_json_body(ProposeRequest)
    with services().engine.connect() as connection:
        found = propose_rules(
            connection, services().schemas, proposal_request.resource, proposal_request.class_, proposal_request.values
        )
    return {"items": [proposal.as_dict() for proposal in found]}
