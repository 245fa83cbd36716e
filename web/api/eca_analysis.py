"""/eca/check, /eca/graph and /eca/analysis: the static analysis of event-condition-action rules."""

from __future__ import annotations

from typing import Any

from mdv.errors import BadRequest
from mdv.inspect.eca_check import check_json
from mdv.inspect.eca_graph import analysis_json, graph_json
from web.auth import require_reader
from web.json_bodies import describe_json_body, read_json_body
from web.models import EcaAnalysis, EcaAnalysisQuery, EcaChecked, EcaCheckRequest, EcaGraph, EcaGraphQuery
from web.openapi import describe_problems
from web.routing import RouteGroup
from web.use_cases.eca_analysis import analyse_rules, check_text

routes = RouteGroup("eca-analysis", "Check event-condition-action rules, and analyse the active ones")

EXAMPLE = {
    "text": "RULE catalogued\nON INSERT resource() AS INSTANCE OF Book\nIF NOT $delta/target(language)\n"
    "DO INSERT ($delta, language, 'en')"
}


@routes.route(
    "POST",
    "/eca/check",
    "Check event-condition-action rules",
    {200: EcaChecked} | describe_problems(404, 408, 413, 415, 422),
    body=describe_json_body(EcaCheckRequest, EXAMPLE),
    reads=True,
)
def check_eca() -> dict[str, Any]:
    """Returns for each rule of the text its normal form, how many active rules have the same template, what it may
    trigger and what may trigger it, and the analysis among the active rules in both modes. Changes nothing. Errors are
    in `errors` of the problem, with their places."""
    require_reader()
    request = read_json_body(EcaCheckRequest)
    return check_json(check_text(request.text, request.replaces))


@routes.route(
    "GET",
    "/eca/graph",
    "Triggering graph",
    {200: EcaGraph} | describe_problems(422),
    query=EcaGraphQuery,
)
def eca_graph(query: EcaGraphQuery) -> dict[str, Any]:
    """Returns which active rules may trigger which others. Up to 300 rules are units of their own; beyond that, rules
    that differ only in their constants are one unit, those with many rules first, up to 1,000 units."""
    require_reader()
    after = -1
    if query.after is not None:
        if not (query.after.isascii() and query.after.isdecimal() and len(query.after) < 10):
            raise BadRequest(f"after: {query.after[:20]!r} is not the number of a unit. Use the `next` of a page.")
        after = int(query.after)
    return graph_json(analyse_rules(query.mode), after, query.limit)


@routes.route(
    "GET",
    "/eca/analysis",
    "Analysis of all rules",
    {200: EcaAnalysis} | describe_problems(422),
    query=EcaAnalysisQuery,
)
def eca_analysis(query: EcaAnalysisQuery) -> dict[str, Any]:
    """Returns the rules that are not well defined (I1, I2), the pairs that do not commute (C1, C2), and the cycles of
    the triggering graph with a verdict on their termination."""
    require_reader()
    return analysis_json(analyse_rules(query.mode))
