"""Services: Figure 1 of the paper against a real HTTP server, what answers may add, guards, limits and kills."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

import pytest
from standardwebhooks import Webhook

from mdv.config import Config
from mdv.failpoints import ANSWERED_CALL, CLAIMED_CALL, PROGRAM_FAILPOINTS
from mdv.mdp.real.quotas import ProcessQuotas
from mdv.mdp.real.service_sender import ServiceSender
from mdv.model import LRM
from mdv.webhooks.send import send
from mdv.webhooks.sign import make_secret
from tests.support.mdp import Mdp
from tests.support.real_processes import DOCUMENT, OPEN, Programs, action
from tests.support.real_texts import FIGURE_1
from tests.support.webhook_receiver import Received, Receiver, receiving

SECRET = make_secret()
CERTIFY = "CALL :certify(:thing, :version, :me >> ?certificate)"
ASK = f"+<{LRM}requestedService>(<http://r/cr>, :service) AND CALL primitive:service(<http://r/cr>)"


class Authority:
    """A certification service. It gives one certificate for each Idempotency-Key."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.certificates: dict[str, str] = {}

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        received = self.receiver.got[-1]
        key = received.headers["idempotency-key"]
        self.certificates.setdefault(key, f"http://ca/certificate/{len(self.certificates) + 1}")
        (request,) = set(re.findall(r"<([^>]*)> a [^;.]*CertificationRequest", received.body.decode()))
        reply(f"<{request}> <{LRM}certificate> <{self.certificates[key]}> .")(handler)


def reply(text: str, media_type: str = "text/turtle", status: int = 200) -> Callable[[BaseHTTPRequestHandler], None]:
    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", media_type)
        handler.send_header("Content-Length", str(len(text.encode())))
        handler.end_headers()
        handler.wfile.write(text.encode())

    return write


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


class Services(Programs):
    """Processes that call services, and what sends their requests."""

    def __init__(self, mdp: Mdp, receiver: Receiver, **quotas: object) -> None:
        allowed = {"services": (f"http://127.0.0.1:{receiver.port}/",)} | quotas
        super().__init__(mdp, ProcessQuotas(**allowed))  # type: ignore[arg-type]
        self.receiver = receiver
        self.sender = ServiceSender(mdp.engine, SECRET, private=True)
        self.describe(receiver.url)

    def describe(self, endpoint: str) -> None:
        """Describe the service, and the action of Figure 1."""
        turtle = (
            "@prefix lrm: <http://xrce.xerox.com/LRM#> . @prefix real: <http://xrce.xerox.com/ReAL#> .\n"
            f':service a lrm:CertificationService ; real:endpoint "{endpoint}" .\n'
        )
        (found,) = self.mdp.put(
            {"http://d/service": turtle + action("certify", FIGURE_1, "rsc, kind, agent", "certif")}
        )
        assert not isinstance(found, Exception), found

    def finish(self, code: str, **options: object) -> tuple[str, str]:
        """Run a program to its end, with the requests that it sends. Return its IRI and its state."""
        iri = self.start(code, **options)  # type: ignore[arg-type]
        for _ in range(20):
            self.run()
            if not self.sender.work():
                break
        return iri, self.state(iri)

    def execute(self, sql: str) -> None:
        with self.mdp.engine.begin() as connection:
            connection.exec_driver_sql(sql)

    def errors(self) -> list[str]:
        return [one.partition(" ")[2] for one in sorted(self.shown(LRM + "error"))]


@pytest.fixture
def services(mdp: Mdp, receiver: Receiver) -> Services:
    mdp.put_schema(OPEN)
    return Services(mdp, receiver)


def test_figure_1_when_the_service_accepts(services: Services) -> None:
    services.receiver.answers.append(Authority(services.receiver))

    iri, state = services.finish(CERTIFY)

    assert state == "done"
    assert services.bindings(services.news(iri)) == [{"certificate": "http://ca/certificate/1"}]
    (received,) = services.receiver.got
    check_request(received, services)
    ((call_state, attempts, answer),) = services.mdp.rows("select state, attempts, answer from real_calls")
    assert (call_state, attempts, answer) == ("answered", 1, None), "the answer was taken"
    ((cause, agent),) = services.mdp.rows(
        "select distinct cause, agent from document_versions v join documents d on d.id = v.document_id"
        " where d.uri = :d",
        d=DOCUMENT,
    )
    assert (cause, agent) == ("program", iri)


