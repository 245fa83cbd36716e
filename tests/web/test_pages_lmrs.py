"""The pages about LMRs: content, changes, and confirmations."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import pytest

from tests.support.page_visitor import Page, Visitor
from tests.support.server import Api, Server, turtle

_numbers = itertools.count(1)


@dataclass
class Repository:
    """An LMR of the running system, and a host that no other test uses."""

    name: str
    token: str
    host: str
    own: Api
    admin: Api

    @property
    def path(self) -> str:
        return f"/lmrs/{quote(self.name)}"

    @property
    def rule(self) -> str:
        return f"search CycleProvider c register c where c.serverHost contains '{self.host}'"

    def subscribe(self, *drafts: dict[str, str]) -> list[int]:
        given = list(drafts) or [{"rule": self.rule}]
        answer = self.admin.http.post(f"/api/v1{self.path}/subscriptions", json=given)
        assert answer.status_code == 201, answer.text
        return [item["id"] for item in answer.json()["items"]]

    def put(self, doc: str) -> None:
        text = turtle(
            f"<#host> a ex:CycleProvider ; ex:serverHost '{self.host}' ; ex:serverInformation <#info> .",
            "<#info> a ex:ServerInformation ; ex:memory 64 .",
        )
        assert self.admin.put(doc, text).status_code == 201

    def shown(self) -> dict[str, Any]:
        return dict(self.admin.get(f"/lmrs/{quote(self.name)}").json())

    def rules(self) -> list[str]:
        found = self.admin.get(f"/lmrs/{quote(self.name)}/subscriptions").json()["items"]
        return [item["rule"] for item in found]


@pytest.fixture
def lmr(server: Server, api: Api) -> Repository:
    number = next(_numbers)
    made = api.http.post("/api/v1/lmrs", json={"name": f"my <b>library {number}"}).json()
    return Repository(made["name"], made["token"], f"page-{number}.example", server.api(made["token"]), api)


def fact(page: Page, name: str) -> str:
    """Return the value of an entry in the page's list of facts."""
    found = page.tree.xpath("//dt[normalize-space()=$name]/following-sibling::dd[1]", name=name)
    assert found, f"{name} is not shown"
    return " ".join(found[0].text_content().split())


def row_of(visitor: Visitor, lmr: Repository) -> list[str]:
    page = visitor.get("/lmrs")
    while True:
        for row in page.rows():
            if row[0] == lmr.name:
                return row
        (more,) = page.tree.xpath("//a[@rel='next']/@href")
        page = visitor.get(str(more))


# The list


def test_the_list_shows_the_state_of_each_lmr(visitor: Visitor, lmr: Repository, doc: str) -> None:
    assert row_of(visitor, lmr) == [lmr.name, "never connected", "never", "0", "0", "0"]
    lmr.subscribe()
    cursor = lmr.own.get("/lmrs/self/feed").json()["cursor"]
    lmr.put(doc)
    lmr.own.get("/lmrs/self/feed", after=cursor)
    row = row_of(visitor, lmr)
    assert row[1] == "behind"
    assert re.match(r"3, oldest 2\d\d\d-", row[3])
    assert row[4:] == ["1", "2"]
    visitor.post(f"{lmr.path}/pause")
    assert row_of(visitor, lmr)[1] == "paused behind"


def test_an_lmr_that_read_a_snapshot_is_up_to_date(visitor: Visitor, lmr: Repository, doc: str) -> None:
    lmr.subscribe()
    lmr.put(doc)
    assert row_of(visitor, lmr)[1] == "never connected"
    assert lmr.own.get("/lmrs/self/feed").json()["snapshot"]
    row = row_of(visitor, lmr)
    assert (row[1], row[3]) == ("up to date", "0") and row[2] != "never", row
    assert lmr.shown()["asked_at"] is not None


def test_an_incomplete_snapshot_counts_as_a_request_only(visitor: Visitor, lmr: Repository, doc: str) -> None:
    lmr.subscribe()
    lmr.put(doc)
    page = lmr.own.get("/lmrs/self/feed", limit=1).json()
    row = row_of(visitor, lmr)
    assert row[1] == "behind" and row[2] != "never", row
    while page["snapshot"] and not page["up_to_date"]:
        page = lmr.own.get("/lmrs/self/feed", after=page["cursor"], limit=1).json()
    assert row_of(visitor, lmr)[1] == "up to date"


