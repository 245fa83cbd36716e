"""The search of an MDP finds exactly the resources that have all words, at every position."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from sqlalchemy import text

from mdv.db.query import time_limited_read
from mdv.db.search_index import is_current
from mdv.errors import BadRequest
from mdv.inspect import search as search_module
from mdv.inspect.search import Facet, SearchPage, SearchRequest, search
from mdv.inspect.sql import search as search_sql
from mdv.inspect.sql.search import StoreSearch
from mdv.mdp import search_index
from mdv.mdp.search_index import update_search_index
from mdv.rdf.words import find_words, uri_words
from tests.support.mdp import Mdp

SCHEMA = """
:Thing a rdfs:Class . :Part rdfs:subClassOf :Thing . :Other a rdfs:Class .
:title mdv:setValued true . :note mdv:setValued true . :knows mdv:setValued true .
rdfs:label mdv:setValued true .
"""
V = "http://v/"
RDFS_RESOURCE = "http://www.w3.org/2000/01/rdf-schema#Resource"


@pytest.fixture
def filled(mdp: Mdp) -> Mdp:
    mdp.put_schema(SCHEMA)
    return mdp


def page_of(mdp: Mdp, query: str, after: str | None = None, limit: int = 50, **more: Sequence[str]) -> SearchPage:
    assert update_search_index(mdp.engine, mdp.schemas, 60)
    with mdp.engine.connect() as connection, time_limited_read(connection, 10, "It took too long."):
        labels = mdp.schemas.now(connection).schema.label_properties
        request = SearchRequest(query, more.get("classes"), after, limit)
        return search(StoreSearch(connection), request, labels, ())


def found(mdp: Mdp, query: str, limit: int = 50, **more: Sequence[str]) -> list[str]:
    """Return the URIs of all results, page by page."""
    uris: list[str] = []
    after = None
    while True:
        page = page_of(mdp, query, after, limit, **more)
        uris += [item.uri for item in page.items]
        after = page.next
        if after is None:
            return uris


def test_words_of_uris_labels_and_values_are_found(filled: Mdp) -> None:
    filled.put_one("http://d/1", "<http://r/alpha> a :Thing ; rdfs:label 'Grüne Maschine'@de ; :note 'in Passau' .")
    for query in ("alpha", "GRUNE", "passau maschine", "alpha grüne", "pass*", "m* al*"):
        assert found(filled, query) == ["http://r/alpha"], query
    for query in ("pass", "alpha beta", "http", "thing", "aschine"):
        assert found(filled, query) == [], query


def test_a_change_is_found_at_once_and_a_removed_value_is_not(filled: Mdp) -> None:
    filled.put_one("http://d/1", "<http://r/a> :note 'first' .")
    assert found(filled, "first") == ["http://r/a"]
    filled.put_one("http://d/1", "<http://r/a> :note 'second' .")
    assert (found(filled, "first"), found(filled, "second")) == ([], ["http://r/a"])
    filled.put_one("http://d/1", None)
    assert found(filled, "second") == []
    with filled.engine.connect() as connection:
        assert connection.scalar(text("select count(*) from search_texts")) == 0


def test_words_of_several_documents_are_found_together(filled: Mdp) -> None:
    filled.put({"http://d/1": "<http://r/a> :note 'one' .", "http://d/2": "<http://r/a> :note 'two' ."})
    assert found(filled, "one two") == ["http://r/a"]
    filled.put_one("http://d/2", None)
    assert (found(filled, "one two"), found(filled, "one")) == ([], ["http://r/a"])


def test_results_by_label_come_first(filled: Mdp) -> None:
    filled.put_one(
        "http://d/1",
        "<http://r/1> :note 'wheel' . <http://r/2> rdfs:label 'wheel' ."
        " <http://r/3> :note 'wheel', 'x' ; rdfs:label 'y' . <http://r/4> rdfs:label 'a wheel' ; :note 'wheel' .",
    )
    expected = ["http://r/2", "http://r/4", "http://r/1", "http://r/3"]
    for limit in (1, 2, 3, 50):
        assert found(filled, "wheel", limit) == expected


def test_a_change_of_the_label_properties_changes_the_order(filled: Mdp) -> None:
    filled.put_one("http://d/1", "<http://r/1> :note 'wheel' . <http://r/2> :title 'wheel' .")
    assert found(filled, "wheel") == ["http://r/1", "http://r/2"]
    filled.put_schema(SCHEMA + ":title mdv:label true .")
    assert found(filled, "wheel") == ["http://r/2", "http://r/1"]
    assert [item.label for item in page_of(filled, "wheel").items] == ["wheel", None]


def test_a_uri_finds_the_uris_that_start_with_it(filled: Mdp) -> None:
    filled.put_one(
        "http://d/1", "<http://r/b> :knows <http://r/a> ; :note 'http://elsewhere/x' . <http://s/c> :note 'r' ."
    )
    for limit in (1, 2):
        assert found(filled, "http://r/", limit) == ["http://r/a", "http://r/b"]
    assert found(filled, "http://r/b") == ["http://r/b"]
    assert found(filled, "http://elsewhere/x") == ["http://r/b"], "no URI starts with it, so its words are searched"


def test_results_are_limited_to_a_class(filled: Mdp) -> None:
    filled.put_one(
        "http://d/1",
        "<http://r/1> a :Thing ; :note 'w' . <http://r/2> a :Part ; :note 'w' ."
        " <http://r/3> a :Part, :Other ; :note 'w' . <http://r/4> :note 'w' .",
    )
    assert found(filled, "w", classes=[V + "Part"]) == ["http://r/2", "http://r/3"]
    assert found(filled, "w", classes=[V + "Thing", V + "Part"]) == ["http://r/1", "http://r/2", "http://r/3"]
    assert found(filled, "w", classes=[V + "Unheard"]) == []
    for limit in (1, 2, 50):
        assert found(filled, "http://r/", limit, classes=[V + "Part"]) == ["http://r/2", "http://r/3"]
    page = page_of(filled, "w")
    assert page.facets == [Facet(V + "Part", 2), Facet(V + "Other", 1), Facet(V + "Thing", 1)] and not page.sampled
    assert [item.classes for item in page.items][2:] == [[V + "Other", V + "Part"], [RDFS_RESOURCE]]


def test_pages_of_a_class_continue_after_many_uris_of_others(filled: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "MAX_URIS_EXAMINED", 3)
    filled.put_one("http://d/1", " ".join(f"<http://r/{n}> a :{'Part' if n == 9 else 'Other'} ." for n in range(10)))
    assert found(filled, "http://r/", 2, classes=[V + "Part"]) == ["http://r/9"]


def test_the_label_of_a_resource_with_many_values_is_found(filled: Mdp) -> None:
    notes = ", ".join(f"'w{n}'" for n in range(search_sql.MAX_LITERALS_READ + 100))
    filled.put_one("http://d/1", f"<http://r/a> :note {notes} .")
    filled.put_one("http://d/2", "<http://r/a> rdfs:label 'Wheel' .")
    assert [item.label for item in page_of(filled, "w1").items] == ["Wheel"]


def test_matches_are_the_values_that_contain_a_word(filled: Mdp) -> None:
    filled.put_one("http://d/1", "<http://r/a> rdfs:label 'Wheel'@en ; :note 'one', 'the wheel', 'two' .")
    (item,) = page_of(filled, "wheel two").items
    assert [(one.property, one.text, one.lang) for one in item.matches] == [
        (V + "note", "the wheel", None),
        (V + "note", "two", None),
        ("http://www.w3.org/2000/01/rdf-schema#label", "Wheel", "en"),
    ]


def test_a_class_is_counted_among_the_first_results_only(filled: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "FACET_SAMPLE", 3)
    filled.put_one("http://d/1", " ".join(f"<http://r/{n}> a :Part ; :note 'w' ." for n in range(5)))
    page = page_of(filled, "w", limit=2)
    assert page.facets == [Facet(V + "Part", 3)] and page.sampled
    assert page_of(filled, "w", page.next, 2).facets == []


@pytest.mark.parametrize("after", ["x", "label:x", "text:-1", "text:" + "9" * 30, "other:1"])
def test_an_invalid_cursor_is_refused(filled: Mdp, after: str) -> None:
    with pytest.raises(BadRequest, match="previous page"):
        page_of(filled, "w", after)


def test_a_long_backlog_is_indexed_in_several_transactions(filled: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "RESOURCES_PER_TRANSACTION", 3)
    filled.put_one("http://d/1", " ".join(f"<http://r/{n}> :note 'w' ." for n in range(10)))
    pauses = iter([False, True])
    assert not update_search_index(filled.engine, filled.schemas, 60, lambda: next(pauses))
    with filled.engine.connect() as connection:
        labels = filled.schemas.now(connection).schema.label_properties
        assert not is_current(connection, labels)[0]
        assert connection.scalar(text("select count(*) from search_texts")) == 6
    assert len(found(filled, "w")) == 10


def test_huge_values_are_indexed_up_to_a_limit(filled: Mdp) -> None:
    words = " ".join(f"word{n}" for n in range(40_000))
    long = "".join(f"{n:064}" + " " for n in range(30_000))
    filled.put_one("http://d/1", f"<http://r/a> rdfs:label '{words}' ; :note '{long}' .")
    assert found(filled, "word1") == ["http://r/a"]


def test_the_search_equals_a_naive_one(filled: Mdp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_sql, "ROWS_READ_FIRST", 4)
    rng = random.Random(7)
    vocabulary = ["red", "green", "blue", "Grün", "wheel", "wheels", "92", "a b", "x"]
    model: dict[str, dict[str, list[str]]] = {}
    for _ in range(12):
        changes: dict[str, str | None] = {}
        for document in rng.sample(range(8), 3):
            uri = f"http://d/{document}"
            values = {f"http://r/{rng.randrange(12)}": rng.sample(vocabulary, rng.randrange(1, 4)) for _ in range(4)}
            model[uri] = values if rng.random() < 0.8 else {}
            lines = [f"<{r}> :note {', '.join(repr(one) for one in texts)} ." for r, texts in model[uri].items()]
            changes[uri] = " ".join(lines) or None
        filled.put(changes)
        words: dict[str, set[str]] = {}
        for values in model.values():
            for resource, texts in values.items():
                words.setdefault(resource, set(uri_words(resource))).update(w for one in texts for w in find_words(one))
        for query in ("red", "green blue", "grun", "whe*", "wheel x", "r 1*", "b red", "r"):
            wanted = query.split()
            expected = {
                resource
                for resource, known in words.items()
                if all(any(w.startswith(q[:-1]) for w in known) if q[-1] == "*" else q in known for q in wanted)
            }
            results = found(filled, query, 3)
            assert set(results) == expected and len(results) == len(expected), query
