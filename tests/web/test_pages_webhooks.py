"""Webhooks in the administration: added, paused, tested and removed, with their messages. The receiver is real."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest
import sqlalchemy
from standardwebhooks.webhooks import Webhook as Verifier

from mdv.db.engine import make_engine
from mdv.mdp.webhook_sender import WebhookSender
from tests.support.in_process_server import serve_in_process
from tests.support.page_visitor import Page, Visitor
from tests.support.server import WebAddress
from tests.support.webhook_receiver import Receiver, receiving, saying

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def database(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture(scope="module")
def server(database: str, new_queue: Callable[[], str]) -> Iterator[WebAddress]:
    """A web server that may send to this machine, without a worker: the tests send due messages themselves."""
    with serve_in_process(database, new_queue(), work=False, MDV_WEBHOOK_PRIVATE="true") as server:
        yield server


@pytest.fixture(scope="module")
def engine(database: str) -> Iterator[sqlalchemy.Engine]:
    made = make_engine(database)
    yield made
    made.dispose()


@pytest.fixture
def send_due(engine: sqlalchemy.Engine) -> Callable[[], int]:
    """Send the messages that are due, as a worker does. Returns the number of attempts."""
    return WebhookSender(engine, private=True).work


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture
def lmr(server: WebAddress) -> str:
    name = f"my <b>library {next(_numbers)}"
    assert server.api().http.post("/api/v1/lmrs", json={"name": name}).status_code == 201
    return name


@pytest.fixture
def hook(visitor: Visitor, lmr: str, receiver: Receiver) -> Page:
    """The page after a webhook was added, with its secret."""
    page = visitor.post("/admin/webhooks", lmr=lmr, url=receiver.url)
    assert page.status == 200 and re.fullmatch(r"/admin/webhooks/\d+", page.path), page.alert()
    return page


def secret_of(page: Page) -> str:
    return str(page.tree.xpath("string(//*[@id='secret'])")).strip()


def test_a_webhook_is_added_and_its_secret_shown_once(
    visitor: Visitor, hook: Page, receiver: Receiver, lmr: str
) -> None:
    secret = secret_of(hook)
    assert secret.startswith("whsec_") and hook.title.endswith("active")
    for path in (hook.path, "/admin/webhooks", f"{hook.path}/rotate", f"{hook.path}/remove"):
        again = visitor.get(path)
        assert again.status == 200 and secret not in again.answer.text, path
    assert "was shown once" in visitor.get(hook.path).words
    (row,) = [row for row in visitor.get("/admin/webhooks", lmr=lmr).rows() if row[1] == lmr]
    assert row[0].startswith(receiver.url) and row[2:4] == ["active", "0"]
    assert visitor.post(f"{hook.path}/test").status == 200
    Verifier(secret).verify(receiver.got[0].body, receiver.got[0].headers)


def test_the_page_of_an_lmr_links_to_its_webhooks(visitor: Visitor, hook: Page, lmr: str) -> None:
    link = f"/admin/webhooks?lmr={quote(lmr, safe='').replace('%20', '+')}"
    assert link in visitor.get(f"/lmrs/{quote(lmr)}").links()
    page = visitor.get(link)
    assert [row[1] for row in page.rows()] == [lmr] and page.form("/admin/webhooks")["lmr"] == lmr
    assert visitor.get("/admin/webhooks", lmr="nobody").status == 404


def test_the_result_of_a_test_message_is_shown_once(visitor: Visitor, hook: Page, receiver: Receiver) -> None:
    receiver.answers = [saying(500, "<script>alert(1)</script>")]
    failed = visitor.post(f"{hook.path}/test")
    assert failed.path == hook.path and "not delivered. It answered 500: <script>alert(1)</script>" in failed.words
    assert "<script>alert" not in failed.answer.text
    assert "The test message was delivered: the receiver answered 204." in visitor.post(f"{hook.path}/test").words
    assert "test message was" not in visitor.get(hook.path).words


def test_a_message_is_listed_with_its_state_answer_and_payload(
    visitor: Visitor, hook: Page, receiver: Receiver, lmr: str, send_due: Callable[[], int]
) -> None:
    receiver.answers = [saying(503, "later", Retry_After="600")]
    page = visitor.post(f"{hook.path}/send")
    assert "will be sent now" in page.words
    (row,) = page.rows()
    assert row[1].startswith("waiting") and row[2:4] == ["0", "none yet"]
    assert send_due() == 1
    (row,) = visitor.get(hook.path).rows()
    assert row[1].startswith("waiting next attempt 2") and row[2] == "1" and row[3].startswith("It answered 503: later")
    assert "failing" in visitor.get(hook.path).title
    visitor.post(f"{hook.path}/send")
    assert send_due() == 1
    page = visitor.get(hook.path)
    (row,) = page.rows()
    assert row[1:3] == ["delivered", "1"] and row[3].startswith("204")
    shown = str(page.tree.xpath("string(//pre)"))
    assert json.loads(shown) == json.loads(receiver.got[-1].body) and shown.encode() == receiver.got[-1].body
    assert json.loads(shown)["data"]["lmr"] == lmr and receiver.got[-1].id in page.words
    assert (
        not visitor.get(hook.path, state="dead").rows() and len(visitor.get(hook.path, state="delivered").rows()) == 1
    )
    assert len(visitor.get(hook.path, state="nonsense").rows()) == 1


def test_a_dead_message_is_replayed_after_the_webhook_is_resumed(
    visitor: Visitor, hook: Page, receiver: Receiver, send_due: Callable[[], int]
) -> None:
    receiver.answers = [410]
    visitor.post(f"{hook.path}/send")
    assert send_due() == 1
    paused = visitor.get(hook.path)
    assert "paused" in paused.title and "410 (gone)" in paused.words and "resume first" in paused.words
    (dead,) = [form for form in visitor.post(f"{hook.path}/resume").forms() if form.endswith("/replay")]
    assert "will be sent again" in visitor.post(dead).words
    assert send_due() == 1
    assert [got.id for got in receiver.got] == [dead.split("/")[-2]] * 2
    assert visitor.get(hook.path).rows()[0][1] == "delivered"
    again = visitor.post(dead)
    assert again.status == 409 and "was delivered" in again.alert()


def test_a_paused_webhook_sends_nothing(
    visitor: Visitor, hook: Page, receiver: Receiver, send_due: Callable[[], int]
) -> None:
    page = visitor.post(f"{hook.path}/pause")
    assert "paused" in page.title and f"{hook.path}/send" not in page.forms()
    refused = visitor.post(f"{hook.path}/send")
    assert refused.status == 409 and "Resume it first" in refused.alert()
    assert send_due() == 0 and not receiver.got
    assert "active" in visitor.post(f"{hook.path}/resume").title


def test_a_new_secret_is_shown_once_and_both_verify(visitor: Visitor, hook: Page, receiver: Receiver) -> None:
    ask = visitor.get(f"{hook.path}/rotate")
    assert ask.title == "Create a new secret?" and ask.forms() == [f"{hook.path}/rotate"]
    rotated = visitor.post(f"{hook.path}/rotate")
    assert rotated.path == hook.path and secret_of(rotated) not in ("", secret_of(hook))
    assert "previous secret until" in rotated.words and secret_of(visitor.get(hook.path)) == ""
    visitor.post(f"{hook.path}/test")
    for secret in (secret_of(hook), secret_of(rotated)):
        Verifier(secret).verify(receiver.got[0].body, receiver.got[0].headers)


def test_a_webhook_is_removed_after_a_confirmation(visitor: Visitor, hook: Page, lmr: str) -> None:
    ask = visitor.get(f"{hook.path}/remove")
    assert ask.title == "Remove this webhook?" and lmr in ask.words and visitor.get(hook.path).status == 200
    assert "The webhook was removed." in visitor.post(f"{hook.path}/remove").words
    for path in (hook.path, f"{hook.path}/remove", f"{hook.path}/rotate"):
        assert visitor.get(path).status == 404
    for verb in ("pause", "resume", "send", "test", "rotate", "remove"):
        assert visitor.post(f"{hook.path}/{verb}").status == 404, verb


@pytest.mark.parametrize(
    ("url", "status", "sentence"),
    [
        ("", 400, "http"),
        ("ftp://hooks.example/", 400, "must begin with https:// or http://"),
        ("javascript:alert(1)", 400, "must begin"),
        ("http://169.254.169.254/", 400, "must not use"),
        ("http://x/<script>alert(1)</script>", 400, ""),
        ("https://hooks.example/" + "x" * 2000, 400, "longer than 2,000 characters"),
    ],
)
def test_an_invalid_url_is_refused_and_kept_in_the_form(
    visitor: Visitor, lmr: str, url: str, status: int, sentence: str
) -> None:
    page = visitor.post("/admin/webhooks", lmr=lmr, url=url)
    assert page.status == status and sentence in page.alert(), page.alert()
    assert page.form("/admin/webhooks") == {"lmr": lmr, "url": url}
    assert "<script>alert" not in page.answer.text and not visitor.get("/admin/webhooks", lmr=lmr).rows()


def test_an_unknown_lmr_is_refused_and_an_lmr_has_at_most_ten_webhooks(
    visitor: Visitor, lmr: str, receiver: Receiver
) -> None:
    unknown = visitor.post("/admin/webhooks", lmr="<b>nobody", url=receiver.url)
    assert unknown.status == 404 and "There is no LMR <b>nobody" in unknown.alert()
    for _ in range(10):
        assert visitor.post("/admin/webhooks", lmr=lmr, url=receiver.url).status == 200
    full = visitor.post("/admin/webhooks", lmr=lmr, url=receiver.url)
    assert full.status == 409 and "maximum" in full.alert()


@pytest.mark.parametrize("message", ["x", "00000000-0000-0000-0000-000000000000"])
def test_an_unknown_message_cannot_be_replayed(visitor: Visitor, hook: Page, message: str) -> None:
    assert visitor.post(f"{hook.path}/deliveries/{message}/replay").status == 404