def check_request(received: Received, services: Services) -> None:
    """A request is the Turtle of ?cr, signed as a webhook message is, with the ID of the call as its key."""
    ((number,),) = services.mdp.rows("select id from real_calls")
    assert received.headers["idempotency-key"] == received.headers["webhook-id"] == str(number)
    assert received.headers["content-type"].startswith("text/turtle") and "text/turtle" in received.headers["accept"]
    text = received.body.decode()
    assert "lrm:CertificationRequest" in text and "<http://v/thing>" in text.replace(":thing", "<http://v/thing>")
    assert "endpoint" not in text, "only what is about the request is sent"
    try:
        Webhook(SECRET).verify(received.body, received.headers)
    except ValueError as error:  # the library also parses the body as JSON, after it has checked the signature
        assert "signature" not in str(error).lower()


def test_figure_1_when_the_service_refuses(services: Services) -> None:
    services.receiver.answers.append(reply("No certificates today.", "text/plain", 403))

    iri, state = services.finish(CERTIFY)

    assert state == "done" and services.bindings(services.news(iri)) == []
    assert services.errors() == ["It answered 403: No certificates today."]
    assert len(services.receiver.got) == 1


def test_a_request_that_fails_for_a_moment_is_sent_again_with_the_same_key(services: Services) -> None:
    services.receiver.answers += [503, reply("", status=429), Authority(services.receiver)]

    iri = services.start(CERTIFY)
    for _ in range(3):
        services.run()
        assert services.state(iri) == "calling"
        services.execute("update real_calls set not_before = now()")
        services.sender.work()
    services.run()

    assert services.bindings(services.news(iri)) == [{"certificate": "http://ca/certificate/1"}]
    assert len({one.headers["idempotency-key"] for one in services.receiver.got}) == 1
    assert len(services.receiver.got) == 3


def test_a_service_that_stays_away_is_an_error_in_the_end(services: Services) -> None:
    services.receiver.answers += [500] * 9
    iri = services.start(CERTIFY)
    for _ in range(5):
        services.run()
        services.execute("update real_calls set not_before = now()")
        assert services.sender.work() == 1
    services.run()

    assert services.state(iri) == "done" and services.errors() == ["It answered 500."]


def test_only_statements_about_the_request_and_blank_nodes_are_added(services: Services) -> None:
    services.receiver.answers.append(
        reply(
            "@prefix : <http://v/> .\n"
            "<> :status 'fine' ; :detail [ :text 'deep' ] . <#part> :text 'part' .\n"
            "<http://r/crx> :status 'foreign' . <http://r/thing> :status 'foreign' . :service :status 'foreign' ."
        )
    )

    _, state = services.finish(ASK)

    assert state == "done" and services.errors() == []
    assert services.shown("status") == {"http://r/cr fine"}
    assert {one.partition(" ")[2] for one in services.shown("text")} == {"deep", "part"}
    ((document,),) = services.mdp.rows(
        "select distinct d.uri from filter_data f join documents d on d.id = f.document_id"
        " join vocabulary v on v.id = f.property_id where v.uri = 'http://v/text'"
    )
    assert document == DOCUMENT


def test_an_answer_goes_to_the_context_that_the_program_was_in(services: Services) -> None:
    services.mdp.put({"http://d/other": "<http://r/x> :status 'old' ."})
    services.receiver.answers.append(reply("<> <http://v/status> 'new' ."))

    services.finish(
        f"IN <http://d/other> {{ {ASK} AND :status(<http://r/cr>, 'new') AND +:status(<http://r/x>, 'seen') }}"
    )

    assert services.errors() == []
    assert services.shown("status") == {"http://r/cr new", "http://r/x old", "http://r/x seen"}
    rows = services.mdp.rows(
        "select d.uri from filter_data f join documents d on d.id = f.document_id where f.value = 'new'"
    )
    assert rows == [("http://d/other",)]


