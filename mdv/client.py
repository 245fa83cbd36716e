"""HTTP client of an MDP or an LMR, for commands and programs.

    with Client(find_system(None)) as mdp:
        mdp.register("http://example.org/doc.rdf", text, "application/rdf+xml")
        for document in mdp.items("/documents"):
            print(document["uri"])

A problem in a response is raised as the error that it was made from. Transient failures (429, 503, a web server that
is restarting) are retried with back-off. Every change of a document carries an Idempotency-Key, so that a retry does
not apply it twice. Other changes have no key and are sent once; by PUT or DELETE, again if the server closed an idle
connection (`mdv.http_client`). Redirects to other hosts are not followed.
"""

from __future__ import annotations

import ipaddress
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx2

import mdv
from mdv.errors import (
    BadRequest,
    Flaw,
    Forbidden,
    MdvError,
    NotFound,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from mdv.http_client import REPEATABLE, HttpClient
from mdv.system import System

API_BASE = "/api/v1"
JSON = "application/json"
RDFTL = "text/x-rdftl"
NDJSON = "application/x-ndjson"
MAX_PAGE_SIZE = 1000
MAX_ATTEMPTS = 6
MAX_RETRY_SECONDS = 10.0
WAIT_SECONDS = 60
"""How long the server may wait for a change to finish. After that the client polls the job."""
JOB_TIMEOUT_SECONDS = 600.0

Item = dict[str, Any]

_TRANSIENT = (429, 503)
_REJECTED_UNPROCESSED = (429,)
"""Statuses that are sent before anything is changed."""
_BY_STATUS: dict[int, type[MdvError]] = {
    kind.status: kind for kind in (BadRequest, Unauthenticated, Forbidden, NotFound, TooLarge, Unavailable)
}
_FLAW_FIELDS = {field.name for field in fields(Flaw)}


class Client:
    """Client of one MDP or LMR. Thread-safe."""

    def __init__(
        self,
        system: System,
        *,
        transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._system = system
        self._sleep = sleep
        self._has_answered = False
        headers = {"User-Agent": f"mdv/{mdv.__version__}", "Accept": JSON}
        if system.token:
            if not (system.token.isascii() and system.token.isprintable()):
                raise Unauthenticated(f"The token of {system.source or system.url} contains invalid characters.")
            headers["Authorization"] = f"Bearer {system.token}"
        try:
            self._http = HttpClient(
                base_url=system.url,
                headers=headers,
                timeout=httpx2.Timeout(WAIT_SECONDS + 15, connect=5, pool=None),
                follow_redirects=False,
                trust_env=not is_loopback(system.url),
                transport=transport,
            )
        except (httpx2.InvalidURL, ValueError) as error:
            raise BadRequest(f"{system.url!r} is not a valid URL: {error}.") from None

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Calls

    def register(
        self, uri: str, body: bytes, media_type: str, *, dry_run: bool = False, if_match: str | None = None
    ) -> Item:
        """Register a document. Return the result when the job is done."""
        headers = {"Content-Type": media_type}
        return self._change("PUT", uri, body, headers, dry_run=dry_run, if_match=if_match)

    def edit(
        self, uri: str, add: list[Any], remove: list[Any], *, dry_run: bool = False, if_match: str | None = None
    ) -> Item:
        """Add and remove statements of a document, each as [subject, property, term]. Return the result when the job is
        done."""
        body = json.dumps({"add": add, "remove": remove}).encode()
        return self._change("PATCH", uri, body, {"Content-Type": JSON}, dry_run=dry_run, if_match=if_match)

    def delete(self, uri: str, *, dry_run: bool = False, if_match: str | None = None) -> Item:
        """Delete a document. Return the result when the job is done."""
        return self._change("DELETE", uri, None, {}, dry_run=dry_run, if_match=if_match)

    def update(self, text: str, *, graph: str | None = None, dry_run: bool = False) -> Item:
        """Execute an update. Return the result when the job is done."""
        headers = {
            "Content-Type": RDFTL, "Prefer": f"wait={WAIT_SECONDS}", "Idempotency-Key": str(uuid.uuid4()),
        }  # fmt: skip
        params = {"graph": graph, "dry_run": "true" if dry_run else None}
        response = self.request("POST", "/update", params=params, content=text.encode(), headers=headers)
        answer = self._json(response)
        return self.wait_for_job(answer["job"]) if response.status_code == httpx2.codes.ACCEPTED else answer

    def put_schema(self, body: bytes, media_type: str, *, dry_run: bool = False, force: bool = False) -> Item:
        """Replace the schema. Return the result when the job is done. `force`: also if a member of the backbone is
        away."""
        params = {name: "true" for name, value in (("dry_run", dry_run), ("force", force)) if value}
        headers = {"Content-Type": media_type}
        response = self.request("PUT", "/schema", params=params, content=body, headers=headers)
        if response.status_code == httpx2.codes.ACCEPTED:
            return self.wait_for_job(self._json(response)["job"])
        return self._json(response)

    def get(self, path: str, **params: Any) -> Item:
        """Return the JSON response to a GET request."""
        return self._json(self.request("GET", path, params=params))

    def explain(self, rule: str, *, sql: bool = False) -> Item:
        """Return the explanation of a rule: its normal form and its decomposition."""
        return self.post("/rules/explain", {"rule": rule, "sql": sql})

    def post(self, path: str, body: Item) -> Item:
        """Return the JSON response to a POST request that changes nothing."""
        content = json.dumps(body).encode()
        return self._json(self.request("POST", path, content=content, headers={"Content-Type": JSON}))

    def change(
        self, method: str, path: str, body: Item | list[Item] | None = None, seconds: float | None = None
    ) -> Item:
        """Send a change without an idempotency key. It is sent once, because a lost response leaves it unknown whether
        the change was made. `seconds` is the response timeout."""
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": JSON}
        response = self.request(method, path, content=content, headers=headers, once=True, seconds=seconds)
        if response.status_code == httpx2.codes.ACCEPTED:
            return _as_answered(self.wait_for_job(self._json(response)["job"]))
        return {} if response.status_code == httpx2.codes.NO_CONTENT else self._json(response)

    def events(self, path: str, body: Item) -> Iterator[Item]:
        """Yield the JSON lines of an answer as they arrive. To close the iterator closes the connection."""
        headers = {"Content-Type": JSON, "Accept": NDJSON}
        content = json.dumps(body).encode()
        try:
            with self._http.stream("POST", API_BASE + path, content=content, headers=headers) as response:
                if not response.is_success:
                    response.read()
                    raise self._problem(response)
                for line in response.iter_lines():
                    yield json.loads(line)
        except httpx2.ConnectError as error:
            raise self._unreachable(error) from error
        except (httpx2.TransportError, ValueError) as error:
            raise Unavailable(
                f"The answer of {self._system.url} broke off: {error or type(error).__name__}."
            ) from error

    def rdf(self, path: str, media_type: str, **params: Any) -> bytes:
        """Return a response as RDF in the given syntax."""
        return self.request("GET", path, params=params, headers={"Accept": media_type}).content

    def items(self, path: str, page: int = MAX_PAGE_SIZE, **params: Any) -> Iterator[Item]:
        """Yield the items of a list. Pages are fetched as needed."""
        for answer in self.pages(path, page, **params):
            yield from answer["items"]

    def pages(self, path: str, page: int = MAX_PAGE_SIZE, **params: Any) -> Iterator[Item]:
        """Yield the pages of a list."""
        after: str | None = None
        while True:
            answer = self.get(path, limit=min(page, MAX_PAGE_SIZE), after=after, **params)
            yield answer
            after = answer.get("next")
            if after is None:
                return

    def is_ready(self) -> bool:
        """True if the server is ready to serve requests."""
        return self._answers("/readyz")

    def is_alive(self) -> bool:
        """True if the server answers at all."""
        return self._answers("/healthz")

    def _answers(self, path: str) -> bool:
        try:
            return self._http.get(path, timeout=2).status_code == httpx2.codes.OK
        except httpx2.HTTPError:
            return False

    def wait_for_job(self, job: str, seconds: float = JOB_TIMEOUT_SECONDS) -> Item:
        """Wait for a job and return its result. The problem of a failed job is raised."""
        deadline = time.monotonic() + seconds
        pause = 0.1
        while True:
            try:
                status = self.get(f"/jobs/{job}")
            except Unavailable:  # the change is accepted; a part of the system is unreachable at the moment
                status = {"state": "unknown"}
            if status["state"] == "done":
                return dict(status["result"] or {})
            if status["state"] == "failed":
                raise error_from_problem(status["problem"] or {}, 500)
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"The change was accepted but is not done: its job is {status['state']}. `mdv job {job}` shows it."
                )
            self._sleep(pause)
            pause = min(2 * pause, 2.0)

    def _change(
        self,
        method: str,
        uri: str,
        body: bytes | None,
        headers: dict[str, str],
        *,
        dry_run: bool,
        if_match: str | None,
    ) -> Item:
        headers |= {"Prefer": f"wait={WAIT_SECONDS}", "Idempotency-Key": str(uuid.uuid4())}
        if if_match is not None:
            headers["If-Match"] = if_match if if_match == "*" or if_match.startswith('"') else f'"{if_match}"'
        params = {"uri": uri, "dry_run": "true" if dry_run else None}
        response = self.request(method, "/documents", params=params, content=body, headers=headers)
        answer = self._json(response)
        return self.wait_for_job(answer["job"]) if response.status_code == httpx2.codes.ACCEPTED else answer

    # One request

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        once: bool = False,
        seconds: float | None = None,
    ) -> httpx2.Response:
        """Send a request under /api/v1 and return the response. Transient failures are retried; a problem is raised as
        an error. With `once`, it is retried only if the server cannot have processed it."""
        query = {name: value for name, value in (params or {}).items() if value is not None}
        timeout = self._http.timeout if seconds is None else httpx2.Timeout(seconds, connect=5, pool=None)
        transient = _REJECTED_UNPROCESSED if once else _TRANSIENT
        attempts = 0
        while True:
            attempts += 1
            try:
                response = self._http.request(
                    method, API_BASE + path, params=query, content=content, headers=headers, timeout=timeout,
                    extensions={REPEATABLE: not once},
                )  # fmt: skip
            except httpx2.TransportError as error:
                sent = not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.UnsupportedProtocol)
                if once and sent:
                    raise self._unanswered(error) from error
                # A server that has never answered is not running; one that has answered may be restarting.
                if not self._has_answered or attempts == MAX_ATTEMPTS or isinstance(error, httpx2.ReadTimeout):
                    raise self._unreachable(error) from error
                self._sleep(min(0.25 * 2**attempts, MAX_RETRY_SECONDS))
                continue
            self._has_answered = True
            if response.status_code in transient and attempts < MAX_ATTEMPTS:
                self._sleep(min(retry_delay(response.headers.get("Retry-After"), attempts), MAX_RETRY_SECONDS))
                continue
            if not response.is_success:
                raise self._problem(response)
            return response

    def _unreachable(self, error: httpx2.TransportError) -> MdvError:
        if isinstance(error, httpx2.UnsupportedProtocol):
            return BadRequest(f"{self._system.url!r} is not a valid URL: use one such as http://127.0.0.1:8080.")
        if isinstance(error, httpx2.ReadTimeout):
            return Unavailable(f"The request to {self._system.url} timed out.")
        if isinstance(error, httpx2.ConnectError) and is_loopback(self._system.url):
            return self._system.not_running_error
        return Unavailable(f"{self._system.url} cannot be reached: {error or type(error).__name__}.")

    def _unanswered(self, error: httpx2.TransportError) -> MdvError:
        timed_out = isinstance(error, httpx2.TimeoutException)
        reason = "timed out" if timed_out else f"failed ({error or type(error).__name__})"
        return Unavailable(
            f"The request to {self._system.url} {reason}: check whether the change was made before you repeat it."
        )

    def _problem(self, response: httpx2.Response) -> MdvError:
        try:
            problem = response.json()
        except ValueError:
            problem = None
        if not isinstance(problem, dict) or "title" not in problem:
            kind = _BY_STATUS.get(response.status_code, MdvError)
            return kind(
                f"{self._system.url} answered {response.status_code} with a response that is not MDV's: check the URL."
            )
        return error_from_problem(problem, response.status_code)

    def _json(self, response: httpx2.Response) -> Item:
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise MdvError(f"The response of {self._system.url} is not MDV's: check the URL.")
        return answer


