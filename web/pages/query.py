"""Queries: asked by an address, so that an answer can be sent to somebody; saved under a name; made into rules."""

from __future__ import annotations

from typing import Any

from flask import Response, request

from mdv.db import queries as db
from mdv.db.graph import Graph
from mdv.errors import BadRequest, MdvError, NotFound
from mdv.mdp.explain import explain
from mdv.mdp.query import Resources, Rows, run_query
from mdv.mdp.rules import OWN, Library
from mdv.rdf.schema import Schema
from mdv.rules.as_rule import as_rule
from mdv.rules.ast import ParsedQuery
from mdv.rules.parse import parse, parse_query
from mdv.rules.returns import normalise_asked, normalise_query
from web.asking import Parsed, asked_text, download, example, fits_address, has_page, looked_at, rules_of, shown
from web.negotiate import in_thread
from web.pages.frame import go, page, pages, part, visitor, whole_editor
from web.services import services

ON_A_PAGE = 50
AT_HAND = 10
"""Saved queries that the page of queries itself names."""
COUNT_SECONDS = 1.0


@pages.get("/query")
def query() -> Response:
    visitor()
    saved, text = None, asked_text(request.args.get("q", ""))
    with services().single.connect() as connection:
        if number := request.args.get("saved"):
            saved = db.get_saved(connection, _number(number))
            text = saved.text
        others = db.list_saved(connection, "", AT_HAND + 1)
    return _page(text, saved=saved, others=others[:AT_HAND], more_others=len(others) > AT_HAND)


def _page(text: str, **values: Any) -> Response:
    if text.strip():
        found = shown(text, _ask) | {"rules": rules_of(text, "rules"), "rules_are": "Make it a rule"}
    else:
        found = {"text": "", "example": example(_schema())}
    problem = found.get("problem")
    return page(
        "query.html", problem["status"] if problem else 200, keeps=True, words=has_page("words"), **found, **values
    )


@pages.get("/query/export")
def query_export() -> Response:
    visitor()
    return download(asked_text(request.args.get("q", "")), _ask, lambda: _schema().prefixes)


@pages.post("/query/look")
def query_look() -> Response:
    """What is wrong with a text, or how much it finds, while it is being typed."""
    visitor()
    text = asked_text(request.form.get("q", ""))
    found = looked_at(text, _read)
    counted = _count(found["parsed"]) if found.get("parsed") else None
    return part("query_look.html", counted=counted, **found)


def _ask(
    parsed: Parsed, *, limit: int | None = None, after: str | None = None, with_statements: bool = False
) -> Rows | Resources:
    s = services()
    with s.engine.connect() as connection:
        return run_query(connection, parsed, s.schemas, limit=limit, after=after, with_statements=with_statements,
                         apart=in_thread)  # fmt: skip


def _schema() -> Schema:
    with services().single.connect() as connection:
        return services().schemas.now(connection).schema


def _read(parsed: Parsed) -> None:
    """Refuse what has no meaning under the schema."""
    with services().engine.connect() as connection:
        schema = services().schemas.now(connection).schema
        named = Library(Graph(connection), OWN, {}).parsed
        if isinstance(parsed, ParsedQuery):
            normalise_query(parsed, schema, named)
        else:
            normalise_asked(parsed, schema, named)


def _count(parsed: Parsed) -> tuple[str, int] | None:
    """How many resources a variable stands for, where that is soon counted."""
    rule = parse(as_rule(parsed)) if isinstance(parsed, ParsedQuery) else parsed
    s = services()
    try:
        with s.engine.connect() as connection:
            told = explain(connection, rule.text, s.schemas, s.rules, OWN, seconds=COUNT_SECONDS, apart=in_thread)
            found = told.matches
    except MdvError:  # a query may be larger than a rule
        return None
    return None if found is None else (rule.register.text, found)


# Saved queries


@pages.get("/query/saved")
def saved_queries() -> Response:
    visitor()
    with services().single.connect() as connection:
        found = db.list_saved(connection, request.args.get("after", ""), ON_A_PAGE + 1)
    more = found[ON_A_PAGE - 1].name if len(found) > ON_A_PAGE else None
    return page("query_saved.html", saved=found[:ON_A_PAGE], more=more)


@pages.post("/query/save")
def save_query() -> Response:
    """Keep a query. Of another one with that name it is asked whether that may go."""
    caller = whole_editor()
    name, text = request.form.get("name", "").strip(), asked_text(request.form.get("q", ""))
    try:
        parse_query(text)
        if not fits_address(text):
            raise BadRequest("The query is too long for an address, by which saved queries are asked. Shorten it.")
        with services().engine.begin() as connection:
            before = db.claim(connection, db.check_name(name))
            if before is not None and before.text != text and request.form.get("replace") != str(before.id):
                return page("query_ask.html", 409, what="replace", saved=before, text=text)
            number = db.save(connection, name, text, caller.name)
    except MdvError as error:
        return page("query_save.html", error.status, problem=error.problem(), name=name, text=text)
    return go("query", saved=number)


@pages.get("/query/saved/<number>")
def saved_query(number: str) -> Response:
    """One that can be renamed or deleted."""
    visitor()
    return _saved(_number(number))


def _saved(number: int, problem: MdvError | None = None, name: str | None = None) -> Response:
    with services().single.connect() as connection:
        found = db.get_saved(connection, number)
    return page(
        "query_one.html", problem.status if problem else 200, saved=found, name=found.name if name is None else name,
        problem=problem.problem() if problem else None,
    )  # fmt: skip


@pages.post("/query/saved/<number>/rename")
def rename_query(number: str) -> Response:
    whole_editor()
    name = request.form.get("name", "").strip()
    try:
        with services().engine.begin() as connection:
            db.rename(connection, _number(number), name)
    except NotFound:
        raise
    except MdvError as error:
        return _saved(_number(number), error, name)
    return go("saved_query", number=number)


@pages.get("/query/saved/<number>/delete")
def ask_to_delete_query(number: str) -> Response:
    whole_editor()
    with services().single.connect() as connection:
        found = db.get_saved(connection, _number(number))
    return page("query_ask.html", what="delete", saved=found)


@pages.post("/query/saved/<number>/delete")
def delete_query(number: str) -> Response:
    whole_editor()
    with services().engine.begin() as connection:
        db.forget(connection, _number(number))
    return go("saved_queries")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise NotFound("There is no such saved query: it may have been deleted.")
    return int(text)
