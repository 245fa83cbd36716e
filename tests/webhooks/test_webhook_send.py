"""One request to a receiver, for every behaviour of the receiver."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mdv.webhooks.send import MAX_REASON_CHARACTERS, WebhookResponse, send
from tests.support.webhook_receiver import Handler, Receiver, receiving, saying

TLS = Path(__file__).parent / "tls"
HEADERS = {"webhook-id": "msg_1"}
SOON = 0.4


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


def sent(url: str, **more: object) -> WebhookResponse:
    return send(url, b"{}", HEADERS, True, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_a_success(receiver: Receiver, status: int) -> None:
    receiver.answers = [status]
    assert sent(receiver.url) == WebhookResponse(status)
    (got,) = receiver.got
    assert got.body == b"{}" and got.headers["webhook-id"] == "msg_1" and got.path == "/hook"
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}" and got.headers["content-type"] == "application/json"


def test_the_error_text_of_the_receiver_is_reported_on_one_printable_line(receiver: Receiver) -> None:
    receiver.answers = [saying(500, "out\n of \x1b[31m order " + "x" * 500)]
    answer = sent(receiver.url)
    assert not answer.is_success and answer.status == 500
    assert answer.reason is not None and answer.reason.startswith("It answered 500: out of [31m order xxx")
    assert len(answer.reason) <= len("It answered 500: ") + MAX_REASON_CHARACTERS


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_is_a_failure(receiver: Receiver, status: int) -> None:
    receiver.answers = [saying(status, Location=receiver.url + "/elsewhere")]
    answer = sent(receiver.url)
    assert answer.status == status and not answer.is_success
    assert answer.reason == (
        f"It answered {status}, a redirect to {receiver.url}/elsewhere, and redirects are not followed."
    )
    assert [got.path for got in receiver.got] == ["/hook"]


@pytest.mark.parametrize(("status", "seconds"), [(429, 120.0), (503, 120.0), (500, None)])
def test_retry_after_is_used_for_429_and_503_only(receiver: Receiver, status: int, seconds: float | None) -> None:
    receiver.answers = [saying(status, Retry_After="120")]
    assert sent(receiver.url).retry_after == seconds


def test_a_refused_connection_is_a_failure_with_a_message(receiver: Receiver) -> None:
    with receiving() as gone:
        url = gone.url
    answer = sent(url)
    assert answer.status is None and answer.reason is not None and "refused" in answer.reason


# Slow and long answers


def test_a_receiver_that_sends_headers_too_slowly_is_cut_off(receiver: Receiver) -> None:
    done = threading.Event()

    def drip(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for n in range(10_000):  # every byte comes in time, the whole answer never does
            handler.wfile.write(b"X-%d: y\r\n" % n)
            if done.wait(0.05):
                return

    receiver.answers = [drip]
    answer = sent(receiver.url, seconds=SOON)
    done.set()
    assert answer == WebhookResponse(None, f"The response was not complete after {SOON:g} s.")


def test_a_receiver_that_sends_nothing_is_cut_off(receiver: Receiver) -> None:
    done = threading.Event()
    receiver.answers = [lambda handler: (done.wait(10), None)[1]]
    answer = sent(receiver.url, seconds=SOON)
    done.set()
    assert answer == WebhookResponse(None, f"The response was not complete after {SOON:g} s.")


def test_the_received_part_of_a_slow_error_text_is_reported(receiver: Receiver) -> None:
    done = threading.Event()

    def drip(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 500 No\r\nContent-Length: 1000\r\n\r\nbroken")
        while not done.wait(0.05):
            handler.wfile.write(b".")

    receiver.answers = [drip]
    answer = sent(receiver.url, seconds=2)  # enough for the first part on a busy machine
    done.set()
    assert answer.status == 500 and answer.reason is not None and answer.reason.startswith("It answered 500: broken")


def test_an_endless_response_is_read_only_as_far_as_needed(receiver: Receiver) -> None:
    written: list[int] = []
    ended = threading.Event()

    def flood(handler: Handler) -> None:
        try:
            handler.wfile.write(b"HTTP/1.1 500 No\r\nContent-Length: 100000000000\r\n\r\n")
            while True:
                written.append(handler.wfile.write(b"x" * 65536))
        finally:
            ended.set()

    receiver.answers = [flood]
    assert sent(receiver.url).reason == "It answered 500: " + "x" * MAX_REASON_CHARACTERS
    assert ended.wait(60) and sum(written) < 32 * 1024 * 1024  # the size of the socket buffers


def test_a_receiver_that_does_not_speak_http_is_a_failure(receiver: Receiver) -> None:
    receiver.answers = [lambda handler: (handler.wfile.write(b"hello there\r\n\r\n"), None)[1]]
    answer = sent(receiver.url)
    assert answer.status is None and answer.reason is not None and answer.reason.startswith("The request failed: ")


# Addresses


def test_a_private_address_is_not_connected_to(receiver: Receiver) -> None:
    for host in ("127.0.0.1", "localhost", "2130706433"):
        answer = send(receiver.at(host), b"{}", HEADERS)
        assert answer.status is None and answer.reason is not None and "not on the public internet" in answer.reason
    assert receiver.got == []


def test_the_connection_uses_the_address_that_was_checked(receiver: Receiver) -> None:
    answers = [["127.0.0.1"], ["127.9.9.9"]]
    asked: list[str] = []

    def rebound(host: str, port: int) -> list[str]:
        asked.append(host)
        return answers.pop(0)

    assert sent(receiver.at("hooks.example"), resolve=rebound).is_success
    assert asked == ["hooks.example"] and receiver.got[0].headers["host"] == f"hooks.example:{receiver.port}"


def test_a_host_that_now_resolves_to_this_machine_is_not_connected_to(receiver: Receiver) -> None:
    answer = send(receiver.at("hooks.example"), b"{}", HEADERS, resolve=lambda host, port: ["127.0.0.1"])
    assert answer.reason == (
        "The host hooks.example has an address that is not on the public internet. In a private network, start the MDP"
        " with MDV_WEBHOOK_PRIVATE=true."
    )
    assert receiver.got == []


def test_if_one_address_of_a_host_fails_the_next_is_tried(receiver: Receiver) -> None:
    assert sent(receiver.at("hooks.example"), resolve=lambda host, port: ["127.9.9.9", "127.0.0.1"]).is_success


def test_proxies_of_the_environment_are_not_used(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert sent(receiver.at("hooks.example"), resolve=lambda host, port: ["127.0.0.1"]).is_success


# With TLS


@pytest.fixture
def secure() -> Iterator[Receiver]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "hooks.pem")
    with receiving(context) as running:
        yield running


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(TLS / "authority.pem"))


def here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def test_a_certificate_for_the_name_is_accepted_at_the_address(secure: Receiver) -> None:
    assert sent(secure.at("hooks.test"), resolve=here, context=trusting()).is_success


def test_a_certificate_for_another_name_is_refused(secure: Receiver) -> None:
    answer = sent(secure.at("other.test"), resolve=here, context=trusting())
    assert answer.status is None and answer.reason is not None and "certificate" in answer.reason.lower()
    assert secure.got == []


def test_a_certificate_of_an_unknown_authority_is_refused(secure: Receiver) -> None:
    answer = sent(secure.at("hooks.test"), resolve=here)
    assert answer.status is None and answer.reason is not None and "certificate" in answer.reason.lower()
    assert secure.got == []


def test_a_handshake_that_never_ends_is_cut() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        answer = sent(f"https://hooks.test:{port}/", resolve=here, context=trusting(), seconds=SOON)
    assert answer == WebhookResponse(None, f"The connection timed out after {SOON:g} s.")
