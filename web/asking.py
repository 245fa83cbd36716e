"""Asking on a page, at an MDP and at an LMR: from the text of a query to what its page shows.

    text → read → asked → a page of rows or resources, links to the same in other orders, a chart, downloads

What answers comes from outside, as an `Ask`; both applications have the same endpoints and templates.
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
from mdv.mdp.browse import choices, class_tree
from mdv.mdp.teller import access_text
from mdv.model import RDFS_RESOURCE, Term
from mdv.query.answers import MAX_RESOURCES, Resources, Rows
from mdv.rdf.parse import is_absolute_iri
from mdv.rdf.schema import Schema
from mdv.rdf.syntax import JSON_LD, MEDIA_TYPES, N_TRIPLES, RDF_XML, TURTLE
from mdv.rules.as_rule import as_rule, ordered_by, registrable
from mdv.rules.ast import ParsedQuery, ParsedRule
from mdv.rules.normal import Access, Conjunction, Variable
from mdv.rules.parse import MAX_BYTES, parse_query
from mdv.rules.returns import normalise_query
from mdv.rules.show import show
from web.answers import CSV, query_response
from web.bodies import JSON
from web.negotiate import in_thread

ON_A_PAGE = 50
MOST_BARS = 20
MOST_DISTINCT = 50
"""A column with more values than this is not drawn unless somebody wants it."""
LONGEST_ADDRESS = 7800
"""Bytes of an address that holds a query; the server reads 8,190."""
MOST_EXAMPLE_PROPERTIES = 3
MOST_EXAMPLE_CLASSES = 200

Parsed: TypeAlias = ParsedRule | ParsedQuery


class Ask(Protocol):
    """Answers a query."""

    def __call__(
        self, parsed: Parsed, *, limit: int | None = None, after: str | None = None, with_statements: bool = False
    ) -> Rows | Resources: ...


def asked_text(text: str) -> str:
    """A query as it was written: browsers end lines otherwise."""
    return text.replace("\r\n", "\n")


def has_page(endpoint: str) -> bool:
    """Whether this application has a page."""
    return f"pages.{endpoint}" in current_app.view_functions


def fits_address(text: str) -> bool:
    """Whether a query can be asked by an address.

    >>> fits_address("search C c return c"), fits_address("ü" * 4000)
    (True, False)
    """
    return len(quote(text, safe="")) <= LONGEST_ADDRESS


# The answer


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column: in which order its rows are, and where they are in another."""

    name: str
    order: str | None
    link: str | None


@dataclass(frozen=True, slots=True)
class Bar:
    """How many rows have a value; `share` is in hundredths of the longest bar."""

    value: Term | None
    count: int
    share: float


@dataclass(frozen=True, slots=True)
class Chart:
    """How often the values of a column are there, the most first; `others` are the rows with those left out."""

    column: int
    bars: list[Bar]
    others: int
    left_out: int


def shown(text: str, ask: Ask) -> dict[str, Any]:
    """What the page of a query shows: its answer, or what is wrong with it."""
    began = time.monotonic()
    try:
        parsed = parse_query(text)
        found = _rows(parsed, ask) if isinstance(parsed, ParsedQuery) else _resources(parsed, ask)
    except MdvError as error:
        return {"text": text, "problem": error.problem(), "flaws": flaws_of(error)}
    return {"text": text, "flaws": [], "seconds": time.monotonic() - began, "forms": downloads(parsed), **found}


def _rows(query: ParsedQuery, ask: Ask) -> dict[str, Any]:
    answer = ask(query)
    assert isinstance(answer, Rows)
    first = _skipped()
    page = answer.rows[first : first + ON_A_PAGE]
    more = first + ON_A_PAGE if len(answer.rows) > first + ON_A_PAGE else None
    return {
        "answer": answer,
        "limit": query.limit,
        "rows": page,
        "first": first,
        "heads": [_head(query, column, name) for column, name in enumerate(answer.columns)],
        "chart": chart(answer, request.args.get("chart")),
        "next": link(query.text, after=more) if more is not None else None,
    }


def _resources(rule: ParsedRule, ask: Ask) -> dict[str, Any]:
    after = request.args.get("after")
    if after is not None and not is_absolute_iri(after):
        raise BadRequest("`after` takes the URI that the page before ended with.")
    answer = ask(rule, limit=ON_A_PAGE, after=after)
    assert isinstance(answer, Resources)
    more = link(rule.text, after=answer.next) if answer.next is not None else None
    return {"answer": answer, "resources": answer.items, "next": more}


