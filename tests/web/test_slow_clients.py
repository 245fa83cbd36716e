"""Clients that send or read slowly, or wait, take no connection, thread or slot from others."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from mdv.embedded import Valkey
from tests.support import local_http
from tests.support.eventually import eventually
from tests.support.lmr_server import create, start_lmr_server
from tests.support.server import ADMIN, PROBLEM, Api, Server, provider, start_server, stopping
from web.feed_notifier import MAX_POLLS_PER_LMR
from web.lmr.services import MAX_LOCAL_WRITES, MAX_MDP_REQUESTS, MAX_POSITION_WAITERS, MAX_QUERIES, REQUEST_THREADS

pytestmark = pytest.mark.full

TOKEN = "the-token-of-this-lmr"
MORE_THAN_THREADS = REQUEST_THREADS + 16
CONNECTIONS = 40
"""The limit of a server with few connections; half of them may wait."""

SLOW_HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "
SLOW_BODY = (
    b"POST /sign-in HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    b"Content-Length: 1000\r\n\r\nsecret="
)
UNREAD_ANSWER = b"GET /static/built/graph.js HTTP/1.1\r\nHost: x\r\n\r\n" * 8


@pytest.fixture(scope="module")
def lmr(folder: Path) -> Iterator[Server]:
    """An LMR whose MDP is unreachable: it answers from its cache."""
    process = start_lmr_server(folder, "http://127.0.0.1:9", TOKEN, f"sqlite:///{folder}/slow-clients.db", ready=False)
    with stopping(process):
        yield process


@pytest.fixture(scope="module")
def narrow_lmr(folder: Path) -> Iterator[Server]:
    process = start_lmr_server(folder, "http://127.0.0.1:9", TOKEN, f"sqlite:///{folder}/narrow.db",
                               "--worker-connections", str(CONNECTIONS), ready=False)  # fmt: skip
    with stopping(process):
        yield process


@pytest.fixture
def fresh(server: Server, folder: Path, system_database: str, valkey: Valkey) -> Iterator[Server]:
    """The same LMR without waiting requests: an abandoned poll is noticed only when it ends."""
    process = start_server(folder, system_database, valkey.url, "--worker-connections", str(CONNECTIONS))
    with stopping(process):
        yield process


@pytest.fixture(scope="module")
def narrow(server: Server, folder: Path, system_database: str, valkey: Valkey) -> Iterator[Server]:
    """Another web server of the running system, with few connections."""
    process = start_server(folder, system_database, valkey.url, "--worker-connections", str(CONNECTIONS))
    with stopping(process):
        yield process


@contextmanager
def connections(server: Server, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Connections on each of which something was sent, and nothing is read."""
    with ExitStack() as stack:
        opened = []
        for _ in range(count):
            connection = socket.socket()
            stack.enter_context(connection)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(60)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(sent)
            opened.append(connection)
        yield opened


def is_open(connection: socket.socket) -> bool:
    """Return True if the server has neither answered nor closed it."""
    connection.setblocking(False)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    return False


@pytest.mark.parametrize("sent", [b"", SLOW_HEAD, SLOW_BODY], ids=["silent", "slow head", "slow body"])
def test_slow_requests_hold_no_thread_of_an_lmr(lmr: Server, sent: bytes) -> None:
    with connections(lmr, MORE_THAN_THREADS, sent) as slow:
        for path in ("/healthz", "/api/v1/status"):
            answer = local_http.get(lmr.url + path, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)
            assert answer.status_code == 200
        assert all(map(is_open, slow)), "the others were served while these were open"


def test_clients_that_do_not_read_hold_no_thread_of_an_lmr(lmr: Server) -> None:
    with connections(lmr, MORE_THAN_THREADS, UNREAD_ANSWER) as unread:
        eventually(lambda: not any(map(is_open, unread)))  # each has received a part of its first answer
        assert local_http.get(lmr.url + "/healthz", timeout=60).status_code == 200
        # The others were served while these waited: none was cut, and all can still be read to the end.
        unread[0].settimeout(60)
        answers = b""
        while answers.count(b"HTTP/1.1 200 ") < 8:
            part = unread[0].recv(1 << 20)
            assert part, "cut before it was read"
            answers += part


def test_an_lmr_reserves_threads_for_requests_that_do_not_wait() -> None:
    assert MAX_MDP_REQUESTS + MAX_QUERIES + MAX_LOCAL_WRITES + MAX_POSITION_WAITERS < REQUEST_THREADS


