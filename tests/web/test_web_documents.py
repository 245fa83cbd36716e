"""Documents over HTTP: registered, changed by difference, read back, deleted, with history."""

from __future__ import annotations

from urllib.parse import quote

import pytest
import rdflib
from rdflib.compare import isomorphic

from tests.support.server import FIGURE_1, JSON_LD, N_TRIPLES, PROBLEM, TURTLE, XML, Api, Server, V, provider, turtle

RDFLIB = {XML: "xml", TURTLE: "turtle", N_TRIPLES: "nt", JSON_LD: "json-ld"}


def graph(text: str, media_type: str, base: str) -> rdflib.Graph:
    return rdflib.Graph().parse(data=text, format=RDFLIB[media_type], publicID=base)


def position(api: Api) -> int:
    """Return the MDP's position, from an unchanged registration."""
    return int(api.put("http://warm.example/up", provider()).json()["position"])


def test_without_prefer_a_registration_is_accepted_and_its_job_is_done(api: Api, doc: str) -> None:
    answer = api.put(doc, FIGURE_1, XML, wait=None)
    assert answer.status_code == 202
    body = answer.json()
    assert body["state"] == "queued" and body["document"] == doc
    assert answer.headers["Location"] == f"/api/v1/jobs/{body['job']}"
    job = api.job(body["job"])
    assert job["state"] == "done" and job["kind"] == "register" and job["document"] == doc
    assert job["problem"] is None and job["ended_at"] >= job["created_at"] and job["attempts"] == 1
    assert {"version": 1, "inserted": 2, "created": True}.items() <= job["result"].items()


def test_a_new_document_gives_201_with_counts_and_an_identical_one_200_without_changes(api: Api, doc: str) -> None:
    # Rules that other tests have left may match it: as many as a dry run reports.
    tried = api.put(doc, FIGURE_1, XML, dry_run="true").json()
    first = api.put(doc, FIGURE_1, XML)
    assert first.status_code == 201, first.text
    counts = {"inserted": 2, "updated": 0, "deleted": 0, "unchanged": 0}
    counts |= {name: tried[name] for name in ("matched", "lmrs")}
    assert (counts | {"document": doc, "version": 1}).items() <= first.json().items()
    assert first.headers["ETag"] == '"1"' and first.headers["Preference-Applied"] == "wait=60"
    assert first.headers["Location"] == "/api/v1/documents?uri=" + quote(doc, safe="")
    assert api.http.get(first.headers["Location"]).status_code == 200
    again = api.put(doc, FIGURE_1, XML)
    assert again.status_code == 200 and "Location" not in again.headers
    assert {"version": 1, "inserted": 0, "unchanged": 2}.items() <= again.json().items()
    assert again.json()["position"] == first.json()["position"] == position(api)


def test_a_changed_document_counts_inserted_updated_deleted_and_unchanged_resources(api: Api, doc: str) -> None:
    api.put(doc, turtle("<#a> ex:note 'a' . <#b> ex:note 'b' . <#c> ex:note 'c' ."))
    answer = api.put(doc, turtle("<#a> ex:note 'a' . <#b> ex:note 'other' . <#d> ex:note 'd' ."))
    assert answer.status_code == 200
    assert {"version": 2, "inserted": 1, "updated": 1, "deleted": 1, "unchanged": 1}.items() <= answer.json().items()
    assert answer.headers["ETag"] == '"2"'


@pytest.mark.parametrize("media_type", [XML, TURTLE, N_TRIPLES, JSON_LD])
def test_each_syntax_reads_back_in_every_other_as_the_same_graph(api: Api, doc: str, media_type: str) -> None:
    source = graph(
        turtle(
            "<#host> a ex:CycleProvider ; ex:serverHost 'Flußpirat 🏴' ; ex:serverPort 5874 ;",
            "  ex:knows [ ex:note 'blank', 'twice'@de ; ex:knows [ ex:note 'inner' ] ] .",
        ), TURTLE, doc,
    )  # fmt: skip
    sent = source.serialize(format=RDFLIB[media_type])
    assert api.put(doc, sent, media_type + "; charset=utf-8").status_code == 201
    for wanted in RDFLIB:
        answer = api.get("/documents", uri=doc, headers={"Accept": wanted})
        assert answer.headers["Content-Type"].split(";")[0] == wanted
        assert isomorphic(graph(answer.text, wanted, doc), source), answer.text


