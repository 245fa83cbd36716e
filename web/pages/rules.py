"""Rules: written, taken apart, drawn with what they share, and a run of the filter replayed on the drawing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from flask import Response, jsonify, request, url_for

from mdv.db import parts as db
from mdv.db.graph import Graph
from mdv.db.lmrs import list_lmrs
from mdv.db.read import list_documents, resource_documents
from mdv.errors import BadRequest, InvalidRule, MdvError, NotFound
from mdv.mdp.drawing import MOST_RULES, Drawing, draw_parts, draw_rule, draw_rules, draw_run
from mdv.mdp.explain import explain
from mdv.mdp.explanation import Explanation
from mdv.mdp.query import run_query
from mdv.mdp.rules import OWN, Library
from mdv.mdp.subscribe import get_lmr
from mdv.mdp.trace import Trace, trace
from mdv.query.answers import Resources
from mdv.rdf.parse import check_document_uri
from mdv.rules.words import completions, example, registered_class
from web.asking import fits_address
from web.negotiate import in_thread
from web.numbers import after_number, subscription_number
from web.pages.drawing import as_json, as_steps, as_tables, name_in
from web.pages.frame import go, member, page, pages, part, session, visitor, whole_editor
from web.pages.like import subscribe_to
from web.services import services

ON_A_PAGE = 50
COUNT_SECONDS = 1.5
"""What matches is counted for no longer while somebody types."""
MOST_LMRS = 200
MOST_WORDS = 200
"""Named rules that the editor completes."""
MOST_OFFERED = 5
"""Documents that a rule can be tried on right away."""


# A rule as it is written


@dataclass(frozen=True, slots=True)
class Looked:
    """A rule, looked at: what it is made of, or what is wrong with it."""

    told: Explanation | None = None
    drawing: Drawing | None = None
    problem: Mapping[str, Any] | None = None
    can_be_asked: bool = False

    @property
    def flaws(self) -> list[Any]:
        return list(self.problem.get("errors") or [])[:50] if self.problem else []


@pages.get("/rules")
def rules() -> Response:
    """The workbench: a rule, as the address has it, or as it was subscribed, or an example."""
    visitor()
    number = request.args.get("id", "")
    registered = _registered(number) if number else None
    text = registered.text if registered else request.args["rule"] if "rule" in request.args else _example()
    return _workbench(text.replace("\r\n", "\n"), request.args.get("lmr", ""), registered,
                      name=request.args.get("name", ""))  # fmt: skip


@pages.post("/rules")
def rules_written() -> Response:
    """The same for a text that comes with a form: it may be longer than an address. What fits goes on at its address,
    which a browser can come back to."""
    visitor()
    text, lmr, name = (request.form.get(field, "").replace("\r\n", "\n") for field in ("rule", "lmr", "name"))
    if fits_address(text + lmr + name):
        return go("rules", rule=text, lmr=lmr or None, name=name or None)
    return _workbench(text, lmr, None, name=name)


@pages.post("/rules/look")
def look_at_rule() -> Response:
    """What is said of a rule while it is written."""
    visitor()
    text = request.form.get("rule", "").replace("\r\n", "\n")
    return part("rules_look.html", rule=text, **_shown(_look(text, request.form.get("lmr", ""))))


@pages.post("/rules/subscribe")
def subscribe_rule() -> Response:
    whole_editor()
    form = request.form
    text, lmr = form.get("rule", "").replace("\r\n", "\n"), form.get("lmr", "").strip()
    try:
        if not lmr:
            raise BadRequest("Choose the LMR that should get what the rule selects.")
        return subscribe_to(lmr, text, form.get("name", "").strip() or None)
    except MdvError as error:
        return _workbench(text, lmr, None, error, form.get("name", ""))


@pages.get("/rules/words.json")
def words() -> Response:
    """What a rule can be made of, for the editor; with the named rules of an LMR, for who has signed in."""
    visitor()
    lmr = request.args.get("lmr", "") if session() else ""
    with services().engine.connect() as connection:
        in_force = services().schemas.now(connection)
        named = db.named_rules(connection, lmr, MOST_WORDS) if lmr else []
        owner = get_lmr(connection, lmr).id if named else OWN
        library = Library(Graph(connection), owner, {})
        rules = [{"name": rule.name, "iri": registered_class(services().rules.read(rule.text, in_force, library)[0])}
                 for rule in named]  # fmt: skip
        return jsonify(in_thread(completions, in_force.schema) | {"rules": rules})


def _workbench(
    text: str, lmr: str, registered: db.ListedRule | None, error: MdvError | None = None, name: str = ""
) -> Response:
    looked = _look(text, (registered.lmr or "") if registered else lmr) if text.strip() else Looked()
    if error is not None:
        looked = replace(looked, problem=error.problem())
    return page(
        "rules.html", error.status if error else 200, rule=text, lmr=lmr, name=name, registered=registered,
        refused=error is not None, documents=_documents(text) if registered else [], **_lmrs(), **_shown(looked),
    )  # fmt: skip


def _look(text: str, lmr: str) -> Looked:
    """What a rule means now, for an LMR whose named rules it may search."""
    if not text.strip():
        return Looked()
    s = services()
    try:
        with s.engine.connect() as connection:  # what LMRs search is not for everybody
            owner = get_lmr(connection, lmr).id if lmr and session() else OWN
        with s.engine.connect() as connection:
            still = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            told = explain(still, text, s.schemas, s.rules, owner, seconds=COUNT_SECONDS, apart=in_thread)
    except MdvError as error:
        return Looked(problem=error.problem())
    return Looked(told, draw_rule(told), can_be_asked=fits_address(text) and _means_something(text))


def _means_something(text: str) -> bool:
    """Whether a rule has a meaning that is no LMR's own: only then it can be asked as a query."""
    with services().engine.connect() as connection:
        in_force = services().schemas.now(connection)
        try:
            services().rules.read(text, in_force, Library(Graph(connection), OWN, {}))
        except InvalidRule:
            return False
    return True