def _as_answered(result: Item) -> Item:
    """Return the result of a job in the form of the direct response to the change.

    >>> _as_answered({"ids": [7], "position": 3})
    {'ids': [7], 'position': 3, 'id': 7, 'items': [{'id': 7, 'position': 3}]}
    """
    if "ids" not in result:
        return result
    items = [{"id": number, "position": result["position"]} for number in result["ids"]]
    return {**result, "id": items[0]["id"], "items": items}


def error_from_problem(problem: dict[str, Any], status: int) -> MdvError:
    """Return the error for a problem, also for one of a newer MDP with unknown fields or types.

    >>> error_from_problem({"type": "about:blank", "title": "Not Found", "detail": "No such call."}, 404)
    NotFound('No such call.')
    """
    flaws = [
        {name: value for name, value in flaw.items() if name in _FLAW_FIELDS} for flaw in problem.get("errors", [])
    ]
    error = MdvError.from_problem(problem | {"errors": [flaw for flaw in flaws if "message" in flaw]})
    if type(error) is MdvError and status in _BY_STATUS:
        return _BY_STATUS[status](error.detail, error.flaws)
    return error


def retry_delay(header: str | None, attempts: int) -> float:
    """Return the seconds in `Retry-After`, given as a number or a date; without it, exponential back-off.

    >>> retry_delay("3", 1), retry_delay(None, 2), retry_delay("²", 2)
    (3.0, 1.0, 1.0)
    """
    if header is not None:
        if header.isascii() and header.strip().isdecimal():
            return float(header)
        try:
            moment = parsedate_to_datetime(header)
            return max(0.0, (moment - datetime.now(UTC)).total_seconds())
        except (ValueError, TypeError):
            pass
    return 0.25 * float(2**attempts)


def is_loopback(url: str) -> bool:
    """True if `url` is on this machine, so that no HTTP proxy is used.

    >>> is_loopback("http://127.0.0.1:8080"), is_loopback("http://[::1]:1"), is_loopback("http://mdp.example")
    (True, True, False)
    """
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
