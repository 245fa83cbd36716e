"""Webhooks over HTTP, on a whole system: gunicorn, a Celery worker, and a receiver on this machine."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import psycopg
import pytest
from standardwebhooks.webhooks import Webhook as Verifier

from mdv.webhooks.sign import make_secret
from tests.support.eventually import eventually
from tests.support.server import PROBLEM, SCHEMA, Api, Server, start_server, start_worker, stopping, turtle
from tests.support.webhook_receiver import Handler, Receiver, receiving, saying

pytestmark = pytest.mark.full

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def open_server(folder: Path, new_database: Callable[[], str], new_queue: Callable[[], str]) -> Iterator[Server]:
    """A system that may send webhooks and requests of programs to this machine. Its one worker has one process for
    everything."""
    database, queue = new_database(), new_queue()
    services = {"MDV_REAL_SERVICES": "http://127.0.0.1:", "MDV_REAL_SERVICE_SECRET": make_secret()}
    worker = start_worker(folder, database, queue, concurrency=1, MDV_WEBHOOK_PRIVATE="true", **services)
    server = start_server(folder, database, queue, MDV_WEBHOOK_PRIVATE="true")
    with stopping(server, worker):
        assert server.api().put_schema(SCHEMA).status_code == 200
        yield server


@dataclass
class Repository:
    """An LMR of the running system, with a rule of its own."""

    name: str
    host: str
    admin: Api
    own: Api

    def call(self, method: str, path: str = "", json: Any = None) -> httpx2.Response:
        return self.own.http.request(method, f"/api/v1/lmrs/self/webhooks{path}", json=json)

    def add(self, url: str) -> dict[str, Any]:
        answer = self.call("POST", json={"url": url})
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def get(self, path: str = "") -> dict[str, Any]:
        answer = self.call("GET", path)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def change(self, port: int = 1) -> int:
        """Change a document that its rule selects; return the position."""
        text = turtle(f"<#host> a ex:CycleProvider ; ex:serverHost '{self.host}' ; ex:serverPort {port} .")
        answer = self.admin.put(f"http://docs.example/{self.host}", text)
        assert answer.status_code in (200, 201), answer.text
        return int(answer.json()["position"])


@pytest.fixture
def lmr(open_server: Server) -> Repository:
    name, admin = f"hooked {next(_numbers)}", open_server.api()
    made = admin.http.post("/api/v1/lmrs", json={"name": name}).json()
    own = open_server.api(made["token"])
    host = f"{uuid4().hex}.example"
    rule = {"rule": f"search CycleProvider c register c where c.serverHost contains '{host}'"}
    assert own.http.post("/api/v1/lmrs/self/subscriptions", json=rule).status_code == 201
    return Repository(name, host, admin, own)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


def test_a_registration_sends_a_message_with_the_offset_of_the_feed(lmr: Repository, receiver: Receiver) -> None:
    hook = lmr.add(receiver.url)
    cursor = lmr.own.get("/lmrs/self/feed").json()["cursor"]
    position = lmr.change()
    eventually(lambda: receiver.got)
    (got,) = receiver.got
    said = Verifier(hook["secret"]).verify(got.body, got.headers)
    assert said["type"] == "feed.advanced" and said["data"]["lmr"] == lmr.name and said["data"]["position"] == position
    events = lmr.own.get("/lmrs/self/feed", after=cursor).json()["events"]
    assert events and events[-1]["offset"] == said["data"]["offset"]
    eventually(lambda: lmr.get(f"/{hook['id']}")["told"] == said["data"]["offset"])
    (delivery,) = lmr.get(f"/{hook['id']}/deliveries")["items"]
    assert (delivery["id"], delivery["state"], delivery["attempts"]) == (got.id, "delivered", 1)
    assert delivery["status"] == 204 and delivery["not_before"] is None and delivery["ended_at"]


def test_a_schema_change_sends_a_message(lmr: Repository, receiver: Receiver) -> None:
    lmr.add(receiver.url)
    assert lmr.admin.put_schema(SCHEMA + f"ex:new{next(_numbers)} a rdfs:Property .").status_code == 200
    eventually(lambda: receiver.got)


def test_the_secret_is_shown_only_when_it_is_created(lmr: Repository, receiver: Receiver) -> None:
    hook = lmr.add(receiver.url)
    assert hook["secret"].startswith("whsec_") and hook["state"] == "active" and hook["url"] == receiver.url
    shown = lmr.get(f"/{hook['id']}")
    assert shown == {name: value for name, value in hook.items() if name != "secret"}
    assert lmr.get()["items"] == [shown]
    rotated = lmr.call("POST", f"/{hook['id']}/rotate").json()
    assert rotated["secret"] not in ("", hook["secret"]) and rotated["old_secret_until"]
    assert "secret" not in lmr.get(f"/{hook['id']}")


def test_both_secrets_verify_after_a_rotation(lmr: Repository, receiver: Receiver) -> None:
    hook = lmr.add(receiver.url)
    new = lmr.call("POST", f"/{hook['id']}/rotate").json()["secret"]
    assert lmr.call("POST", f"/{hook['id']}/test").json()["delivered"] is True
    (got,) = receiver.got
    for secret in (new, hook["secret"]):
        assert Verifier(secret).verify(got.body, got.headers)["type"] == "webhook.test"


def test_a_test_message_returns_its_result_and_changes_nothing(lmr: Repository, receiver: Receiver) -> None:
    hook = lmr.add(receiver.url)
    receiver.answers = [saying(500, "not today"), saying(302, Location="http://elsewhere.example/")]
    first = lmr.call("POST", f"/{hook['id']}/test").json()
    assert (first["delivered"], first["status"], first["reason"]) == (False, 500, "It answered 500: not today")
    assert "redirects are not followed" in lmr.call("POST", f"/{hook['id']}/test").json()["reason"]
    third = lmr.call("POST", f"/{hook['id']}/test").json()
    assert (third["delivered"], third["status"], third["reason"]) == (True, 204, None)
    assert (receiver.got[0].id, receiver.got[2].id) == (first["id"], third["id"])
    assert lmr.get(f"/{hook['id']}")["failures"] == 0 and lmr.get(f"/{hook['id']}/deliveries")["items"] == []


def test_one_test_message_is_sent_at_a_time(lmr: Repository, receiver: Receiver) -> None:
    hook = lmr.add(receiver.url)
    released = threading.Event()

    def sleep(handler: Handler) -> None:
        released.wait(60)
        handler.send_response(200)
        handler.end_headers()

    receiver.answers = [sleep]
    answers: list[httpx2.Response] = []
    trial = threading.Thread(target=lambda: answers.append(lmr.call("POST", f"/{hook['id']}/test")))
    trial.start()
    eventually(lambda: receiver.got)
    second = lmr.admin.http.post(f"/api/v1/lmrs/{lmr.name}/webhooks/{hook['id']}/test")
    released.set()
    trial.join()
    assert second.status_code == 429 and "already being tested" in second.json()["detail"]
    assert answers[0].json()["delivered"] is True


def test_a_failed_message_is_retried_by_the_worker_under_its_id(lmr: Repository, receiver: Receiver) -> None:
    hook = lmr.add(receiver.url)
    receiver.answers = [500]
    lmr.change()
    eventually(lambda: receiver.got)
    eventually(lambda: lmr.get(f"/{hook['id']}")["failures"] == 1)
    (waiting,) = lmr.get(f"/{hook['id']}/deliveries?state=waiting")["items"]
    assert (waiting["status"], waiting["reason"]) == (500, "It answered 500.") and waiting["not_before"]
    # A waiting message can be sent now.
    made = lmr.call("POST", f"/{hook['id']}/deliveries")
    assert (made.status_code, made.json()["id"]) == (201, waiting["id"])
    eventually(lambda: len(receiver.got) == 2)
    assert len({(got.id, got.body) for got in receiver.got}) == 1
    eventually(lambda: lmr.get(f"/{hook['id']}")["failures"] == 0)


def test_status_410_pauses_and_resuming_sends_the_new_offset(lmr: Repository, receiver: Receiver) -> None:
    hook = lmr.add(receiver.url)
    receiver.answers = [410]
    lmr.change(1)
    eventually(lambda: lmr.get(f"/{hook['id']}")["state"] == "paused")
    assert "410" in lmr.get(f"/{hook['id']}")["reason"]
    (dead,) = lmr.get(f"/{hook['id']}/deliveries?state=dead")["items"]
    refused = lmr.call("POST", f"/{hook['id']}/deliveries/{dead['id']}/replay")
    assert refused.status_code == 409 and "Resume it first" in refused.json()["detail"]
    lmr.change(2)
    resumed = lmr.call("POST", f"/{hook['id']}/resume").json()
    assert (resumed["state"], resumed["reason"], resumed["failures"]) == ("active", None, 0)
    eventually(lambda: len(receiver.got) == 2)
    eventually(lambda: lmr.get(f"/{hook['id']}")["told"] == receiver.offsets()[-1])
    # The dead message still exists, and can be sent again under its own ID.
    replayed = lmr.call("POST", f"/{hook['id']}/deliveries/{dead['id']}/replay")
    assert replayed.status_code == 200 and replayed.json()["state"] == "waiting"
    eventually(lambda: len(receiver.got) == 3)
    assert receiver.got[2].id == receiver.got[0].id == dead["id"]
    eventually(lambda: lmr.get(f"/{hook['id']}/deliveries?state=delivered")["items"][-1]["id"] == dead["id"])
    assert lmr.get(f"/{hook['id']}")["told"] == receiver.offsets()[1]  # it does not go back


def test_a_paused_webhook_gets_no_message(lmr: Repository, receiver: Receiver) -> None:
    with receiving() as other:
        hook, control = lmr.add(receiver.url), lmr.add(other.url)
        paused = lmr.call("POST", f"/{hook['id']}/pause").json()
        assert (paused["state"], paused["reason"]) == ("paused", "Paused manually.")
        lmr.change()
        eventually(lambda: lmr.get(f"/{control['id']}")["told"] > control["told"])
    assert receiver.got == [] and lmr.get(f"/{hook['id']}/deliveries")["items"] == []


def test_a_receiver_that_never_answers_blocks_no_registration(lmr: Repository, receiver: Receiver) -> None:
    hooks = [lmr.add(receiver.url) for _ in range(4)]
    released = threading.Event()
    receiver.answers = [lambda handler: (released.wait(60), None)[1]] * len(hooks)
    lmr.change(1)
    eventually(lambda: receiver.got)
    for port in range(2, 12):  # the worker has one process
        lmr.change(port)
    assert not any(lmr.get(f"/{hook['id']}")["failures"] for hook in hooks)
    released.set()


def test_a_message_in_progress_when_the_worker_is_killed_is_sent_again_under_its_id(
    folder: Path, new_database: Callable[[], str], new_queue: Callable[[], str], receiver: Receiver
) -> None:
    database, queue = new_database(), new_queue()
    system = (folder, database, queue)
    first, server = (start(*system, MDV_WEBHOOK_PRIVATE="true") for start in (start_worker, start_server))
    with stopping(server, first):
        api = server.api()
        assert api.put_schema(SCHEMA).status_code == 200
        own = server.api(api.http.post("/api/v1/lmrs", json={"name": "cut"}).json()["token"])
        lmr = Repository("cut", "cut.example", api, own)
        rule = {"rule": "search CycleProvider c register c where c.serverHost contains 'cut.example'"}
        assert own.http.post("/api/v1/lmrs/self/subscriptions", json=rule).status_code == 201
        hook = lmr.add(receiver.url)
        released = threading.Event()
        receiver.answers = [lambda handler: (released.wait(60), None)[1]]
        lmr.change()
        eventually(lambda: receiver.got)
        first.kill()
        released.set()
        (cut,) = lmr.get(f"/{hook['id']}/deliveries")["items"]
        assert (cut["state"], cut["attempts"], cut["status"]) == ("waiting", 1, None)
        with psycopg.connect(database) as connection:  # a minute passes
            connection.execute("update webhook_deliveries set not_before = now()")
        with stopping(start_worker(*system, MDV_WEBHOOK_PRIVATE="true")):
            eventually(lambda: lmr.get(f"/{hook['id']}/deliveries?state=delivered")["items"])
    assert len(receiver.got) == 2 and len({(got.id, got.body) for got in receiver.got}) == 1


def test_messages_are_paged_newest_first(lmr: Repository, receiver: Receiver) -> None:
    hook = lmr.add(receiver.url)
    for count in range(1, 6):
        assert lmr.call("POST", f"/{hook['id']}/deliveries").status_code == 201
        eventually(lambda count=count: len(lmr.get(f"/{hook['id']}/deliveries?state=delivered")["items"]) == count)
    pages = list(lmr.own.pages(f"/lmrs/self/webhooks/{hook['id']}/deliveries", 2))
    assert [len(page) for page in pages] == [2, 2, 1]
    assert [item["id"] for page in pages for item in page] == [got.id for got in reversed(receiver.got)]
    assert lmr.get(f"/{hook['id']}/deliveries?state=dead") == {"items": [], "next": None}


def test_a_deleted_webhook_is_gone_and_gets_no_message(lmr: Repository, receiver: Receiver) -> None:
    with receiving() as other:
        hook, control = lmr.add(receiver.url), lmr.add(other.url)
        assert lmr.call("DELETE", f"/{hook['id']}").json()["id"] == hook["id"]
        assert lmr.call("GET", f"/{hook['id']}").status_code == 404
        lmr.change()
        eventually(lambda: lmr.get(f"/{control['id']}")["told"] > control["told"])
    assert receiver.got == [] and [item["id"] for item in lmr.get()["items"]] == [control["id"]]


def test_deleting_an_lmr_deletes_its_webhooks(lmr: Repository, receiver: Receiver) -> None:
    hook = lmr.add(receiver.url)
    receiver.answers = [500]
    lmr.change()
    eventually(lambda: lmr.get(f"/{hook['id']}")["failures"] == 1)
    assert lmr.admin.http.delete(f"/api/v1/lmrs/{lmr.name}").status_code == 200
    assert lmr.admin.http.get(f"/api/v1/lmrs/{lmr.name}/webhooks").status_code == 404


def test_an_lmr_may_have_ten_webhooks(lmr: Repository, receiver: Receiver) -> None:
    for _ in range(10):
        lmr.add(receiver.url)
    answer = lmr.call("POST", json={"url": receiver.url})
    assert answer.status_code == 409 and "which is the maximum. Delete one first" in answer.json()["detail"]


# Permissions


def test_an_lmr_sees_only_its_own_webhooks(lmr: Repository, open_server: Server, receiver: Receiver) -> None:
    hook = lmr.add(receiver.url)
    made = lmr.admin.http.post("/api/v1/lmrs", json={"name": f"other {next(_numbers)}"}).json()
    other = open_server.api(made["token"])
    path = f"/api/v1/lmrs/{lmr.name}/webhooks"
    assert other.http.get(path).status_code == 403
    assert other.http.get(f"/api/v1/lmrs/self/webhooks/{hook['id']}").status_code == 404
    for verb in ("pause", "resume", "rotate", "test", "deliveries"):
        assert other.http.post(f"{path}/{hook['id']}/{verb}").status_code == 403
        assert other.http.post(f"/api/v1/lmrs/self/webhooks/{hook['id']}/{verb}").status_code == 404
    assert other.http.delete(f"/api/v1/lmrs/self/webhooks/{hook['id']}").status_code == 404
    assert open_server.api(None).http.get(path).status_code == 401
    assert lmr.admin.http.get(path).json()["items"][0]["id"] == hook["id"]
    assert receiver.got == []


def test_a_viewer_cannot_see_webhooks(api: Api, server: Server, make_token: Callable[..., tuple[str, int]]) -> None:
    name = f"read {next(_numbers)}"
    assert api.http.post("/api/v1/lmrs", json={"name": name}).status_code == 201
    viewer = server.api(make_token("viewer")[0])
    assert viewer.http.get(f"/api/v1/lmrs/{name}/webhooks").status_code == 403


# Addresses


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://localhost:8080/", "not on the public internet"), ("http://127.0.0.1/", "not on the public internet"),
        ("http://2130706433/", "not on the public internet"), ("http://0177.0.0.1/", "is invalid"),
        ("http://[::ffff:127.0.0.1]/", "not on the public internet"), ("http://[::1]/", "not on the public internet"),
        ("http://169.254.169.254/latest/meta-data/", "not on the public internet"),
        ("https://nobody.invalid/", "cannot be resolved"), ("gopher://hooks.example/", "begin with https"),
        ("https://me:secret@hooks.example/", "user or password"), ("nonsense", "begin with https"),
    ],
)  # fmt: skip
def test_a_forbidden_address_is_refused_at_registration(api: Api, url: str, sentence: str) -> None:
    name = f"refused {next(_numbers)}"
    assert api.http.post("/api/v1/lmrs", json={"name": name}).status_code == 201
    answer = api.http.post(f"/api/v1/lmrs/{name}/webhooks", json={"url": url})
    assert answer.status_code == 400 and answer.headers["Content-Type"] == PROBLEM
    assert sentence in answer.json()["detail"]
    assert api.get(f"/lmrs/{name}/webhooks").json()["items"] == []


def test_unknown_webhooks_and_messages_are_not_found(lmr: Repository, receiver: Receiver) -> None:
    hook = lmr.add(receiver.url)
    for path in ("/0", "/x", "/99999999", "/99999999999999999999999", "/99999999/deliveries"):
        assert lmr.call("GET", path).status_code == 404
    for message in ("x", str(uuid4())):
        assert lmr.call("POST", f"/{hook['id']}/deliveries/{message}/replay").status_code == 404
    assert lmr.call("GET", f"/{hook['id']}/deliveries?state=odd").status_code == 400
    assert lmr.call("POST", json={"url": receiver.url, "secret": "mine"}).status_code == 400


def test_a_program_of_a_worker_calls_a_service(open_server: Server) -> None:
    api, doc = open_server.api(), "http://docs.example/service"
    with receiving() as receiver:

        def certify(handler: Handler) -> None:
            (request,) = re.findall(rf"<({doc}#[^>]*-1)>", receiver.got[-1].body.decode())
            text = f"<{request}> <http://mdv.example/schema#note> 'certified' .".encode()
            handler.send_response(200)
            handler.send_header("Content-Type", "text/turtle")
            handler.end_headers()
            handler.wfile.write(text)

        receiver.answers.append(certify)
        terms = "@prefix lrm: <http://xrce.xerox.com/LRM#> . @prefix real: <http://xrce.xerox.com/ReAL#> .\n"
        stored = api.put(doc, terms + turtle(f"<#authority> real:endpoint '{receiver.url}' ."))
        assert stored.status_code in (200, 201), stored.text
        code = (
            f"$cr AND +lrm:requestedService(?cr, <{doc}#authority>) AND CALL primitive:service(?cr)"
            " AND NO lrm:error(?cr, ?) AND ex:note(?cr, ?note)"
        )

        answer = api.http.post("/api/v1/real", json={"code": code, "mode": "run", "into": doc}, timeout=60)

    assert answer.status_code == 200, answer.text
    ((request, note),) = [(one["cr"]["value"], one["note"]["value"]) for one in answer.json()["solutions"]]
    assert note == "certified" and request.startswith(doc + "#")
    assert len(receiver.got) == 1 and request in receiver.got[0].body.decode()