def test_figure_1_has_the_atoms_of_figure_4_on_pages_of_any_size(api: Api, doc: str) -> None:
    api.put(doc, FIGURE_1, XML)
    atoms = api.all("/documents/atoms", 1000, uri=doc)
    assert [(a["uri_reference"].removeprefix(doc), a["property"].removeprefix(V), a["value"]) for a in atoms] == [
        ("#host", "rdf#subject", doc + "#host"),
        ("#host", "serverHost", "pirates.uni-passau.de"),
        ("#host", "serverInformation", doc + "#info"),
        ("#host", "serverPort", "5874"),
        ("#info", "rdf#subject", doc + "#info"),
        ("#info", "cpu", "600"),
        ("#info", "memory", "92"),
    ]
    assert {a["class"] for a in atoms} == {V + "CycleProvider", V + "ServerInformation"}
    assert api.all("/documents/atoms", 1, uri=doc) == api.all("/documents/atoms", 3, uri=doc) == atoms


def test_atoms_with_values_too_long_for_a_url_are_paged(api: Api, doc: str) -> None:
    values = [letter * 5000 + end for letter in "xyz" for end in "12"]
    api.put(doc, turtle(*(f"<#a> ex:note '{value}' ." for value in values)))
    atoms = api.all("/documents/atoms", 2, uri=doc)
    assert [a["value"] for a in atoms] == [doc + "#a", *values]


@pytest.mark.parametrize(
    "after", ["x", "[" * 1200, "[]", "[1,2,3,4,5]", '["a","b","c","d"]', '[1,"a"]', '[1,"\\ud800","b","c","d"]',
              '[1,"\\u0000","b","c","d"]', "{}", "null", "[-1]", "[1e400]", "[99999999999999999999]"],
)  # fmt: skip
def test_an_invalid_cursor_of_atoms_is_refused(api: Api, doc: str, after: str) -> None:
    api.put(doc, provider())
    answer = api.get("/documents/atoms", uri=doc, after=after)
    assert answer.status_code == 400, answer.text
    assert "`next` of the previous page" in answer.json()["detail"]


def test_if_match_requires_the_stored_version(api: Api, doc: str) -> None:
    missing = api.put(doc, provider(1), headers={"If-Match": "*"})
    assert missing.status_code == 412 and "is not registered" in missing.json()["detail"]
    assert api.put(doc, provider(1)).headers["ETag"] == '"1"'
    wrong = api.put(doc, provider(2), headers={"If-Match": '"7"'})
    assert wrong.status_code == 412 and wrong.json()["type"] == "urn:mdv:problem:precondition-failed"
    assert api.put(doc, provider(2), headers={"If-Match": '"7", "1"'}).json()["version"] == 2
    assert api.put(doc, provider(3), headers={"If-Match": "*"}).json()["version"] == 3
    assert api.delete(doc, headers={"If-Match": '"1"'}).status_code == 412
    assert api.delete(doc, headers={"If-Match": '"3"'}).status_code == 200


def test_if_none_match_star_creates_and_never_overwrites(api: Api, doc: str) -> None:
    assert api.put(doc, provider(1), headers={"If-None-Match": "*"}).status_code == 201
    assert api.put(doc, provider(2), headers={"If-None-Match": "*"}).status_code == 412
    assert "5874" not in api.get("/documents", uri=doc).text
    api.delete(doc)
    assert api.put(doc, provider(2), headers={"If-None-Match": "*"}).status_code == 201


@pytest.mark.parametrize(
    ("garbage", "status"),
    [
        ("", 412), ("1", 412), ('"', 412), ('""', 412), ("W/", 412), ('"a', 412), (", ,", 412), ("é", 412),
        pytest.param("\x7f", 400, marks=pytest.mark.full),  # refused by gunicorn
    ],
)  # fmt: skip
def test_an_invalid_if_match_matches_no_version(api: Api, doc: str, garbage: str, status: int) -> None:
    api.put(doc, provider(1))
    api.put(doc, provider(2))
    answer = api.http.put(
        "/api/v1/documents", params={"uri": doc}, content=provider(3).encode(),
        headers=[("Content-Type", TURTLE), ("Prefer", "wait=10"), ("If-Match", garbage.encode("latin-1"))],
    )  # fmt: skip
    assert answer.status_code == status, answer.text