BAD_ANSWERS = {
    "not RDF": (reply("<html>", "text/html"), "the answer is not valid"),
    "truncated": (reply("<> <http://v/p> 'x"), "the answer is not valid"),
    "empty": (reply(""), "the answer is not valid"),
    "an entity": (reply("<!DOCTYPE x [<!ENTITY a 'b'>]><x/>", "application/rdf+xml"), "the answer is not valid"),
    "a reserved name": (reply("<#_:x> <http://v/p> 'x' ."), "reserved"),
    "a redirect": (reply("", status=302), "redirects are not followed"),
    "too large": (reply("<> <http://v/p> '" + "x" * 2**20 + "' ."), "more than 1,048,576 bytes"),
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_an_answer_that_cannot_be_used_is_an_error_of_the_request(services: Services, name: str) -> None:
    answer, reason = BAD_ANSWERS[name]
    services.receiver.answers.append(answer)

    _, state = services.finish(f"{ASK} AND +:end(:x, 1)")

    assert state == "done"
    (error,) = services.errors()
    assert reason in error
    assert services.shown("end") == {"x 1"} and services.shown("p") == set()


def test_an_answer_that_the_schema_refuses_is_an_error_as_a_whole(mdp: Mdp, receiver: Receiver) -> None:
    mdp.put_schema(":status rdfs:range xsd:integer . :note rdfs:range xsd:string ; mdv:setValued true .")
    services = Services(mdp, receiver)
    receiver.answers.append(reply("<> <http://v/note> 'a' ; <http://v/status> 'high' ."))
    receiver.answers.append(reply("<> <http://v/note> 'a' ; <http://v/unknown> 'high' ."))
    receiver.answers.append(reply("<> <http://v/status> 2 ."))

    services.finish(f"+:status(<http://r/cr>, 1) AND {ASK}")
    services.finish("CALL primitive:service(<http://r/cr>)")
    services.finish("CALL primitive:service(<http://r/cr>)")

    assert len(services.errors()) == 3 and services.shown("note") == set()
    assert services.shown("status") == {"http://r/cr 1"}


def test_an_answer_does_not_change_what_is_locked(services: Services) -> None:
    services.execute("insert into write_locks (property) values ('http://v/status')")
    services.receiver.answers.append(reply("<> <http://v/status> 'x' ."))

    services.finish(ASK)

    (error,) = services.errors()
    assert error.startswith("the answer was refused: the lock ") and services.shown("status") == set()


def test_a_request_without_a_service_is_an_error_of_the_request(services: Services) -> None:
    _, state = services.finish("CALL primitive:service(<http://r/cr>) AND +:end(:x, 1)")

    assert state == "done" and services.shown("end") == {"x 1"} and services.receiver.got == []
    assert services.errors() == ["the request has no lrm:requestedService with a real:endpoint, and needs one"]


def test_a_service_is_called_only_if_the_settings_allow_it(mdp: Mdp, receiver: Receiver) -> None:
    mdp.put_schema(OPEN)
    for allowed in ((), (f"http://127.0.0.1:{receiver.port}/other",), ("http://127.0.0.1",)):
        services = Services(mdp, receiver, services=allowed)
        services.finish(ASK)
    assert services.errors() == [f"MDV_REAL_SERVICES does not allow calls of {receiver.url}"]
    assert receiver.got == []


@pytest.mark.parametrize(
    ("endpoint", "reason"),
    [
        ("http://localhost:{port}/hook", "not on the public internet"),
        ("http://169.254.169.254/latest", "not on the public internet"),
        ("http://[::ffff:10.0.0.1]/", "not on the public internet"),
        ("http://user:word@127.0.0.1:{port}/", "user or password"),
        ("ftp://127.0.0.1/x", "must begin with https:// or http://"),
        ("http://127.0.0.1:{port}/#x", "fragment"),
        ("no url", "must begin with"),
    ],
)
def test_requests_are_guarded_as_webhooks_are(mdp: Mdp, receiver: Receiver, endpoint: str, reason: str) -> None:
    mdp.put_schema(OPEN)
    url = endpoint.format(port=receiver.port)
    services = Services(mdp, receiver, services=(url,))
    services.sender = ServiceSender(mdp.engine, SECRET, private=False)
    services.describe(url)

    iri = services.start(ASK)
    for _ in range(6):
        services.run()
        services.execute("update real_calls set not_before = now()")
        services.sender.work()

    assert services.state(iri) == "done" and receiver.got == []
    (error,) = services.errors()
    assert reason in error


def test_an_answer_that_never_ends_is_cut_off(services: Services) -> None:
    over = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/turtle")
        handler.end_headers()
        while not over.wait(0.05):
            handler.wfile.write(b"# \n")

    services.receiver.answers.append(drip)
    services.sender = ServiceSender(
        services.mdp.engine, SECRET, post=lambda url, body, headers: send(
            url, body, headers, True, seconds=0.5, most_read=1000)
    )  # fmt: skip
    services.start(ASK)
    services.run()
    services.sender.work()
    over.set()

    ((state, reason),) = services.mdp.rows("select state, reason from real_calls")
    assert state == "waiting" and ("0.5 s" in reason or "1,000 bytes" in reason)


def test_requests_are_not_sent_without_a_key(services: Services) -> None:
    for secret, reason in (("", "MDV_REAL_SERVICE_SECRET is not set"), ("whsec_x", "not whsec_ and a key in base64")):
        services.sender = ServiceSender(services.mdp.engine, secret, private=True)
        services.finish(ASK if not secret else "CALL primitive:service(<http://r/cr>)")
        assert any(reason in error for error in services.errors())
    assert services.receiver.got == []


def test_a_process_calls_services_so_many_times_a_minute(mdp: Mdp, receiver: Receiver) -> None:
    mdp.put_schema(OPEN)
    services = Services(mdp, receiver, calls=2)
    receiver.answers += [reply("<> <http://v/p> 'x' .")] * 3

    iri, state = services.finish(f"{ASK} AND CALL primitive:service(<http://r/cr>) AND {ASK.partition('AND ')[2]}")

    assert state == "failed" and len(receiver.got) == 2
    problem = services.news(iri).problem
    assert problem is not None and problem["limit"] == "calls"


@pytest.mark.parametrize("code", ["[{}]", "{{{}}}"])
def test_a_service_inside_a_transaction_or_a_sandbox_is_an_error(services: Services, code: str) -> None:
    iri, state = services.finish(code.format(ASK))

    assert state == "failed" and services.receiver.got == []
    problem = services.news(iri).problem
    assert problem is not None and "cannot be called inside [ ] or { }" in problem["message"]


def test_a_process_that_is_stopped_sends_nothing_more(services: Services) -> None:
    iri = services.start(ASK)
    services.run()
    assert services.state(iri) == "calling"

    services.stop(iri)
    services.run()

    assert services.state(iri) == "stopped" and services.sender.work() == 0 and services.receiver.got == []


def test_the_settings_are_read() -> None:
    config = Config.from_environment({"MDV_REAL_SERVICES": "https://a.example/, https://b.example/x"})
    assert ProcessQuotas.configured(config).services == ("https://a.example/", "https://b.example/x")
    assert ProcessQuotas.configured(Config.from_environment({})).services == ()


WORKER = """
import sys
from mdv.db.engine import make_engine
from mdv.mdp.provider import Provider
from mdv.mdp.real.program_worker import ProgramWorker
from mdv.mdp.real.quotas import ProcessQuotas
from mdv.mdp.real.service_sender import ServiceSender
engine = make_engine(sys.argv[1])
programs = ProgramWorker(engine, Provider(engine), ProcessQuotas(services=(sys.argv[2],)))
sender = ServiceSender(engine, sys.argv[3], private=True)
while programs.run_slice() is not None or sender.work():
    pass
"""
EARLY = (CLAIMED_CALL, ANSWERED_CALL)
POINTS = [(point, times) for point in PROGRAM_FAILPOINTS for times in (1, 2)]


@pytest.mark.parametrize(
    ("point", "times"),
    [*((point, 1) for point in EARLY), *(pytest.param(*one, marks=pytest.mark.full) for one in POINTS)],
)
def test_a_worker_that_is_killed_gets_one_certificate(services: Services, point: str, times: int) -> None:
    authority = Authority(services.receiver)
    services.receiver.answers += [authority] * 3
    iri = services.start(CERTIFY)
    url = services.mdp.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    command = [sys.executable, "-c", WORKER, url, services.quotas.services[0], SECRET]

    killed = subprocess.run(command, env=os.environ | {"MDV_DIE_AT": f"{point}:{times}"}, check=False)
    assert killed.returncode in (-signal.SIGKILL, 0) and (killed.returncode or point not in EARLY)
    services.execute("update real_calls set not_before = now()")  # the lease is over
    subprocess.run(command, check=True)

    assert services.state(iri) == "done"
    assert services.bindings(services.news(iri)) == [{"certificate": "http://ca/certificate/1"}]
    assert len(authority.certificates) == 1
    assert len(services.receiver.got) == (2 if point == ANSWERED_CALL else 1)
