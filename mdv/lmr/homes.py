"""The MDPs that can be the home of an LMR, and the one that is.

The home is stored with the cursor, because a cursor belongs to one MDP. The first MDP of the settings is the home until
another one has adopted the LMR.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mdv.db import cache as db
from mdv.lmr.cache import Cache
from mdv.lmr.mdp_client import RESPONSE_TIMEOUT_SECONDS, MdpClient


class HomePlace(NamedTuple):
    """The MDP that is the home, and the cursor of the next request for its feed."""

    mdp: MdpClient
    cursor: str | None


def split_urls(text: str) -> list[str]:
    """Return the URLs of a setting, without repetitions.

    >>> split_urls("http://a:1/, http://b:2,http://a:1")
    ['http://a:1', 'http://b:2']
    """
    return list(dict.fromkeys(url.strip().rstrip("/") for url in text.split(",") if url.strip()))


class Homes:
    """The MDPs of one LMR. Thread-safe."""

    def __init__(self, cache: Cache, clients: Sequence[MdpClient]) -> None:
        self._cache = cache
        self._clients: Mapping[str, MdpClient] = {client.url: client for client in clients}

    @classmethod
    def configured(cls, cache: Cache, urls: str, token: str, home_seconds: float) -> Homes:
        """Return the MDPs of a setting: their URLs, separated by commas. If there are several, a home that does not
        answer must be noticed within `home_seconds`."""
        found = split_urls(urls)
        seconds = RESPONSE_TIMEOUT_SECONDS if len(found) == 1 else min(RESPONSE_TIMEOUT_SECONDS, home_seconds / 2)
        return cls(cache, [MdpClient(url, token, response_seconds=seconds) for url in found])

    @property
    def urls(self) -> list[str]:
        return list(self._clients)

    @property
    def current(self) -> MdpClient:
        """The MDP that is the home now."""
        return self._client(self._cache.home())

    def place(self) -> HomePlace:
        """Return the home, and the cursor for it, which change together."""
        with self._cache.reading() as connection:
            return HomePlace(self._client(db.read_home(connection)), db.read_state(connection).next_cursor)

    def candidates(self, hint: str | None) -> list[MdpClient]:
        """Return the MDPs that can become the home: all but the present one, first the one with the URL `hint`."""
        current = self.current
        others = [client for client in self._clients.values() if client is not current]
        return sorted(others, key=lambda client: client.url != (hint or "").rstrip("/"))

    def _client(self, home: db.CacheHome) -> MdpClient:
        first = next(iter(self._clients.values()))
        return self._clients.get(home.home or "", first)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