def _lmrs() -> dict[str, Any]:
    """The LMRs to choose from."""
    with services().engine.connect() as connection:
        found = list_lmrs(connection, 0, MOST_LMRS + 1)
    return {"lmrs": found[:MOST_LMRS], "more_lmrs": len(found) > MOST_LMRS}


def _shown(looked: Looked) -> dict[str, Any]:
    drawing = looked.drawing
    return {
        "told": looked.told,
        "problem": looked.problem,
        "flaws": looked.flaws,
        "can_be_asked": looked.can_be_asked,
        "drawing": as_json(drawing) if drawing is not None else None,
        "tables": as_tables(drawing) if drawing is not None else None,
        "shared": [p for p in drawing.parts if not p.is_new] if drawing is not None else [],
    }


def _example() -> str:
    with services().engine.connect() as connection:
        return example(services().schemas.now(connection).schema)


def _documents(rule: str) -> list[str]:
    """Some documents that describe what a rule selects."""
    try:
        with services().engine.connect() as connection:
            found = run_query(connection, rule, services().schemas, limit=MOST_OFFERED, apart=in_thread)
        with services().engine.connect() as connection:
            some = [uri for uri, _ in found.items] if isinstance(found, Resources) else []
            documents = [document for uri in some for document in resource_documents(connection, uri)]
            return list(dict.fromkeys(documents))[:MOST_OFFERED]
    except MdvError:  # named rules of an LMR, or too much to look at: the page has a field for any document
        return []


# What is registered


@pages.get("/rules/registered")
def registered_rules() -> Response:
    member()
    lmr, holding = request.args.get("lmr", "").strip(), request.args.get("holding", "").strip()
    after = after_number(request.args.get("after"))
    with services().engine.connect() as connection:
        lmr = get_lmr(connection, lmr).name if lmr else ""
        found = db.list_rules(connection, after, ON_A_PAGE + 1, lmr, holding)
        total = db.count_rules(connection, lmr, holding)
    shown = found[:ON_A_PAGE]
    more = _next("registered_rules", shown[-1].id, lmr=lmr, holding=holding) if len(found) > ON_A_PAGE else None
    first = _next("registered_rules", None, lmr=lmr, holding=holding) if after else None
    return page("rules_registered.html", rules=shown, more=more, first=first, total=total, lmr=lmr, holding=holding,
                **_lmrs())  # fmt: skip


