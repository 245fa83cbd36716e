"""Conflicts of a backbone over HTTP, on pages and by command: equal at all members, resolved in one step."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

import pytest

from mdv.cli import cli
from mdv.cli.errors import run_for_exit_code
from tests.support.http_backbone import HttpBackbone, HttpMember, check_equal, http_backbone, partition
from tests.support.local_http import local_client
from tests.support.page_visitor import Visitor
from tests.support.server import ADMIN, SCHEMA, V, provider, turtle

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def backbone(new_database: Callable[[], str], new_queue: Callable[[], str]) -> Iterator[HttpBackbone]:
    with http_backbone(new_database, new_queue) as backbone:
        first = backbone.found("m1")
        assert first.api.put_schema(SCHEMA).status_code == 200
        backbone.join("m2")
        yield backbone


@pytest.fixture
def uri() -> str:
    return f"http://docs.example/conflict-{next(_numbers)}"


def conflicts(backbone: HttpBackbone, uri: str) -> list[dict[str, Any]]:
    """Return the conflicts of a document, which are the same at all members."""
    backbone.rest()
    found = [one.call("GET", "/backbone/conflicts", uri=uri)["items"] for one in backbone.members.values()]
    assert all(one == found[0] for one in found), found
    return found[0]  # type: ignore[no-any-return]


def diverge(backbone: HttpBackbone, uri: str) -> dict[str, Any]:
    """Register a document with different ports at both members at once. Return the conflict."""
    m1, m2 = backbone.members.values()
    assert m1.api.put(uri, provider(1)).status_code == 201
    backbone.rest()
    with partition(backbone):
        assert m1.api.put(uri, provider(2)).status_code == 200
        assert m2.api.put(uri, provider(3)).status_code == 200
    (found,) = conflicts(backbone, uri)
    assert found["kind"] == "values" and found["about"] == [f"{uri}#host", f"{V}serverPort"]
    assert [value["value"] for value in found["values"]] == ["2", "3"]
    return found


def leave_a_remnant(backbone: HttpBackbone, uri: str) -> dict[str, Any]:
    """Delete a document at one member and change it at the other. Return the conflict."""
    m1, m2 = backbone.members.values()
    assert m1.api.put(uri, provider(1)).status_code == 201
    backbone.rest()
    with partition(backbone):
        assert m1.api.delete(uri).status_code == 200
        assert m2.api.put(uri, turtle("<#host> ex:note 'added' .", provider(1).partition("\n")[2])).status_code == 200
    (found,) = conflicts(backbone, uri)
    assert found["kind"] == "remnant" and found["values"] == [{"type": "uri", "value": uri}]
    return found


def ports(member: HttpMember, uri: str) -> list[str]:
    answer = member.api.get("/documents", uri=uri, headers={"Accept": "application/n-triples"})
    return sorted(re.findall(r'serverPort> "(\d+)"', answer.text))


def resolve(member: HttpMember, conflict: dict[str, Any], *keep: Any, **headers: str) -> Any:
    path = f"/api/v1/backbone/conflicts/{conflict['id']}"
    return member.api.http.post(path, json={"keep": list(keep)}, headers=headers)


def test_one_decision_at_any_member_resolves_a_conflict_everywhere(backbone: HttpBackbone, uri: str) -> None:
    m1, m2 = backbone.members.values()
    conflict = diverge(backbone, uri)
    answer = resolve(m2, conflict, conflict["values"][0])
    assert answer.status_code == 200 and answer.json()["document"] == uri and answer.json()["token"]
    check_equal(backbone, uri)
    assert ports(m1, uri) == ["2"]
    assert [one["kind"] for one in conflicts(backbone, uri)] == ["merged"]
    assert resolve(m1, conflict, conflict["values"][0]).status_code == 404


def test_the_origins_of_values_are_the_members_that_inserted_them(backbone: HttpBackbone, uri: str) -> None:
    m1, m2 = backbone.members.values()
    conflict = diverge(backbone, uri)
    for member in (m1, m2):
        found = member.call("GET", f"/backbone/conflicts/{conflict['id']}")
        assert [(one["value"]["value"], one["members"]) for one in found["origins"]] == [("2", ["m1"]), ("3", ["m2"])]
        assert all(one["at"] for one in found["origins"])


def test_a_resolution_can_have_a_condition_and_must_name_values_of_the_conflict(
    backbone: HttpBackbone, uri: str
) -> None:
    m1, _ = backbone.members.values()
    conflict = diverge(backbone, uri)
    two, three = conflict["values"]
    assert resolve(m1, conflict, "2", **{"If-Match": '"1-00000000"'}).status_code == 412
    for keep, why in (([two, three], "not set-valued"), (["7"], "not among"), ([{"type": "x"}], "A term is")):
        refused = resolve(m1, conflict, *keep)
        assert refused.status_code in (400, 422) and why in refused.json()["detail"], refused.text
    assert m1.api.http.post("/api/v1/backbone/conflicts/x", json={"keep": []}).status_code == 404
    etag = m1.api.get("/documents", uri=uri).headers["ETag"]
    assert resolve(m1, conflict, "3", **{"If-Match": etag}).status_code == 200
    assert ports(m1, uri) == ["3"]
    (merged,) = conflicts(backbone, uri)
    assert merged["kind"] == "merged" and resolve(m1, merged).status_code == 409


def test_no_value_at_all_may_be_kept(backbone: HttpBackbone, uri: str) -> None:
    conflict = diverge(backbone, uri)
    assert resolve(backbone["m1"], conflict).status_code == 200
    check_equal(backbone, uri)
    assert ports(backbone["m2"], uri) == []


def test_a_document_with_several_values_is_refused_with_its_conflict_even_if_it_is_stored(
    backbone: HttpBackbone, uri: str
) -> None:
    m1, _ = backbone.members.values()
    conflict = diverge(backbone, uri)
    stored = m1.api.get("/documents", uri=uri, headers={"Accept": "text/turtle"}).text
    for body in (stored, turtle("<#host> a ex:CycleProvider ; ex:serverPort 7, 8 .")):
        refused = m1.api.put(uri, body)
        assert refused.status_code == 422
        assert [one["id"] for one in refused.json()["conflicts"]] == [conflict["id"]]
        assert conflict["id"] in refused.json()["detail"] and "mdv conflicts resolve" in refused.json()["detail"]
    other = m1.api.put(f"{uri}-other", turtle("<#host> a ex:CycleProvider ; ex:serverPort 7, 8 ."))
    assert other.status_code == 422 and "conflicts" not in other.json()
    assert m1.api.put(uri, provider(9)).status_code == 200
    assert [one["kind"] for one in conflicts(backbone, uri)] == ["merged"]


def test_a_remnant_stays_or_goes(backbone: HttpBackbone, uri: str) -> None:
    m1, m2 = backbone.members.values()
    conflict = leave_a_remnant(backbone, uri)
    assert resolve(m1, conflict, uri).status_code == 200
    ((status, etag, lines),) = check_equal(backbone, uri)
    assert status == 200 and etag is not None and etag.startswith('"4-') and len(lines) == 1
    assert "remnant" not in [one["kind"] for one in conflicts(backbone, uri)]

    other = f"{uri}-other"
    conflict = leave_a_remnant(backbone, other)
    assert resolve(m2, conflict).status_code == 200
    ((status, _, _),) = check_equal(backbone, other)
    assert status == 404 and conflicts(backbone, other)[0]["kind"] == "merged"


def test_the_page_shows_values_side_by_side_and_keeps_the_chosen_one(backbone: HttpBackbone, uri: str) -> None:
    m1, _ = backbone.members.values()
    conflict = diverge(backbone, uri)
    with local_client(base_url=m1.server.url, timeout=60, follow_redirects=True) as http:
        visitor = Visitor(http).sign_in(ADMIN)
        links = [unquote(link) for link in visitor.get("/backbone").links()]
        assert f"/backbone/conflicts?document={uri}" in links
        page = visitor.get(f"/backbone/conflicts?document={uri}")
        rows = [
            [cell.text_content().split() for cell in row.xpath("td")] for row in page.tree.xpath("//main//tbody/tr")
        ]
        assert [(row[1][0], row[2]) for row in rows[:2]] == [("2", ["m1"]), ("3", ["m2"])]
        assert all(re.match(r"\d{4}-\d\d-\d\d$", row[3][0]) for row in rows[:2])
        keep = page.tree.xpath("//main//input[@name='keep']/@value")
        assert visitor.post(f"/backbone/conflicts/{conflict['id']}", keep="").status == 400
        done = visitor.post(f"/backbone/conflicts/{conflict['id']}", keep=keep[1], document=uri)
        assert done.status == 200 and "no conflicts of this document" in done.words.lower()
    assert ports(m1, uri) == ["3"]


def test_the_command_lists_conflicts_and_resolves_one(
    backbone: HttpBackbone, uri: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    conflict = diverge(backbone, uri)
    monkeypatch.setenv("MDV_URL", backbone["m2"].server.url)
    monkeypatch.setenv("MDV_TOKEN", ADMIN)

    def mdv(*arguments: str) -> tuple[int, str]:
        capfd.readouterr()
        code = run_for_exit_code(lambda: cli.main([*arguments], prog_name="mdv", standalone_mode=False))
        captured = capfd.readouterr()
        return code, captured.out + "".join(line for line in captured.err.splitlines(True) if line.startswith("mdv"))

    code, listed = mdv("conflicts", "--document", uri)
    assert code == 0 and conflict["id"] in listed and "2 | 3" in listed
    code, said = mdv("conflicts", "resolve", conflict["id"], "7")
    assert code != 0 and "not among the values" in said
    code, said = mdv("conflicts", "resolve", conflict["id"], "3")
    assert code == 0 and f"{uri} has version 4" in said
    assert ports(backbone["m2"], uri) == ["3"]
