"""An LMR in the test process that knows several MDPs of a backbone, with a naive oracle of its cache."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mdv.lmr.cache import Cache
from mdv.lmr.garbage_collector import find_problems
from mdv.lmr.homes import Homes
from mdv.lmr.sync import Sync
from tests.support.eventually import eventually
from tests.support.http_backbone import HttpMember
from tests.support.server import turtle

NEVER = 3600.0

CacheContent = dict[str, tuple[bool, list[str]]]


class RoamingLmr:
    """An LMR with its cache. Its thread follows the feed; without `start`, the test does."""

    def __init__(
        self, folder: Path, name: str, token: str, members: Sequence[HttpMember], home_seconds: float = NEVER,
        patience: float = NEVER,
    ) -> None:  # fmt: skip
        self.name = name
        self.cache = Cache.open(f"sqlite:///{folder / f'{name}.db'}")
        given = ",".join(member.url for member in members)
        self.homes = Homes.configured(self.cache, given, token, home_seconds)
        self.sync = Sync(self.cache, self.homes, home_seconds=home_seconds, patience=patience, max_pause=0.3)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> RoamingLmr:
        self._thread = threading.Thread(target=self.sync.run, args=(self._stop,), daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(60)
        self.homes.close()
        self.cache.close()

    def lose_home(self, accept_older: bool = False) -> None:
        """Get another home, as after a long time without the present one."""
        eventually(lambda: self.sync.change_home(None, accept_older), detail=lambda: self.sync.status)

    @property
    def home(self) -> str | None:
        return self.cache.home().home

    def adoptions(self) -> Sequence[dict[str, Any]]:
        return self.cache.home().adoptions

    def content(self) -> CacheContent:
        """Return whether each resource is selected, and its literal values. Check that no other resource is there."""
        assert find_problems(self.cache) == []
        query = (
            "select r.uri, r.selected, s.value from resources r"
            " left join statements s on s.resource_id = r.id and s.value is not null where r.present"
        )
        found: CacheContent = {}
        with self.cache.reading() as connection:
            for uri, is_selected, value in connection.exec_driver_sql(query):
                found.setdefault(uri, (bool(is_selected), []))[1].append(value)
        return {uri: (is_selected, sorted(values)) for uri, (is_selected, values) in found.items()}


class KnownDocuments:
    """A naive oracle: the providers that were registered, and what an LMR must have whose rules select some ports."""

    def __init__(self, mark: str) -> None:
        self.ports: dict[str, int] = {}
        self._mark, self._numbers = mark, itertools.count(1)

    def put(self, member: HttpMember, port: int, uri: str | None = None) -> str:
        """Register a provider at a member, with information that it refers to strongly. Return the URI."""
        uri = uri or f"http://docs.example/{self._mark}/{next(self._numbers)}"
        text = turtle(f"<#host> a ex:CycleProvider ; ex:serverHost '{self._mark}' ; ex:serverPort {port} ;"
                      f" ex:serverInformation <#info> . <#info> a ex:ServerInformation ; ex:memory {port + 1} ."
                      )  # fmt: skip
        assert member.api.put(uri, text).status_code in (200, 201)
        self.ports[uri] = port
        return uri

    def delete(self, member: HttpMember, uri: str) -> None:
        assert member.api.delete(uri).status_code == 200
        del self.ports[uri]

    def expected(self, ports: Iterable[int]) -> CacheContent:
        found: CacheContent = {}
        for uri, port in self.ports.items():
            if port in set(ports):
                found[f"{uri}#host"] = True, sorted([self._mark, str(port)])
                found[f"{uri}#info"] = False, [str(port + 1)]
        return found

    def rule(self, port: int) -> str:
        return f"search CycleProvider c register c where c.serverHost = '{self._mark}' and c.serverPort = {port}"
