"""/rules: what a rule means, before it is anybody's."""

from __future__ import annotations

from typing import Any

from mdv.mdp.explain import explain as explain_rule
from mdv.mdp.propose import propose as propose_rules
from mdv.mdp.rules import OWN
from web.auth import lmr_reader
from web.bodies import json_body, json_request
from web.calls import Calls
from web.models import Proposed, RuleExplained, RuleQuestion, Wish
from web.negotiate import in_thread
from web.openapi import problems
from web.services import services

calls = Calls("rules", "What a rule means, before it is anybody's")

EXAMPLE = {
    "rule": "search CycleProvider c register c\n"
    "where c.serverHost contains 'uni-passau.de' and c.serverInformation.memory > 64"
}


@calls.call(
    "POST",
    "/rules/explain",
    "Explain a rule",
    {200: RuleExplained} | problems(408, 413, 415, 422),
    body=json_request(RuleQuestion, EXAMPLE),
    reads=True,
)
def explain() -> dict[str, Any]:
    """Its normal form, the atomic rules and groups that it is made of, which of them exist already, how many resources
    match now, and what a change may cost at worst. Nothing is changed."""
    lmr_reader()
    question = json_body(RuleQuestion)
    with services().engine.connect() as connection:
        # All of it from one moment.
        still = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        rules, schemas = services().rules, services().schemas
        told = explain_rule(still, question.rule, schemas, rules, OWN, with_sql=question.sql, apart=in_thread)
        return told.as_dict()


@calls.call(
    "POST",
    "/rules/propose",
    "Propose rules",
    {200: Proposed} | problems(404, 408, 413, 415, 422),
    body=json_request(Wish, {"resource": "http://mdv.example/doc.rdf#host"}),
    reads=True,
)
def propose() -> dict[str, Any]:
    """Rules that would select a `resource`, or what a `class` with chosen `values` says: to browse, to select, and to
    subscribe what was found. Nothing is changed."""
    lmr_reader()
    wish = json_body(Wish)
    with services().engine.connect() as connection:
        found = propose_rules(connection, services().schemas, wish.resource, wish.class_, wish.values)
    return {"items": [proposal.as_dict() for proposal in found]}
