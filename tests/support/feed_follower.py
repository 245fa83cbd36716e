"""A simple client that follows one feed through all faults, and checks for gaps and torn transactions."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2

from tests.support.eventually import eventually
from tests.support.local_http import local_client

PATH = Path(__file__).parents[2] / "docs" / "follow.py"
LIMIT = 7
"""Small, so that transactions are continued over several answers."""


def new_copy() -> Any:
    """Return an empty copy of a feed, as the documentation has it."""
    spec = importlib.util.spec_from_file_location("follow", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Copy()


class Follower:
    """Follows from the beginning, in a thread; failed requests are repeated from the same cursor."""

    def __init__(self, urls: Callable[[], Sequence[str]], token: str) -> None:
        self._urls = urls
        self._http = local_client(headers={"Authorization": f"Bearer {token}"}, timeout=httpx2.Timeout(10, connect=2))
        self._stop = threading.Event()
        self._offset: int | None = None
        self._tx = 0
        self._whole = True
        self._begun = False
        self._flaw: str | None = None
        self.copy = new_copy()
        self.position = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def has_come_to(self, position: int) -> None:
        """Wait until it has every transaction up to a position, and check that none had a flaw."""
        eventually(lambda: self._flaw is not None or self.position >= position)
        assert self._flaw is None, self._flaw
        assert self._whole, "the last transaction has no end"

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._http.close()

    def _run(self) -> None:
        turn = 0
        while not self._stop.is_set() and self._flaw is None:
            urls = self._urls()
            after = {} if self.copy.cursor is None else {"after": self.copy.cursor}
            try:
                answer = self._http.get(
                    urls[turn % len(urls)] + "/api/v1/lmrs/self/feed", params={"limit": LIMIT, "wait": 1} | after
                )
                if answer.status_code == 200:
                    page = answer.json()
                    self._look_at(page)
                    self.copy.apply(page)
                    self.position = page["position"] if self._whole else self.position
                    continue
                if answer.status_code < 500 and answer.status_code != 429:
                    self._flaw = f"the feed was answered with {answer.status_code}: {answer.text}"
            except httpx2.HTTPError:
                turn += 1
            except AssertionError as flaw:
                self._flaw = str(flaw)
            self._stop.wait(0.1)

    def _look_at(self, page: dict[str, Any]) -> None:
        assert not (page.get("snapshot") and self._begun), f"another snapshot at {self._offset}"
        assert page["position"] >= self.position, f"back to {page['position']} from {self.position}"
        for event in page["events"]:
            place = f"event {event['offset']} of {event['tx']}, after {self._offset} of {self._tx}"
            assert self._offset is None or event["prev"] == self._offset, f"a gap: {place} follows {event['prev']}"
            assert self._offset is None or event["offset"] > self._offset, f"twice, or out of order: {place}"
            assert event["tx"] > self._tx if self._whole else event["tx"] == self._tx, f"a torn transaction: {place}"
            self._offset, self._tx, self._whole = event["offset"], event["tx"], bool(event.get("last"))
            self._begun = self._begun or self._whole