def test_lmrs_are_listed_fifty_per_page(visitor: Visitor, api: Api) -> None:
    for number in range(51):
        assert api.http.post("/api/v1/lmrs", json={"name": f"one of many {number}"}).status_code == 201
    first = visitor.get("/lmrs")
    assert len(first.rows()) == 50
    (more,) = first.tree.xpath("//a[@rel='next']/@href")
    second = visitor.get(str(more))
    assert second.rows()
    assert not {row[0] for row in first.rows()} & {row[0] for row in second.rows()}


def test_the_token_of_a_new_lmr_is_shown_once_and_opens_its_feed(visitor: Visitor, server: Server) -> None:
    name = f"new one {next(_numbers)}"
    page = visitor.post("/lmrs", name=f" {name} ")
    assert (page.status, page.path) == (200, f"/lmrs/{quote(name)}/new-token")
    token = page.tree.xpath("string(//*[@id='token'])").strip()
    assert page.tree.xpath("//button[@data-copy='token']")
    assert page.answer.headers["Cache-Control"] == "no-store"
    assert token not in str(page.answer.headers)
    assert server.api(token).get("/lmrs/self").json()["name"] == name
    assert token not in visitor.get(f"/lmrs/{quote(name)}").answer.text
    again = visitor.get(page.path)
    assert token not in again.answer.text and "was shown once" in again.words


@pytest.mark.parametrize("name", ["17", "a/b", "x" * 101, ""])
def test_an_invalid_name_is_refused_at_its_field(visitor: Visitor, name: str) -> None:
    page = visitor.post("/lmrs", name=name)
    assert page.status == 400
    assert page.alert()
    (field,) = page.tree.xpath("//input[@name='name']")
    assert field.get("aria-invalid") == "true"
    assert page.tree.xpath("//*[@id=$id]", id=field.get("aria-describedby"))


def test_a_name_that_is_taken_is_refused(visitor: Visitor, lmr: Repository) -> None:
    page = visitor.post("/lmrs", name=lmr.name)
    assert (page.status, page.tree.xpath("string(//input[@name='name']/@value)")) == (409, lmr.name)
    assert "already" in page.alert()


# One LMR


def test_a_page_shows_the_facts_of_an_lmr(visitor: Visitor, lmr: Repository, doc: str) -> None:
    lmr.subscribe()
    lmr.put(doc)
    cursor = lmr.own.get("/lmrs/self/feed").json()["cursor"]
    lmr.own.get("/lmrs/self/feed", after=cursor)
    page = visitor.get(lmr.path)
    assert page.title == f"{lmr.name} up to date"
    assert fact(page, "Events behind") == "0"
    assert fact(page, "Holds").startswith("2 resources – 1 selected")
    assert fact(page, "Read up to").startswith(f"offset {int(cursor.split('-')[1]):,} of ")
    assert fact(page, "Events retained") == "3"
    assert lmr.rule in page.words
    assert visitor.get(f"/lmrs/{lmr.shown()['id']}").title == page.title


def test_an_unknown_lmr_is_reported(visitor: Visitor) -> None:
    page = visitor.get("/lmrs/nobody-has-that-name")
    assert page.status == 404
    assert "nobody-has-that-name" in page.alert()


def test_an_lmr_is_paused_and_resumed(visitor: Visitor, lmr: Repository, doc: str) -> None:
    lmr.subscribe()
    cursor = lmr.own.get("/lmrs/self/feed").json()["cursor"]
    page = visitor.post(f"{lmr.path}/pause")
    assert (page.status, page.path) == (200, lmr.path)
    assert "paused" in page.title
    lmr.put(doc)
    assert lmr.own.get("/lmrs/self/feed", after=cursor).json()["events"] == []
    assert f"{lmr.path}/resume" in page.forms()
    page = visitor.post(f"{lmr.path}/resume")
    assert "paused" not in page.words
    assert len(lmr.own.get("/lmrs/self/feed", after=cursor).json()["events"]) == 3


