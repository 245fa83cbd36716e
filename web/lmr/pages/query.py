"""Queries at an LMR: as at the MDP, answered from the cache; what was asked can be subscribed to."""

from __future__ import annotations

from flask import Response, request

from mdv.lmr.answer import Resources, Rows, run_query
from mdv.rdf.schema import Schema
from mdv.rules.ast import ParsedQuery
from mdv.rules.returns import normalise_asked, normalise_query
from web.asking import Parsed, asked_text, download, example, has_page, looked_at, rules_of, shown
from web.lmr.pages.frame import page, pages, part, visitor
from web.lmr.services import answering, begun


@pages.get("/query")
def query() -> Response:
    visitor()
    text = asked_text(request.args.get("q", ""))
    if text.strip():
        found = shown(text, _ask) | {"rules": rules_of(text, "subscriptions"), "rules_are": "Subscribe to this"}
    else:
        found = {"text": "", "example": example(_schema())}
    problem = found.get("problem")
    return page("query.html", problem["status"] if problem else 200, keeps=False, words=has_page("words"), **found)


@pages.get("/query/export")
def query_export() -> Response:
    visitor()
    return download(asked_text(request.args.get("q", "")), _ask, lambda: _schema().prefixes)


@pages.post("/query/look")
def query_look() -> Response:
    """What is wrong with a text, while it is being typed."""
    visitor()
    return part("query_look.html", **looked_at(asked_text(request.form.get("q", "")), _read))


def _ask(
    parsed: Parsed, *, limit: int | None = None, after: str | None = None, with_statements: bool = False
) -> Rows | Resources:
    cache = begun().cache
    with answering(), cache.reading() as connection:
        schema = cache.schema(connection).schema
        return run_query(connection, schema, parsed, limit=limit, after=after, with_statements=with_statements)


def _schema() -> Schema:
    cache = begun().cache
    with cache.reading() as connection:
        return cache.schema(connection).schema


def _read(parsed: Parsed) -> None:
    """Refuse what has no meaning under the schema."""
    if isinstance(parsed, ParsedQuery):
        normalise_query(parsed, _schema())
    else:
        normalise_asked(parsed, _schema())
