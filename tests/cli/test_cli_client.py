"""The client reports the server's error messages, and retries where that can help."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx2
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

SYSTEM = System("http://127.0.0.1:9", "secret", source="DIR/system.json")
DONE = {"document": "http://a/d", "version": 1, "created": True}


def client(*answers: httpx2.Response | Exception) -> tuple[Client, list[httpx2.Request], list[float]]:
    """A client whose server gives these answers, the requests it received, and the times it slept."""
    left, asked, slept = list(answers), [], []

    def handle(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Client(SYSTEM, transport=httpx2.MockTransport(handle), sleep=slept.append), asked, slept


def problem(error: MdvError) -> httpx2.Response:
    return httpx2.Response(error.status, json=error.problem())


def test_an_unreachable_system_is_reported_in_a_sentence() -> None:
    with Client(SYSTEM) as mdp, pytest.raises(SystemNotFound) as raised:
        mdp.get("/documents")
    assert raised.value.detail == (
        "The MDV at http://127.0.0.1:9 (from DIR/system.json) is not running; start it with `make up`."
    )


def test_an_unreachable_address_from_the_environment_is_named_with_its_variable() -> None:
    with Client(find_system(None, {"MDV_URL": "http://127.0.0.1:9"})) as mdp, pytest.raises(SystemNotFound) as raised:
        mdp.get("/documents")
    assert (
        raised.value.detail == "No server answers at http://127.0.0.1:9: check MDV_URL, and that the server is running."
    )


def test_a_problem_response_is_raised_as_its_error_class() -> None:
    flawed = {**InvalidDocument("1 error.").problem(), "errors": [{"message": "bad", "line": 3, "news": 1}, {"x": 1}]}
    mdp, _, _ = client(httpx2.Response(422, json=flawed))
    with pytest.raises(InvalidDocument) as raised:
        mdp.register("http://a/d", b"x", "text/turtle")
    assert [str(flaw) for flaw in raised.value.flaws] == ["line 3: bad"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (httpx2.Response(404, text="<h1>nginx</h1>"), NotFound),
        (httpx2.Response(500, text="oops"), MdvError),
        (httpx2.Response(401, json={"type": "about:blank", "title": "Unauthorized", "detail": "No."}), Unauthenticated),
        (httpx2.Response(200, text="a page"), MdvError),
        (httpx2.Response(302, headers={"Location": "http://elsewhere.example/"}), MdvError),
    ],
)
def test_a_response_that_is_not_from_mdv_is_an_error(answer: httpx2.Response, kind: type[MdvError]) -> None:
    mdp, asked, _ = client(answer)
    with pytest.raises(kind):
        mdp.get("/documents")
    assert [request.url.host for request in asked] == ["127.0.0.1"]


def test_temporary_errors_are_retried_with_the_same_idempotency_key() -> None:
    busy = httpx2.Response(503, json=Unavailable().problem(), headers={"Retry-After": "2"})
    mdp, asked, slept = client(busy, httpx2.Response(429), httpx2.ReadError("cut"), httpx2.Response(201, json=DONE))
    assert mdp.register("http://a/d", b"x", "text/turtle", if_match="3") == DONE
    assert slept[0] == 2.0 and len(slept) == 3
    assert len({request.headers["Idempotency-Key"] for request in asked}) == 1
    assert asked[0].headers["If-Match"] == '"3"'
    assert asked[0].headers["Prefer"] == "wait=60"
    assert asked[0].headers["Authorization"] == "Bearer secret"


def test_retries_are_limited() -> None:
    mdp, asked, slept = client(*[problem(Unavailable())] * 20)
    with pytest.raises(Unavailable):
        mdp.get("/documents")
    assert len(asked) == 6 and sum(slept) < 60


def test_a_long_change_is_polled_until_its_job_ends() -> None:
    accepted = httpx2.Response(202, json={"job": "7", "state": "queued", "document": "http://a/d"})
    running = httpx2.Response(200, json={"state": "running", "result": None, "problem": None})
    mdp, asked, _ = client(accepted, running, httpx2.Response(200, json={"state": "done", "result": DONE}))
    assert mdp.register("http://a/d", b"x", "text/turtle") == DONE
    assert asked[-1].url.path == "/api/v1/jobs/7"
    failed = httpx2.Response(200, json={"state": "failed", "problem": InvalidDocument("no").problem()})
    mdp, _, _ = client(accepted, failed)
    with pytest.raises(InvalidDocument, match="no"):
        mdp.delete("http://a/d")


def test_pages_are_fetched_lazily() -> None:
    page: Callable[[str, str | None], httpx2.Response] = lambda uri, more: httpx2.Response(  # noqa: E731
        200, text=json.dumps({"items": [{"uri": uri}], "next": more})
    )
    mdp, asked, _ = client(page("a", "c u/r"), page("b", None))
    items = mdp.items("/documents", 1)
    assert asked == []
    assert next(items) == {"uri": "a"} and len(asked) == 1
    assert list(items) == [{"uri": "b"}]
    assert asked[1].url.params["after"] == "c u/r"


def test_proxies_of_the_environment_are_not_used_for_local_addresses(monkeypatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:1")
    monkeypatch.setenv("ALL_PROXY", "http://proxy.example:1")
    with Client(SYSTEM) as mdp, pytest.raises(SystemNotFound):
        mdp.get("/documents")
