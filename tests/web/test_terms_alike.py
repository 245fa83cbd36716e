"""Terms that differ only in language or datatype, read over HTTP at an MDP and at an LMR: in every format and on every
page that shows them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from mdv.model import RDF_TYPE, XSD, Statement, Term
from mdv.rdf.blank import name_blank_nodes
from mdv.rdf.gate import gate
from mdv.rdf.parse import parse
from mdv.rdf.syntax import SYNTAXES, syntax_of_media_type
from tests.support.lmr_server import Lmr, create, start_lmr_server
from tests.support.local_http import local_client
from tests.support.page_visitor import Visitor
from tests.support.server import JSON_LD, N_TRIPLES, TURTLE, XML, Api, Server, V, turtle

pytestmark = pytest.mark.full

FORMATS = [XML, TURTLE, N_TRIPLES, JSON_LD]
DOWNLOADS = ["rdf", "ttl", "jsonld", "nt"]
_numbers = itertools.count(1)


def in_order(statements: list[Statement]) -> list[Statement]:
    """Sort by subject, property, type, value, language and datatype; None comes first."""
    return sorted(statements, key=lambda s: (s.subject, s.property, *((part or "") for part in s.object)))


class Alike:
    """Two documents about one resource with similar terms, and an LMR that holds it."""

    def __init__(self, api: Api, lmr: Lmr, documents: tuple[str, str]) -> None:
        self.api, self.lmr, self.documents = api, lmr, documents
        self.uri, self.host = documents[0] + "#host", f"same-{next(_numbers)}"
        self.versions = [
            self.text("'Paris', 'Paris'@en", "'5', 5"),
            self.text("'Paris', 'Paris'@en, 'Paris'@de", "'5', 5, 5.0, <#5>"),
        ]
        self.statements = in_order([
            *self.said(RDF_TYPE, Term.uri(V + "CycleProvider")),
            *self.said(V + "serverHost", Term.literal(self.host), Term.literal(self.host, lang="en")),
            *self.said(V + "note", *(Term.literal("Paris", lang=lang) for lang in (None, "de", "en"))),
            *self.said(V + "knows", Term.uri(documents[0] + "#5"), Term.literal("5"),
                       Term.literal("5", datatype=XSD + "integer"), Term.literal("5.0", datatype=XSD + "decimal")),
        ])  # fmt: skip
        self.rule = f"search CycleProvider c register c where c.serverHost = '{self.host}'"
        self.query = f"search CycleProvider c where c.serverHost = '{self.host}' return c.serverHost, c.note?, c.knows?"

    def text(self, notes: str, known: str) -> str:
        return turtle(
            f"<#host> a ex:CycleProvider ; ex:serverHost '{self.host}' ; ex:note {notes} ; ex:knows {known} ."
        )

    def said(self, name: str, *terms: Term) -> list[Statement]:
        return [Statement(self.uri, name, term) for term in terms]

    def put(self) -> None:
        for text in self.versions:
            assert self.api.put(self.documents[0], text).status_code in (200, 201)
        other = turtle(f"<{self.uri}> ex:serverHost '{self.host}'@en .")
        assert self.api.put(self.documents[1], other).status_code == 201
        self.lmr.subscribe(self.rule)


@pytest.fixture(scope="module")
def lmr(api: Api, server: Server, folder: Path) -> Iterator[Lmr]:
    number, token = create(api, "terms-alike")
    store = f"sqlite:///{folder / 'terms-alike.db'}"
    found = Lmr(number, "terms-alike", token, store, start_lmr_server(folder, server.url, token, store))
    yield found
    found.stop()


@pytest.fixture(scope="module")
def alike(api: Api, lmr: Lmr) -> Alike:
    made = Alike(api, lmr, ("http://alike.example/one", "http://alike.example/two"))
    made.put()
    return made


@pytest.fixture
def at_lmr(lmr: Lmr) -> Iterator[Visitor]:
    with local_client(base_url=lmr.url, timeout=60, follow_redirects=True) as client:
        yield Visitor(client).sign_in(lmr.token)


@pytest.fixture(params=["MDP", "LMR"])
def reader(request: pytest.FixtureRequest, api: Api, lmr: Lmr) -> Api:
    return api if request.param == "MDP" else lmr.own


def read(body: bytes, media_type: str, uri: str) -> list[Statement]:
    """Return the statements of a text, in order."""
    syntax, charset = syntax_of_media_type(media_type)
    return list(name_blank_nodes(parse(gate(body, syntax, charset), uri)).statements)


@pytest.mark.parametrize("media_type", FORMATS)
def test_a_resource_is_read_in_every_format(alike: Alike, reader: Api, media_type: str) -> None:
    answer = reader.get("/resources", {"Accept": media_type}, uri=alike.uri)
    assert answer.status_code == 200, answer.text
    assert read(answer.content, media_type, alike.documents[0]) == alike.statements


def test_a_resource_is_read_as_json_in_the_order_of_terms(alike: Alike, reader: Api) -> None:
    answer = reader.get("/resources", uri=alike.uri)
    assert answer.status_code == 200, answer.text
    assert answer.json()["statements"] == [[s.property, s.object.as_dict()] for s in alike.statements]


@pytest.mark.parametrize("media_type", FORMATS)
def test_a_rule_is_answered_as_rdf(alike: Alike, reader: Api, media_type: str) -> None:
    answer = reader.http.post("/api/v1/query", json={"query": alike.rule}, headers={"Accept": media_type})
    assert answer.status_code == 200, answer.text
    assert read(answer.content, media_type, alike.documents[0]) == alike.statements


@pytest.mark.parametrize("media_type", ["application/json", "text/csv"])
def test_a_query_is_answered_with_rows(alike: Alike, reader: Api, media_type: str) -> None:
    answer = reader.http.post("/api/v1/query", json={"query": alike.query}, headers={"Accept": media_type})
    assert answer.status_code == 200, answer.text
    if media_type == "application/json":
        assert len(answer.json()["rows"]) == 2 * 3 * 4


@pytest.mark.parametrize("media_type", FORMATS)
def test_documents_and_their_versions_can_be_read_and_registered_again(alike: Alike, media_type: str) -> None:
    uri = alike.documents[0]
    found = alike.api.get("/documents", {"Accept": media_type}, uri=uri)
    assert found.status_code == 200, found.text
    again = alike.api.put(uri, found.content, media_type)
    assert again.status_code == 200 and again.json()["updated"] == 0, again.text
    for version in (1, 2):
        older = alike.api.get("/documents/history", {"Accept": media_type}, uri=uri, version=version)
        assert older.status_code == 200, older.text
        assert read(older.content, media_type, uri) == read(alike.versions[version - 1].encode(), TURTLE, uri)


def test_rules_are_proposed_and_resources_explained(alike: Alike) -> None:
    proposed = alike.api.http.post("/api/v1/rules/propose", json={"resource": alike.uri})
    assert proposed.status_code == 200, proposed.text
    assert any("'Paris'" in proposal["rule"] for proposal in proposed.json()["items"])
    for uri in (alike.uri, alike.documents[0] + "#5"):
        why = alike.api.get("/explain", lmr=alike.lmr.name, uri=uri)
        assert why.status_code == 200, why.text
    assert alike.api.http.post("/api/v1/rules/explain", json={"rule": alike.rule}).status_code == 200
    assert alike.api.get("/filter/trace", document=alike.documents[0]).status_code == 200


def test_feed_and_checksum_have_every_term(alike: Alike) -> None:
    feed = alike.lmr.own  # the feed is the MDP's
    with local_client(base_url=alike.api.http.base_url, headers=feed.http.headers, timeout=60) as http:
        events = http.get(f"/api/v1/lmrs/{alike.lmr.name}/feed", params={"limit": 1000}).json()["events"]
    (put,) = [event for event in events if event.get("resource") == alike.uri and event["event"] == "put"]
    assert sorted(put["statements"], key=repr) == sorted(
        ([s.property, s.object.as_dict()] for s in alike.statements), key=repr
    )
    alike.lmr.assert_like_the_mdp()


def test_local_documents_are_read_in_every_format(alike: Alike, at_lmr: Visitor) -> None:
    uri = "http://alike.example/local"
    assert alike.lmr.put_local(uri, turtle("<#x> ex:note 'a', 'a'@en, 'a'@de ; ex:knows '1', 1 .")).status_code == 201
    for media_type in FORMATS:
        found = alike.lmr.get("/local/documents", {"Accept": media_type}, uri=uri)
        assert found.status_code == 200, found.text
        assert len(read(found.content, media_type, uri)) == 5
        assert alike.lmr.put_local(uri, found.content, media_type).status_code == 200
        assert alike.lmr.get("/resources", {"Accept": media_type}, uri=uri + "#x").status_code == 200
    for syntax in SYNTAXES:
        for path in ("/local/document", "/local/document/text"):
            assert at_lmr.get(path, uri=uri, syntax=syntax.name).status == 200
    assert at_lmr.get("/resource", uri=uri + "#x").status == 200
    assert alike.lmr.delete_local(uri).status_code == 200


def pages_of(alike: Alike) -> list[str]:
    """Pages that both an MDP and an LMR have."""
    uri, rule, query = (quote(text, safe="") for text in (alike.uri, alike.rule, alike.query))
    ordered = quote(alike.query + " order by c.note? desc, c.knows?", safe="")
    return [
        f"/resource?uri={uri}",
        *(f"/resource/file.{suffix}?uri={uri}" for suffix in DOWNLOADS),
        *(f"/query?q={text}" for text in (rule, query, ordered)),
        *(f"/query?q={query}&chart={column}" for column in range(3)),
        *(f"/query/export?as={name}&q={rule}" for name in ("csv", "json", "turtle", "rdfxml", "ntriples", "jsonld")),
        *(f"/query/export?as={name}&q={query}" for name in ("csv", "json")),
    ]


def test_every_page_of_the_mdp_is_shown(alike: Alike, visitor: Visitor) -> None:
    document, uri = (quote(name, safe="") for name in (alike.documents[0], alike.uri))
    instances = f"/browse/instances?class={quote(V + 'CycleProvider', safe='')}"
    for path in [
        *pages_of(alike),
        f"/document?uri={document}",
        *(f"/document?uri={document}&version={version}" for version in (1, 2)),
        *(f"/document/text?uri={document}&version=2&syntax={syntax.name}" for syntax in SYNTAXES),
        *(f"/document/difference?uri={document}&from={old}&to={new}" for old, new in ((1, 2), (2, 1))),
        f"/document/restore?uri={document}&version=1",
        f"/document/delete?uri={document}",
        f"/register?uri={document}",
        f"/like?uri={uri}",
        f"/lmrs/{alike.lmr.name}/explain?uri={uri}",
        f"/rules/replay?document={document}",
        f"/browse?find={uri}",
        instances,
        f"{instances}&property={quote(V + 'note', safe='')}&op=%3D&value=Paris",
        f"{instances}&sort={quote(V + 'serverHost', safe='')}",
    ]:
        assert visitor.get(path).status == 200, path


def test_every_page_of_the_lmr_is_shown(alike: Alike, at_lmr: Visitor) -> None:
    uri = quote(alike.uri, safe="")
    cached = [f"/resource/why?uri={uri}", f"/cache?find={uri}", "/cache/instances?class=CycleProvider"]
    for path in [*pages_of(alike), *cached]:
        assert at_lmr.get(path).status == 200, path


@pytest.mark.parametrize("at", ["MDP", "LMR"])
def test_a_resource_page_shows_values_in_the_order_of_terms(
    alike: Alike, visitor: Visitor, at_lmr: Visitor, at: str
) -> None:
    page = (visitor if at == "MDP" else at_lmr).get("/resource", uri=alike.uri)
    assert [row[2] for row in page.rows() if row[1] == "Paris"] == ["", "de", "en"]


def test_a_difference_only_in_languages_is_shown_previewed_and_restored(
    alike: Alike, api: Api, visitor: Visitor, doc: str
) -> None:
    for notes in ("'a', 'a'@en", "'a'@de, 'a'@en"):
        assert api.put(doc, alike.text(notes, "5")).status_code in (200, 201)
    shown = visitor.get("/document/difference", uri=doc, **{"from": 1, "to": 2})
    assert shown.status == 200 and "a" in shown.words
    tried = visitor.post("/register", uri=doc, text=alike.text("'a', 'a'@de, 'a'@en", "'5', 5"), syntax="turtle")
    assert tried.status == 200, tried.words
    form = visitor.get("/document/restore", uri=doc, version=1)
    assert form.status == 200
    assert visitor.post("/document/restore", uri=doc, restored="1", version="2").status == 200
    now = api.get("/documents", {"Accept": N_TRIPLES}, uri=doc)
    assert read(now.content, N_TRIPLES, doc) == read(alike.text("'a', 'a'@en", "5").encode(), TURTLE, doc)
    alike.lmr.is_at(api.delete(doc).json()["position"])  # its rule selects this resource too


def test_a_query_with_too_many_variables_is_refused_with_a_problem(reader: Api) -> None:
    text = "search " + ", ".join(f"CycleProvider v{n}" for n in range(250)) + " return v0"
    answer = reader.http.post("/api/v1/query", json={"query": text})
    assert answer.status_code == 422, answer.text
    assert "more than 64 variables" in answer.json()["detail"]