def link(text: str, **more: Any) -> str:
    """The address of a query; what is chosen to be drawn stays chosen."""
    kept: dict[str, Any] = {"chart": request.args["chart"]} if "chart" in request.args else {}
    return url_for("pages.query", q=text, **kept, **more)


def _skipped() -> int:
    text = request.args.get("after", "0")
    if not (text.isascii() and text.isdecimal() and len(text) < 9):
        raise BadRequest("`after` takes the number of rows to skip.")
    return int(text)


def _head(query: ParsedQuery, column: int, name: str) -> Head:
    """Whoever follows the head of a column gets its order, and the other way round if they are in that already."""
    order = None
    if query.order and _same_path(query, column):
        order = "descending" if query.order[0].descending else "ascending"
    text = ordered_by(query, column, order == "ascending")
    return Head(name, order, link(text) if len(text.encode()) <= MAX_BYTES and fits_address(text) else None)


def _same_path(query: ParsedQuery, column: int) -> bool:
    """Whether the query is ordered by a column first."""
    spans = (query.order[0].path.span, query.returns[column].span)
    by, returned = ("".join(query.text[span.start : span.end].split()) for span in spans)
    return by == returned


# Counts


def chart(answer: Rows, asked: str | None = None) -> Chart | None:
    """How many rows have which value of a column: the one that is asked for, or the first with some values of which not
    each comes once. None where nothing is to be drawn.

    >>> rows = [(Term.uri("u:1"), Term.literal("a")), (Term.uri("u:2"), Term.literal("b")), (Term.uri("u:3"), None)]
    >>> drawn = chart(Rows(("c", "c.p"), [*rows, (Term.uri("u:4"), Term.literal("b"))], False), "1")
    >>> [(bar.value.value if bar.value else None, bar.count, bar.share) for bar in drawn.bars]
    [('b', 2, 100.0), ('a', 1, 50.0), (None, 1, 50.0)]
    """
    if asked == "none" or len(answer.rows) < 2:
        return None
    columns = range(len(answer.columns))
    if asked is not None and asked.isascii() and asked.isdecimal() and len(asked) < 4 and int(asked) in columns:
        column = int(asked)
        counts = _count(answer, column)
    else:
        for column in columns:
            counts = _count(answer, column)
            if 2 <= len(counts) <= min(MOST_DISTINCT, len(answer.rows) - 1):
                break
        else:
            return None
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0] is None, item[0] and item[0][:2]))
    most = ranked[0][1]
    bars = [Bar(value, count, round(100 * count / most, 2)) for value, count in ranked[:MOST_BARS]]
    rest = ranked[MOST_BARS:]
    return Chart(column, bars, sum(count for _, count in rest), len(rest))


def _count(answer: Rows, column: int) -> Counter[Term | None]:
    """How many rows have which value, language and datatype aside, as rules compare them; of values that differ in
    nothing else neither is shown.

    >>> texts = [Term.literal("5"), Term.literal("5", datatype="u:int"), Term.literal("6", lang="de"), None]
    >>> counts = _count(Rows(("p",), [(term,) for term in texts], False), 0)
    >>> [(term and (term.value, term.lang), many) for term, many in counts.items()]
    [(('5', None), 2), (('6', 'de'), 1), (None, 1)]
    """
    shown: dict[tuple[str, str], Term] = {}
    for row in answer.rows:
        if (term := row[column]) is not None:
            before = shown.setdefault(term[:2], term)
            if before != term:
                shown[term[:2]] = Term(term.type, term.value)
    return Counter(term and shown[term[:2]] for term in (row[column] for row in answer.rows))


# Downloads

KINDS = {
    "csv": ("CSV", CSV, "csv"),
    "json": ("JSON", JSON, "json"),
    "turtle": (TURTLE.label, TURTLE.media_type, "ttl"),
    "rdfxml": (RDF_XML.label, RDF_XML.media_type, "rdf"),
    "ntriples": (N_TRIPLES.label, N_TRIPLES.media_type, "nt"),
    "jsonld": (JSON_LD.label, JSON_LD.media_type, "jsonld"),
}
"""By what an address calls them: label, media type, and how the file's name ends."""

_RUN = re.compile(r"(^|[;\t\r\n])(\s*[=+\-@＝＋－＠])")
"""Also where a spreadsheet takes a semicolon or a tab for the end of a cell."""
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def downloads(parsed: Parsed) -> list[tuple[str, str]]:
    """The forms that an answer can be downloaded in."""
    return [(name, kind[0]) for name, kind in KINDS.items() if _offers(parsed, kind[1])]


def _offers(parsed: Parsed, media_type: str) -> bool:
    return media_type not in MEDIA_TYPES or isinstance(parsed, ParsedRule)