def test_a_deleted_document_is_gone_and_its_history_and_version_numbers_stay(api: Api, doc: str) -> None:
    api.put(doc, provider(1))
    api.put(doc, provider(2))
    gone = api.delete(doc)
    assert gone.status_code == 200 and {"version": 3, "deleted": 1}.items() <= gone.json().items()
    missing = api.get("/documents", uri=doc)
    assert missing.status_code == 404 and "was deleted in version 3" in missing.json()["detail"]
    assert api.get("/resources", uri=doc + "#host").status_code == 404
    assert api.get("/documents/atoms", uri=doc).status_code == 404
    assert doc not in [item["uri"] for item in api.all("/documents", 1000)]
    again = api.delete(doc)
    assert again.status_code == 404 and again.headers["Content-Type"] == PROBLEM
    back = api.put(doc, provider(2))
    assert back.status_code == 201 and back.json()["version"] == 4
    versions = api.all("/documents/history", 2, uri=doc)
    assert [v["version"] for v in versions] == [4, 3, 2, 1]
    assert [v["present"] for v in versions] == [True, False, True, True]
    assert [v["position"] for v in versions] == sorted((v["position"] for v in versions), reverse=True)
    assert (versions[0]["inserted"], versions[1]["deleted"], versions[2]["updated"]) == (1, 1, 1)


def test_each_version_reads_back_as_registered(api: Api, doc: str) -> None:
    for port in (1, 2):
        api.put(doc, provider(port))
    api.delete(doc)
    for version in (1, 2):
        answer = api.get("/documents/history", uri=doc, version=version, headers={"Accept": TURTLE})
        assert answer.headers["ETag"] == f'"{version}"'
        assert isomorphic(graph(answer.text, TURTLE, doc), graph(provider(version), TURTLE, doc))
    assert api.get("/documents/history", uri=doc, version=3).status_code == 404
    missing = api.get("/documents/history", uri=doc, version=9)
    assert missing.status_code == 404 and "has no version 9" in missing.json()["detail"]
    assert api.get("/documents/history", uri=doc + "x").status_code == 404


@pytest.mark.parametrize("limit", [1, 2, 1000])
def test_pages_of_documents_hold_each_exactly_once(api: Api, doc: str, limit: int) -> None:
    mine = {f"{doc}/{n}" for n in range(4)}
    for uri in mine:
        api.put(uri, provider(), wait=None)
    api.put(doc + "/last", provider())
    for uri in mine:
        api.job(api.put(uri, provider(), wait=None).json()["job"])
    uris = [item["uri"] for item in api.all("/documents", limit)]
    assert len(uris) == len(set(uris)) and mine < set(uris)
    for page in api.pages("/documents", limit):
        assert len(page) <= limit
        assert all(set(item) == {"uri", "version", "position"} for item in page)


def test_a_dry_run_returns_the_counts_and_changes_nothing(api: Api, doc: str) -> None:
    before = position(api)
    new = api.put(doc, FIGURE_1, XML, wait=None, dry_run="true")
    assert new.status_code == 200, new.text
    assert {"dry_run": True, "inserted": 2, "created": True, "version": 1}.items() <= new.json().items()
    assert not {"ETag", "Location", "Preference-Applied"} & set(new.headers)
    assert api.get("/documents", uri=doc).status_code == 404
    assert api.get("/documents/history", uri=doc).status_code == 404
    api.put(doc, FIGURE_1, XML)
    changed = api.put(doc, FIGURE_1.replace("92", "93"), XML, dry_run="true")
    assert {"dry_run": True, "updated": 1, "unchanged": 1, "version": 2}.items() <= changed.json().items()
    assert api.delete(doc, dry_run="true").json()["deleted"] == 2
    bad = api.put(doc, FIGURE_1.replace("92", "many"), XML, dry_run="true")
    assert bad.status_code == 422
    assert "92" in api.get("/documents", uri=doc).text
    assert position(api) == before + 1


def test_a_refused_document_lists_every_error_with_its_line_and_the_stored_version_stays(api: Api, doc: str) -> None:
    api.put(doc, FIGURE_1, XML)
    bad = FIGURE_1.replace(">5874<", ">many<").replace('memory="92"', 'memory="lots" disk="1"')
    answer = api.put(doc, bad, XML)
    assert answer.status_code == 422 and answer.headers["Content-Type"] == PROBLEM
    body = answer.json()
    assert body["type"] == "urn:mdv:problem:invalid-document" and body["title"] and body["status"] == 422
    assert sorted(error["line"] for error in body["errors"]) == [6, 9, 9]
    assert "ETag" not in answer.headers
    assert api.get("/documents", uri=doc).headers["ETag"] == '"1"'


