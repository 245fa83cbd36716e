"""Search resources by words of their URIs, labels and values, or by the start of their URIs.

A resource is found if it has all words of the query. Resources whose labels have all words come first, and each part is
ordered by ID, so that pages are read by key. The same code searches an MDP and an LMR (`SearchStore`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol

from mdv.errors import BadRequest
from mdv.model import RDFS_RESOURCE
from mdv.query.offload import Offload, run_inline
from mdv.rdf.words import QueryWord, contains_word, query_words

FACET_SAMPLE = 500
"""The classes of at most this many results are counted."""
MAX_FACETS = 20
MAX_MATCHES = 3
"""Matching values that are shown of a result."""
MAX_MATCH_CHARACTERS = 300
MAX_URIS_EXAMINED = 1000
"""URIs that one page examines if it is limited to a class. It may have fewer results, and still a next page."""
SEARCH_SECONDS = 10
TOO_COSTLY = f"Searching timed out after {SEARCH_SECONDS} s. Use more or longer words, or choose a class."

_URI_START = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")
_INVALID_CURSOR = "`after` must be the `next` of the previous page."
_BY_URI, _BY_LABEL, _BY_TEXT = "uri", "label", "text"


@dataclass(frozen=True, slots=True)
class MatchingValue:
    """A literal of a found resource."""

    property: str
    text: str
    lang: str | None


class SearchStore(Protocol):
    """Reads the search index and the store."""

    def find(
        self, words: Sequence[QueryWord], in_labels: bool, classes: Sequence[str] | None, after: int, most: int
    ) -> list[int]:
        """Return the IDs of the next resources that have all words in their labels, or have them otherwise."""

    def sample(self, words: Sequence[QueryWord], classes: Sequence[str] | None, most: int) -> list[int]:
        """Return the IDs of any resources that have all words. Which ones, depends on the store."""

    def find_uris(self, prefix: str, after: str, most: int) -> list[tuple[int, str]]:
        """Return the next resources by URI."""

    def uris(self, ids: Sequence[int]) -> Mapping[int, str]: ...

    def classes(self, ids: Sequence[int]) -> Mapping[int, list[str]]: ...

    def labels(self, uris: Sequence[str], properties: Sequence[str], languages: Sequence[str]) -> Mapping[str, str]:
        """Return the labels of resources, by URI."""

    def literals(self, ids: Sequence[int]) -> Mapping[int, list[MatchingValue]]:
        """Return some literals of each resource."""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What to search: a text, optionally only instances of some classes, a page of the results."""

    text: str
    classes: Sequence[str] | None = None
    after: str | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class FoundResource:
    """A result: the resource, its label, and the values that contain words of the query."""

    uri: str
    classes: list[str]
    label: str | None
    matches: list[MatchingValue]


@dataclass(frozen=True, slots=True)
class Facet:
    """A class, and how many of the counted results are its direct instances."""

    class_: str
    count: int


@dataclass(frozen=True, slots=True)
class SearchPage:
    """A page of results. Only the first page has facets; `sampled` is True if they do not count all results."""

    items: list[FoundResource]
    next: str | None
    facets: list[Facet] = field(default_factory=list)
    sampled: bool = False


@dataclass(frozen=True, slots=True)
class _Hits:
    """The IDs of results, the cursor of the next page, and the words of the query; no words if it is a URI."""

    ids: list[int]
    next: str | None
    words: Sequence[QueryWord] = ()


def search(
    store: SearchStore,
    request: SearchRequest,
    label_properties: Sequence[str],
    languages: Sequence[str],
    apart: Offload = run_inline,
) -> SearchPage:
    """Return a page of results. `label_properties` and `languages` determine the labels that are shown. `apart` runs
    the search for words in the values of the results."""
    hits = _find(store, request)
    facets, sampled = [], False
    if request.after is None:
        counted, sampled = _sample(store, request, hits) if hits.next else (hits.ids, False)
        facets = _facets(store.classes(counted).values())
    uris, classes = store.uris(hits.ids), store.classes(hits.ids)
    labels = store.labels(list(uris.values()), label_properties, languages)
    matches = apart(_matches, store.literals(hits.ids), hits.words) if hits.words else {}
    items = [
        FoundResource(
            uris[number],
            classes.get(number, [RDFS_RESOURCE]),
            labels.get(uris[number]),
            matches.get(number, []),
        )
        for number in hits.ids
        if number in uris  # it may have left a cache since it was indexed
    ]
    return SearchPage(items, hits.next, facets, sampled)


