"""Event-condition-action rules over HTTP: add, list, change, dry runs, runs, the log, and who may do what."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.eventually import eventually
from tests.support.server import PROBLEM, Api, V, WebAddress, turtle

Make = Callable[..., tuple[str, int]]
_numbers = count(1)
RULES = "/api/v1/eca/rules"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(autouse=True)
def remove_rules(api: Api) -> Iterator[None]:
    """Remove all rules, so that they do not affect other files."""
    yield
    for rule in api.all("/eca/rules", 1000):
        assert api.http.delete(f"{RULES}/{rule['id']}").status_code == 200


@pytest.fixture
def word() -> str:
    """A note that triggers the rules of one test only."""
    return f"word{next(_numbers)}"


def note_rule(name: str, word: str, text: str = "seen", header: str = "") -> str:
    return (
        f"RULE {name} {header} ON INSERT (_, note, '{word}') IF $delta/target(serverPort) > 1"
        f" DO INSERT ($delta, note, '{text}')"
    )


def add(api: Api, text: str | list[dict[str, Any]], status: int = 201, **more: Any) -> dict[str, Any]:
    body = text if isinstance(text, list) else {"text": text, **more}
    answer = api.http.post(RULES, json=body)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def note(word: str) -> str:
    return turtle(f"<#a> a ex:CycleProvider ; ex:serverPort 5 ; ex:note '{word}' .")


def notes(api: Api, uri: str) -> list[str]:
    found = api.get("/resources", uri=uri).json()["statements"]
    return sorted(term["value"] for name, term in found if name == V + "note")


def test_a_rule_is_added_shown_and_runs_in_the_transaction_of_a_registration(api: Api, doc: str, word: str) -> None:
    added = add(api, note_rule("mark", word))
    assert (added["name"], added["warnings"]) == ("mark", [])
    assert added["normal"].splitlines()[0] == "RULE mark"

    done = api.put(doc, note(word))

    assert done.status_code == 201 and done.json()["fired"] == 1
    assert notes(api, doc + "#a") == ["seen", word]
    shown = api.get("/eca/rules/mark")
    assert shown.headers["ETag"] == f'"{added["position"]}"'
    body = shown.json()
    assert body == api.get(f"/eca/rules/{added['id']}").json()
    assert (body["fired"], body["failed"], body["set"], body["state"], body["by"]) == (
        1, 0, "main", "active", "token admin",
    )  # fmt: skip
    assert (body["documents"], body["resources"]) == (None, None)
    run = api.get(f"/eca/runs/{done.json()['run']}").json()
    assert (run["position"], run["subject"], run["outcome"]) == (done.json()["position"], doc, "done")
    (copy,) = run["tree"]["copies"]
    assert copy["name"] == "mark" and copy["delta"]["source"] == doc + "#a"
    (comparison,) = copy["comparisons"]
    assert comparison["text"].endswith("target(ex:serverPort) > 1") and comparison["holds"]
    assert [term["value"] for term in comparison["left"] + comparison["right"]] == ["5", "1"]
    (update,) = copy["updates"]
    assert update["changes"] == [{
        "document": "urn:mdv:eca:main", "removed": None,
        "added": [doc + "#a", V + "note", {"type": "literal", "value": "seen"}],
    }]  # fmt: skip


def test_who_inserted_a_statement_and_why_is_shown(api: Api, doc: str, word: str) -> None:
    rule = add(api, note_rule("why", word))
    done = api.put(doc, note(word)).json()

    (origin,) = api.get("/resources", uri=doc + "#a").json()["origins"]
    assert origin["statement"] == [V + "note", {"type": "literal", "value": "seen"}]
    assert (origin["rule"], origin["rule_id"], origin["run"]) == ("why", rule["id"], done["run"])
    assert origin["text"] == f"inserted by rule why because of (<{doc}#a>, <{V}note>, '{word}')"
    lmr = api.http.post("/api/v1/lmrs", json={"name": f"origins-{word}"}).json()
    assert api.get("/explain", lmr=lmr["name"], uri=doc + "#a").json()["origins"] == [origin]
    items = api.get("/documents/history", uri="urn:mdv:eca:main", limit=1).json()["items"]
    assert (items[0]["cause"], items[0]["agent"], items[0]["position"]) == ("rule", "why", done["position"])
    for query in ({"resource": doc + "#a"}, {"rule": "why"}, {"rule": rule["id"]}, {"run": done["run"]}):
        (change,) = api.all("/eca/log", 10, **query)
        assert change["text"] == origin["text"] and change["document"] == "urn:mdv:eca:main"
    assert api.get("/eca/log", document="http://none/").json() == {"items": [], "next": None}
    assert [run["id"] for run in api.all("/eca/runs", 10, rule="why")] == [done["run"]]


def test_lists_of_rules_are_added_whole_and_paged(api: Api, word: str) -> None:
    before = api.all("/eca/rules", 1000)
    drafts = [{"text": note_rule(f"r{n}", word), "set": "bulk", "state": "shadow"} for n in range(5)]
    bad = [*drafts, {"text": "ON INSERT resource() IF nosuch DO DELETE $delta"}]
    refused = api.http.post(RULES, json=bad)
    assert refused.status_code == 422 and "item 6" in refused.json()["detail"]
    assert api.all("/eca/rules", 1000) == before

    items = add(api, drafts)["items"]

    assert [item["name"] for item in items] == [f"r{n}" for n in range(5)]
    assert [rule["id"] for rule in api.all("/eca/rules", 2, set="bulk", state="shadow")] == [i["id"] for i in items]
    assert api.all("/eca/rules", 2, set="bulk", state="active") == []
    several = add(api, ";;\n".join(note_rule(f"s{n}", word) for n in range(2)))
    assert [item["name"] for item in several["items"]] == ["s0", "s1"]
    assert add(api, note_rule("r0", word), status=409)["detail"].startswith("There is already a rule")


def test_states_are_changed(api: Api, doc: str, word: str) -> None:
    add(api, note_rule("st", word))
    assert api.http.post(f"{RULES}/st/disable").status_code == 200
    assert "fired" not in api.put(doc + "/1", note(word)).json()
    assert api.http.post(f"{RULES}/st/shadow").status_code == 200
    assert api.put(doc + "/2", note(word)).json()["fired"] == 1
    assert notes(api, doc + "/2#a") == [word]
    assert api.http.post(f"{RULES}/st/enable").status_code == 200
    assert api.put(doc + "/3", note(word)).json()["fired"] == 1
    assert notes(api, doc + "/3#a") == ["seen", word]
    assert api.http.delete(f"{RULES}/st").status_code == 200
    assert api.get("/eca/rules/st").status_code == 404
    for verb in ("enable", "disable", "shadow"):
        assert api.http.post(f"{RULES}/st/{verb}").status_code == 404


def test_a_rule_is_replaced_under_if_match(api: Api, doc: str, word: str) -> None:
    rule = add(api, note_rule("re", word), set="own")
    url, text = f"{RULES}/re", note_rule("re2", word, "other")
    assert api.http.put(url, json={"text": text}, headers={"If-Match": '"1"'}).status_code == 412
    done = api.http.put(url, json={"text": text}, headers={"If-Match": f'"{rule["position"]}"'})
    assert done.status_code == 200, done.text
    assert (done.json()["id"], done.json()["name"], done.headers["ETag"]) == (
        rule["id"], "re2", f'"{done.json()["position"]}"',
    )  # fmt: skip
    assert api.get("/eca/rules/re2").json()["set"] == "own"
    api.put(doc, note(word))
    assert notes(api, doc + "#a") == ["other", word]
    two = ";;".join([text, note_rule("re3", word)])
    assert api.http.put(f"{RULES}/re2", json={"text": two}).status_code == 422


@pytest.mark.parametrize(
    ("text", "words", "column"),
    [
        ("ON INSERT (_, nots, _) IF TRUE DO DELETE $delta", "note", 15),
        ("ON INSERT (_, note, _) IF TRUE DO", "expected", None),
        ("ON INSERT (_, note, _) IF TRUE DO INSERT ($delta, serverPort, 'high')", "high", None),
        ("", "", None),
        ("ON INSERT (_, note, \0) IF TRUE DO DELETE $delta", "", None),
        ("RULE a PRECEDES nosuch ON INSERT (_, note, _) IF TRUE DO DELETE $delta", "nosuch", None),
        ("RULE a PRECEDES a ON INSERT (_, note, _) IF TRUE DO DELETE $delta", "itself", None),
        ("x" * 20_000, "16", None),
    ],
)
def test_errors_of_rules_have_their_place(api: Api, text: str, words: str, column: int | None) -> None:
    answer = api.http.post(RULES, json={"text": text})
    assert answer.status_code == 422 and answer.headers["Content-Type"] == PROBLEM, answer.text
    problem = answer.json()
    assert problem["type"] == "urn:mdv:problem:invalid-rule"
    assert words in str(problem)
    if column is not None:
        (flaw,) = problem["errors"]
        assert (flaw["line"], flaw["column"]) == (1, column) and "^" in problem["detail"]


def test_a_failing_rule_refuses_the_change_and_says_why(api: Api, doc: str, word: str) -> None:
    rule = add(api, f"RULE bad ON INSERT (_, note, '{word}') IF TRUE"
                    " DO INSERT ($delta, serverPort, 7), ($delta, serverPort, 8)")  # fmt: skip

    answer = api.put(doc, turtle(f"<#a> ex:note '{word}' ."))

    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert problem["type"] == "urn:mdv:problem:rule-failed"
    assert (problem["rule"], problem["name"], problem["action"]) == (rule["id"], "bad", 0)
    assert (problem["delta"]["source"] == doc + "#a" and "two values" in problem["reason"]) or problem["reason"]
    assert api.get("/documents", uri=doc).status_code == 404
    run = api.get(f"/eca/runs/{problem['run']}").json()
    assert (run["outcome"], run["position"], run["failed"][0]["name"]) == ("refused", None, "bad")
    assert run["reason"] == problem["detail"] and ".." not in problem["detail"]
    tried = api.put(doc, turtle(f"<#a> ex:note '{word}' ."), dry_run="true")
    assert tried.status_code == 422 and tried.json()["run"]["copies"][0]["reason"] == problem["reason"]
    assert api.get("/eca/rules/bad").json()["failed"] == 1


def test_rules_that_do_not_end_are_refused_with_their_sequence(api: Api, doc: str, word: str) -> None:
    add(api, f"RULE up ON INSERT (_, note, '{word}') IF TRUE DO INSERT ($delta, note, '{word}b')")
    add(
        api,
        f"RULE on ON INSERT (_, note, '{word}b') IF TRUE DO DELETE ($delta, note, '{word}'), ($delta, note, '{word}b')",
    )
    add(api, f"RULE off ON DELETE (_, note, '{word}b') IF TRUE DO INSERT ($delta, note, '{word}')")

    answer = api.put(doc, turtle(f"<#a> ex:note '{word}' ."))

    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert problem["type"] == "urn:mdv:problem:rules-do-not-end"
    assert sorted(problem["rules"]) == ["off", "on", "up"] and problem["times"] > 100
    run = api.get(f"/eca/runs/{problem['run']}").json()
    assert run["tree"]["fired"] > 300 and run["tree"]["continued"]
    assert run["reason"] == problem["detail"]


def test_a_dry_run_shows_the_run_and_changes_nothing(api: Api, doc: str, word: str) -> None:
    draft = {"text": note_rule("draft", word)}
    position = api.get("/status").json()["position"]
    given = {"document": note(word), "uri": doc, "media_type": "text/turtle", "rules": [draft]}

    tried = api.http.post("/api/v1/eca/dry-run", json=given)

    assert tried.status_code == 200, tried.text
    assert (tried.json()["fired"], tried.json()["dry_run"]) == (1, True)
    assert tried.json()["run"]["copies"][0]["name"] == "draft"
    update = f"INSERT (resource({doc}#b), serverPort, 5), (resource({doc}#b), note, '{word}')"
    tried = api.http.post("/api/v1/eca/dry-run", json={"update": update, "rules": [draft]})
    assert tried.status_code == 200, tried.text
    assert (tried.json()["inserted"], tried.json()["fired"]) == (2, 1)
    assert tried.json()["run"]["updates"][0]["copies"][0]["comparisons"][0]["holds"]
    assert api.get("/status").json()["position"] == position
    assert api.get("/documents", uri=doc).status_code == api.get("/eca/rules/draft").status_code == 404
    registered = api.put(doc, note(word), dry_run="true").json()
    assert (registered["fired"], registered["run"]) == (0, None)
    add(api, note_rule("draft", word))
    registered = api.put(doc, note(word), dry_run="true").json()
    assert registered["fired"] == 1 and registered["run"]["copies"][0]["updates"][0]["change_count"] == 1
    assert api.get("/eca/rules/draft").json()["fired"] == 0


def test_a_dry_run_reports_fired_and_run_even_if_nothing_would_change(api: Api, doc: str, word: str) -> None:
    assert api.put(doc, note(word)).status_code == 201
    statement = [doc + "#a", V + "note", {"type": "literal", "value": word}]
    for tried in (
        api.put(doc, note(word), wait=None, dry_run="true"),
        api.patch(doc, {"add": [statement]}, wait=None, dry_run="true"),
        api.delete(doc, wait=None, dry_run="true"),
        api.http.post("/api/v1/eca/dry-run", json={"uri": doc, "document": note(word), "media_type": "text/turtle"}),
    ):
        assert tried.status_code == 200 and {"fired", "run"} <= tried.json().keys(), tried.text
        assert tried.json()["fired"] == 0


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({}, 400),
        ({"update": "DELETE resource()", "document": "x"}, 400),
        ({"document": "x"}, 400),
        ({"update": "DELETE resource()", "uri": "http://a/"}, 400),
        ({"document": "x", "uri": "urn:mdv:eca:main"}, 409),
        ({"document": "x", "uri": "http://a/"}, 400),
        ({"document": "x", "uri": "http://a/", "media_type": "text/x-nosuch"}, 415),
        ({"update": "DELETE nosuch"}, 422),
        ({"update": "\ud800"}, 400),
        ({"document": "\ud800", "uri": "http://a/"}, 400),
        ({"update": "DELETE resource(http://a/none)", "rules": [{"text": "ON"}]}, 422),
        ([], 400),
    ],
)
def test_bad_dry_runs_are_refused(api: Api, given: Any, status: int) -> None:
    answer = api.http.post("/api/v1/eca/dry-run", content=json.dumps(given), headers=JSON)
    assert answer.status_code == status and answer.headers["Content-Type"] == PROBLEM, answer.text


def test_a_run_is_compensated(api: Api, doc: str, word: str) -> None:
    add(api, note_rule("comp", word))
    done = api.put(doc, note(word)).json()
    url = f"/api/v1/eca/runs/{done['run']}/compensate"

    undone = api.http.post(url)

    assert undone.status_code == 200, undone.text
    assert (undone.json()["runs"], undone.json()["skipped"]) == ([done["run"]], 0)
    assert api.get("/resources", uri=doc + "#a").status_code == 404
    run = api.get(f"/eca/runs/{done['run']}").json()
    assert (run["outcome"], -1 in run["compensated"]) == ("compensated", True)
    own = api.get(f"/eca/runs/{undone.json()['run']}").json()
    assert own["cause"] == "compensation" and {step["undone"] for step in own["tree"]["updates"]} == {True}
    assert api.http.post(url).json()["run"] is None
    assert api.http.post("/api/v1/eca/runs/999999999/compensate").status_code == 404
    assert api.http.post(f"/api/v1/eca/runs/{own['id']}/compensate").status_code == 409


def test_a_detached_rule_runs_in_a_transaction_of_its_own(api: Api, doc: str, word: str) -> None:
    add(api, note_rule("later", word, header="COUPLING Detached ABORT Independent"))
    done = api.put(doc, note(word)).json()
    (run,) = eventually(lambda: [one for one in api.all("/eca/runs", 20) if one["parent_run"] == done["run"]])
    assert (run["cause"], run["parent_copy"]) == ("detached", 0) and run["position"] > done["position"]
    assert notes(api, doc + "#a") == ["seen", word]


def test_reactions_are_switched_off_for_one_change(
    server: WebAddress, make_token: Make, api: Api, doc: str, word: str
) -> None:  # fmt: skip
    add(api, note_rule("offline", word))
    done = api.put(doc, note(word), eca="off")
    assert done.status_code == 201 and "fired" not in done.json()
    assert notes(api, doc + "#a") == [word]
    text = f"INSERT (resource({doc}#b), serverPort, 5), (resource({doc}#b), note, '{word}')"
    headers = {"Content-Type": "text/x-rdftl", "Prefer": "wait=60"}
    answer = api.http.post("/api/v1/update", params={"eca": "off"}, content=text.encode(), headers=headers)
    assert answer.json()["fired"] == 0
    limited = server.api(make_token(documents=[doc])[0])
    refused = limited.put(doc, note(word), eca="off")
    assert refused.status_code == 403 and "eca=off" in refused.json()["detail"]


# Callers


def test_every_call_needs_its_role(server: WebAddress, api: Api, make_token: Make, word: str) -> None:
    lmr = api.http.post("/api/v1/lmrs", json={"name": f"eca-{word}"}).json()
    viewer, member = server.api(make_token("viewer")[0]), server.api(lmr["token"])
    rule = add(api, note_rule("role", word))
    reads = ["/eca/rules", f"/eca/rules/{rule['id']}", "/eca/runs", "/eca/log"]
    writes: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/eca/rules", {"json": {"text": note_rule("x", word)}}),
        ("PUT", "/eca/rules/role", {"json": {"text": note_rule("x", word)}}),
        ("DELETE", "/eca/rules/role", {}),
        *(("POST", f"/eca/rules/role/{verb}", {}) for verb in ("enable", "disable", "shadow")),
        ("POST", "/eca/runs/1/compensate", {}),
        ("POST", "/eca/dry-run", {"json": {"update": "DELETE resource(http://a/none)"}}),
        (
            "POST",
            "/update",
            {"content": b"DELETE resource(http://a/none)", "headers": {"Content-Type": "text/x-rdftl"}},
        ),
    ]
    for path in reads:
        assert viewer.get(path).status_code == 200
        assert member.get(path).status_code == 403
        assert server.api(None).get(path).status_code == 401
    for method, path, more in writes:
        for caller, status in ((viewer, 403), (member, 403), (server.api(None), 401), (server.api("wrong"), 401)):
            answer = caller.http.request(method, "/api/v1" + path, **more)
            assert answer.status_code == status, (method, path, answer.text)
    assert api.get("/eca/rules/role").json()["state"] == "active"


def test_a_rule_acts_within_the_prefixes_of_its_author(
    server: WebAddress, make_token: Make, api: Api, doc: str, word: str
) -> None:
    own = f"{doc}/own/"
    limited = server.api(make_token(documents=[own, "urn:mdv:eca:team"], resources=[own])[0])
    refused = limited.http.post(RULES, json={"text": note_rule("lim", word)})
    assert refused.status_code == 403 and "urn:mdv:eca:main" in refused.json()["detail"]
    add(limited, note_rule("lim", word, header="ABORT Independent"), set="team")
    assert limited.get("/eca/rules/lim").json()["resources"] == [own]

    assert api.put(own + "1", note(word)).json()["fired"] == 1
    assert notes(api, own + "1#a") == ["seen", word]
    assert api.put(doc, note(word)).json()["fired"] == 1
    assert notes(api, doc + "#a") == [word]
    assert api.get("/eca/rules/lim").json()["failed"] == 1

    add(api, note_rule("all", word))
    for answer in (
        limited.http.delete(f"{RULES}/all"),
        limited.http.post(f"{RULES}/all/disable"),
        limited.http.put(f"{RULES}/all", json={"text": note_rule("all", word)}),
    ):
        assert answer.status_code == 403 and "prefixes" in answer.json()["detail"]
    assert limited.http.post(f"{RULES}/lim/disable").status_code == 200
    assert limited.http.delete(f"{RULES}/lim").status_code == 200


# Hostile input


def test_hostile_bodies_and_names_are_refused(api: Api) -> None:
    big = api.http.post(
        RULES, content=b'{"text": "' + b"x" * 10_000_000 + b'"}', headers={"Content-Type": "application/json"}
    )
    assert big.status_code == 413
    assert api.http.post(RULES, content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    for body in (b"", b"{", b"[]", b'{"text": 7}', b'{"text": "a", "x": 1}', b'{"text": "a", "set": "a/b"}',
                 b'{"text": "a", "set": ""}', b'{"text": "a", "state": "quarantined"}'):  # fmt: skip
        answer = api.http.post(RULES, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400, (body, answer.text)
    for name in ("a/b", "a%00b", "..", "9" * 30, "-1", "ä", "%FF", " "):
        for answer in (
            api.http.get(f"{RULES}/{quote(name, safe='%')}"),
            api.http.delete(f"{RULES}/{quote(name, safe='%')}"),
        ):
            assert answer.status_code in (400, 404, 405), (name, answer.status_code, answer.text)
    for path in ("/eca/runs/0", "/eca/runs/x", "/eca/runs/" + "9" * 18):
        assert api.get(path).status_code == 404
    for path, query in (
        ("/eca/rules", {"after": "x"}), ("/eca/rules", {"limit": 0}), ("/eca/rules", {"state": "none"}),
        ("/eca/rules", {"set": "\0"}), ("/eca/runs", {"after": "-1"}), ("/eca/log", {"resource": "a\0"}),
        ("/eca/log", {"run": 0}), ("/eca/log", {"nosuch": 1}),
    ):  # fmt: skip
        answer = api.get(path, **query)
        assert answer.status_code == 400 and answer.headers["Content-Type"] == PROBLEM, (path, query, answer.text)
    for path in ("/eca/log", "/eca/runs"):
        assert api.get(path, rule="no\0such").status_code == 400
        assert api.get(path, rule="nosuch").status_code == 404


def test_a_rule_with_a_slash_in_its_name_is_reached_by_its_id(api: Api, word: str) -> None:
    rule = add(api, f"RULE 'a/b c' ON INSERT (_, note, '{word}') IF TRUE DO DELETE $delta")
    assert rule["name"] == "a/b c"
    assert api.get(f"/eca/rules/{rule['id']}").json()["name"] == "a/b c"
    assert api.get("/eca/log", rule="a/b c").status_code == 200


def test_many_rules_are_added_in_one_call(api: Api, doc: str, word: str) -> None:
    number = 400
    drafts = [{"text": note_rule(f"m{n}", f"{word}-{n}", f"it''s {n}"), "set": "many"} for n in range(number)]

    added = add(api, drafts)

    assert [item["name"] for item in added["items"]] == [f"m{n}" for n in range(number)]
    assert api.put(doc, note(f"{word}-321")).json()["fired"] == 1
    assert notes(api, doc + "#a") == ["it's 321", f"{word}-321"]
    tail = api.all("/eca/rules", 1000, set="many", after=str(added["items"][-3]["id"]))
    assert [rule["name"] for rule in tail] == ["m398", "m399"]
    over = json.dumps([{"text": "x"}] * 100_001)
    assert api.http.post(RULES, content=over, headers=JSON).status_code == 413