@pytest.mark.parametrize(
    ("body", "media_type", "status"),
    [
        ("", TURTLE, 400),
        ("   ", XML, 400),
        ("<a> <b> ", TURTLE, 400),
        (FIGURE_1[:200], XML, 400),
        ("<html><body/></html>", XML, 400),
        ("{}", JSON_LD, 400),
        ("x", "text/html", 415),
        ("x", None, 415),
        ("x", "multipart/form-data; boundary=b", 415),
        ("uri=x", "application/x-www-form-urlencoded", 415),
        ("x", "text/turtle; charset=utf-7", 400),
        ("x", ";;;=", 415),
    ],
)
def test_invalid_documents_are_refused(api: Api, doc: str, body: str, media_type: str | None, status: int) -> None:
    answer = api.put(doc, body, media_type)
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == PROBLEM and answer.json()["detail"]
    assert api.get("/documents", uri=doc).status_code == 404


@pytest.mark.parametrize("uri", ["", "doc.rdf", "http://a/b#c", "http://a b/", "x:" + "y" * 2047, "http://[/"])
def test_a_relative_uri_is_refused_by_every_call(api: Api, uri: str) -> None:
    for answer in (
        api.put(uri, provider()), api.delete(uri), api.get("/documents", uri=uri),
        api.get("/documents/history", uri=uri), api.get("/documents/atoms", uri=uri),
    ):  # fmt: skip
        assert answer.status_code == 400, answer.text
        assert answer.headers["Content-Type"] == PROBLEM


def test_a_document_uri_may_contain_unicode_and_question_marks(api: Api) -> None:
    uri = "http://docs.example/ü/日本?a=1&b=%20+c"
    assert api.put(uri, provider()).status_code == 201
    assert api.get("/documents", uri=uri).status_code == 200
    assert api.get("/resources", uri=uri + "#host").json()["documents"] == [uri]


def test_a_wait_over_the_maximum_is_capped_and_ends_in_202_without_a_worker(small: Server, doc: str) -> None:
    answer = small.api().put(doc, provider(), wait=99999999999999)
    assert answer.status_code == 202 and "Preference-Applied" not in answer.headers
    assert small.api().get(f"/jobs/{answer.json()['job']}").json()["state"] == "queued"


@pytest.mark.parametrize("prefer", ["wait=-1", "wait=0", "wait", "wait=", "wait=x", "await=9", "respond-async", ""])
def test_a_preference_without_a_wait_is_answered_before_the_job_ends(api: Api, doc: str, prefer: str) -> None:
    answer = api.put(doc, provider(), wait=None, headers={"Prefer": prefer})
    assert answer.status_code == 202, "with a wait it would be 201, as a worker works"
    assert api.job(answer.json()["job"])["state"] == "done"


@pytest.mark.parametrize(
    "prefer", ["wait=20", "respond-async, wait=20", "Wait=20", 'wait="20"', "foo; bar=1, wait = 20"]
)
def test_wait_is_accepted_in_every_notation_of_rfc_7240(api: Api, doc: str, prefer: str) -> None:
    answer = api.put(doc, provider(), wait=None, headers={"Prefer": prefer})
    assert answer.status_code == 201 and answer.headers["Preference-Applied"] == "wait=20"


def test_a_document_with_a_value_of_ten_megabytes_is_registered_again_from_every_format(api: Api, doc: str) -> None:
    long = "x" * 10_500_000
    first = api.put(doc, turtle(f"<#a> a ex:CycleProvider ; ex:note '{long}', 'short', 'short'@en ."), wait=60)
    assert first.status_code == 201, first.text
    for media_type in (XML, TURTLE, N_TRIPLES, JSON_LD):
        found = api.get("/documents", {"Accept": media_type}, uri=doc)
        assert found.status_code == 200, found.text
        again = api.put(doc, found.content, media_type, wait=60)
        assert again.status_code == 200, again.text
        assert (again.json()["version"], again.json()["unchanged"]) == (1, 1)
    assert api.delete(doc).status_code == 200
