"""Query pages: run a query by URL, save it under a name, turn it into a rule."""

from __future__ import annotations

from typing import Any

from flask import Response, request

from mdv.errors import BadRequest, MdvError, NotFound
from mdv.inspect.explain_rule import explain_rule
from mdv.inspect.query import QueryRows, ResourcePage, run_query
from mdv.mdp import saved_queries as db
from mdv.mdp.rule_cache import NamedRules
from mdv.mdp.rules.planning import PROVIDER_OWNER
from mdv.rdf.schema import Schema
from mdv.rules.ast import ParsedQuery
from mdv.rules.normalise_query import normalise_query, normalise_rule_query
from mdv.rules.parse import parse, parse_query
from mdv.rules.rewrite_query import query_to_rule
from web.negotiate import run_in_thread
from web.pages.base import pages, redirect_to, render_fragment, render_page, require_unlimited_editor, require_viewer
from web.query_view import (
    Parsed,
    check_text,
    download,
    example_query,
    fits_in_url,
    has_page,
    normalise_newlines,
    query_page_values,
    rules_from_query,
)
from web.services import services

PAGE_SIZE = 50
MAX_SAVED_SHOWN = 10
"""Saved queries that the query page lists."""
COUNT_SECONDS = 1.0


@pages.get("/query")
def query() -> Response:
    require_viewer()
    saved, text = None, normalise_newlines(request.args.get("q", ""))
    with services().single.connect() as connection:
        if number := request.args.get("saved"):
            saved = db.get_saved(connection, _saved_id(number))
            text = saved.text
        others = db.list_saved(connection, "", MAX_SAVED_SHOWN + 1)
    return _render(text, saved=saved, others=others[:MAX_SAVED_SHOWN], more_others=len(others) > MAX_SAVED_SHOWN)


def _render(text: str, **values: Any) -> Response:
    if text.strip():
        found = query_page_values(text, _run) | {
            "rules": rules_from_query(text, "rules"),
            "rule_action": "Create rule",
        }
    else:
        found = {"text": "", "example": example_query(_schema())}
    problem = found.get("problem")
    return render_page(
        "query.html",
        problem["status"] if problem else 200,
        keeps=True,
        has_completions=has_page("rule_completions"),
        **found,
        **values,
    )


@pages.get("/query/export")
def query_export() -> Response:
    require_viewer()
    return download(normalise_newlines(request.args.get("q", "")), _run, lambda: _schema().prefixes)


@pages.post("/query/look")
def query_look() -> Response:
    """Check a query and count its matches while the user types."""
    require_viewer()
    text = normalise_newlines(request.form.get("q", ""))
    found = check_text(text, _check)
    counted = _count(found["parsed"]) if found.get("parsed") else None
    return render_fragment("query_look.html", counted=counted, **found)


def _run(
    parsed: Parsed, *, limit: int | None = None, after: str | None = None, with_statements: bool = False
) -> QueryRows | ResourcePage:
    s = services()
    with s.engine.connect() as connection:
        return run_query(connection, parsed, s.schemas, limit=limit, after=after, with_statements=with_statements,
                         apart=run_in_thread)  # fmt: skip


def _schema() -> Schema:
    with services().single.connect() as connection:
        return services().schemas.now(connection).schema


def _check(parsed: Parsed) -> None:
    """Raise an error if the query does not fit the schema."""
    with services().engine.connect() as connection:
        schema = services().schemas.now(connection).schema
        named = NamedRules.stored(connection, PROVIDER_OWNER).parsed
        if isinstance(parsed, ParsedQuery):
            normalise_query(parsed, schema, named)
        else:
            normalise_rule_query(parsed, schema, named)


def _count(parsed: Parsed) -> tuple[str, int] | None:
    """Return a variable and the number of its matches; None if counting takes too long."""
    rule = parse(query_to_rule(parsed)) if isinstance(parsed, ParsedQuery) else parsed
    s = services()
    try:
        with s.engine.connect() as connection:
            explanation = explain_rule(
                connection, rule.text, s.schemas, s.rules, PROVIDER_OWNER, seconds=COUNT_SECONDS, apart=run_in_thread
            )
            found = explanation.matches
    except MdvError:  # a query may be larger than a rule
        return None
    return None if found is None else (rule.register.text, found)


# Saved queries


@pages.get("/query/saved")
def saved_queries() -> Response:
    require_viewer()
    with services().single.connect() as connection:
        found = db.list_saved(connection, request.args.get("after", ""), PAGE_SIZE + 1)
    more = found[PAGE_SIZE - 1].name if len(found) > PAGE_SIZE else None
    return render_page("query_saved.html", saved=found[:PAGE_SIZE], more=more)


@pages.post("/query/save")
def save_query() -> Response:
    """Save a query. Replacing another one of the same name needs confirmation."""
    caller = require_unlimited_editor()
    name, text = request.form.get("name", "").strip(), normalise_newlines(request.form.get("q", ""))
    try:
        parse_query(text)
        if not fits_in_url(text):
            raise BadRequest("The query is too long for a URL, which saved queries need. Shorten it.")
        with services().engine.begin() as connection:
            before = db.find_replaced(connection, name, text)
            if before is not None and request.form.get("replace") != str(before.id):
                return render_page("query_ask.html", 409, what="replace", saved=before, text=text)
            number = db.save_query(connection, name, text, caller.name)
    except MdvError as error:
        return render_page("query_save.html", error.status, problem=error.problem(), name=name, text=text)
    return redirect_to("query", saved=number)


@pages.get("/query/saved/<number>")
def saved_query(number: str) -> Response:
    """Show a saved query that can be renamed or deleted."""
    require_viewer()
    return _render_saved(_saved_id(number))


def _render_saved(number: int, problem: MdvError | None = None, name: str | None = None) -> Response:
    with services().single.connect() as connection:
        found = db.get_saved(connection, number)
    return render_page(
        "query_one.html",
        problem.status if problem else 200,
        saved=found,
        name=found.name if name is None else name,
        problem=problem.problem() if problem else None,
    )


@pages.post("/query/saved/<number>/rename")
def rename_query(number: str) -> Response:
    require_unlimited_editor()
    name = request.form.get("name", "").strip()
    try:
        with services().engine.begin() as connection:
            db.rename_saved(connection, _saved_id(number), name)
    except NotFound:
        raise
    except MdvError as error:
        return _render_saved(_saved_id(number), error, name)
    return redirect_to("saved_query", number=number)


@pages.get("/query/saved/<number>/delete")
def ask_to_delete_query(number: str) -> Response:
    require_unlimited_editor()
    with services().single.connect() as connection:
        found = db.get_saved(connection, _saved_id(number))
    return render_page("query_ask.html", what="delete", saved=found)


@pages.post("/query/saved/<number>/delete")
def delete_query(number: str) -> Response:
    require_unlimited_editor()
    with services().engine.begin() as connection:
        db.delete_saved(connection, _saved_id(number))
    return redirect_to("saved_queries")


def _saved_id(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise NotFound("The saved query does not exist. It may have been deleted.")
    return int(text)
