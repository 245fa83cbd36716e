"""The query page of an LMR: as at the MDP, on the cache. A query can be turned into a subscription."""

from __future__ import annotations

from flask import Response, request

from mdv.inspect.sql.cache import read_suspended_rules
from mdv.lmr.query import QueryRows, ResourcePage, run_query
from mdv.rdf.schema import Schema
from mdv.rules.ast import ParsedQuery
from mdv.rules.normalise_query import normalise_query, normalise_rule_query
from web.lmr.pages.base import pages, render_fragment, render_page, require_viewer
from web.lmr.services import query_slot, require_snapshot
from web.query_view import (
    Parsed,
    check_text,
    download,
    example_query,
    has_page,
    normalise_newlines,
    query_page_values,
    rules_from_query,
)


@pages.get("/query")
def query() -> Response:
    require_viewer()
    text = normalise_newlines(request.args.get("q", ""))
    if text.strip():
        found = query_page_values(text, _run) | {
            "suspended": _count_suspended(),
            "rules": rules_from_query(text, "subscriptions"),
            "rule_action": "Subscribe",
        }
    else:
        found = {"text": "", "example": example_query(_schema())}
    problem = found.get("problem")
    return render_page(
        "query.html",
        problem["status"] if problem else 200,
        keeps=False,
        has_completions=has_page("rule_completions"),
        **found,
    )


@pages.get("/query/export")
def query_export() -> Response:
    require_viewer()
    return download(normalise_newlines(request.args.get("q", "")), _run, lambda: _schema().prefixes)


@pages.post("/query/look")
def query_look() -> Response:
    """Check a query while the user types."""
    require_viewer()
    return render_fragment("query_look.html", **check_text(normalise_newlines(request.form.get("q", "")), _check))


def _run(
    parsed: Parsed, *, limit: int | None = None, after: str | None = None, with_statements: bool = False
) -> QueryRows | ResourcePage:
    cache = require_snapshot().cache
    with query_slot(), cache.reading() as connection:
        schema = cache.schema(connection).schema
        return run_query(connection, schema, parsed, limit=limit, after=after, with_statements=with_statements)


def _count_suspended() -> int:
    """Return the number of suspended rules, whose matches may be out of date."""
    with require_snapshot().cache.reading() as connection:
        return read_suspended_rules(connection, 0).count


def _schema() -> Schema:
    cache = require_snapshot().cache
    with cache.reading() as connection:
        return cache.schema(connection).schema


def _check(parsed: Parsed) -> None:
    """Raise an error if the query does not fit the schema."""
    if isinstance(parsed, ParsedQuery):
        normalise_query(parsed, _schema())
    else:
        normalise_rule_query(parsed, _schema())
