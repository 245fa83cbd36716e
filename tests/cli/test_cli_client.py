"""The client says what went wrong in the server's words, and tries again where that can help."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

from mdv.client import Client
from mdv.errors import (
    InvalidDocument,
    MdvError,
    NotFound,
    SystemNotFound,
    Unauthenticated,
    Unavailable,
)
from mdv.system import System, find_system

SYSTEM = System("http://127.0.0.1:9", "secret", known_by="DIR/system.json")
DONE = {"document": "http://a/d", "version": 1, "created": True}


def client(*answers: httpx.Response | Exception) -> tuple[Client, list[httpx.Request], list[float]]:
    """A client whose server gives these answers, what it was asked, and how long it slept."""
    left, asked, slept = list(answers), [], []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Client(SYSTEM, transport=httpx.MockTransport(handle), sleep=slept.append), asked, slept


def problem(error: MdvError) -> httpx.Response:
    return httpx.Response(error.status, json=error.problem())


def test_a_system_that_does_not_listen_is_a_sentence() -> None:
    with Client(SYSTEM) as mdp, pytest.raises(SystemNotFound) as raised:
        mdp.get("/documents")
    assert raised.value.detail == (
        "The MDV at http://127.0.0.1:9 (known by DIR/system.json) is not running; start it with `make up`."
    )


def test_where_the_environment_names_an_address_it_is_doubted() -> None:
    with Client(find_system(None, {"MDV_URL": "http://127.0.0.1:9"})) as mdp, pytest.raises(SystemNotFound) as raised:
        mdp.get("/documents")
    assert raised.value.detail == "Nothing answers at http://127.0.0.1:9: is MDV_URL right, does it run?"


def test_a_problem_is_raised_as_the_error_it_was_made_from() -> None:
    flawed = {**InvalidDocument("1 error.").problem(), "errors": [{"message": "bad", "line": 3, "news": 1}, {"x": 1}]}
    mdp, _, _ = client(httpx.Response(422, json=flawed))
    with pytest.raises(InvalidDocument) as raised:
        mdp.register("http://a/d", b"x", "text/turtle")
    assert [str(flaw) for flaw in raised.value.flaws] == ["line 3: bad"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (httpx.Response(404, text="<h1>nginx</h1>"), NotFound),
        (httpx.Response(500, text="oops"), MdvError),
        (httpx.Response(401, json={"type": "about:blank", "title": "Unauthorized", "detail": "No."}), Unauthenticated),
        (httpx.Response(200, text="a page"), MdvError),
        (httpx.Response(302, headers={"Location": "http://elsewhere.example/"}), MdvError),
    ],
)
def test_an_answer_that_no_mdv_gives_is_an_error(answer: httpx.Response, kind: type[MdvError]) -> None:
    mdp, asked, _ = client(answer)
    with pytest.raises(kind):
        mdp.get("/documents")
    assert [request.url.host for request in asked] == ["127.0.0.1"]


def test_what_passes_by_itself_is_tried_again_with_the_same_key() -> None:
    busy = httpx.Response(503, json=Unavailable().problem(), headers={"Retry-After": "2"})
    mdp, asked, slept = client(busy, httpx.Response(429), httpx.ReadError("cut"), httpx.Response(201, json=DONE))
    assert mdp.register("http://a/d", b"x", "text/turtle", if_match="3") == DONE
    assert slept[0] == 2.0 and len(slept) == 3
    assert len({request.headers["Idempotency-Key"] for request in asked}) == 1
    assert asked[0].headers["If-Match"] == '"3"'
    assert asked[0].headers["Prefer"] == "wait=60"
    assert asked[0].headers["Authorization"] == "Bearer secret"


def test_it_is_not_tried_for_ever() -> None:
    mdp, asked, slept = client(*[problem(Unavailable())] * 20)
    with pytest.raises(Unavailable):
        mdp.get("/documents")
    assert len(asked) == 6 and sum(slept) < 60


def test_a_long_change_is_followed_to_its_end() -> None:
    accepted = httpx.Response(202, json={"job": "7", "state": "queued", "document": "http://a/d"})
    running = httpx.Response(200, json={"state": "running", "result": None, "problem": None})
    mdp, asked, _ = client(accepted, running, httpx.Response(200, json={"state": "done", "result": DONE}))
    assert mdp.register("http://a/d", b"x", "text/turtle") == DONE
    assert asked[-1].url.path == "/api/v1/jobs/7"
    failed = httpx.Response(200, json={"state": "failed", "problem": InvalidDocument("no").problem()})
    mdp, _, _ = client(accepted, failed)
    with pytest.raises(InvalidDocument, match="no"):
        mdp.delete("http://a/d")


def test_pages_are_fetched_only_as_they_are_needed() -> None:
    page: Callable[[str, str | None], httpx.Response] = lambda uri, more: httpx.Response(  # noqa: E731
        200, text=json.dumps({"items": [{"uri": uri}], "next": more})
    )
    mdp, asked, _ = client(page("a", "c u/r"), page("b", None))
    items = mdp.items("/documents", 1)
    assert asked == []
    assert next(items) == {"uri": "a"} and len(asked) == 1
    assert list(items) == [{"uri": "b"}]
    assert asked[1].url.params["after"] == "c u/r"


def test_the_environment_puts_no_proxy_before_this_machine(monkeypatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:1")
    monkeypatch.setenv("ALL_PROXY", "http://proxy.example:1")
    with Client(SYSTEM) as mdp, pytest.raises(SystemNotFound):
        mdp.get("/documents")
