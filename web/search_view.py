"""The search as JSON and as a page. MDPs and LMRs share it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flask import Response, request, url_for

from mdv.errors import MdvError
from mdv.inspect.search import SearchPage, SearchRequest, is_start_of_uri
from mdv.model import RDFS_RESOURCE
from mdv.rdf.classes import resolve_classes
from mdv.rdf.schema import Schema
from web.page_base import redirect_to, render_page

PAGE_SIZE = 20
UPDATE_SECONDS = 1.0
"""How long a search updates the index before it answers with what is indexed."""


@dataclass(frozen=True, slots=True)
class SearchParameters:
    """The parameters of a search, as the caller gave them."""

    q: str
    class_: str | None
    after: str | None
    limit: int

    def resolve(self, schema: Schema) -> SearchRequest:
        """Return the request, with the class and its subclasses."""
        classes = None if not self.class_ else resolve_classes(self.class_, schema)
        if classes is not None and RDFS_RESOURCE in classes:
            classes = None
        return SearchRequest(self.q, classes, self.after, self.limit)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A page of results, and the state of the index."""

    page: SearchPage
    schema: Schema
    position: int
    up_to_date: bool


RunSearch = Callable[[SearchParameters], SearchResult]


def search_answer(found: SearchResult) -> dict[str, Any]:
    """Return the body of a response (`SearchAnswer`)."""
    page = found.page
    return {
        "items": [
            {
                "uri": item.uri,
                "classes": item.classes,
                "label": item.label,
                "matches": [
                    {"property": one.property, "value": one.text} | ({"lang": one.lang} if one.lang else {})
                    for one in item.matches
                ],
            }
            for item in page.items
        ],
        "next": page.next,
        "classes": [{"class": facet.class_, "count": facet.count} for facet in page.facets],
        "classes_sampled": page.sampled,
        "position": found.position,
        "up_to_date": found.up_to_date,
    }


def search_page(run: RunSearch) -> Response:
    """Return the page with the results of the query in the address."""
    query, class_ = (request.args.get(name, "").strip() for name in ("q", "class"))
    values: dict[str, Any] = {"query": query, "searched": query, "class_iri": class_, "found": None, "problem": None}
    if not query:
        return render_page("search.html", **values)
    after = request.args.get("after")
    try:
        found = run(SearchParameters(query, class_, after, PAGE_SIZE))
    except MdvError as error:
        values["problem"] = error.problem()
        return render_page("search.html", values["problem"]["status"], **values)
    page = found.page
    if after is None and [item.uri for item in page.items] == [query] and page.next is None:
        return redirect_to("resource", uri=query)
    more = url_for("pages.search", q=query, after=page.next, **_class(class_)) if page.next else None
    links = [(facet, url_for("pages.search", q=query, **_class(facet.class_))) for facet in page.facets]
    shown = {"found": found, "more": more, "links": links, "wider": _widen(query),
             "by_uri": is_start_of_uri(query)}  # fmt: skip
    return render_page("search.html", **(values | shown))


def _widen(query: str) -> str | None:
    """Return a query for all words that start with those of `query`, or None if they have an asterisk already.

    >>> _widen("lewis carrol"), _widen("lewis*")
    ('lewis* carrol*', None)
    """
    words = query.split()
    return None if "*" in query or ":" in query else " ".join(f"{word}*" for word in words)


def _class(iri: str) -> dict[str, Any]:
    return {"class": iri} if iri else {}
