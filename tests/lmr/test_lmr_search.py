"""The search of an LMR finds exactly the cached resources that have all words, in SQLite and in Postgres."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy

from mdv.db import cache as db
from mdv.inspect.search import Facet, SearchPage, SearchRequest, search
from mdv.inspect.sql.cache_search import CacheSearch, reading_cache_index
from mdv.lmr import search_index
from mdv.lmr.apply import apply
from mdv.lmr.cache import Cache
from mdv.lmr.local_documents import delete_local, put_local
from mdv.lmr.search_index import update_cache_index
from mdv.model import RDF_TYPE, RDFS, Term
from mdv.rdf.words import find_words, uri_words
from tests.support.naive_mdp import LABEL, URIS, NaiveMdp

TURTLE = "text/turtle"
RDFS_LABEL = RDFS + "label"


def deliver(cache: Cache, mdp: NaiveMdp) -> None:
    mdp.commit()
    apply(cache, mdp.page(int(cache.state().next_cursor or 0), 99))


@pytest.fixture
def mdp(cache: Cache) -> NaiveMdp:
    """A cache with all resources of an MDP, which has none yet."""
    mdp = NaiveMdp({}, set(URIS))
    for page in mdp.snapshot():
        apply(cache, page)
    return mdp


def page_of(
    cache: Cache, query: str, after: str | None = None, limit: int = 50, classes: list[str] | None = None
) -> SearchPage:
    assert update_cache_index(cache, 60)
    with cache.reading() as connection, reading_cache_index(connection):
        labels = cache.schema(connection).schema.label_properties
        return search(CacheSearch(connection), SearchRequest(query, classes, after, limit), labels, ())


def found(cache: Cache, query: str, limit: int = 50, classes: list[str] | None = None) -> list[str]:
    """Return the URIs of all results, page by page."""
    uris: list[str] = []
    after = None
    while True:
        page = page_of(cache, query, after, limit, classes)
        uris += [item.uri for item in page.items]
        after = page.next
        if after is None:
            return uris


def values(*texts: str, label: str = "", class_: str = "") -> frozenset[tuple[str, Term]]:
    made = {(LABEL, Term.literal(text)) for text in texts}
    made |= {(RDFS_LABEL, Term.literal(label, "en"))} if label else set()
    return frozenset(made | ({(RDF_TYPE, Term.uri(class_))} if class_ else set()))


def test_cached_resources_are_found_by_words_and_by_uri(cache: Cache, mdp: NaiveMdp) -> None:
    mdp.store |= {URIS[0]: values("Grüne Maschine 東京", "in Passau")}
    deliver(cache, mdp)
    for query in ("GRUNE", "passau maschine", "pass*", "東", URIS[0], URIS[0][:-1]):
        assert found(cache, query) == [URIS[0]], query
    for query in ("pass", "maschine x", "and", "or not", "near"):
        assert found(cache, query) == [], query
    (item,) = page_of(cache, "passau").items
    assert [(one.property, one.text) for one in item.matches] == [(LABEL, "in Passau")]


def test_the_search_follows_the_feed(cache: Cache, mdp: NaiveMdp) -> None:
    mdp.store[URIS[0]] = values("first")
    deliver(cache, mdp)
    assert found(cache, "first") == [URIS[0]]
    mdp.store[URIS[0]] = values("second")
    deliver(cache, mdp)
    assert (found(cache, "first"), found(cache, "second")) == ([], [URIS[0]])
    mdp.chosen.discard(URIS[0])
    deliver(cache, mdp)
    assert found(cache, "second") == []


def test_local_metadata_is_found_together_with_the_cache(cache: Cache, mdp: NaiveMdp) -> None:
    mdp.store[URIS[0]] = values("global")
    deliver(cache, mdp)
    put_local(cache, "http://local/1", f"<{URIS[0]}> <{LABEL}> 'here' . <#own> <{LABEL}> 'here' .".encode(), TURTLE)
    assert found(cache, "global here") == [URIS[0]]
    assert sorted(found(cache, "here")) == [URIS[0], "http://local/1#own"]
    delete_local(cache, "http://local/1")
    assert (found(cache, "here"), found(cache, "global")) == ([], [URIS[0]])


def test_results_by_label_come_first_and_classes_limit_them(cache: Cache, mdp: NaiveMdp) -> None:
    mdp.store |= {
        URIS[0]: values("wheel", class_="http://c/A"),
        URIS[1]: values("x", label="a wheel", class_="http://c/B"),
        URIS[2]: values("the wheel", class_="http://c/B"),
    }
    deliver(cache, mdp)
    for limit in (1, 2, 50):
        results = found(cache, "wheel", limit)
        assert results[0] == URIS[1] and sorted(results) == sorted(URIS[:3])
        assert found(cache, "wheel", limit, ["http://c/B"]) == [URIS[1], URIS[2]]
    page = page_of(cache, "wheel")
    assert page.facets == [Facet("http://c/B", 2), Facet("http://c/A", 1)] and page.items[0].label == "a wheel"
    assert found(cache, "wheel", 50, ["http://c/none"]) == []


def test_a_long_backlog_is_indexed_in_several_transactions(
    cache: Cache, mdp: NaiveMdp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "RESOURCES_PER_TRANSACTION", 2)
    mdp.store |= {uri: values("w") for uri in URIS[:3]}
    deliver(cache, mdp)
    assert not update_cache_index(cache, 0), "only one transaction"
    assert sorted(found(cache, "w")) == sorted(URIS[:3])


def test_a_search_does_not_wait_for_a_long_write_transaction(cache: Cache, mdp: NaiveMdp) -> None:
    mdp.store[URIS[0]] = values("w")
    deliver(cache, mdp)
    with ThreadPoolExecutor(1) as pool, cache.writing():
        assert pool.submit(update_cache_index, cache, 0.01).result(60) is False
    assert found(cache, "w") == [URIS[0]]


def test_a_cache_of_the_previous_format_is_indexed(cache_url: str) -> None:
    with Cache.open(cache_url) as cache:
        mdp = NaiveMdp({URIS[0]: values("before")}, {URIS[0]})
        for page in mdp.snapshot():
            apply(cache, page)
        with cache.writing() as connection:
            for table in ("search_texts", "search_pending", "search_state"):
                connection.execute(sqlalchemy.text(f"drop table {table}"))
            db.write_state(connection, format=2)
    with Cache.open(cache_url) as cache:
        assert found(cache, "before") == [URIS[0]]


def test_the_search_equals_a_naive_one(cache: Cache, mdp: NaiveMdp) -> None:
    rng = random.Random(7)
    vocabulary = ["red", "green", "blue", "Grün", "wheel", "wheels", "92", "a b"]
    for _ in range(15):
        for uri in rng.sample(URIS, 2):
            mdp.store[uri] = values(*rng.sample(vocabulary, rng.randrange(1, 4)))
        mdp.chosen = set(rng.sample(URIS, rng.randrange(1, len(URIS))))
        deliver(cache, mdp)
        words = {
            uri: {*uri_words(uri), *(word for _, term in said for word in find_words(term.value))}
            for uri, said in mdp.states[-1].content.items()
        }
        for query in ("red", "green blue", "grun", "whe*", "wheel 92", "b red"):
            expected = {
                uri
                for uri, known in words.items()
                if all(
                    any(w.startswith(q[:-1]) for w in known) if q.endswith("*") else q in known for q in query.split()
                )
            }
            results = found(cache, query, 2)
            assert set(results) == expected and len(results) == len(expected), query