def test_the_checksum_equals_the_one_of_the_api(visitor: Visitor, lmr: Repository, doc: str) -> None:
    lmr.subscribe()
    lmr.put(doc)
    assert f"{lmr.path}/checksum" in visitor.get(lmr.path).links()
    page = visitor.get(f"{lmr.path}/checksum")
    told = lmr.own.get("/lmrs/self/checksum").json()
    sums = {row[0]: row[1] for row in page.rows()}
    assert sums == {str(n): value for n, value in enumerate(told["buckets"]) if value != "0"}
    assert f"at position {told['position']:,}" in page.words
    only_part = visitor.get(f"{lmr.path}/checksum", headers={"HX-Request": "true"})
    assert only_part.answer.headers["X-Part"] == "yes"
    assert "<html" not in only_part.answer.text


def test_a_refetch_needs_confirmation_and_causes_a_snapshot(visitor: Visitor, lmr: Repository, doc: str) -> None:
    lmr.subscribe()
    lmr.put(doc)
    cursor = lmr.own.get("/lmrs/self/feed").json()["cursor"]
    lmr.own.get("/lmrs/self/feed", after=cursor)
    asked = visitor.get(f"{lmr.path}/refetch")
    assert "2 resources" in asked.words
    assert lmr.own.get("/lmrs/self/feed", after=cursor).status_code == 200
    page = visitor.post(*asked.forms())
    assert "snapshot pending" in page.title
    assert lmr.own.get("/lmrs/self/feed", after=cursor).status_code == 410


def test_a_new_token_needs_confirmation_and_revokes_the_old_one(
    visitor: Visitor, lmr: Repository, server: Server
) -> None:
    asked = visitor.get(f"{lmr.path}/token")
    assert "revoked" in asked.words
    assert lmr.own.get("/lmrs/self").status_code == 200
    page = visitor.post(*asked.forms())
    token = page.tree.xpath("string(//*[@id='token'])").strip()
    assert page.status == 200
    assert lmr.own.get("/lmrs/self").status_code == 401
    assert server.api(token).get("/lmrs/self").json()["name"] == lmr.name


def test_removing_an_lmr_needs_confirmation_and_lists_the_loss(visitor: Visitor, lmr: Repository, doc: str) -> None:
    lmr.subscribe()
    lmr.put(doc)
    asked = visitor.get(f"{lmr.path}/end")
    assert "1 subscriptions" in asked.words
    assert "3 retained events" in asked.words
    assert lmr.shown()["subscriptions"] == 1
    page = visitor.post(*asked.forms())
    assert page.path == "/lmrs"
    assert visitor.get(lmr.path).status == 404
    assert lmr.own.get("/lmrs/self").status_code == 401


# Subscriptions


def test_a_rule_is_added_with_its_name(visitor: Visitor, lmr: Repository) -> None:
    page = visitor.post(f"{lmr.path}/subscriptions", rule=lmr.rule.replace(" where", "\r\nwhere"), name="mine")
    assert page.status == 200
    assert lmr.rules() == [lmr.rule.replace(" where", "\nwhere")]
    (row,) = page.rows()
    assert (row[1], row[2]) == (f"{lmr.rule} Diagram", "mine")
    assert f"Subscription {row[0]} was added" in page.words


@pytest.mark.parametrize(
    ("rule", "status", "said"),
    [
        ("search CycleProvder c register c", 422, "did you mean CycleProvider"),
        ("search CycleProvider c\nregister c\nwhere c.serverPort >", 422, "line 3"),
        ("  ", 400, "Write a rule"),
        ("<script>alert(1)</script>", 422, "line 1"),
    ],
)
def test_an_invalid_rule_is_shown_again_with_its_errors(
    visitor: Visitor, lmr: Repository, rule: str, status: int, said: str
) -> None:
    page = visitor.post(f"{lmr.path}/subscriptions", rule=rule, name="kept")
    assert page.status == status
    assert said in page.alert()
    (field,) = page.tree.xpath("//textarea[@name='rule']")
    assert field.get("aria-invalid") == "true"
    assert all(page.tree.xpath("//*[@id=$id]", id=name) for name in field.get("aria-describedby").split())
    assert page.tree.xpath("string(//input[@name='name']/@value)") == "kept"
    assert not page.tree.xpath("//script[not(@src)]")
    assert lmr.rules() == []
    assert field.text_content().strip() == rule.strip()


