"""Calls of a member to a peer. Every request is signed."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlencode

import httpx2

from mdv.backbone.divergence import DocumentList
from mdv.backbone.messages import BackboneMessage, StateRequest, TransferredDocument
from mdv.backbone.replicated_set import SetKind
from mdv.client import error_from_problem, is_loopback
from mdv.errors import MdvError, Unauthenticated, Unavailable
from mdv.http_client import REPEATABLE, HttpClient
from mdv.replication.http_signatures import sign_request
from mdv.replication.wire import decode_contacts, decode_document, decode_messages, encode_messages

API = "/api/v1/backbone"
TIMEOUT_SECONDS = 60.0
STATE_TIMEOUT_SECONDS = 1800.0
"""A state has all documents that differ, in one answer."""
CONNECT_SECONDS = 5.0
MIN_CLOCK_SKEW_SECONDS = 2.0
"""Smaller differences are not measured."""
JSON = "application/json"
VERSION_HEADER = "MDV-Version"
"""In the answer to messages: the version of MDV at the peer."""


class SignedClient:
    """Sends signed requests to one MDP. `name`: of the caller. `api`: the path that all calls begin with.

    The signatures use the time of the peer's clock."""

    def __init__(self, url: str, name: str, private_key: bytes, api: str) -> None:
        self.url = url
        self._name, self._private_key, self._api = name, private_key, api
        self._clock_difference = 0
        self.clock_skew = 0.0
        """How far the clock of the peer is ahead, in seconds."""
        self.version = ""
        """The version of MDV at the peer, if it has said it."""
        self._http = HttpClient(timeout=httpx2.Timeout(TIMEOUT_SECONDS, connect=CONNECT_SECONDS, pool=None),
                                follow_redirects=False, trust_env=not is_loopback(url))  # fmt: skip

    def close(self) -> None:
        self._http.close()

    def _send(self, method: str, path: str, query: dict[str, str], body: bytes, seconds: float) -> httpx2.Response:
        try:
            return self._send_signed(method, path, query, body, seconds)
        except Unauthenticated as error:
            server_time = error.extra.get("server_time")
            if not isinstance(server_time, int):
                raise
            self._clock_difference = server_time - int(time.time())
            return self._send_signed(method, path, query, body, seconds)

    def _send_signed(
        self, method: str, path: str, query: dict[str, str], body: bytes, seconds: float
    ) -> httpx2.Response:
        url = self.url + self._api + path + (f"?{urlencode(query)}" if query else "")
        now = int(time.time()) + self._clock_difference
        headers = sign_request(self._private_key, self._name, method, url, body, now, secrets.token_urlsafe(18))
        try:
            response = self._http.request(
                method, url, content=body, headers={**headers, "Content-Type": JSON, "Accept": JSON},
                timeout=httpx2.Timeout(seconds, connect=CONNECT_SECONDS, pool=None), extensions={REPEATABLE: False},
            )  # fmt: skip
        except httpx2.HTTPError as error:
            raise Unavailable(
                f"{self.url} cannot be reached: {str(error).rstrip('.') or type(error).__name__}."
            ) from error
        if not response.is_success:
            raise problem_of(response, self.url)
        self.version = response.headers.get(VERSION_HEADER, "")[:40]
        with suppress(KeyError, ValueError):  # the header has whole seconds
            ahead = parsedate_to_datetime(response.headers["Date"]).timestamp() - time.time()
            self.clock_skew = 0.0 if abs(ahead) < MIN_CLOCK_SKEW_SECONDS else ahead
        return response


class PeerClient(SignedClient):
    """Calls one peer in a backbone."""

    def __init__(self, url: str, name: str, private_key: bytes, kind: SetKind) -> None:
        super().__init__(url, name, private_key, API)
        self._kind = kind
        self.contacts: dict[str, tuple[str, str]] = {}
        """The URLs and keys of all members, if the last answer has them."""

    def exchange(
        self, messages: Sequence[BackboneMessage], wait: float = 0, wants: Collection[str] = ()
    ) -> list[BackboneMessage]:
        """Send messages, and return the answers. `wait`: how long a poll may wait for operations of the peer, or of the
        lives in `wants`."""
        query = {"wait": f"{wait:g}"} if wait else {}
        query |= {"wants": " ".join(sorted(wants))} if wants else {}
        is_state = any(isinstance(message, StateRequest) for message in messages)
        seconds = STATE_TIMEOUT_SECONDS if is_state else TIMEOUT_SECONDS + wait
        response = self._send("POST", "/messages", query, encode_messages(messages, self._kind), seconds)
        self.contacts = decode_contacts(response.content)
        return decode_messages(response.content, self._kind)

    def sums(self, groups: Iterable[int] | None = None) -> dict[int, int]:
        """Return the sums of the groups of buckets, or those of the buckets of some groups."""
        query = {"level": "groups"} if groups is None else {"groups": _numbers(groups)}
        found = self._read("/checksum", query)["sums"]
        return {int(number): int(text, 16) for number, text in found.items()}

    def list_documents(self, buckets: Iterable[int]) -> DocumentList:
        """Return the documents of some buckets, and the peer's vector."""
        found = self._read("/checksum", {"buckets": _numbers(buckets)})
        documents = {str(one["uri"]): (int(one["version"]), int(one["content"], 16)) for one in found["documents"]}
        return DocumentList({str(life): int(seq) for life, seq in found["vector"].items()}, documents)

    def read_documents(self, buckets: Iterable[int]) -> Iterator[TransferredDocument]:
        """Yield the documents of some buckets with the states of their statements."""
        query = {"buckets": _numbers(buckets)}
        while True:
            found = self._read("/state", query)
            yield from (decode_document(one, self._kind) for one in found["documents"])
            if found["next"] is None:
                return
            query["after"] = found["next"]

    def _read(self, path: str, query: dict[str, str]) -> Any:
        try:
            return self._send("GET", path, query, b"", TIMEOUT_SECONDS).json()
        except ValueError as error:
            raise Unavailable(f"{self.url} sent an answer that is not JSON: {error}.") from error

    def leave(self) -> None:
        """Ask the lead to remove the calling member."""
        self._send("DELETE", f"/members/{self._name}", {}, b"", TIMEOUT_SECONDS)

    def try_schema(self, schema: str, holds: bool) -> MdvError | None:
        """Ask what a schema would break at the peer. Return its reasons; None if there are none. `holds`: it validates
        new documents by both schemas for a minute."""
        body = json.dumps({"schema": schema, "hold": holds}).encode()
        problem = self._send("POST", "/schema/try", {}, body, TIMEOUT_SECONDS).json()["problem"]
        return None if problem is None else MdvError.from_problem(problem)


def _numbers(numbers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


def problem_of(response: httpx2.Response, url: str) -> MdvError:
    """Return the error of an answer."""
    try:
        problem: Any = response.json()
    except ValueError:
        problem = None
    if not isinstance(problem, dict) or "title" not in problem:
        return Unavailable(f"{url} answered {response.status_code} with a response that is not MDV's.")
    return error_from_problem(problem, response.status_code)
