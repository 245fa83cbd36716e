"""The MDP as an LMR sees it: a few calls over HTTP, each made once. Who calls knows when to try again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import httpx
import structlog

import mdv
from mdv.client import BASE, JSON, error_of, is_loopback
from mdv.errors import Forbidden, MdvError, MustRefetch, NotFound, Unauthenticated, Unavailable

Json = dict[str, Any]

PAGE = 5000
"""How many events are asked for at once."""
SMALLEST_PAGE = 20
"""Where answers do not come through, smaller ones are asked for, down to this."""
CHANGE_SECONDS = 90.0
"""Longer than an MDP lets one wait for a change."""
PATIENCE = 30.0
"""Seconds beyond the asked wait after which no answer is expected any more."""
_KINDS: dict[int, type[MdvError]] = {
    kind.status: kind for kind in (Unauthenticated, Forbidden, NotFound, MustRefetch, Unavailable)
}


class Broken(Unavailable):
    """The MDP was reached, and its answer did not come, or not whole."""


class Mdp:
    """The calls of one LMR's token. May be used by several threads at once; goes to no other host."""

    def __init__(
        self, url: str, token: str, *, lmr: str = "self", transport: httpx.BaseTransport | None = None
    ) -> None:
        self.url = url
        self._lmr, self._path = lmr, f"{BASE}/lmrs/{lmr}"
        self._page = PAGE
        self._http = httpx.Client(
            base_url=url,
            headers={"User-Agent": f"mdv/{mdv.__version__}", "Accept": JSON, "Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(PATIENCE, connect=5, pool=None),
            limits=httpx.Limits(max_connections=64, max_keepalive_connections=8),
            follow_redirects=False,
            trust_env=not is_loopback(url),
            transport=transport,
        )

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Mdp:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def feed(
        self, after: str | None, *, wait: float = 0, buckets: Sequence[int] | None = None, limit: int = PAGE
    ) -> Json:
        """A page of the feed; without `after` the beginning of a snapshot, of all or of some buckets.

        A link that breaks before a page is through would break again: what is asked next is half as large, and grows
        again when it came.
        """
        size = min(limit, self._page)
        asked: Json = {"limit": size, "wait": f"{wait:g}"} | ({} if after is None else {"after": after})
        if buckets is not None:
            asked["buckets"] = ",".join(map(str, buckets))
        try:
            page = self._call("GET", "/feed", params=asked, timeout=wait + PATIENCE)
        except Broken:
            self._page = max(SMALLEST_PAGE, size // 2)
            raise
        if not isinstance(page.get("events"), list) or not {"cursor", "position", "up_to_date"} <= page.keys():
            raise Unavailable(f"{self.url} did not answer as an MDP's feed does.")
        if page["events"]:
            self._page = min(PAGE, max(self._page, size + size // 4))
        return page

    def about(self, seconds: float = PATIENCE) -> Json:
        """What the MDP says of this LMR."""
        return self._call("GET", "", timeout=seconds)

    def checksum(self) -> Json:
        """The checksum of what this LMR should hold."""
        return self._call("GET", "/checksum")

    def subscribe(self, rule: str, name: str | None = None) -> Json:
        """Subscribe to a rule."""
        body = {"rule": rule} | ({} if name is None else {"name": name})
        return self._call("POST", "/subscriptions", body=body, timeout=CHANGE_SECONDS)

    def subscriptions(self, after: str | None = None, limit: int = 100, seconds: float = PATIENCE) -> Json:
        """A page of this LMR's subscriptions."""
        asked = {"limit": limit} | ({} if after is None else {"after": after})
        return self._call("GET", "/subscriptions", params=asked, timeout=seconds)

    def subscription(self, subscription: str, seconds: float = PATIENCE) -> Json:
        """One of this LMR's subscriptions."""
        return self._call("GET", f"/subscriptions/{subscription}", timeout=seconds)

    def why(self, uri: str, seconds: float = PATIENCE) -> Json:
        """Why a resource is, or is not, at this LMR."""
        asked = {"lmr": self._lmr, "uri": uri}
        return self._call("GET", "/explain", params=asked, timeout=seconds, base=BASE)

    def change(self, subscription: str, rule: str) -> Json:
        """Let a subscription say something else."""
        return self._call("PUT", f"/subscriptions/{subscription}", body={"rule": rule}, timeout=CHANGE_SECONDS)

    def unsubscribe(self, subscription: str) -> Json:
        """End a subscription."""
        return self._call("DELETE", f"/subscriptions/{subscription}", timeout=CHANGE_SECONDS)

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Json | None = None,
        timeout: float = PATIENCE,
        base: str | None = None,
    ) -> Json:
        content = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": JSON} if content is not None else {}
        # Who asks the LMR, and so the MDP, finds both in the logs under one name.
        if name := structlog.contextvars.get_contextvars().get("request"):
            headers["X-Request-ID"] = str(name)
        patience = httpx.Timeout(timeout, connect=min(5, timeout), pool=None)
        try:
            response = self._http.request(method, (base or self._path) + path, params=params, content=content,
                                          headers=headers, timeout=patience)  # fmt: skip
            answer = json.loads(response.content) if response.content else {}
        except (httpx.ReadError, httpx.ReadTimeout, httpx.RemoteProtocolError, httpx.DecodingError) as error:
            made = "" if method == "GET" else " Whether the change was made is not known: look before it is made again."
            raise Broken(f"{self.url} did not answer to the end: {_words(error)}.{made}") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unavailable(f"{self.url} cannot be reached: {_words(error)}.") from error
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Unavailable(f"{self.url} answered {response.status_code} and not as an MDP does.")
        if response.status_code == httpx.codes.ACCEPTED:
            raise Unavailable(
                f"{self.url} has taken the change, and carries it out when its turn comes: do not send it again."
            )
        if not response.is_success:
            if "title" in answer:
                raise error_of(answer, response.status_code)
            kind = _KINDS.get(response.status_code, Unavailable)
            raise kind(f"{self.url} answered {response.status_code} and not as an MDP does.")
        return answer


def _words(error: Exception) -> str:
    return str(error).rstrip(".") or type(error).__name__
