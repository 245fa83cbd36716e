"""Local metadata: stored in the cache beside the MDP's data, and kept separate."""

from __future__ import annotations

import pytest

from mdv.errors import InvalidDocument, NotFound, NotWellFormed
from mdv.inspect.sql.cache import find_cached_resource, list_references
from mdv.lmr.apply import apply
from mdv.lmr.cache import Cache
from mdv.lmr.local_documents import delete_local, get_local, list_local, put_local
from mdv.model import Statement, Term, is_blank
from tests.support.cache_content import assert_cache_holds, content_of
from tests.support.naive_mdp import LABEL, OWNS, SIZE, URIS, NaiveMdp

TURTLE = "text/turtle"
DOCUMENT = "http://local/1"


@pytest.fixture
def mdp(cache: Cache) -> NaiveMdp:
    """A cache with one of two resources."""
    mdp = NaiveMdp({uri: frozenset({(LABEL, Term.literal(uri))}) for uri in URIS[:2]}, {URIS[0]})
    for page in mdp.snapshot():
        apply(cache, page)
    return mdp


def deliver(cache: Cache, mdp: NaiveMdp) -> None:
    mdp.commit()
    apply(cache, mdp.page(int(cache.state().next_cursor or 0), 99))


def test_document_is_put_read_changed_and_deleted(cache: Cache, mdp: NaiveMdp) -> None:
    first = put_local(
        cache, DOCUMENT, f'@prefix v: <http://v/> . <#me> v:label "a" ; v:owns <{URIS[0]}> .'.encode(), TURTLE
    )
    assert (first.created, first.changed, first.statements) == (True, True, 2)
    document = get_local(cache, DOCUMENT)
    me = DOCUMENT + "#me"
    assert document.statements == (Statement(me, LABEL, Term.literal("a")), Statement(me, OWNS, Term.uri(URIS[0])))
    assert document.prefixes == {"v": "http://v/"}
    again = put_local(cache, DOCUMENT, f'<#me> <{OWNS}> <{URIS[0]}> ; <{LABEL}> "a" .'.encode(), TURTLE)
    assert (again.created, again.changed) == (False, False)
    put_local(cache, DOCUMENT, f'<#me> <{LABEL}> "b" .'.encode(), TURTLE)
    assert get_local(cache, DOCUMENT).statements == (Statement(me, LABEL, Term.literal("b")),)
    assert list_local(cache) == [DOCUMENT]
    delete_local(cache, DOCUMENT)
    assert list_local(cache) == []
    with pytest.raises(NotFound):
        get_local(cache, DOCUMENT)
    with pytest.raises(NotFound):
        delete_local(cache, DOCUMENT)
    assert_cache_holds(cache, mdp.states[-1], {})


def test_references_are_listed_while_no_resource_has_a_class(cache: Cache, mdp: NaiveMdp) -> None:
    put_local(cache, DOCUMENT, f"<#me> <{OWNS}> <{URIS[0]}> .".encode(), TURTLE)
    with cache.reading() as connection:
        me = find_cached_resource(connection, DOCUMENT + "#me")
        assert me is not None
        assert [link.uri for link in list_references(connection, me.number, (0, 0), 9)] == [URIS[0]]


def test_documents_are_listed_in_pages(cache: Cache, mdp: NaiveMdp) -> None:
    names = [f"http://local/{letter}" for letter in "aBc"]
    for name in names:
        put_local(cache, name, f'<> <{LABEL}> "x" .'.encode(), TURTLE)
    assert list_local(cache, limit=2) == ["http://local/B", "http://local/a"]
    assert list_local(cache, after="http://local/a") == ["http://local/c"]


def test_a_document_that_violates_the_schema_is_refused_with_its_place(cache: Cache, mdp: NaiveMdp) -> None:
    with pytest.raises(InvalidDocument) as refused:
        put_local(cache, DOCUMENT, b'<#me>\n  <http://v/nonsense> "a" .', TURTLE)
    assert "not declared" in refused.value.flaws[0].message
    with pytest.raises(InvalidDocument):
        put_local(cache, DOCUMENT, f'<#me> <{SIZE}> "large" .'.encode(), TURTLE)
    with pytest.raises(NotWellFormed):
        put_local(cache, DOCUMENT, b"<#me> <", TURTLE)
    assert list_local(cache) == []


def test_local_statements_neither_keep_nor_fetch_resources(cache: Cache, mdp: NaiveMdp) -> None:
    put_local(cache, DOCUMENT, f"<#me> <{OWNS}> <{URIS[0]}>, <{URIS[1]}> .".encode(), TURTLE)
    assert content_of(cache).content.keys() == {URIS[0]}
    mdp.chosen = set()
    deliver(cache, mdp)
    said = {DOCUMENT: {Statement(DOCUMENT + "#me", OWNS, Term.uri(uri)) for uri in URIS[:2]}}
    assert_cache_holds(cache, mdp.states[-1], said)
    assert content_of(cache).content == {}


def test_a_local_statement_stays_when_the_same_global_one_is_deleted(cache: Cache, mdp: NaiveMdp) -> None:
    put_local(cache, DOCUMENT, f'<{URIS[0]}> <{LABEL}> "{URIS[0]}" .'.encode(), TURTLE)
    del mdp.store[URIS[0]]
    deliver(cache, mdp)
    assert_cache_holds(cache, mdp.states[-1], {DOCUMENT: {Statement(URIS[0], LABEL, Term.literal(URIS[0]))}})


def test_a_document_stays_if_the_schema_no_longer_allows_it(cache: Cache, mdp: NaiveMdp) -> None:
    mdp.size = None
    deliver(cache, mdp)
    put_local(cache, DOCUMENT, f'<#me> <{SIZE}> "large", "7" .'.encode(), TURTLE)
    mdp.size = "integer"
    deliver(cache, mdp)
    said = {Statement(DOCUMENT + "#me", SIZE, Term.literal(value)) for value in ("large", "7")}
    assert_cache_holds(cache, mdp.states[-1], {DOCUMENT: said})
    assert {(value, number is None) for _, value, number in content_of(cache).typed if value in ("large", "7")} == {
        ("large", True),
        ("7", False),
    }


def test_blank_nodes_have_stable_names_and_are_no_strong_references(cache: Cache, mdp: NaiveMdp) -> None:
    put_local(cache, DOCUMENT, f'<#me> <{OWNS}> [ <{LABEL}> "a" ] .'.encode(), TURTLE)
    before = get_local(cache, DOCUMENT)
    assert any(is_blank(statement.subject) for statement in before.statements)
    assert not put_local(cache, DOCUMENT, f'<#me> <{OWNS}> _:x . _:x <{LABEL}> "a" .'.encode(), TURTLE).changed
    assert_cache_holds(cache, mdp.states[-1], {DOCUMENT: set(before.statements)})