@pytest.mark.parametrize("sent", [b"", SLOW_HEAD, SLOW_BODY], ids=["silent", "slow head", "slow body"])
@pytest.mark.parametrize("place", ["narrow", "narrow_lmr"])
def test_slow_clients_are_closed_to_make_room_for_others(
    place: str, sent: bytes, request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(place)
    with connections(server, CONNECTIONS + 20, sent) as slow:
        for _ in range(3):
            assert local_http.get(server.url + "/healthz", timeout=60).status_code == 200
        eventually(lambda: (left := sum(map(is_open, slow))) <= CONNECTIONS and left)
    assert local_http.get(server.url + "/healthz", timeout=60).status_code == 200
    assert "Traceback" not in server.words()


def test_a_request_being_answered_is_not_closed_to_make_room(narrow: Server, api: Api) -> None:
    """The client waits for the server here, not the server for the client."""
    _, token = create(api, "unharmed")
    with connections(narrow, 1, poll(narrow, token)) as (waiting,), connections(narrow, CONNECTIONS + 20, SLOW_HEAD):
        assert local_http.get(narrow.url + "/healthz", timeout=60).status_code == 200
        assert is_open(waiting)


def poll(server: Server, token: str) -> bytes:
    """Request the events after the present end of an LMR's feed."""
    cursor = server.api(token).get("/lmrs/self/feed").json()["cursor"]
    line = f"GET /api/v1/lmrs/self/feed?after={cursor}&wait=60 HTTP/1.1"
    return f"{line}\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


def status_of(connection: socket.socket) -> tuple[bytes, bytes]:
    connection.settimeout(60)
    answer = connection.recv(65536)
    return answer[9:12], answer


def test_long_polls_per_lmr_are_limited_and_a_new_one_ends_an_old_one(narrow: Server, api: Api) -> None:
    _, token = create(api, "eager")
    with connections(narrow, MAX_POLLS_PER_LMR, poll(narrow, token)) as polls:
        assert narrow.api(token).get("/schema").status_code == 200
        assert all(map(is_open, polls))
        with connections(narrow, 3, poll(narrow, token)) as newer:
            eventually(lambda: sum(map(is_open, polls)) == MAX_POLLS_PER_LMR - 3)
            assert all(map(is_open, newer))
            answered = [connection for connection in polls if not is_open(connection)]
            assert [status_of(connection)[0] for connection in answered] == [b"200"] * 3


def test_very_many_requests_for_one_feed_are_refused_before_any_query(server: Server, api: Api) -> None:
    _, token = create(api, "very eager")
    polls = 100
    with connections(server, polls, poll(server, token)) as asked:
        eventually(lambda: sum(map(is_open, asked)) == MAX_POLLS_PER_LMR)
        answers = [status_of(connection) for connection in asked if not is_open(connection)]
        assert {status for status, _ in answers} <= {b"200", b"429"} and len(answers) == polls - MAX_POLLS_PER_LMR
        assert all(b"\r\nRetry-After: " in answer for status, answer in answers if status == b"429")
        assert server.api(token).get("/schema").status_code == 200


def test_waiting_requests_leave_connections_for_others(fresh: Server, api: Api, doc: str) -> None:
    tokens = [create(api, f"crowd {number}")[1] for number in range(3)]
    with ExitStack() as stack:
        polls = [
            connection
            for token in tokens
            for connection in stack.enter_context(connections(fresh, 10, poll(fresh, token)))
        ]
        eventually(lambda: sum(map(is_open, polls)) == CONNECTIONS // 2)
        for connection in polls:
            if not is_open(connection):
                status, answer = status_of(connection)
                assert status == b"429" and b"\r\nRetry-After: " in answer and PROBLEM.encode() in answer, answer
        own = fresh.api(ADMIN)
        assert own.get("/documents").status_code == 200
        stream = own.get("/lmrs/crowd 0/feed", headers={"Accept": "text/event-stream"})
        assert stream.status_code == 429 and stream.headers["Retry-After"]
        put = own.put(doc, provider(), wait=10)
        assert put.status_code == 202, "a change is queued, without waiting"
    assert api.job(put.json()["job"])["state"] == "done"


def test_bodies_of_anonymous_clients_are_received_only_up_to_the_size_of_a_form(lmr: Server) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    put = {"Content-Type": "text/turtle", "Authorization": "Bearer wrong"}
    large = b"a" * 300_000
    for content in (large, iter([large])):
        assert local_http.post(lmr.url + "/sign-in", content=content, headers=form).status_code == 413
    for content in (large, iter([large])):
        answer = local_http.put(lmr.url + "/api/v1/local/documents?uri=http://a/", content=content, headers=put)
        assert answer.status_code == 401
    known = put | {"Authorization": f"Bearer {TOKEN}"}
    for content in (large, iter([large])):
        answer = local_http.put(lmr.url + "/api/v1/local/documents?uri=http://a/", content=content, headers=known)
        assert answer.status_code == 503 and "first snapshot" in answer.json()["detail"], "its body was received"


def test_expect_100_continue_is_answered(lmr: Server) -> None:
    head = SLOW_BODY.replace(b"\r\n\r\nsecret=", b"\r\nExpect: 100-continue\r\n\r\n")
    with connections(lmr, 1, head) as (connection,):
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"secret=" + b"x" * 993)
        assert status_of(connection)[0] == b"401"


@pytest.mark.parametrize("place", ["lmr", "narrow"])
@pytest.mark.parametrize("header", ["SCRIPT_NAME: /x", "PATH_INFO: /x", "SCRIPT-NAME: /x", "REMOTE_ADDR: 1.2.3.4"])
def test_headers_named_like_server_variables_are_ignored(
    place: str, header: str, request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(place)
    sent = f"GET /healthz HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n".encode()
    with connections(server, 1, sent) as (connection,):
        assert status_of(connection)[0] == b"200"
