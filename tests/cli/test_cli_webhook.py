"""Webhooks from the command line, on a running MDP that may send to this machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import psycopg
import pytest
import sqlalchemy
from standardwebhooks.webhooks import Webhook as Verifier

from mdv.embedded import Postgres
from tests.support.eventually import eventually
from tests.support.server import ADMIN, SCHEMA, Server, start_server, start_worker, stopping
from tests.support.webhook_receiver import Receiver, receiving, saying

pytestmark = pytest.mark.full

LMR = "library"
RULE = "search CycleProvider c register c where c.serverHost contains 'uni-passau.de'"


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, postgres: Postgres, template: str, new_queue: Callable[[], str]
) -> Iterator[Server]:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"create database cli_webhooks template {template} strategy file_copy")
    url = sqlalchemy.make_url(postgres.url).set(database="cli_webhooks").render_as_string(hide_password=False)
    folder, queue = tmp_path_factory.mktemp("hooks"), new_queue()
    worker = start_worker(folder, url, queue, concurrency=1, MDV_WEBHOOK_PRIVATE="true")
    server = start_server(folder, url, queue, MDV_WEBHOOK_PRIVATE="true")
    with stopping(server, worker):
        api = server.api()
        assert api.put_schema(SCHEMA).status_code == 200
        assert api.http.post("/api/v1/lmrs", json={"name": LMR}).status_code == 201
        assert api.http.post(f"/api/v1/lmrs/{LMR}/subscriptions", json={"rule": RULE}).status_code == 201
        yield server


@pytest.fixture
def on(server: Server, mdv: Callable, monkeypatch: pytest.MonkeyPatch) -> Callable:
    """Run `mdv webhook …` on the running system, for its LMR."""
    monkeypatch.setenv("MDV_URL", server.url)
    monkeypatch.setenv("MDV_TOKEN", ADMIN)
    return lambda verb, *more: mdv("webhook", verb, *more, "--lmr", LMR)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture
def hook(on: Callable, receiver: Receiver) -> Iterator[dict]:
    ran = on("add", receiver.url, "--json")
    assert ran.code == 0, ran.err
    made = json.loads(ran.out)
    yield made
    on("delete", made["id"], "--yes")


def shown(on: Callable, hook: dict) -> dict:
    return json.loads(on("show", hook["id"], "--json").out)


def sent(on: Callable, hook: dict, *more: object) -> list[dict]:
    return json.loads(on("deliveries", hook["id"], "--json", *more).out)["items"]


def test_without_a_terminal_add_and_rotate_print_only_the_secret(on: Callable, receiver: Receiver) -> None:
    ran = on("add", receiver.url)
    assert ran.code == 0 and ran.out.startswith("whsec_") and len(ran.out.splitlines()) == 1
    (made,) = json.loads(on("list", "--json").out)["items"]
    assert made["url"] == receiver.url and "secret" not in made
    rotated = on("rotate", made["id"])
    assert rotated.out.startswith("whsec_") and rotated.out != ran.out
    assert on("delete", made["id"], "--yes").out == f"Webhook {made['id']} is deleted.\n"
    assert json.loads(on("list", "--json").out) == {"items": [], "more": False}


def test_a_webhook_is_listed_and_shown(on: Callable, hook: dict, receiver: Receiver) -> None:
    (line,) = on("list").out.splitlines()
    assert line.split("\t")[:5] == [str(hook["id"]), "active", str(hook["told"]), "0", receiver.url]
    assert f"url\t{receiver.url}\n" in on("show", hook["id"]).out and shown(on, hook)["state"] == "active"


def test_test_prints_the_result_of_the_delivery(on: Callable, hook: dict, receiver: Receiver) -> None:
    receiver.answers = [200, saying(500, "broken")]
    good, bad = on("test", hook["id"]), on("test", hook["id"])
    assert (good.code, good.out) == (0, "The message was delivered: the receiver answered 200.\n")
    assert (bad.code, bad.out) == (1, "The message was not delivered. It answered 500: broken\n")
    Verifier(hook["secret"]).verify(receiver.got[0].body, receiver.got[0].headers)


def test_a_webhook_is_paused_and_resumed(on: Callable, hook: dict) -> None:
    assert on("pause", hook["id"]).out == f"Webhook {hook['id']} is paused.\n"
    assert shown(on, hook)["state"] == "paused"
    refused = on("replay", hook["id"])
    assert refused.code == 1 and "Resume it first" in refused.err
    assert on("resume", hook["id"]).out == f"Webhook {hook['id']} is active.\n"
    assert shown(on, hook)["state"] == "active"


def test_a_message_is_sent_now_and_a_dead_one_again(on: Callable, hook: dict, receiver: Receiver) -> None:
    receiver.answers = [410]
    ran = on("replay", hook["id"])
    assert ran.code == 0 and "will be sent" in ran.out
    eventually(lambda: shown(on, hook)["state"] == "paused")
    (dead,) = sent(on, hook, "--state", "dead")
    on("resume", hook["id"])
    again = on("replay", hook["id"], dead["id"], "--json")
    assert (again.code, json.loads(again.out)["id"]) == (0, dead["id"])
    eventually(lambda: sent(on, hook, "--state", "delivered"))
    assert [got.id for got in receiver.got] == [dead["id"]] * 2
    (line,) = on("deliveries", hook["id"]).out.splitlines()
    assert line.split("\t")[:2] == [dead["id"], "delivered"]


def test_the_time_of_the_next_attempt_is_shown(on: Callable, hook: dict, receiver: Receiver) -> None:
    assert shown(on, hook)["next_attempt"] is None
    receiver.answers = [saying(503, "later", Retry_After="600")]
    on("replay", hook["id"])
    eventually(lambda: shown(on, hook)["failing_since"])
    (waiting,) = sent(on, hook, "--state", "waiting")
    assert waiting["not_before"] and shown(on, hook)["next_attempt"] == waiting["not_before"]
    (line,) = on("deliveries", hook["id"]).out.splitlines()
    assert line.split("\t")[6] == waiting["not_before"]
    on("pause", hook["id"])
    assert shown(on, hook)["next_attempt"] is None


def test_invalid_arguments_are_reported_in_a_sentence(on: Callable, hook: dict, mdv: Callable) -> None:
    for arguments, sentence in (
        (("add", "ftp://hooks.example/"), "mdv: Bad request: The URL must begin with https:// or http://."),
        (("add", "http://169.254.169.254/"), "that webhooks must not use"),
        (("show", 999999), f"mdv: Not found: The LMR {LMR} has no webhook 999999."),
        (("replay", hook["id"], "00000000-0000-0000-0000-000000000000"), "has no message"),
    ):
        ran = on(*arguments)
        assert ran.code == 1 and sentence in ran.err, ran.err
    assert on("replay", hook["id"], "not-a-uuid").code == 2
    assert on("delete", hook["id"]).code == 2 and shown(on, hook)["id"] == hook["id"]
    assert (
        mdv("webhook", "list", "--lmr", "nobody").err
        == "mdv: Not found: There is no LMR nobody. `mdv lmr list` lists all LMRs.\n"
    )