def test_subscriptions_are_listed_fifty_per_page_newest_first(visitor: Visitor, lmr: Repository) -> None:
    numbers = lmr.subscribe(*({"rule": f"{lmr.rule} and c.serverPort > {n}"} for n in range(51)))
    page = visitor.get(lmr.path)
    assert [row[0] for row in page.rows()] == [str(number) for number in reversed(numbers[1:])]
    (more,) = page.tree.xpath("//a[@rel='next']/@href")
    assert [row[0] for row in visitor.get(str(more).partition("#")[0]).rows()] == [str(numbers[0])]


def test_a_subscription_is_changed(visitor: Visitor, lmr: Repository) -> None:
    (number,) = lmr.subscribe()
    path = f"{lmr.path}/subscriptions/{number}"
    assert visitor.get(path).tree.xpath("string(//textarea)").strip() == lmr.rule
    wrong = visitor.post(path, rule="search")
    assert wrong.status == 422
    assert "line 1" in wrong.alert()
    assert lmr.rules() == [lmr.rule]
    page = visitor.post(path, rule=f"{lmr.rule} and c.serverPort > 7")
    assert (page.status, page.path) == (200, path)
    assert lmr.rules() == [f"{lmr.rule} and c.serverPort > 7"]


def test_removing_a_subscription_needs_confirmation_and_lists_its_effects(
    visitor: Visitor, lmr: Repository, doc: str
) -> None:
    lmr.put(doc)
    searched, searching = lmr.subscribe(
        {"rule": lmr.rule, "name": "base"}, {"rule": "search base b register b", "name": "above"}
    )
    asked = visitor.get(f"{lmr.path}/subscriptions/{searched}/end")
    assert "It selects 1 resource now" in asked.words
    assert "above" in asked.words
    refused = visitor.post(*asked.forms())
    assert refused.status == 409
    assert len(lmr.rules()) == 2
    for number in (searching, searched):
        assert visitor.post(f"{lmr.path}/subscriptions/{number}/end").path == lmr.path
    assert lmr.rules() == []
    assert lmr.shown()["resources"] == 0
    assert visitor.get(f"{lmr.path}/subscriptions/{searched}").status == 404


# Explanations


def test_a_selected_resource_is_explained(visitor: Visitor, lmr: Repository, doc: str) -> None:
    (number,) = lmr.subscribe()
    lmr.put(doc)
    page = visitor.get(f"{lmr.path}/explain", uri=f"{doc}#host")
    assert page.status == 200
    assert "one of its rules selects it" in page.words
    assert [f"c.ex:serverHost contains '{lmr.host}'", lmr.host] in page.rows()
    assert f"{lmr.path}/subscriptions/{number}" in page.links()
    assert any(unquote(link) == f"/resource?uri={doc}#host" for link in page.links())


def test_a_referenced_resource_is_explained_with_its_chain(visitor: Visitor, lmr: Repository, doc: str) -> None:
    lmr.subscribe()
    lmr.put(doc)
    page = visitor.get(f"{lmr.path}/explain", uri=f"{doc}#info")
    chain = [" ".join(step.text_content().split()) for step in page.tree.xpath("//ol/li")]
    assert len(chain) == 2
    assert chain[0].startswith(f"{doc}#host (selected by rule ")
    assert chain[0].endswith("has a strong reference serverInformation to")
    assert chain[1] == f"{doc}#info"


def test_the_absence_of_a_resource_is_explained(visitor: Visitor, lmr: Repository, doc: str) -> None:
    lmr.subscribe({"rule": lmr.rule.replace(lmr.host, "elsewhere")})
    lmr.put(doc)
    page = visitor.get(f"{lmr.path}/explain", uri=f"{doc}#host")
    assert "none of its rules selects it" in page.words
    assert any(lmr.host in row[1] for row in page.rows())
    unknown = visitor.get(f"{lmr.path}/explain", uri="http://nowhere.example/#<b>x</b>")
    assert unknown.status == 400
    assert not unknown.tree.xpath("//main//b")


