"""Client: the calls of an MDP, or of an LMR, over HTTP, for commands and programs.

    with Client(find_system(None)) as mdp:
        mdp.register("http://example.org/doc.rdf", text, "application/rdf+xml")
        for document in mdp.items("/documents"):
            print(document["uri"])

A problem that the MDP answers is raised as the error that it was made from. What passes by itself (429, 503, a web
server that is being started again) is tried again for a while; every change of a document carries an Idempotency-Key,
so that trying again never does a thing twice. Other changes, which have no key, are sent once. No request goes to any
other host.
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

import httpx

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
from mdv.system import System

BASE = "/api/v1"
JSON = "application/json"
LARGEST_PAGE = 1000
MOST_TRIES = 6
LONGEST_PAUSE = 10.0
WAIT_SECONDS = 60
"""How long one call may hold for a change; after that the client looks for its end itself."""
MOST_JOB_SECONDS = 600.0

Item = dict[str, Any]

_TRANSIENT = (429, 503)
_BEFORE_ALL = (429,)
"""Answered before anything is done."""
_BY_STATUS: dict[int, type[MdvError]] = {
    kind.status: kind for kind in (BadRequest, Unauthenticated, Forbidden, NotFound, TooLarge, Unavailable)
}
_FLAW_FIELDS = {field.name for field in fields(Flaw)}


class Client:
    """The calls of one MDP. May be used by several threads at once."""

    def __init__(
        self,
        system: System,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._system = system
        self._sleep = sleep
        self._met = False
        headers = {"User-Agent": f"mdv/{mdv.__version__}", "Accept": JSON}
        if system.token:
            if not (system.token.isascii() and system.token.isprintable()):
                raise Unauthenticated(f"The token of {system.known_by or system.url} holds characters no token has.")
            headers["Authorization"] = f"Bearer {system.token}"
        try:
            self._http = httpx.Client(
                base_url=system.url,
                headers=headers,
                timeout=httpx.Timeout(WAIT_SECONDS + 15, connect=5, pool=None),
                limits=httpx.Limits(max_connections=64, max_keepalive_connections=16),
                follow_redirects=False,
                trust_env=not is_loopback(system.url),
                transport=transport,
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise BadRequest(f"{system.url!r} is not an address: {error}.") from None

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
        """Register a document, and answer when that is done."""
        headers = {"Content-Type": media_type}
        return self._change("PUT", uri, body, headers, dry_run=dry_run, if_match=if_match)

    def delete(self, uri: str, *, dry_run: bool = False, if_match: str | None = None) -> Item:
        """Delete a document, and answer when that is done."""
        return self._change("DELETE", uri, None, {}, dry_run=dry_run, if_match=if_match)

    def put_schema(self, body: bytes, media_type: str, *, dry_run: bool = False) -> Item:
        """Replace the schema, and answer when that is done."""
        params = {"dry_run": "true"} if dry_run else {}
        headers = {"Content-Type": media_type}
        response = self.request("PUT", "/schema", params=params, content=body, headers=headers)
        if response.status_code == httpx.codes.ACCEPTED:
            return self.wait_for_job(self._json(response)["job"])
        return self._json(response)

    def get(self, path: str, **params: Any) -> Item:
        """A JSON answer."""
        return self._json(self.request("GET", path, params=params))

    def explain(self, rule: str, *, sql: bool = False) -> Item:
        """What a rule means, and how it is taken apart."""
        return self.post("/rules/explain", {"rule": rule, "sql": sql})

    def post(self, path: str, body: Item) -> Item:
        """A JSON answer to a JSON question; nothing is changed by it."""
        content = json.dumps(body).encode()
        return self._json(self.request("POST", path, content=content, headers={"Content-Type": JSON}))

    def change(
        self, method: str, path: str, body: Item | list[Item] | None = None, seconds: float | None = None
    ) -> Item:
        """A change that carries no key: whether it was made is not known when its answer is lost, so it is sent once.
        `seconds`: how long its answer may take."""
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": JSON}
        response = self.request(method, path, content=content, headers=headers, once=True, seconds=seconds)
        if response.status_code == httpx.codes.ACCEPTED:
            return _as_answered(self.wait_for_job(self._json(response)["job"]))
        return {} if response.status_code == httpx.codes.NO_CONTENT else self._json(response)

    def rdf(self, path: str, media_type: str, **params: Any) -> bytes:
        """An answer as RDF, in the syntax asked for."""
        return self.request("GET", path, params=params, headers={"Accept": media_type}).content

    def items(self, path: str, page: int = LARGEST_PAGE, **params: Any) -> Iterator[Item]:
        """The items of a list, page after page as they are asked for."""
        after: str | None = None
        while True:
            answer = self.get(path, limit=min(page, LARGEST_PAGE), after=after, **params)
            yield from answer["items"]
            after = answer.get("next")
            if after is None:
                return

    def is_ready(self) -> bool:
        """Whether the server can serve."""
        return self._answers("/readyz")

    def is_alive(self) -> bool:
        """Whether the server answers, whatever it can do."""
        return self._answers("/healthz")

    def _answers(self, path: str) -> bool:
        try:
            return self._http.get(path, timeout=2).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def wait_for_job(self, job: str, seconds: float = MOST_JOB_SECONDS) -> Item:
        """What a job did, once it has ended; its problem is raised."""
        deadline = time.monotonic() + seconds
        pause = 0.1
        while True:
            try:
                status = self.get(f"/jobs/{job}")
            except Unavailable:  # the change is accepted; a part of the system is away just now
                status = {"state": "not known"}
            if status["state"] == "done":
                return dict(status["result"] or {})
            if status["state"] == "failed":
                raise error_of(status["problem"] or {}, 500)
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"The change was accepted, and is {status['state']} so far; `mdv job {job}` tells when it is done."
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
        return self.wait_for_job(answer["job"]) if response.status_code == httpx.codes.ACCEPTED else answer

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
    ) -> httpx.Response:
        """One call under /api/v1, tried again where that can help; a problem is raised as an error. With `once`, it is
        tried again only where nothing of it can have been done."""
        asked = {name: value for name, value in (params or {}).items() if value is not None}
        timeout = self._http.timeout if seconds is None else httpx.Timeout(seconds, connect=5, pool=None)
        transient = _BEFORE_ALL if once else _TRANSIENT
        tries = 0
        while True:
            tries += 1
            try:
                response = self._http.request(
                    method, BASE + path, params=asked, content=content, headers=headers, timeout=timeout
                )
            except httpx.TransportError as error:
                sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.UnsupportedProtocol)
                if once and sent:
                    raise self._unanswered(error) from error
                # A system that has never answered is not running; one that has may be starting again.
                if not self._met or tries == MOST_TRIES or isinstance(error, httpx.ReadTimeout):
                    raise self._unreachable(error) from error
                self._sleep(min(0.25 * 2**tries, LONGEST_PAUSE))
                continue
            self._met = True
            if response.status_code in transient and tries < MOST_TRIES:
                self._sleep(min(retry_after(response.headers.get("Retry-After"), tries), LONGEST_PAUSE))
                continue
            if not response.is_success:
                raise self._problem(response)
            return response

    def _unreachable(self, error: httpx.TransportError) -> MdvError:
        if isinstance(error, httpx.UnsupportedProtocol):
            return BadRequest(f"{self._system.url!r} is not an address: it takes one such as http://127.0.0.1:8080.")
        if isinstance(error, httpx.ReadTimeout):
            return Unavailable(f"{self._system.url} did not answer in time.")
        if isinstance(error, httpx.ConnectError) and is_loopback(self._system.url):
            return self._system.not_running
        return Unavailable(f"{self._system.url} cannot be reached: {error or type(error).__name__}.")

    def _unanswered(self, error: httpx.TransportError) -> MdvError:
        late = isinstance(error, httpx.TimeoutException)
        how = "did not answer in time" if late else f"was cut off ({error or type(error).__name__})"
        return Unavailable(f"{self._system.url} {how}: see whether the change was made before making it again.")

    def _problem(self, response: httpx.Response) -> MdvError:
        try:
            problem = response.json()
        except ValueError:
            problem = None
        if not isinstance(problem, dict) or "title" not in problem:
            kind = _BY_STATUS.get(response.status_code, MdvError)
            return kind(f"{self._system.url} answered {response.status_code} and not as an MDV does.")
        return error_of(problem, response.status_code)

    def _json(self, response: httpx.Response) -> Item:
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise MdvError(f"{self._system.url} did not answer as an MDV does: is that its address?")
        return answer


def _as_answered(result: Item) -> Item:
    """What a job about subscriptions did, as the call would have answered had it been done in time.

    >>> _as_answered({"ids": [7], "position": 3})
    {'ids': [7], 'position': 3, 'id': 7, 'items': [{'id': 7, 'position': 3}]}
    """
    if "ids" not in result:
        return result
    items = [{"id": number, "position": result["position"]} for number in result["ids"]]
    return {**result, "id": items[0]["id"], "items": items}


def error_of(problem: dict[str, Any], status: int) -> MdvError:
    """The error that a problem says, also one from a newer MDP.

    >>> error_of({"type": "about:blank", "title": "Not Found", "detail": "No such call."}, 404)
    NotFound('No such call.')
    """
    flaws = [
        {name: value for name, value in flaw.items() if name in _FLAW_FIELDS} for flaw in problem.get("errors", [])
    ]
    error = MdvError.from_problem(problem | {"errors": [flaw for flaw in flaws if "message" in flaw]})
    if type(error) is MdvError and status in _BY_STATUS:
        return _BY_STATUS[status](error.detail, error.flaws)
    return error


def retry_after(header: str | None, tries: int) -> float:
    """The seconds that `Retry-After` asks for, as a number or a date; without one, longer from try to try.

    >>> retry_after("3", 1), retry_after(None, 2), retry_after("²", 2)
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
    return 0.25 * float(2**tries)


def is_loopback(url: str) -> bool:
    """Whether `url` is on this machine, where no proxy stands between.

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