def download(text: str, ask: Ask, prefixes: Callable[[], Mapping[str, str]]) -> Response:
    """The answer as a file: rows as the page has them, of resources up to 1,000."""
    label, media_type, suffix = KINDS.get(request.args.get("as", ""), ("", "", ""))
    if not label:
        raise BadRequest(f"An answer can be downloaded as {', '.join(KINDS)}.")
    parsed = parse_query(text)
    if not _offers(parsed, media_type):
        raise BadRequest(f"Rows are no RDF: download them as CSV or JSON. A rule with `register` gives {label}.")
    limit = MAX_RESOURCES if isinstance(parsed, ParsedRule) else None
    answer = ask(parsed, limit=limit, with_statements=media_type in MEDIA_TYPES)
    if media_type == CSV:
        answer = in_thread(harmless, answer)
    response = query_response(answer, media_type, prefixes())
    response.headers["Content-Disposition"] = f"attachment; filename=answer.{suffix}"
    return response


def harmless(answer: Rows | Resources) -> Rows | Resources:
    """The same with an apostrophe before what a spreadsheet would run as a formula; numbers are none.

    >>> texts = ["=1+1", "-5", "- five", "a=b", "x;=1+1"]
    >>> row = tuple(Term.literal(text) for text in texts)
    >>> [term.value for term in harmless(Rows(("a", "b", "c", "d", "e"), [row], False)).rows[0]]
    ["'=1+1", '-5', "'- five", 'a=b', "x;'=1+1"]
    """
    if isinstance(answer, Resources):  # URIs begin with a letter
        return answer
    rows = [tuple(term and _harmless(term) for term in row) for row in answer.rows]
    return Rows(answer.columns, rows, answer.truncated)


def _harmless(term: Term) -> Term:
    return term if _NUMBER.fullmatch(term.value) else term._replace(value=_RUN.sub(r"\1'\2", term.value))


# While somebody types


def looked_at(text: str, read: Callable[[Parsed], None]) -> dict[str, Any]:
    """What is to be said of a text that is not asked yet; `read` refuses what has no meaning under the schema."""
    if not text.strip():
        return {"flaws": [], "parsed": None}
    try:
        parsed = parse_query(text)
        read(parsed)
    except MdvError as error:
        return {"problem": error.problem(), "flaws": flaws_of(error)}
    return {
        "flaws": [],
        "parsed": parsed,
        "is_rule": isinstance(parsed, ParsedRule),
        "too_long": not fits_address(text),
    }


def flaws_of(error: MdvError) -> list[dict[str, Any]]:
    """Where what is wrong, for the editor."""
    return list(error.problem().get("errors", []))


# Rules out of queries


def rules_of(text: str, endpoint: str) -> list[tuple[str, str]]:
    """The rules that a query can become, by the variable that they register, as addresses of a page that takes them."""
    if not has_page(endpoint):
        return []
    try:
        parsed = parse_query(text)
    except InvalidRule:
        return []
    if isinstance(parsed, ParsedRule):
        made = {parsed.register.text: text}
    else:
        made = {variable: as_rule(parsed, variable) for variable in registrable(parsed)}
    return [
        (variable, url_for(f"pages.{endpoint}", rule=rule)) for variable, rule in made.items() if fits_address(rule)
    ]


# Without a query


def example(schema: Schema) -> str:
    """A query that works under a schema; looked for once, in a thread."""
    known = _examples.get(schema)
    if known is None:
        known = _examples[schema] = in_thread(make_example, schema)
    return known


_examples: WeakKeyDictionary[Schema, str] = WeakKeyDictionary()


def make_example(schema: Schema) -> str:
    """A query that works: the class of the schema that has most to say, with some of that.

    >>> from mdv.rdf.schema import EMPTY
    >>> print(make_example(EMPTY))
    search rdfs:Resource r
    return r
    limit 100
    """
    classes = [branch.iri for branch in class_tree(schema)[:MOST_EXAMPLE_CLASSES]]
    told = {iri: [one for one in choices(schema, iri) if one.range not in schema.classes] for iri in classes}
    richest = max(classes, key=lambda iri: len(told[iri]), default=RDFS_RESOURCE)
    for class_iri in (richest, RDFS_RESOURCE):
        letter = schema.shorten(class_iri).rpartition(":")[2][:1].lower()
        variable = letter if letter.isascii() and letter.isalpha() else "x"
        alone = Conjunction((Variable(variable, class_iri),), variable, ())
        search = " ".join(show(alone, schema).partition("\n")[0].split())
        properties = told.get(class_iri, [])[:MOST_EXAMPLE_PROPERTIES]
        paths = [access_text(Access(variable, one.iri), class_iri, schema) for one in properties]
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
