"""The query page of MDP and LMR: from the text of a query to the values of the template.

    text → parse → run → a page of rows or resources, sort links, a chart, downloads

The `QueryRunner` is a parameter. Both applications have the same endpoints and templates.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias
from urllib.parse import quote
from weakref import WeakKeyDictionary

from flask import Response, current_app, request, url_for

from mdv.errors import BadRequest, InvalidRule, MdvError
from mdv.model import RDFS_RESOURCE, Term
from mdv.query.results import MAX_RESOURCES_PER_PAGE, QueryRows, ResourcePage
from mdv.rdf.browsable_properties import browsable_properties
from mdv.rdf.classes import class_tree
from mdv.rdf.parse import is_absolute_iri
from mdv.rdf.schema import Schema
from mdv.rdf.syntax import JSON_LD, MEDIA_TYPES, N_TRIPLES, RDF_XML, TURTLE
from mdv.rules.ast import ParsedQuery, ParsedRule
from mdv.rules.normal import Access, Conjunction, Variable
from mdv.rules.normalise_query import normalise_query
from mdv.rules.parse import MAX_BYTES, parse_query
from mdv.rules.rewrite_query import query_to_rule, registrable_variables, reorder_query
from mdv.rules.show import format_rule, path_text
from web.json_bodies import JSON
from web.negotiate import run_in_thread
from web.responses import CSV, query_response

PAGE_SIZE = 50
MAX_CHART_BARS = 20
MAX_CHART_VALUES = 50
"""A column with more distinct values gets a chart only on request."""
MAX_QUERY_URL_BYTES = 7800
"""Maximum length of a percent-encoded query in a URL; the server accepts request lines of 8,190 bytes."""
MAX_EXAMPLE_PROPERTIES = 3
MAX_EXAMPLE_CLASSES = 200

Parsed: TypeAlias = ParsedRule | ParsedQuery


class QueryRunner(Protocol):
    """Runs a parsed query."""

    def __call__(
        self, parsed: Parsed, *, limit: int | None = None, after: str | None = None, with_statements: bool = False
    ) -> QueryRows | ResourcePage: ...


def normalise_newlines(text: str) -> str:
    """Convert the CRLF line ends that browsers send in forms."""
    return text.replace("\r\n", "\n")


def has_page(endpoint: str) -> bool:
    """True if this application has the page."""
    return f"pages.{endpoint}" in current_app.view_functions


def fits_in_url(text: str) -> bool:
    """True if the query fits into a URL.

    >>> fits_in_url("search C c return c"), fits_in_url("ü" * 4000)
    (True, False)
    """
    return len(quote(text, safe="")) <= MAX_QUERY_URL_BYTES


# Results


@dataclass(frozen=True, slots=True)
class ColumnHeader:
    """A column header: the current sort order and the link that changes it."""

    name: str
    order: str | None
    link: str | None


@dataclass(frozen=True, slots=True)
class ChartBar:
    """The number of rows with a value; `share` is a percentage of the longest bar."""

    value: Term | None
    count: int
    share: float


@dataclass(frozen=True, slots=True)
class ValueChart:
    """Row counts of the values of a column, most frequent first; `others` counts the rows of omitted values."""

    column: int
    bars: list[ChartBar]
    others: int
    left_out: int


def query_page_values(text: str, ask: QueryRunner) -> dict[str, Any]:
    """Return the template values of the query page: the result or the errors."""
    began = time.monotonic()
    try:
        parsed = parse_query(text)
        found = _rows(parsed, ask) if isinstance(parsed, ParsedQuery) else _resources(parsed, ask)
    except MdvError as error:
        return {"text": text, "problem": error.problem(), "errors": editor_errors(error)}
    return {"text": text, "errors": [], "seconds": time.monotonic() - began, "forms": download_formats(parsed), **found}


def _rows(query: ParsedQuery, ask: QueryRunner) -> dict[str, Any]:
    answer = ask(query)
    assert isinstance(answer, QueryRows)
    first = _offset()
    page = answer.rows[first : first + PAGE_SIZE]
    more = first + PAGE_SIZE if len(answer.rows) > first + PAGE_SIZE else None
    return {
        "answer": answer,
        "limit": query.limit,
        "rows": page,
        "first": first,
        "heads": [_head(query, column, name) for column, name in enumerate(answer.columns)],
        "chart": value_chart(answer, request.args.get("chart")),
        "next": link(query.text, after=more) if more is not None else None,
    }


def _resources(rule: ParsedRule, ask: QueryRunner) -> dict[str, Any]:
    after = request.args.get("after")
    if after is not None and not is_absolute_iri(after):
        raise BadRequest("`after` must be the last URI of the previous page.")
    answer = ask(rule, limit=PAGE_SIZE, after=after)
    assert isinstance(answer, ResourcePage)
    more = link(rule.text, after=answer.next) if answer.next is not None else None
    return {"answer": answer, "resources": answer.items, "next": more}


def link(text: str, **more: Any) -> str:
    """Return the URL of a query, keeping the chosen chart column."""
    kept: dict[str, Any] = {"chart": request.args["chart"]} if "chart" in request.args else {}
    return url_for("pages.query", q=text, **kept, **more)


def _offset() -> int:
    text = request.args.get("after", "0")
    if not (text.isascii() and text.isdecimal() and len(text) < 9):
        raise BadRequest("`after` must be the number of rows to skip.")
    return int(text)


def _head(query: ParsedQuery, column: int, name: str) -> ColumnHeader:
    """Return a column header. Its link sorts by the column, or reverses the order if already sorted by it."""
    order = None
    if query.order and _same_path(query, column):
        order = "descending" if query.order[0].descending else "ascending"
    text = reorder_query(query, column, order == "ascending")
    return ColumnHeader(name, order, link(text) if len(text.encode()) <= MAX_BYTES and fits_in_url(text) else None)


def _same_path(query: ParsedQuery, column: int) -> bool:
    """True if the first sort key of the query is the column."""
    spans = (query.order[0].path.span, query.returns[column].span)
    by, returned = ("".join(query.text[span.start : span.end].split()) for span in spans)
    return by == returned


# Counts


def value_chart(answer: QueryRows, requested: str | None = None) -> ValueChart | None:
    """Return the row counts per value of a column: the requested column, or the first one with 2 to `MAX_CHART_VALUES`
    distinct values of which some repeat. None if there is no such column.

    >>> rows = [(Term.uri("u:1"), Term.literal("a")), (Term.uri("u:2"), Term.literal("b")), (Term.uri("u:3"), None)]
    >>> drawn = value_chart(QueryRows(("c", "c.p"), [*rows, (Term.uri("u:4"), Term.literal("b"))], False), "1")
    >>> [(bar.value.value if bar.value else None, bar.count, bar.share) for bar in drawn.bars]
    [('b', 2, 100.0), ('a', 1, 50.0), (None, 1, 50.0)]
    """
    if requested == "none" or len(answer.rows) < 2:
        return None
    columns = range(len(answer.columns))
    if (
        requested is not None
        and requested.isascii()
        and requested.isdecimal()
        and len(requested) < 4
        and int(requested) in columns
    ):
        column = int(requested)
        counts = _count(answer, column)
    else:
        for column in columns:
            counts = _count(answer, column)
            if 2 <= len(counts) <= min(MAX_CHART_VALUES, len(answer.rows) - 1):
                break
        else:
            return None
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0] is None, item[0]))
    highest = ranked[0][1]
    bars = [ChartBar(value, count, round(100 * count / highest, 2)) for value, count in ranked[:MAX_CHART_BARS]]
    rest = ranked[MAX_CHART_BARS:]
    return ValueChart(column, bars, sum(count for _, count in rest), len(rest))


def _count(answer: QueryRows, column: int) -> Counter[Term | None]:
    """Count rows per value, ignoring language and datatype, as rules compare values. If values differ only in these,
    neither is shown.

    >>> texts = [Term.literal("5"), Term.literal("5", datatype="u:int"), Term.literal("6", lang="de"), None]
    >>> counts = _count(QueryRows(("p",), [(term,) for term in texts], False), 0)
    >>> [(term and (term.value, term.lang), many) for term, many in counts.items()]
    [(('5', None), 2), (('6', 'de'), 1), (None, 1)]
    """
    terms: dict[tuple[str, str], Term] = {}
    for row in answer.rows:
        if (term := row[column]) is not None:
            before = terms.setdefault(term[:2], term)
            if before != term:
                terms[term[:2]] = Term(term.type, term.value)
    return Counter(term and terms[term[:2]] for term in (row[column] for row in answer.rows))


# Downloads

DOWNLOAD_FORMATS = {
    "csv": ("CSV", CSV, "csv"),
    "json": ("JSON", JSON, "json"),
    "turtle": (TURTLE.label, TURTLE.media_type, "ttl"),
    "rdfxml": (RDF_XML.label, RDF_XML.media_type, "rdf"),
    "ntriples": (N_TRIPLES.label, N_TRIPLES.media_type, "nt"),
    "jsonld": (JSON_LD.label, JSON_LD.media_type, "jsonld"),
}
"""By URL parameter: label, media type, file suffix."""

_RUN = re.compile(r"(^|[;\t\r\n])(\s*[=+\-@＝＋－＠])")
"""Formula prefixes, also after a semicolon, tab or line end, which spreadsheets may take as the end of a cell."""
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def download_formats(parsed: Parsed) -> list[tuple[str, str]]:
    """Return the download formats of a result: name and label."""
    return [(name, kind[0]) for name, kind in DOWNLOAD_FORMATS.items() if _offers(parsed, kind[1])]


def _offers(parsed: Parsed, media_type: str) -> bool:
    return media_type not in MEDIA_TYPES or isinstance(parsed, ParsedRule)


def download(text: str, ask: QueryRunner, prefixes: Callable[[], Mapping[str, str]]) -> Response:
    """Return the result as a file: rows as on the page, or up to 1,000 resources."""
    label, media_type, suffix = DOWNLOAD_FORMATS.get(request.args.get("as", ""), ("", "", ""))
    if not label:
        raise BadRequest(f"`as` must be one of {', '.join(DOWNLOAD_FORMATS)}.")
    parsed = parse_query(text)
    if not _offers(parsed, media_type):
        raise BadRequest(f"Rows cannot be downloaded as {label}. Use CSV or JSON, or a rule with `register`.")
    limit = MAX_RESOURCES_PER_PAGE if isinstance(parsed, ParsedRule) else None
    answer = ask(parsed, limit=limit, with_statements=media_type in MEDIA_TYPES)
    if media_type == CSV:
        answer = run_in_thread(escape_formulas, answer)
    response = query_response(answer, media_type, prefixes())
    response.headers["Content-Disposition"] = f"attachment; filename=answer.{suffix}"
    return response


def escape_formulas(answer: QueryRows | ResourcePage) -> QueryRows | ResourcePage:
    """Prefix text that a spreadsheet would run as a formula with an apostrophe. Numbers stay as they are.

    >>> texts = ["=1+1", "-5", "- five", "a=b", "x;=1+1"]
    >>> row = tuple(Term.literal(text) for text in texts)
    >>> [term.value for term in escape_formulas(QueryRows(("a", "b", "c", "d", "e"), [row], False)).rows[0]]
    ["'=1+1", '-5', "'- five", 'a=b', "x;'=1+1"]
    """
    if isinstance(answer, ResourcePage):  # URIs start with a letter
        return answer
    rows = [tuple(term and _harmless(term) for term in row) for row in answer.rows]
    return QueryRows(answer.columns, rows, answer.truncated)


def _harmless(term: Term) -> Term:
    return term if _NUMBER.fullmatch(term.value) else term._replace(value=_RUN.sub(r"\1'\2", term.value))


# Checks while the user types


def check_text(text: str, read: Callable[[Parsed], None]) -> dict[str, Any]:
    """Check the text of a query without running it. `read` raises an error if it does not fit the schema."""
    if not text.strip():
        return {"errors": [], "parsed": None}
    try:
        parsed = parse_query(text)
        read(parsed)
    except MdvError as error:
        return {"problem": error.problem(), "errors": editor_errors(error)}
    return {
        "errors": [],
        "parsed": parsed,
        "is_rule": isinstance(parsed, ParsedRule),
        "too_long": not fits_in_url(text),
    }


def editor_errors(error: MdvError) -> list[dict[str, Any]]:
    """Return the errors with their positions, for the editor."""
    return list(error.problem().get("errors", []))


# Rules from queries


def rules_from_query(text: str, endpoint: str) -> list[tuple[str, str]]:
    """Return the rules that can be made from a query: the registered variable and the URL of the page for the rule."""
    if not has_page(endpoint):
        return []
    try:
        parsed = parse_query(text)
    except InvalidRule:
        return []
    if isinstance(parsed, ParsedRule):
        made = {parsed.register.text: text}
    else:
        made = {variable: query_to_rule(parsed, variable) for variable in registrable_variables(parsed)}
    return [(variable, url_for(f"pages.{endpoint}", rule=rule)) for variable, rule in made.items() if fits_in_url(rule)]


# Example query


def example_query(schema: Schema) -> str:
    """Return an example query for a schema. It is computed once per schema, in a thread."""
    known = _examples.get(schema)
    if known is None:
        known = _examples[schema] = run_in_thread(make_example, schema)
    return known


_examples: WeakKeyDictionary[Schema, str] = WeakKeyDictionary()


def make_example(schema: Schema) -> str:
    """Return a valid query on the class with the most properties, returning some of them.

    >>> from mdv.rdf.schema import EMPTY_SCHEMA
    >>> print(make_example(EMPTY_SCHEMA))
    search rdfs:Resource r
    return r
    limit 100
    """
    classes = [branch.iri for branch in class_tree(schema)[:MAX_EXAMPLE_CLASSES]]
    properties_by_class = {
        iri: [one for one in browsable_properties(schema, iri) if one.range not in schema.classes] for iri in classes
    }
    richest = max(classes, key=lambda iri: len(properties_by_class[iri]), default=RDFS_RESOURCE)
    for class_iri in (richest, RDFS_RESOURCE):
        letter = schema.shorten(class_iri).rpartition(":")[2][:1].lower()
        variable = letter if letter.isascii() and letter.isalpha() else "x"
        alone = Conjunction((Variable(variable, class_iri),), variable, ())
        search = " ".join(format_rule(alone, schema).partition("\n")[0].split())
        properties = properties_by_class.get(class_iri, [])[:MAX_EXAMPLE_PROPERTIES]
        paths = [path_text(Access(variable, one.iri), class_iri, schema) for one in properties]
        order = [f"order by {paths[0]}"] if paths else []
        text = "\n".join([search, f"return {', '.join([variable, *paths])}", *order, "limit 100"])
        try:
            parsed = parse_query(text)
            assert isinstance(parsed, ParsedQuery)
            normalise_query(parsed, schema)
        except InvalidRule:
            continue
        return text
    return ""
