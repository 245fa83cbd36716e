"""/eca: event-condition-action rules, their runs, and the log of their changes."""

from __future__ import annotations

from typing import Any

from flask import Response, jsonify, make_response

from mdv.accounts.callers import Caller
from mdv.errors import BadRequest
from mdv.inspect.eca_log import change_json, list_changes
from mdv.inspect.eca_rules import find_rule, list_eca_rules, rule_json, rule_number
from mdv.inspect.eca_runs import build_tree, list_runs, read_run, run_json, tree_json
from mdv.mdp.eca.update import UPDATES_DOCUMENT
from mdv.rdf.parse import check_document_uri, check_registration_uri
from web.auth import require_admin, require_reader, require_unlimited_admin
from web.job_queue import FinishedJob, PendingJob, accepted_response
from web.json_bodies import describe_json_body, read_json_body, read_json_items
from web.models import (
    Accepted,
    Compensated,
    EcaDryRun,
    EcaLogQuery,
    EcaRuleAdded,
    EcaRuleChanged,
    EcaRuleShown,
    EcaRulesQuery,
    EcaRunShown,
    EcaRunsQuery,
    EcaText,
    LoggedChangeShown,
    PostedEcaRule,
    PostedEcaRules,
)
from web.negotiate import request_etags
from web.number_params import read_after, read_before, read_run_id
from web.openapi import IDEMPOTENCY_KEY, IF_MATCH, describe_json, describe_problems, page_schema
from web.routing import RouteGroup
from web.services import services
from web.streams import list_response
from web.use_cases.eca import (
    DRY_RUN_WAIT_SECONDS,
    add_eca_rules,
    change_eca_rules,
    compensate,
    replace_eca_rule,
    run_update,
    try_registration,
)

routes = RouteGroup("eca", "Event-condition-action rules, their runs, and the log of their changes")

_EXAMPLE = {
    "text": "RULE note ON UPDATE (_, serverPort, _ -> _) IF $delta/target(serverHost) = 'pirates.uni-passau.de'\n"
    "DO INSERT ($delta, rdfs:comment, 'the port was changed')"
}
_ONE_OR_MANY = {
    "required": True,
    "content": {"application/json": {"schema": PostedEcaRules.model_json_schema(), "example": _EXAMPLE}},
}
_RULES = describe_json(page_schema(EcaRuleShown.model_json_schema()), "A page of rules")
_RUNS = describe_json(page_schema(EcaRunShown.model_json_schema()), "A page of runs")
_LOG = describe_json(page_schema(LoggedChangeShown.model_json_schema()), "A page of changes")
_TREE = describe_json({"type": "object"}, "The run with its tree")
_STATES = {"enable": "active", "disable": "disabled", "shadow": "shadow"}


# Rules


@routes.route("POST", "/eca/rules", "Add rules",
              {201: EcaRuleAdded, 202: Accepted} | describe_problems(408, 409, 413, 415, 422, 429),
              headers=(IDEMPOTENCY_KEY,), body=_ONE_OR_MANY)  # fmt: skip
def add() -> Response:
    """Adds one rule, or a list of rules in one transaction (all or none). For a list, or a text of several rules, the
    response has `items`. A rule acts within the URI prefixes of its author's token. Rules do not look at what was
    stored before."""
    caller = require_admin()
    given = read_json_items(PostedEcaRule, services().config.max_document_bytes)
    rules = given if isinstance(given, list) else [given]
    if not rules:
        raise BadRequest("The list of rules is empty. Send at least one rule.")
    done = add_eca_rules(caller, rules)
    if isinstance(done, PendingJob):
        return accepted_response(done)
    items, position = done.result["items"], done.result["position"]
    if isinstance(given, list) or len(items) > 1:
        return list_response("items", items, {}, {"position": position}, 201)
    response = make_response(items[0] | {"position": position}, 201)
    response.headers["Location"] = f"/api/v1/eca/rules/{items[0]['id']}"
    response.set_etag(str(position))
    return response