@pages.get("/rules/graph")
def rule_graph() -> Response:
    """Many rules in one drawing, with what they share; a page of them at a time."""
    member()
    lmr, after = request.args.get("lmr", "").strip(), after_number(request.args.get("after"))
    with services().engine.connect() as connection:
        lmr = get_lmr(connection, lmr).name if lmr else ""
        total = db.count_rules(connection, lmr)
        found = db.list_rules(connection, after, MOST_RULES + 1, lmr)
        drawing, fitting = draw_rules(connection, [rule.id for rule in found[:MOST_RULES]])
    shown = found[:fitting]
    more = _next("rule_graph", shown[-1].id, lmr=lmr) if shown and len(shown) < len(found) else None
    first = _next("rule_graph", None, lmr=lmr) if after else None
    return page("rules_graph.html", drawing=as_json(drawing), tables=as_tables(drawing), rules=shown, more=more,
                first=first, total=total, lmr=lmr, after=after, **_lmrs())  # fmt: skip


@pages.get("/rules/atomic/<int:number>")
def atomic_rule(number: int) -> Response:
    """An atomic rule: what it is made of, and who uses it."""
    member()
    if number > 2**62:
        raise NotFound(f"There is no atomic rule {number}.")
    after, after_rule = (after_number(request.args.get(name)) for name in ("after", "rules"))
    with services().engine.connect() as connection:
        own = db.read_parts(connection, [number])
        if not own:
            raise NotFound(f"There is no atomic rule {number}: it may have gone with the last rule that used it.")
        users = db.read_users(connection, [number], after, ON_A_PAGE + 1)
        ending = db.ending_in(connection, number, after_rule, ON_A_PAGE + 1)
        drawing = draw_parts(connection, [number, *users[:ON_A_PAGE]])
    using = [part for part in drawing.parts if part.id in set(users[:ON_A_PAGE])]
    return page(
        "rules_atomic.html", part=own[0], using=using, ending=ending[:ON_A_PAGE], drawing=as_json(drawing, lit=number),
        tables=as_tables(drawing),
        more=_next("atomic_rule", users[ON_A_PAGE - 1], number=number) if len(users) > ON_A_PAGE else None,
        more_rules=url_for("pages.atomic_rule", number=number, rules=ending[ON_A_PAGE - 1].id)
        if len(ending) > ON_A_PAGE else None,
    )  # fmt: skip


# A run of the filter


@pages.get("/rules/replay")
def replay() -> Response:
    """The paper's filter on a registered document, step by step."""
    member()
    uri, number = request.args.get("document", "").strip(), request.args.get("rule", "").strip()
    if not uri:
        with services().engine.connect() as connection:
            some = [document.uri for document in list_documents(connection, "", 20)]
        return page("rules_replay_choose.html", documents=some, number=number)
    rule = _registered(number) if number else None
    with services().engine.connect() as connection:
        run = trace(connection, check_document_uri(uri), services().schemas)
    with services().engine.connect() as connection:
        drawing = draw_run(connection, run, [rule.id] if rule else [])
    iterations = _of(run, drawing)
    step = min(after_number(request.args.get("step")), len(iterations))
    return page(
        "rules_replay.html", document=uri, rule=rule, run=run, iterations=iterations, step=step,
        drawing=as_json(drawing), steps=json.dumps(as_steps(iterations, drawing, uri)), tables=as_tables(drawing),
        name_in=name_in, left_out=drawing.more, results={(row.resource, row.rule) for row in run.results},
    )  # fmt: skip


def _of(run: Trace, drawing: Drawing) -> list[list[Any]]:
    """The iterations of a run, as far as they are drawn."""
    drawn = {part.id for part in drawing.parts}
    found = [[row for row in rows if row.rule in drawn] for rows in run.iterations]
    while found and not found[-1]:
        found.pop()
    return found


def _registered(number: str) -> db.ListedRule:
    member()
    with services().engine.connect() as connection:
        found = db.find_rule(connection, subscription_number(number))
    if found is None:
        raise NotFound(f"There is no rule {number[:20]}: it may have ended.")
    return found


def _next(endpoint: str, after: int | None, **kept: Any) -> str:
    return url_for(f"pages.{endpoint}", after=after, **{name: value or None for name, value in kept.items()})
