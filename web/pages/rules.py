"""Rule pages: write and decompose rules, list them, dependency graph, filter replay."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from flask import Response, jsonify, request, url_for

from mdv.errors import BadRequest, InvalidRule, MdvError, NotFound
from mdv.inspect.drawing import MAX_DRAWN_SUBSCRIPTIONS, Drawing, draw_atomic_rules, draw_replay, draw_rule, draw_rules
from mdv.inspect.explain_rule import explain_rule
from mdv.inspect.filter_replay import FilterReplay, replay_filter
from mdv.inspect.query import run_query
from mdv.inspect.rule_explanation import RuleExplanation
from mdv.inspect.sql import rule_parts as db
from mdv.inspect.sql.documents import list_documents
from mdv.inspect.sql.resources import list_resource_documents
from mdv.mdp.lmrs import get_lmr, list_lmrs
from mdv.mdp.rule_cache import NamedRules
from mdv.mdp.rules.planning import PROVIDER_OWNER
from mdv.query.results import ResourcePage
from mdv.rdf.parse import check_document_uri
from mdv.rules.completion import completions, example, registered_class
from web.labels import schema_labels
from web.negotiate import run_in_thread
from web.number_params import read_after, read_subscription_id
from web.pages.base import (
    pages,
    redirect_to,
    render_fragment,
    render_page,
    require_signed_in,
    require_unlimited_editor,
    require_viewer,
    session,
)
from web.pages.rule_diagram import diagram_json, name_relative_to, paper_tables, replay_steps
from web.pages.similar import subscribe_to
from web.query_view import fits_in_url
from web.services import services

PAGE_SIZE = 50
COUNT_SECONDS = 1.5
"""Time limit for counting matches while the user types."""
MAX_LMRS_LISTED = 200
MAX_NAMED_RULES = 200
"""Maximum number of named rules in completions."""
MAX_DOCUMENTS_OFFERED = 5
"""Maximum number of documents that are offered for a replay."""


# The rule editor


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """The check of a rule: its explanation and diagram, or the problem."""

    explanation: RuleExplanation | None = None
    drawing: Drawing | None = None
    problem: Mapping[str, Any] | None = None
    is_query: bool = False

    @property
    def errors(self) -> list[Any]:
        return list(self.problem.get("errors") or [])[:50] if self.problem else []


@pages.get("/rules")
def rules() -> Response:
    """Show the rule editor with the rule of the URL, a subscribed rule, or an example."""
    require_viewer()
    number = request.args.get("id", "")
    registered = _registered(number) if number else None
    text = registered.text if registered else request.args["rule"] if "rule" in request.args else _example()
    return _render_editor(text.replace("\r\n", "\n"), request.args.get("lmr", ""), registered,
                      name=request.args.get("name", ""))  # fmt: skip


@pages.post("/rules")
def submit_rule() -> Response:
    """Show the rule editor for a text sent with a form, which may be too long for a URL. If it fits, redirect to its
    URL, so that the browser can return to it."""
    require_viewer()
    text, lmr, name = (request.form.get(field, "").replace("\r\n", "\n") for field in ("rule", "lmr", "name"))
    if fits_in_url(text + lmr + name):
        return redirect_to("rules", rule=text, lmr=lmr or None, name=name or None)
    return _render_editor(text, lmr, None, name=name)


@pages.post("/rules/look")
def check_rule() -> Response:
    """Check a rule while the user types."""
    require_viewer()
    text = request.form.get("rule", "").replace("\r\n", "\n")
    return render_fragment("rules_look.html", rule=text, **_template_values(_check(text, request.form.get("lmr", ""))))


@pages.post("/rules/subscribe")
def subscribe_rule() -> Response:
    caller = require_unlimited_editor()
    form = request.form
    text, lmr = form.get("rule", "").replace("\r\n", "\n"), form.get("lmr", "").strip()
    try:
        if not lmr:
            raise BadRequest("The LMR is missing. Choose the LMR to subscribe.")
        return subscribe_to(lmr, text, caller.by, form.get("name", "").strip() or None)
    except MdvError as error:
        return _render_editor(text, lmr, None, error, form.get("name", ""))


@pages.get("/rules/words.json")
def rule_completions() -> Response:
    """Return completions for the editor; for signed-in users, with the named rules of an LMR."""
    require_viewer()
    lmr = request.args.get("lmr", "") if session() else ""
    with services().engine.connect() as connection:
        in_force = services().schemas.now(connection)
        named = db.list_named_rules(connection, lmr, MAX_NAMED_RULES) if lmr else []
        owner = get_lmr(connection, lmr).id if named else PROVIDER_OWNER
        library = NamedRules.stored(connection, owner)
        rules = [{"name": rule.name, "iri": registered_class(services().rules.read(rule.text, in_force, library)[0])}
                 for rule in named]  # fmt: skip
        labels = schema_labels(in_force.statements, in_force.schema)
        return jsonify(run_in_thread(completions, in_force.schema, labels) | {"rules": rules})


def _render_editor(
    text: str, lmr: str, registered: db.ListedRule | None, error: MdvError | None = None, name: str = ""
) -> Response:
    check = _check(text, (registered.lmr or "") if registered else lmr) if text.strip() else RuleCheck()
    if error is not None:
        check = replace(check, problem=error.problem())
    can_be_run = registered is not None and registered.suspended is None
    return render_page(
        "rules.html",
        error.status if error else 200,
        rule=text,
        lmr=lmr,
        name=name,
        registered=registered,
        refused=error is not None,
        documents=_documents(text) if can_be_run else [],
        **_lmrs(),
        **_template_values(check),
    )


def _check(text: str, lmr: str) -> RuleCheck:
    """Check a rule, for an LMR whose named rules it may search."""
    if not text.strip():
        return RuleCheck()
    s = services()
    try:
        with s.engine.connect() as connection:  # named rules are visible only to signed-in users
            owner = get_lmr(connection, lmr).id if lmr and session() else PROVIDER_OWNER
        with s.engine.connect() as connection:
            snapshot = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            explanation = explain_rule(
                snapshot, text, s.schemas, s.rules, owner, seconds=COUNT_SECONDS, apart=run_in_thread
            )
    except MdvError as error:
        return RuleCheck(problem=error.problem())
    return RuleCheck(explanation, draw_rule(explanation), is_query=fits_in_url(text) and _is_self_contained(text))


def _is_self_contained(text: str) -> bool:
    """True if the rule uses no named rules of an LMR. Only then it can be run as a query."""
    with services().engine.connect() as connection:
        in_force = services().schemas.now(connection)
        try:
            services().rules.read(text, in_force, NamedRules.stored(connection, PROVIDER_OWNER))
        except InvalidRule:
            return False
    return True


def _lmrs() -> dict[str, Any]:
    """Return the LMRs to choose from."""
    with services().engine.connect() as connection:
        found = list_lmrs(connection, 0, MAX_LMRS_LISTED + 1)
    return {"lmrs": found[:MAX_LMRS_LISTED], "more_lmrs": len(found) > MAX_LMRS_LISTED}


def _template_values(check: RuleCheck) -> dict[str, Any]:
    drawing = check.drawing
    return {
        "explanation": check.explanation,
        "problem": check.problem,
        "errors": check.errors,
        "is_query": check.is_query,
        "drawing": diagram_json(drawing) if drawing is not None else None,
        "tables": paper_tables(drawing) if drawing is not None else None,
        "shared": [p for p in drawing.parts if not p.is_new] if drawing is not None else [],
    }


def _example() -> str:
    with services().engine.connect() as connection:
        return example(services().schemas.now(connection).schema)


def _documents(rule: str) -> list[str]:
    """Return some documents that describe resources which the rule selects."""
    try:
        with services().engine.connect() as connection:
            found = run_query(connection, rule, services().schemas, limit=MAX_DOCUMENTS_OFFERED, apart=run_in_thread)
        with services().engine.connect() as connection:
            some = [uri for uri, _ in found.items] if isinstance(found, ResourcePage) else []
            documents = [document for uri in some for document in list_resource_documents(connection, uri)]
            return list(dict.fromkeys(documents))[:MAX_DOCUMENTS_OFFERED]
    except MdvError:  # it uses named rules of an LMR, or takes too long; the user can enter any document
        return []


# Registered rules


@pages.get("/rules/registered")
def registered_rules() -> Response:
    require_signed_in()
    lmr, holding = request.args.get("lmr", "").strip(), request.args.get("holding", "").strip()
    suspended = request.args.get("state", "") == "suspended"
    after = read_after(request.args.get("after"))
    with services().engine.connect() as connection:
        lmr = get_lmr(connection, lmr).name if lmr else ""
        found = db.list_rules(connection, after, PAGE_SIZE + 1, lmr, holding, suspended)
        total = db.count_rules(connection, lmr, holding, suspended)
    shown = found[:PAGE_SIZE]
    kept = {"lmr": lmr, "holding": holding, "state": "suspended" if suspended else ""}
    more = _next("registered_rules", shown[-1].id, **kept) if len(found) > PAGE_SIZE else None
    first = _next("registered_rules", None, **kept) if after else None
    return render_page("rules_registered.html", rules=shown, more=more, first=first, total=total, **kept, **_lmrs())


@pages.get("/rules/graph")
def rule_graph() -> Response:
    """Show a page of rules in one dependency graph."""
    require_signed_in()
    lmr, after = request.args.get("lmr", "").strip(), read_after(request.args.get("after"))
    with services().engine.connect() as connection:
        lmr = get_lmr(connection, lmr).name if lmr else ""
        total = db.count_rules(connection, lmr)
        found = db.list_rules(connection, after, MAX_DRAWN_SUBSCRIPTIONS + 1, lmr)
        drawing, fitting = draw_rules(connection, [rule.id for rule in found[:MAX_DRAWN_SUBSCRIPTIONS]])
    shown = found[:fitting]
    more = _next("rule_graph", shown[-1].id, lmr=lmr) if shown and len(shown) < len(found) else None
    first = _next("rule_graph", None, lmr=lmr) if after else None
    return render_page(
        "rules_graph.html",
        drawing=diagram_json(drawing),
        tables=paper_tables(drawing),
        rules=shown,
        more=more,
        first=first,
        total=total,
        lmr=lmr,
        after=after,
        **_lmrs(),
    )


@pages.get("/rules/atomic/<int:number>")
def atomic_rule(number: int) -> Response:
    """Show an atomic rule with its inputs and uses."""
    require_signed_in()
    if number > 2**62:
        raise NotFound(f"The atomic rule {number} does not exist.")
    after, after_rule = (read_after(request.args.get(name)) for name in ("after", "rules"))
    with services().engine.connect() as connection:
        own = db.read_parts(connection, [number])
        if not own:
            raise NotFound(
                f"The atomic rule {number} does not exist. It may have been removed with the last rule that used it."
            )
        users = db.read_dependents(connection, [number], after, PAGE_SIZE + 1)
        ending = db.list_rules_of_end(connection, number, after_rule, PAGE_SIZE + 1)
        drawing = draw_atomic_rules(connection, [number, *users[:PAGE_SIZE]])
    using = [atomic for atomic in drawing.parts if atomic.id in set(users[:PAGE_SIZE])]
    return render_page(
        "rules_atomic.html",
        part=own[0],
        using=using,
        ending=ending[:PAGE_SIZE],
        drawing=diagram_json(drawing, lit=number),
        tables=paper_tables(drawing),
        more=_next("atomic_rule", users[PAGE_SIZE - 1], number=number) if len(users) > PAGE_SIZE else None,
        more_rules=url_for("pages.atomic_rule", number=number, rules=ending[PAGE_SIZE - 1].id)
        if len(ending) > PAGE_SIZE
        else None,
    )


# Filter replay


@pages.get("/rules/replay")
def replay() -> Response:
    """Replay the paper's filter on a registered document, step by step."""
    require_signed_in()
    uri, number = request.args.get("document", "").strip(), request.args.get("rule", "").strip()
    if not uri:
        with services().engine.connect() as connection:
            some = [document.uri for document in list_documents(connection, "", 20)]
        return render_page("rules_replay_choose.html", documents=some, number=number)
    rule = _registered(number) if number else None
    with services().engine.connect() as connection:
        run = replay_filter(connection, check_document_uri(uri), services().schemas)
    with services().engine.connect() as connection:
        drawing = draw_replay(connection, run, [rule.id] if rule else [])
    iterations = _shown_iterations(run, drawing)
    step = min(read_after(request.args.get("step")), len(iterations))
    steps = replay_steps(iterations, drawing, uri)
    return render_page(
        "rules_replay.html",
        document=uri,
        rule=rule,
        run=run,
        iterations=iterations,
        step=step,
        drawing=diagram_json(drawing, steps=steps),
        steps=json.dumps(steps),
        tables=paper_tables(drawing),
        name_in=name_relative_to,
        left_out=drawing.more,
        results={(row.resource, row.rule) for row in run.results},
    )


def _shown_iterations(run: FilterReplay, drawing: Drawing) -> list[list[Any]]:
    """Return the iterations of a replay, restricted to the rules of the diagram."""
    drawn = {atomic.id for atomic in drawing.parts}
    found = [[row for row in rows if row.rule in drawn] for rows in run.iterations]
    while found and not found[-1]:
        found.pop()
    return found


def _registered(number: str) -> db.ListedRule:
    require_signed_in()
    with services().engine.connect() as connection:
        found = db.find_rule(connection, read_subscription_id(number))
    if found is None:
        raise NotFound(f"The rule {number[:20]} does not exist. It may have been removed.")
    return found


def _next(endpoint: str, after: int | None, **kept: Any) -> str:
    return url_for(f"pages.{endpoint}", after=after, **{name: value or None for name, value in kept.items()})