@routes.route("GET", "/eca/rules", "List rules", {200: _RULES} | describe_problems(), query=EcaRulesQuery)
def list_(query: EcaRulesQuery) -> dict[str, Any]:
    """Lists rules in the order of their IDs."""
    require_reader()
    with services().engine.connect() as connection:
        found = list_eca_rules(connection, read_after(query.after), query.limit + 1, query.set, query.state)
    items = [rule_json(rule) for rule in found[: query.limit]]
    return {"items": items, "next": str(items[-1]["id"]) if len(found) > query.limit else None}


@routes.route("GET", "/eca/rules/<rule>", "Get a rule", {200: EcaRuleShown} | describe_problems(404))
def get(rule: str) -> Response:
    """A rule is given by its name or ID. Its position is the `ETag`."""
    require_reader()
    with services().engine.connect() as connection:
        found = find_rule(connection, rule)
    response = jsonify(rule_json(found))
    response.set_etag(str(found.position))
    return response


@routes.route("PUT", "/eca/rules/<rule>", "Replace the text of a rule",
              {200: EcaRuleAdded, 202: Accepted} | describe_problems(404, 408, 409, 412, 413, 415, 422, 429),
              headers=(IF_MATCH, IDEMPOTENCY_KEY), body=describe_json_body(EcaText, _EXAMPLE))  # fmt: skip
def put(rule: str) -> Response:
    """The rule keeps its ID, its set and its state; a quarantined rule becomes active. From then on it acts within the
    URI prefixes of this token."""
    caller = require_admin()
    text = read_json_body(EcaText).text
    return _answer(replace_eca_rule(caller, rule, text, request_etags("If-Match")))


@routes.route("DELETE", "/eca/rules/<rule>", "Remove a rule",
              {200: EcaRuleChanged, 202: Accepted} | describe_problems(404, 429))  # fmt: skip
def delete(rule: str) -> Response:
    """Its changes of documents stay. To remove the insertions of all rules of a set, delete the document
    `urn:mdv:eca:SET`."""
    return _answer(change_eca_rules("remove", require_admin(), rule=rule))


@routes.route("POST", "/eca/rules/<rule>/enable", "Enable a rule",
              {200: EcaRuleChanged, 202: Accepted} | describe_problems(404, 422, 429))  # fmt: skip
def enable(rule: str) -> Response:
    """The rule becomes active, also if it was quarantined."""
    return _change_state(rule, "enable")


@routes.route("POST", "/eca/rules/<rule>/disable", "Disable a rule",
              {200: EcaRuleChanged, 202: Accepted} | describe_problems(404, 429))  # fmt: skip
def disable(rule: str) -> Response:
    """The rule stays stored and does nothing."""
    return _change_state(rule, "disable")


@routes.route("POST", "/eca/rules/<rule>/shadow", "Evaluate a rule without its actions",
              {200: EcaRuleChanged, 202: Accepted} | describe_problems(404, 422, 429))  # fmt: skip
def shadow(rule: str) -> Response:
    """The rule is evaluated, and its runs are recorded. Its actions are not executed."""
    return _change_state(rule, "shadow")


def _change_state(rule: str, verb: str) -> Response:
    return _answer(change_eca_rules("state", require_admin(), rule=rule, state=_STATES[verb]))


def _answer(done: FinishedJob | PendingJob) -> Response:
    if isinstance(done, PendingJob):
        return accepted_response(done)
    response = make_response(done.result, 200)
    response.set_etag(str(done.result["position"]))
    return response


@routes.route("POST", "/eca/dry-run", "Show the run that a change would cause",
              {200: _TREE, 202: Accepted} | describe_problems(408, 413, 415, 422, 429),
              body=describe_json_body(EcaDryRun, {"update": "INSERT (resource(http://a.org/x), rdfs:label, 'x')",
                                                  "rules": [_EXAMPLE]}))  # fmt: skip
def dry_run() -> Response:
    """Shows the effect of an update (`update`), or of the registration of a document (`document` with `uri`), with the
    present rules and the drafts in `rules`. Changes nothing. The answer is that of the update or the registration;
    `run` has the tree of the run."""
    caller = require_admin()
    given = read_json_items(EcaDryRun, services().config.max_document_bytes)
    if isinstance(given, list):
        raise BadRequest("Send one object, not a list.")
    done = _try(caller, given)
    return accepted_response(done) if isinstance(done, PendingJob) else jsonify(done.result)


