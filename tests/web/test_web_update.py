"""POST /update: actions of RDFTL over HTTP."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.support.real_actions import action_turtle
from tests.support.server import PROBLEM, Api, V, WebAddress, turtle

Make = Callable[..., tuple[str, int]]


def update(api: Api, text: str | bytes, wait: int | None = 60, headers: dict[str, str] | None = None,
           media_type: str | None = "text/x-rdftl", **query: Any) -> httpx2.Response:  # fmt: skip
    given = {} if media_type is None else {"Content-Type": media_type}
    if wait is not None:
        given["Prefer"] = f"wait={wait}"
    body = text.encode() if isinstance(text, str) else text
    return api.http.post("/api/v1/update", params=query, content=body, headers=given | (headers or {}))


def values(api: Api, uri: str, name: str = "note") -> list[str]:
    found = api.get("/resources", uri=uri).json()["statements"]
    return sorted(term["value"] for property, term in found if property == V + name)


def test_actions_insert_delete_and_update_statements(api: Api, doc: str) -> None:
    api.put(doc, turtle("<#a> a ex:CycleProvider ; ex:serverPort 1 ; ex:note 'x' , 'y' ."))

    done = update(api, f"LET $a := resource({doc}#a) IN INSERT ($a, note, 'z'); DELETE ($a, note, 'x');"
                       " UPDATE ($a, serverPort, _ -> 2)")  # fmt: skip

    assert done.status_code == 200, done.text
    counts = {"inserted": 1, "deleted": 1, "updated": 1, "fired": 0, "matched": 0, "lmrs": 0, "warnings": []}
    assert counts.items() <= done.json().items()
    assert done.headers["Preference-Applied"] == "wait=60"
    assert values(api, doc + "#a") == ["y", "z"] and values(api, doc + "#a", "serverPort") == ["2"]
    items = api.get("/documents/history", uri=doc).json()["items"]
    assert [(item["version"], item["cause"], item["by"]) for item in items] == [
        (2, "update", "token admin"), (1, "registration", "token admin"),
    ]  # fmt: skip
    log = api.all("/eca/log", 10, run=done.json()["run"])
    assert [(change["added"], change["text"]) for change in log].count((True, "inserted by an update")) == 2
    assert "an update" in api.get("/resources", uri=doc + "#a").json()["origins"][0]["text"]


def test_insertions_go_to_the_graph(api: Api, doc: str) -> None:
    assert update(api, f"INSERT (resource({doc}#a), note, 'g')", graph=doc).status_code == 200
    assert api.get("/resources", uri=doc + "#a").json()["documents"] == [doc]
    assert update(api, f"INSERT (resource({doc}#b), note, 'g')").status_code == 200
    assert api.get("/resources", uri=doc + "#b").json()["documents"] == ["urn:mdv:updates"]
    assert update(api, f"DELETE resource({doc}#b)").json()["deleted"] == 1


def test_a_dry_run_changes_nothing(api: Api, doc: str) -> None:
    tried = update(api, f"INSERT (resource({doc}#a), note, 'x')", wait=None, dry_run="true")
    assert tried.status_code == 200, tried.text
    assert (tried.json()["inserted"], tried.json()["dry_run"]) == (1, True)
    (step,) = tried.json()["run"]["updates"]
    assert step["changes"][0]["added"][0] == doc + "#a"
    assert api.get("/resources", uri=doc + "#a").status_code == 404


def test_without_prefer_an_update_is_a_job(api: Api, doc: str) -> None:
    answers = [update(api, f"INSERT (resource({doc}#a), note, '{n}')", wait=None) for n in range(20)]
    assert {answer.status_code for answer in answers} == {202}
    assert answers[0].json()["document"] == "urn:mdv:updates"
    ended = [api.job(answer.json()["job"]) for answer in answers]
    assert {(job["kind"], job["state"], job["result"]["inserted"]) for job in ended} == {("update", "done", 1)}
    positions = [job["result"]["position"] for job in ended]
    assert positions == sorted(set(positions))


def test_an_idempotency_key_executes_an_update_once(api: Api, doc: str) -> None:
    text = f"INSERT (resource({doc}#a), note, 'x')"
    first, second = (update(api, text, headers={"Idempotency-Key": f"u {doc}"}) for _ in range(2))
    assert first.status_code == 200 and first.json() == second.json()
    assert update(api, text + ";", headers={"Idempotency-Key": f"u {doc}"}).status_code == 422


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("INSERT (resource(http://a/b), nots, 'x')", 422, "note"),
        ("INSERT", 422, "expected"),
        ("ON INSERT resource() IF TRUE DO DELETE $delta", 422, ""),
        ("DELETE $delta", 422, "delta"),
        ("INSERT (resource(http://a/b), serverPort, 'high')", 422, "high"),
        ("INSERT (resource(http://a/b), seq++, 'x')", 422, "is no collection"),
        ("INSERT (resource(http://a/b), serverPort, 1), (resource(http://a/b), serverPort, 2)", 422, ""),
        ("INSERT (resource(http://a/b), note, 'a\0b')", 422, ""),
        ("", 422, ""),
        (b"\xff", 400, "not UTF-8"),
        (b"x" * 10_000_000, 413, "65,536"),
        ("x" * 20_000, 422, "16"),
        ("DELETE " + "(" * 5_000, 422, ""),
    ],
)
def test_bad_updates_are_refused_whole(api: Api, text: str | bytes, status: int, words: str) -> None:
    answer = update(api, text)
    assert answer.status_code == status and answer.headers["Content-Type"] == PROBLEM, answer.text
    assert words in answer.text


@pytest.mark.parametrize("media_type", [None, "text/plain", "application/json", "application/sparql-update"])
def test_an_update_is_rdftl(api: Api, media_type: str | None) -> None:
    assert update(api, "DELETE resource(http://a/b)", media_type=media_type).status_code == 415


@pytest.mark.parametrize(
    "query", [{"graph": "x"}, {"graph": ""}, {"graph": "http://a\0"}, {"dry_run": "perhaps"}, {"x": "1"}]
)
def test_bad_parameters_are_refused(api: Api, query: dict[str, Any]) -> None:
    assert update(api, "DELETE resource(http://a/b)", **query).status_code == 400


def test_a_limited_token_updates_within_its_prefixes(
    server: WebAddress, api: Api, make_token: Make, doc: str
) -> None:  # fmt: skip
    own = doc + "/own/"
    limited = server.api(make_token(documents=[own], resources=[own])[0])
    assert update(limited, f"INSERT (resource({own}a), note, 'x')").status_code == 403
    assert update(limited, f"INSERT (resource({own}a), note, 'x')", graph=own + "d").status_code == 200
    other = update(limited, f"INSERT (resource({doc}#a), note, 'x')", graph=own + "d")
    assert other.status_code == 422 and "may not describe" in other.json()["detail"]
    api.put(doc, turtle(f"<{own}a> ex:note 'y' ."))
    assert update(limited, f"DELETE (resource({own}a), note, 'y')", graph=own + "d").status_code == 422
    assert values(api, own + "a") == ["x", "y"]


SEEDS = [
    "INSERT (resource(http://a/b), note, 'x'); UPDATE (_, serverPort, 1 -> 2)",
    "LET $x := resource(http://a/b)/target(knows)[target(note) = 'y'] IN DELETE $x AS INSTANCE OF CycleProvider",
    "RULE r ON INSERT (_, note, _) IF not $delta/source(_)/element(2) > 1 or TRUE DO INSERT ($delta, seq++, 'x'@en)",
]
PIECES = [
    "'",
    '"',
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    "$delta",
    ";;",
    "_",
    "->",
    "\0",
    "\u202e",
    "é",
    "#",
    "/",
    "seq++",
    " ",
    "9" * 40,
]


@pytest.mark.full
def test_mutated_texts_are_never_an_internal_error(api: Api) -> None:
    randomly = random.Random(21)
    for _ in range(120):
        text = randomly.choice(SEEDS)
        for _ in range(randomly.randint(1, 4)):
            at = randomly.randrange(len(text))
            text = text[:at] + randomly.choice(PIECES) + text[at + randomly.randint(0, 3) :]
        for answer in (
            update(api, text, dry_run="true"),
            api.http.post("/api/v1/eca/rules", json={"text": text, "state": "disabled"}),
        ):
            assert answer.status_code in (200, 201, 400, 409, 422), (text, answer.text)
    for rule in api.all("/eca/rules", 1000):
        assert api.http.delete(f"/api/v1/eca/rules/{rule['id']}").status_code == 200


def test_an_update_calls_an_action_of_a_document(api: Api, doc: str) -> None:
    code = f"<{V}note>(?x, ?old) AND -<{V}note>(?x, ?old) AND +<{V}note>(?x, ?new)"
    action = action_turtle(f"{doc}#rename", code, "x, new", "old")
    assert api.put(doc, turtle(f"<#a> ex:note 'old' . {action}")).status_code == 201
    text = f"CALL <{doc}#rename>(<{doc}#a>, 'new')"

    tried = update(api, text, graph=doc, dry_run="true").json()
    assert (tried["inserted"], tried["deleted"]) == (1, 1) and values(api, f"{doc}#a") == ["old"]
    (step,) = tried["run"]["updates"]
    assert step["called"]["first"] == [{"old": {"type": "literal", "value": "old"}}]
    done = update(api, text, graph=doc)
    assert done.status_code == 200, done.text
    assert values(api, f"{doc}#a") == ["new"]
    failed = update(api, f"CALL <{doc}#rename>(<{doc}#a>)")
    assert failed.status_code == 422 and "has 2 inputs, but 1 are given" in failed.json()["detail"]