def test_every_predicate_that_fails_is_shown_with_the_number_of_satisfied_ones(
    visitor: Visitor, lmr: Repository, doc: str
) -> None:
    lmr.subscribe({"rule": lmr.rule + " and c.serverInformation.memory > 100 and c.serverInformation.cpu > 500"})
    lmr.put(doc)
    (row,) = [row for row in visitor.get(f"{lmr.path}/explain", uri=f"{doc}#host").rows() if row[-1] == "1 of 3"]
    assert "ex:memory > 100 fails: ex:memory is 64" in row[1]
    assert "has no value of ex:cpu" in row[1]


@pytest.mark.parametrize(
    ("uri", "status"), [("nonsense", 400), ("javascript:alert(1)", 200), ("http://a.example/ space", 400)]
)
def test_an_invalid_uri_is_refused_at_its_field_and_never_linked(
    visitor: Visitor, lmr: Repository, uri: str, status: int
) -> None:
    page = visitor.get(f"{lmr.path}/explain", uri=uri)
    assert page.tree.xpath("string(//input[@name='uri']/@value)") == uri
    assert (page.status, bool(page.alert())) == (status, status != 200)
    assert not any(link.lower().startswith("javascript") for link in page.links())


def test_without_a_resource_only_the_form_is_shown(visitor: Visitor, lmr: Repository) -> None:
    page = visitor.get(f"{lmr.path}/explain")
    assert page.status == 200
    assert page.alert() == ""


# Permissions


def changes(lmr: Repository, number: int) -> list[str]:
    own = ("pause", "resume", "refetch", "token", "end", "subscriptions", f"subscriptions/{number}",
           f"subscriptions/{number}/resume", f"subscriptions/{number}/end")  # fmt: skip
    return ["/lmrs", *(f"{lmr.path}/{what}" for what in own)]


def test_a_viewer_sees_everything_and_changes_nothing(viewer: Visitor, lmr: Repository, doc: str) -> None:
    (number,) = lmr.subscribe()
    before = lmr.shown()
    page = viewer.get(lmr.path)
    assert lmr.rule in page.words
    assert page.forms() == [f"{lmr.path}/explain"]
    for path in ("/lmrs", f"{lmr.path}/checksum", f"{lmr.path}/subscriptions/{number}"):
        page = viewer.get(path)
        assert (page.status, page.forms()) == (200, [])
    assert viewer.get(f"{lmr.path}/explain", uri=f"{doc}#host").status == 200
    for path in changes(lmr, number):
        assert viewer.post(path, name="x", rule=lmr.rule).status == 403, path
    for what in ("refetch", "token", "end", f"subscriptions/{number}/end"):
        assert viewer.get(f"{lmr.path}/{what}").status == 403
    assert lmr.shown() == before


def test_a_token_limited_to_prefixes_cannot_change_lmrs(
    new_visitor: Callable[..., Visitor], make_token: Callable[..., tuple[str, int]], lmr: Repository
) -> None:
    limited = new_visitor(make_token("admin", documents=["http://a.example/"])[0])
    (number,) = lmr.subscribe()
    assert limited.get(lmr.path).forms() == [f"{lmr.path}/explain"]
    for path in changes(lmr, number):
        assert limited.post(path, name="x", rule=lmr.rule).status == 403, path


def test_a_form_with_a_wrong_csrf_token_changes_nothing(
    visitor: Visitor, new_visitor: Callable[..., Visitor], lmr: Repository
) -> None:
    (number,) = lmr.subscribe()
    before = lmr.shown()
    for path in changes(lmr, number):
        assert visitor.post(path, csrf="wrong", name="x", rule=lmr.rule).status == 403, path
        assert new_visitor().post(path, csrf="", name="x", rule=lmr.rule).status == 401, path
    assert lmr.shown() == before
    assert new_visitor().get(lmr.path).path.startswith("/sign-in")