def _try(caller: Caller, given: EcaDryRun) -> FinishedJob | PendingJob:
    if (given.update is None) == (given.document is None):
        raise BadRequest("Send either `update`, or `document` with `uri`.")
    if given.update is not None:
        if given.uri is not None or given.media_type is not None:
            raise BadRequest("`uri` and `media_type` belong to `document`. Use `graph` for an update.")
        graph = check_document_uri(given.graph or UPDATES_DOCUMENT)
        return run_update(caller, _encoded(given.update), graph, DRY_RUN_WAIT_SECONDS, True, given.rules)
    if given.uri is None or given.graph is not None:
        raise BadRequest("`document` needs `uri`, the URI to register it under, and no `graph`.")
    uri = check_registration_uri(given.uri)
    document = _encoded(given.document or "")
    return try_registration(caller, uri, document, given.media_type or "application/rdf+xml", given.rules)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"The text contains an unpaired surrogate at character {error.start + 1}.") from None


# Runs and log


@routes.route("GET", "/eca/runs", "List runs", {200: _RUNS} | describe_problems(404), query=EcaRunsQuery)
def runs(query: EcaRunsQuery) -> dict[str, Any]:
    """Lists runs, newest first: changes in which at least one rule fired, and updates. With `rule`, those in which the
    rule fired or failed, also if it was a shadow rule or the change was refused. Runs are kept for some days."""
    require_reader()
    with services().engine.connect() as connection:
        rule = rule_number(connection, query.rule) if query.rule is not None else None
        found = list_runs(
            connection, read_before(query.after), query.limit + 1, rule, query.outcome, query.position
        )  # fmt: skip
    items = [run_json(run) for run in found[: query.limit]]
    return {"items": items, "next": str(items[-1]["id"]) if len(found) > query.limit else None}


@routes.route("GET", "/eca/runs/<run>", "Get a run as a tree", {200: _TREE} | describe_problems(404))
def run(run: str) -> Response:
    """`tree` has the rules that fired (`copies`), and the actions of an update (`updates`). A rule has its `delta`, the
    `comparisons` of its condition with the values that they compared, and the updates of its actions. An update has its
    `changes`, and the rules that it triggered. The tree has the first 1,000 and the last 100 updates; `left_out` is the
    number of the others, and `later` has the rules that these triggered. Parts below 100 levels are in `continued`.
    `reason` says why the change was refused, or compensated by MDV itself."""
    require_reader()
    with services().engine.connect() as connection:
        found, trace = read_run(connection, read_run_id(run))
    tree = tree_json(build_tree(trace))
    return jsonify(run_json(found) | {"tree": tree, "failed": trace["failed"], "reason": trace.get("reason")})


@routes.route("POST", "/eca/runs/<run>/compensate", "Undo a run",
              {200: Compensated, 202: Accepted} | describe_problems(404, 409, 429))  # fmt: skip
def compensate_run(run: str) -> Response:
    """Undoes what the transaction of the run did, with the rules that depend on it by ABORT, in a new transaction. A
    change is undone only if its result is still there unchanged; the others are reported. A compensation triggers no
    rules."""
    caller = require_unlimited_admin()
    done = compensate(caller, read_run_id(run))
    return accepted_response(done) if isinstance(done, PendingJob) else jsonify(done.result)


@routes.route("GET", "/eca/log", "List the changes that rules made", {200: _LOG} | describe_problems(404),
              query=EcaLogQuery)  # fmt: skip
def log(query: EcaLogQuery) -> dict[str, Any]:
    """Lists the statements that rules and updates inserted and deleted, newest first: of a resource, a rule, a document
    or a run. The log is kept for ever."""
    require_reader()
    with services().engine.connect() as connection:
        rule = rule_number(connection, query.rule) if query.rule is not None else None
        found = list_changes(
            connection, read_before(query.after), query.limit + 1, query.resource, rule, query.document, query.run
        )  # fmt: skip
    items = [change_json(change) for change in found[: query.limit]]
    return {"items": items, "next": str(items[-1]["id"]) if len(found) > query.limit else None}
