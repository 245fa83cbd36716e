"""An MDP without a network: requests of an LMR are answered in the same process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mdv.db.lmrs import Lmr
from mdv.errors import Unavailable
from mdv.mdp.feed import FeedResponse
from tests.support.mdp import Mdp


class Near:
    """A source for `mdv.lmr.sync.Sync`: the feed of one LMR, in pages of about `limit` events."""

    def __init__(self, mdp: Mdp, lmr: Lmr, limit: int = 2000) -> None:
        self.mdp, self.lmr, self.limit = mdp, lmr, limit

    def feed(self, after: str | None, *, wait: float = 0, buckets: Sequence[int] | None = None) -> dict[str, Any]:
        feeds = self.mdp.feeds
        page = feeds.read_buckets(self.lmr, buckets, self.limit) if buckets else feeds.read(self.lmr, after, self.limit)
        return _body(page)

    def checksum(self) -> dict[str, Any]:
        position, sums = self.mdp.feeds.checksum(self.lmr)
        return {"position": position, "buckets": [str(number) for number in sums]}


class Unsteady(Near):
    """The same over an unreliable network: an answer may be lost, or be that to an earlier request, cut elsewhere."""

    def __init__(self, mdp: Mdp, lmr: Lmr) -> None:
        super().__init__(mdp, lmr)
        self.asked: list[str] = []
        self.loses = False
        self.answers_from: str | None = None

    def steady(self) -> None:
        self.loses, self.answers_from = False, None

    def feed(self, after: str | None, *, wait: float = 0, buckets: Sequence[int] | None = None) -> dict[str, Any]:
        answer = super().feed(self.answers_from or after, buckets=buckets)
        if not answer.get("snapshot"):
            self.asked.append(answer["cursor"])
        if self.loses:
            raise Unavailable("The answer was lost.")
        return answer


def _body(page: FeedResponse) -> dict[str, Any]:
    return dict(json.loads(page.text))