def _find(store: SearchStore, request: SearchRequest) -> _Hits:
    text = request.text.strip()
    part, _, key = (request.after or "").partition(":")
    if part == _BY_URI or (not part and is_start_of_uri(text)):
        hits = _find_by_uri(store, request, text, key)
        if hits.ids or hits.next or part:
            return hits
    elif part not in ("", _BY_LABEL, _BY_TEXT):
        raise BadRequest(_INVALID_CURSOR)
    return _find_by_words(store, request, query_words(text), part or _BY_LABEL, _number(key))


def is_start_of_uri(query: str) -> bool:
    """Whether a query is searched as the start of a URI first, and as words if there is none.

    >>> is_start_of_uri("http://mdv.example/"), is_start_of_uri("uni passau")
    (True, False)
    """
    return bool(_URI_START.fullmatch(query.strip()))


def _find_by_uri(store: SearchStore, request: SearchRequest, prefix: str, after: str) -> _Hits:
    examined = request.limit if request.classes is None else max(request.limit, MAX_URIS_EXAMINED)
    found = store.find_uris(prefix, after, examined + 1)
    last = found[examined - 1] if len(found) > examined else None
    shown = found[:examined]
    if request.classes is not None:
        classes, wanted = store.classes([number for number, _ in shown]), set(request.classes)
        shown = [one for one in shown if not wanted.isdisjoint(classes.get(one[0], ()))]
        if len(shown) > request.limit:
            shown = shown[: request.limit]
            last = shown[-1]
    return _Hits([number for number, _ in shown], f"{_BY_URI}:{last[1]}" if last else None)


def _find_by_words(
    store: SearchStore, request: SearchRequest, words: Sequence[QueryWord], part: str, after: int
) -> _Hits:
    hits: list[tuple[str, int]] = []
    if part == _BY_LABEL:
        hits = [(_BY_LABEL, number) for number in store.find(words, True, request.classes, after, request.limit + 1)]
        after = 0
    if (missing := request.limit + 1 - len(hits)) > 0:
        hits += [(_BY_TEXT, number) for number in store.find(words, False, request.classes, after, missing)]
    cursor = f"{hits[request.limit - 1][0]}:{hits[request.limit - 1][1]}" if len(hits) > request.limit else None
    return _Hits([number for _, number in hits[: request.limit]], cursor, words)


def _sample(store: SearchStore, request: SearchRequest, hits: _Hits) -> tuple[list[int], bool]:
    """Return the IDs of results whose classes are counted, and whether there are more."""
    if hits.words:
        found = store.sample(hits.words, request.classes, FACET_SAMPLE + 1)
        return found[:FACET_SAMPLE], len(found) > FACET_SAMPLE
    first = _find_by_uri(store, replace(request, limit=FACET_SAMPLE), request.text.strip(), "")
    return first.ids, first.next is not None


def _facets(classes: Collection[list[str]]) -> list[Facet]:
    counts = Counter(iri for direct in classes for iri in direct if iri != RDFS_RESOURCE)
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return [Facet(iri, count) for iri, count in ordered[:MAX_FACETS]]


def _matches(literals: Mapping[int, list[MatchingValue]], words: Sequence[QueryWord]) -> dict[int, list[MatchingValue]]:
    """Return the first values that contain a word, by resource."""
    return {
        number: list(islice((one for one in dict.fromkeys(values) if contains_word(one.text, words)), MAX_MATCHES))
        for number, values in literals.items()
    }


def _number(text: str) -> int:
    if text and not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise BadRequest(_INVALID_CURSOR)
    return int(text or "0")
