"""HTTP client of an LMR for its MDP. Each request is sent once; the caller retries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import httpx2
import structlog

import mdv
from mdv.client import API_BASE, JSON, error_from_problem, is_loopback
from mdv.errors import Forbidden, MdvError, MustRefetch, NotFound, Unauthenticated, Unavailable
from mdv.http_client import HttpClient

Json = dict[str, Any]

EVENTS_PER_PAGE = 5000
"""Maximum number of events in one request."""
MIN_EVENTS_PER_PAGE = 20
"""When responses are cut off, the page size is halved down to this."""
CHANGE_TIMEOUT_SECONDS = 90.0
"""Longer than an MDP waits for a change to finish."""
RESPONSE_TIMEOUT_SECONDS = 30.0
"""Timeout of a response, in addition to the requested wait."""
_KINDS: dict[int, type[MdvError]] = {
    kind.status: kind for kind in (Unauthenticated, Forbidden, NotFound, MustRefetch, Unavailable)
}


class IncompleteResponse(Unavailable):
    """The MDP was reached, but its response is missing or incomplete."""


class MdpClient:
    """Client with the token of one LMR. Thread-safe. Redirects to other hosts are not followed."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        lmr: str = "self",
        transport: httpx2.BaseTransport | None = None,
        response_seconds: float = RESPONSE_TIMEOUT_SECONDS,
    ) -> None:
        self.url = url
        self._response_seconds = response_seconds
        self.received_bytes = 0
        """The bodies of all responses, decompressed."""
        self._lmr, self._path = lmr, f"{API_BASE}/lmrs/{lmr}"
        self._page = EVENTS_PER_PAGE
        self._http = HttpClient(
            base_url=url,
            headers={"User-Agent": f"mdv/{mdv.__version__}", "Accept": JSON, "Authorization": f"Bearer {token}"},
            timeout=httpx2.Timeout(RESPONSE_TIMEOUT_SECONDS, connect=5, pool=None),
            follow_redirects=False,
            trust_env=not is_loopback(url),
            transport=transport,
        )

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> MdpClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def feed(
        self, after: str | None, *, wait: float = 0, buckets: Sequence[int] | None = None, limit: int = EVENTS_PER_PAGE
    ) -> Json:
        """Return a page of the feed; without `after`, the first page of a snapshot of all or of some buckets.

        If a response is cut off, the same request would probably be cut off again. So the page size is halved, and
        grows again with each complete page.
        """
        size = min(limit, self._page)
        query: Json = {"limit": size, "wait": f"{wait:g}"} | ({} if after is None else {"after": after})
        if buckets is not None:
            query["buckets"] = ",".join(map(str, buckets))
        try:
            page = self._call("GET", "/feed", params=query, timeout=wait + self._response_seconds)
        except IncompleteResponse:
            self._page = max(MIN_EVENTS_PER_PAGE, size // 2)
            raise
        if not isinstance(page.get("events"), list) or not {"cursor", "position", "up_to_date"} <= page.keys():
            raise Unavailable(f"The response of {self.url} is not a page of a feed: check MDV_URL.")
        if page["events"]:
            self._page = min(EVENTS_PER_PAGE, max(self._page, size + size // 4))
        return page

    def about(self, seconds: float = RESPONSE_TIMEOUT_SECONDS) -> Json:
        """Return the description of this LMR at the MDP."""
        return self._call("GET", "", timeout=seconds)

    def checksum(self) -> Json:
        """Return the checksum that the cache of this LMR should have."""
        return self._call("GET", "/checksum")

    def adopt(
        self, term: int, vector: Mapping[str, int], sums: Sequence[int], accept_older: bool = False, wait: float = 0
    ) -> Json:
        """Ask this MDP to become the home of this LMR, whose cache has this checksum."""
        body = {"term": term, "vector": dict(vector), "buckets": list(map(str, sums)), "accept_older": accept_older,
                "wait": wait}  # fmt: skip
        return self._call("POST", "/adopt", body=body, timeout=wait + CHANGE_TIMEOUT_SECONDS)

    def subscribe(self, rule: str, name: str | None = None) -> Json:
        """Subscribe to a rule."""
        body = {"rule": rule} | ({} if name is None else {"name": name})
        return self._call("POST", "/subscriptions", body=body, timeout=CHANGE_TIMEOUT_SECONDS)

    def subscriptions(
        self, after: str | None = None, limit: int = 100, seconds: float = RESPONSE_TIMEOUT_SECONDS
    ) -> Json:
        """Return a page of the subscriptions of this LMR."""
        query = {"limit": limit} | ({} if after is None else {"after": after})
        return self._call("GET", "/subscriptions", params=query, timeout=seconds)

    def subscription(self, subscription: str, seconds: float = RESPONSE_TIMEOUT_SECONDS) -> Json:
        """Return one subscription of this LMR."""
        return self._call("GET", f"/subscriptions/{subscription}", timeout=seconds)

    def why(self, uri: str, seconds: float = RESPONSE_TIMEOUT_SECONDS) -> Json:
        """Return the explanation why a resource is or is not at this LMR."""
        query = {"lmr": self._lmr, "uri": uri}
        return self._call("GET", "/explain", params=query, timeout=seconds, base=API_BASE)

    def change(self, subscription: str, rule: str) -> Json:
        """Replace the rule of a subscription."""
        return self._call("PUT", f"/subscriptions/{subscription}", body={"rule": rule}, timeout=CHANGE_TIMEOUT_SECONDS)

    def resume(self, subscription: str) -> Json:
        """Resume a suspended subscription."""
        return self._call("POST", f"/subscriptions/{subscription}/resume", timeout=CHANGE_TIMEOUT_SECONDS)

    def unsubscribe(self, subscription: str) -> Json:
        """Remove a subscription."""
        return self._call("DELETE", f"/subscriptions/{subscription}", timeout=CHANGE_TIMEOUT_SECONDS)

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Json | None = None,
        timeout: float = RESPONSE_TIMEOUT_SECONDS,
        base: str | None = None,
    ) -> Json:
        content = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": JSON} if content is not None else {}
        # The logs of the LMR and of the MDP have the same request ID.
        if request_id := structlog.contextvars.get_contextvars().get("request"):
            headers["X-Request-ID"] = str(request_id)
        timeouts = httpx2.Timeout(timeout, connect=min(5, timeout), pool=None)
        try:
            response = self._http.request(method, (base or self._path) + path, params=params, content=content,
                                          headers=headers, timeout=timeouts)  # fmt: skip
            self.received_bytes += len(response.content)
            answer = json.loads(response.content) if response.content else {}
        except (httpx2.ReadError, httpx2.ReadTimeout, httpx2.RemoteProtocolError, httpx2.DecodingError) as error:
            advice = "" if method == "GET" else " The change may have been made: check before you repeat it."
            raise IncompleteResponse(
                f"The response of {self.url} is missing or incomplete: {_message(error)}.{advice}"
            ) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise Unavailable(f"{self.url} cannot be reached: {_message(error)}.") from error
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Unavailable(
                f"{self.url} answered {response.status_code} with a response that is not an MDP's: check MDV_URL."
            )
        if response.status_code == httpx2.codes.ACCEPTED:
            raise Unavailable(f"{self.url} has accepted the change, and executes it later: do not send it again.")
        if not response.is_success:
            if "title" in answer:
                raise error_from_problem(answer, response.status_code)
            kind = _KINDS.get(response.status_code, Unavailable)
            raise kind(
                f"{self.url} answered {response.status_code} with a response that is not an MDP's: check MDV_URL."
            )
        return answer


def _message(error: Exception) -> str:
    return str(error).rstrip(".") or type(error).__name__
